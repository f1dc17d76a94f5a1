//! `/api/status`: all that the dashboard shows, in one object. Parts of it: `/api/sessions`, `/api/streams`. `/api/events`: its samples as they come.
//! All of these are about the first database of the configuration.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Json;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use freshet_proxy::{Database, Shared};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api;
use super::args::Price;
use super::asked::Asked;
use super::health::health;
use super::sampler::Sampler;

/// Who may listen to samples at once.
const LISTENERS_MAX: usize = 16;
/// Queries and advice in the status.
const LISTED_MAX: usize = 100;

/// What the endpoints read.
#[derive(Debug)]
pub(super) struct Status {
    /// The name of the database that they are about.
    database: String,
    pub(super) sampler: Arc<Sampler>,
    price: Option<Price>,
    listeners: Arc<Semaphore>,
}

impl Status {
    pub(super) fn new(database: &Database, price: Option<Price>) -> Self {
        let sampler = Arc::new(Sampler::new(database.family.shared().clone()));
        let listeners = Arc::new(Semaphore::new(LISTENERS_MAX));
        Self { database: database.name.clone(), sampler, price, listeners }
    }

    fn shared(&self) -> &Shared {
        &self.sampler.shared
    }
}

/// Stands before the endpoints: refuses a request for another database.
pub(super) async fn only_first(
    State(status): State<Arc<Status>>,
    RawQuery(query): RawQuery,
    request: Request,
    next: Next,
) -> Response {
    if Asked::parse(query.as_deref()).includes(&status.database) {
        return next.run(request).await;
    }
    let text = format!(
        "this endpoint has only the first database of the configuration, {:?}; \
         /api/queries, /api/advice, /cachez and /metrics have all\n",
        status.database
    );
    (StatusCode::NOT_FOUND, text).into_response()
}

pub(super) async fn status(State(status): State<Arc<Status>>) -> Result<impl IntoResponse, StatusCode> {
    let text = api::beside(move || status_text(&status)).await?;
    Ok(([(CONTENT_TYPE, "application/json")], text))
}

/// The samples are texts already.
fn status_text(status: &Status) -> String {
    let shared = status.shared();
    let history = status.sampler.history();
    let object = json!({
        "database": status.database,
        "version": env!("CARGO_PKG_VERSION"),
        "upstream": shared.settings.upstream,
        "uptime_seconds": status.sampler.uptime().as_secs_f64(),
        "health": health(shared),
        "bypass": shared.switches.bypass(),
        "totals": totals(shared),
        "memory": memory(status),
        "queries": api::query_list(shared, LISTED_MAX),
        "advice": api::advice_list(shared, LISTED_MAX),
        "sessions": session_figures(shared),
        "streams": stream_list(shared),
    });
    let object = object.to_string();
    let begin = object.strip_suffix('}').unwrap_or(&object);
    let now = history.last().map_or("null", |sample| sample);
    format!("{begin},\"now\":{now},\"history\":[{}]}}", history.join(","))
}

pub(super) async fn memory_figures(State(status): State<Arc<Status>>) -> Json<Value> {
    Json(memory(&status))
}

pub(super) async fn sessions(State(status): State<Arc<Status>>) -> Json<Value> {
    Json(session_figures(status.shared()))
}

pub(super) async fn streams(State(status): State<Arc<Status>>) -> Json<Value> {
    Json(stream_list(status.shared()))
}

/// Server-sent events: a sample each second.
pub(super) async fn events(State(status): State<Arc<Status>>) -> Response {
    let Ok(place) = status.listeners.clone().try_acquire_owned() else {
        let text = format!("{LISTENERS_MAX} pages listen already\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let listening = (status.sampler.listen(), place);
    let samples = stream::unfold(listening, |(mut receiver, place): (_, OwnedSemaphorePermit)| async move {
        loop {
            match receiver.recv().await {
                Ok(sample) => {
                    let event = Event::default().event("sample").data(sample);
                    return Some((Ok::<_, Infallible>(event), (receiver, place)));
                }
                // The listener was slow. It goes on with the present.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    Sse::new(samples).into_response()
}

fn totals(shared: &Shared) -> Value {
    let (metrics, counters) = (&shared.metrics, shared.cache.counters());
    json!({
        "hits": metrics.hits(),
        "fills": metrics.fills(),
        "passed": metrics.passed(),
        "hit_bytes": metrics.hit_bytes(),
        "database_seconds": metrics.answer_latency().seconds,
        "commits": counters.commits.load(Relaxed),
        "cached": counters.installed.load(Relaxed),
        "stale_fills": counters.stale_fills.load(Relaxed),
        "too_large": counters.too_large.load(Relaxed),
        "invalidated": counters.invalidated.load(Relaxed),
        "evicted": counters.evicted.load(Relaxed),
        "flushed": counters.flushed.load(Relaxed),
    })
}

fn memory(status: &Status) -> Value {
    let (shared, cache) = (status.shared(), &status.shared().cache);
    let levels = cache.levels(shared.clock.now());
    let curve = cache.size_curve().into_iter();
    let point = |point: freshet_cache::SizePoint| json!([point.memory_bytes, point.hit_ratio]);
    json!({
        "limit_bytes": cache.limits().memory_bytes,
        "bytes": levels.bytes,
        "overhead_bytes": cache.overhead(),
        "statement_bytes": shared.statement_bytes(),
        "entries": levels.entries,
        "size_curve": curve.map(point).collect::<Vec<_>>(),
        "price_per_gb_and_month": status.price.as_ref().map(|price| price.amount),
        "currency": status.price.as_ref().map(|price| price.currency.as_str()),
    })
}

fn session_figures(shared: &Shared) -> Value {
    let (metrics, waits) = (&shared.metrics, &shared.waits);
    let (count, nanos) = (waits.commit_waits.load(Relaxed), waits.commit_wait_nanos.load(Relaxed));
    json!({
        "open": metrics.sessions(),
        "accepted": metrics.connections.load(Relaxed),
        "login_failures": metrics.login_failures.load(Relaxed),
        "commit_waits": count,
        "commit_waits_skipped": waits.waits_skipped.load(Relaxed),
        "commit_wait_seconds_mean": nanos as f64 / 1e9 / count.max(1) as f64,
    })
}

/// One for each database server.
fn stream_list(shared: &Shared) -> Value {
    let levels = shared.cache.levels(shared.clock.now());
    let age = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64 / 1e9);
    json!([{
        "upstream": shared.settings.upstream,
        "trouble": shared.trouble(),
        "position": levels.applied.map(|end| end.lsn.to_string()),
        "epoch": levels.applied.map(|end| end.epoch.0),
        "age_seconds": age(levels.stream_age),
        "catalog_age_seconds": age(levels.catalog_age),
        "staleness_max_seconds": age(Some(shared.cache.limits().staleness_max)),
        "commits": shared.cache.counters().commits.load(Relaxed),
        "commits_unproven": levels.pending,
        "fills_in_flight": levels.flights,
        "tables_published": levels.published,
        "tables_in_cool_off": shared.cool_off_count(),
    }])
}
