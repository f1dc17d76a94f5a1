//! `/api/status`: everything that the dashboard shows, in one object. Parts of it are `/api/sessions` and `/api/streams`. `/api/events` sends samples
//! as they are taken. All are about all databases together, or about the one in `?database=NAME`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use freshet_cache::Counters;
use freshet_proxy::{Database, Databases, SessionReport, Shared};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api;
use super::args::Price;
use super::asked::Asked;
use super::health::health;
use super::sampler::Sampler;

/// The most listeners to samples.
const LISTENERS_MAX: usize = 16;
/// The most queries and pieces of advice in the status.
const LISTED_MAX: usize = 100;
/// Sessions of one database that are listed.
const SESSIONS_MAX: usize = 1000;

/// Why a request is refused.
type Refusal = (StatusCode, &'static str);
const NO_SUCH_DATABASE: Refusal = (StatusCode::NOT_FOUND, "no such database\n");

/// The data that the endpoints read.
#[derive(Debug)]
pub(super) struct Status {
    databases: Arc<Databases>,
    pub(super) sampler: Arc<Sampler>,
    price: Option<Price>,
    listeners: Arc<Semaphore>,
}

impl Status {
    pub(super) fn new(databases: Arc<Databases>, price: Option<Price>) -> Self {
        let sampler = Arc::new(Sampler::new(databases.clone()));
        let listeners = Arc::new(Semaphore::new(LISTENERS_MAX));
        Self { databases, sampler, price, listeners }
    }

    /// The scope of a request.
    fn scope(&self, query: Option<&str>) -> Result<Scope, Refusal> {
        let asked = Asked::parse(query);
        let all = asked.of(&self.databases);
        if all.is_empty() {
            return Err(NO_SUCH_DATABASE);
        }
        Ok(Scope { name: asked.name(), all })
    }
}

/// The databases that a request names.
struct Scope {
    /// None: all.
    name: Option<String>,
    all: Vec<Database>,
}

impl Scope {
    fn each(&self) -> impl Iterator<Item = &Shared> {
        self.all.iter().map(|database| &**database.family.shared())
    }

    fn sum(&self, of: impl Fn(&Shared) -> u64) -> u64 {
        self.each().map(of).sum()
    }
}

pub(super) async fn status(
    State(status): State<Arc<Status>>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, Refusal> {
    let scope = status.scope(query.as_deref())?;
    let text = api::beside(move || status_text(&status, &scope)).await.map_err(|status| (status, ""))?;
    Ok(([(CONTENT_TYPE, "application/json")], text))
}

/// The samples are JSON texts already.
fn status_text(status: &Status, scope: &Scope) -> String {
    let history = status.sampler.history(scope.name.as_deref());
    let upstreams: Vec<&str> = scope.each().map(|shared| shared.settings.upstream.as_str()).collect();
    let list = |list: fn(&Shared, usize) -> Vec<Value>| api::list_of(&scope.all, LISTED_MAX, list);
    let object = json!({
        "database": scope.name,
        "databases": status.databases.databases().iter().map(|one| one.name.clone()).collect::<Vec<_>>(),
        "version": env!("CARGO_PKG_VERSION"),
        "upstream": upstreams.join(", "),
        "uptime_seconds": status.sampler.uptime().as_secs_f64(),
        "health": health(&scope.all),
        "bypass": scope.each().all(|shared| shared.switches.bypass()),
        "totals": totals(scope),
        "memory": memory(status, scope),
        "queries": list(api::query_list),
        "advice": list(api::advice_list),
        "sessions": session_figures(scope),
        "streams": stream_list(scope),
    });
    let object = object.to_string();
    let begin = object.strip_suffix('}').unwrap_or(&object);
    let now = history.last().map_or("null", |sample| sample);
    format!("{begin},\"now\":{now},\"history\":[{}]}}", history.join(","))
}

type Figures = Result<Json<Value>, Refusal>;

pub(super) async fn memory_figures(State(status): State<Arc<Status>>, RawQuery(query): RawQuery) -> Figures {
    let scope = status.scope(query.as_deref())?;
    Ok(Json(memory(&status, &scope)))
}

pub(super) async fn sessions(State(status): State<Arc<Status>>, RawQuery(query): RawQuery) -> Figures {
    let scope = status.scope(query.as_deref())?;
    api::beside(move || session_figures(&scope)).await.map(Json).map_err(|status| (status, ""))
}

pub(super) async fn streams(State(status): State<Arc<Status>>, RawQuery(query): RawQuery) -> Figures {
    Ok(Json(stream_list(&status.scope(query.as_deref())?)))
}

/// Server-sent events: a sample each second.
pub(super) async fn events(State(status): State<Arc<Status>>, RawQuery(query): RawQuery) -> Response {
    let Some(receiver) = status.sampler.listen(Asked::parse(query.as_deref()).name().as_deref()) else {
        return NO_SUCH_DATABASE.into_response();
    };
    let Ok(place) = status.listeners.clone().try_acquire_owned() else {
        let text = format!("{LISTENERS_MAX} pages listen already\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let listening = (receiver, place);
    let samples = stream::unfold(listening, |(mut receiver, place): (_, OwnedSemaphorePermit)| async move {
        loop {
            match receiver.recv().await {
                Ok(sample) => {
                    let event = Event::default().event("sample").data(sample);
                    return Some((Ok::<_, Infallible>(event), (receiver, place)));
                }
                // The listener was slow. It continues with the current sample.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    Sse::new(samples).into_response()
}

fn totals(scope: &Scope) -> Value {
    let counter = |of: fn(&Counters) -> &AtomicU64| scope.sum(|shared| of(shared.cache.counters()).load(Relaxed));
    json!({
        "hits": scope.sum(|shared| shared.metrics.hits()),
        "fills": scope.sum(|shared| shared.metrics.fills()),
        "passed": scope.sum(|shared| shared.metrics.passed()),
        "hit_bytes": scope.sum(|shared| shared.metrics.hit_bytes()),
        "database_seconds": scope.each().map(|shared| shared.metrics.answer_latency().seconds).sum::<f64>(),
        "commits": counter(|counters| &counters.commits),
        "cached": counter(|counters| &counters.installed),
        "stale_fills": counter(|counters| &counters.stale_fills),
        "too_large": counter(|counters| &counters.too_large),
        "invalidated": counter(|counters| &counters.invalidated),
        "evicted": counter(|counters| &counters.evicted),
        "flushed": counter(|counters| &counters.flushed),
    })
}

fn memory(status: &Status, scope: &Scope) -> Value {
    let levels = |shared: &Shared| shared.cache.levels(shared.clock.now());
    // Several caches have no common curve.
    let curve = match scope.all.as_slice() {
        [one] => one.family.shared().cache.size_curve(),
        _ => Vec::new(),
    };
    let point = |point: freshet_cache::SizePoint| json!([point.memory_bytes, point.hit_ratio]);
    json!({
        "limit_bytes": scope.sum(|shared| shared.cache.limits().memory_bytes),
        "bytes": scope.sum(|shared| levels(shared).bytes),
        "overhead_bytes": scope.sum(|shared| shared.cache.overhead()),
        "statement_bytes": scope.sum(Shared::statement_bytes),
        "entries": scope.sum(|shared| levels(shared).entries),
        "size_curve": curve.into_iter().map(point).collect::<Vec<_>>(),
        "price_per_gb_and_month": status.price.as_ref().map(|price| price.amount),
        "currency": status.price.as_ref().map(|price| price.currency.as_str()),
    })
}

fn session_figures(scope: &Scope) -> Value {
    let count = scope.sum(|shared| shared.waits.commit_waits.load(Relaxed));
    let nanos = scope.sum(|shared| shared.waits.commit_wait_nanos.load(Relaxed));
    let (list, left_out) = session_list(&scope.all);
    json!({
        "list": list,
        "left_out": left_out,
        "open": scope.sum(|shared| shared.metrics.sessions()),
        "accepted": scope.sum(|shared| shared.metrics.connections.load(Relaxed)),
        "login_failures": scope.sum(|shared| shared.metrics.login_failures.load(Relaxed)),
        "commit_waits": count,
        "commit_waits_skipped": scope.sum(|shared| shared.waits.waits_skipped.load(Relaxed)),
        "commit_wait_seconds_mean": nanos as f64 / 1e9 / count.max(1) as f64,
    })
}

/// The sessions of all of these databases, and how many are left out.
fn session_list(databases: &[Database]) -> (Vec<Value>, usize) {
    let (mut list, mut left_out) = (Vec::new(), 0);
    for Database { name, family, .. } in databases {
        let (sessions, more) = family.session_list(SESSIONS_MAX);
        list.extend(sessions.iter().map(|session| one_session(name, family.protocol(), session)));
        left_out += more;
    }
    (list, left_out)
}

/// `database` is the name of the entry, as everywhere; `connected_to` is the database that the client named at its login.
fn one_session(database: &str, protocol: &str, session: &SessionReport) -> Value {
    let running = session.running.as_ref();
    json!({
        "id": session.id,
        "database": database,
        "protocol": protocol,
        "user": session.user,
        "connected_to": session.database,
        "application_name": session.application_name,
        "client": session.client.map(|address| address.to_string()),
        "server": session.server.map(|address| address.to_string()),
        "open_seconds": session.open.as_secs_f64(),
        "state": session.state,
        "digest": running.and_then(|running| running.digest.as_deref()),
        "query": running.and_then(|running| running.query.as_deref()),
        "running_seconds": running.map(|running| running.lasts.as_secs_f64()),
        "pin": session.pin.map(|(reason, _)| reason),
        "pin_seconds": session.pin.map(|(_, lasts)| lasts.as_secs_f64()),
    })
}

/// One for each database that has a stream.
fn stream_list(scope: &Scope) -> Value {
    scope.all.iter().filter(|database| database.has_stream()).map(stream).collect::<Vec<_>>().into()
}

fn stream(database: &Database) -> Value {
    let shared = database.family.shared();
    let levels = shared.cache.levels(shared.clock.now());
    let age = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64 / 1e9);
    json!({
        "database": database.name,
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
    })
}
