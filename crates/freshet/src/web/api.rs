//! The figures as JSON: `/api/queries` and `/api/advice`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use freshet_proxy::{Database, Databases, Histogram, Shared};
use serde_json::{Map, Value, json};

use super::asked::Asked;

/// The most queries that are listed.
const QUERIES_MAX: usize = 1000;

/// Runs work on a separate thread: with thousands of queries it takes a while, and the main thread renews the lease.
pub(super) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StatusCode> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// Figures of the normalized queries. The query on which the database has spent most time, or would have without the cache, comes first.
pub(super) async fn queries(
    State(databases): State<Arc<Databases>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, StatusCode> {
    beside(move || of_each(&databases, query.as_deref(), query_list)).await.map(Json)
}

/// The figures of at most `max` queries.
pub(super) fn query_list(shared: &Shared, max: usize) -> Vec<Value> {
    let latency = |histogram: &Histogram| {
        json!({
            "count": histogram.count(),
            "p50_seconds": histogram.quantile(0.5).map(|micros| micros / 1e6),
            "p99_seconds": histogram.quantile(0.99).map(|micros| micros / 1e6),
            "octaves_of_a_microsecond": histogram.buckets,
        })
    };
    let reports = shared.query_reports(max).into_iter().map(|report| {
        let passed: Map<String, Value> =
            report.passed_by_reason.iter().map(|(reason, count)| ((*reason).to_owned(), json!(count))).collect();
        let invalidated_by: Map<String, Value> =
            report.results.invalidated_by.iter().map(|(table, count)| (table.clone(), json!(count))).collect();
        json!({
            "digest": report.digest,
            "query": report.query,
            "hits": report.hits,
            "fills": report.fills,
            "passed": report.passed,
            "passed_by_reason": passed,
            "hit_ratio": report.hit_ratio(),
            "entries": report.results.entries,
            "invalidated": report.results.invalidated,
            "cached_bytes": report.results.cached_bytes,
            "hit_latency": latency(&report.hit_latency),
            "database_latency": latency(&report.database_latency),
            "database_seconds": report.database_seconds,
            "saved_seconds": report.saved_seconds,
            "hit_rows": report.results.rows.hits,
            "database_rows": report.results.rows.database,
            "hit_age_seconds": report.results.hit_age_seconds,
            "break_even_hit_ratio": report.results.break_even_hit_ratio,
            "invalidated_by": invalidated_by,
            "ttl_seconds": report.ttl_seconds,
            "reason": report.reason.map(|reason| reason.to_string()),
        })
    });
    reports.collect()
}

/// Statements that pass for a reason that can be removed, with the remedy.
pub(super) async fn advice(
    State(databases): State<Arc<Databases>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, StatusCode> {
    beside(move || of_each(&databases, query.as_deref(), advice_list)).await.map(Json)
}

/// The lists of the requested databases, one after another, each row with the name of its database.
fn of_each(databases: &Databases, query: Option<&str>, list: fn(&Shared, usize) -> Vec<Value>) -> Value {
    list_of(&Asked::parse(query).of(databases), QUERIES_MAX, list).into()
}

/// The lists of these databases, with at most `max` rows of each.
pub(super) fn list_of(databases: &[Database], max: usize, list: fn(&Shared, usize) -> Vec<Value>) -> Vec<Value> {
    let mut all = Vec::new();
    for Database { name, family, .. } in databases {
        for mut row in list(family.shared(), max) {
            if let Some(row) = row.as_object_mut() {
                row.insert("database".to_owned(), name.clone().into());
            }
            all.push(row);
        }
    }
    all
}

/// The advice for at most `max` statements.
pub(super) fn advice_list(shared: &Shared, max: usize) -> Vec<Value> {
    let all = shared.advice(max).into_iter().map(|advice| {
        json!({
            "digest": advice.digest,
            "query": advice.query,
            "passed": advice.passed,
            "database_seconds": advice.seconds,
            "reason": advice.reason.label(),
            "detail": advice.reason.to_string(),
            "remedy": advice.remedy,
        })
    });
    all.collect()
}
