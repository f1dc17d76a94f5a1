//! The probes `/livez`, `/readyz` and `/cachez`.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use freshet_proxy::{Database, Databases};

use super::asked::Asked;

/// Whether statements are answered, cached or not. A broken change stream must not remove an instance from its load balancer.
pub(super) async fn readyz(State(databases): State<Arc<Databases>>) -> impl IntoResponse {
    if databases.is_draining() {
        return not_available("draining");
    }
    let all = cached(Asked::default().of(&databases));
    (StatusCode::OK, format!("ready\n{}", states(&all)))
}

/// Whether results are cached: in all databases, or in the requested one.
pub(super) async fn cachez(State(databases): State<Arc<Databases>>, RawQuery(query): RawQuery) -> impl IntoResponse {
    if databases.is_draining() {
        return not_available("draining");
    }
    let asked = Asked::parse(query.as_deref()).of(&databases);
    if asked.is_empty() {
        return (StatusCode::NOT_FOUND, "no such database\n".to_owned());
    }
    let asked = cached(asked);
    let troubled = |database: &Database| Some((database.name.clone(), database.family.shared().trouble()?));
    let troubles: Vec<(String, String)> = asked.iter().filter_map(troubled).collect();
    match troubles.as_slice() {
        [] => (StatusCode::OK, format!("ready\n{}", states(&asked))),
        [(_, why)] if asked.len() == 1 => not_available(&format!("not caching: {why}")),
        all => {
            let names = all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            let (status, head) = not_available(&format!("not caching: {names}"));
            (status, head + &states(&asked))
        }
    }
}

/// The databases with a stream. The entry for any database, which opens others, has none.
fn cached(databases: Vec<Database>) -> Vec<Database> {
    databases.into_iter().filter(Database::has_stream).collect()
}

/// A line for each database.
fn states(databases: &[Database]) -> String {
    if databases.len() < 2 {
        return String::new();
    }
    let line = |database: &Database| match database.family.shared().trouble() {
        None => format!("{}: ready\n", database.name),
        Some(why) => format!("{}: not caching: {why}\n", database.name),
    };
    databases.iter().map(line).collect()
}

fn not_available(why: &str) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}
