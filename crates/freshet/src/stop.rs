//! The end of `freshet serve`: at once, or after a drain.
//!
//! Service managers and orchestrators send SIGTERM, and follow it with a kill. So SIGTERM starts a drain: no
//! connection is accepted, `/readyz` reports it, and idle sessions are ended. Sessions within a statement or a
//! transaction get a bounded time. SIGINT, or a second SIGTERM, ends everything at once. The console of PostgreSQL has SHUTDOWN for both.

use std::time::Duration;

use freshet_proxy::{Database, Databases};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::notify::ServiceManager;

/// How often the remaining sessions are counted.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What the end takes after the drain, at most: spans are exported, the change stream ends.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Returns when the program must end.
pub(crate) async fn until_stopped(
    databases: &Databases,
    manager: &ServiceManager,
    drain_max: impl Fn() -> Duration,
) -> anyhow::Result<()> {
    let drain_max = || {
        let drain_max = drain_max();
        manager.stopping(drain_max + END_TIMEOUT);
        drain_max
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => drain(databases, drain_max(), &mut terminate, &mut interrupt).await,
        _ = interrupt.recv() => {}
        () = databases.stop_requested(false) => {
            if !databases.stops_at_once() {
                drain(databases, drain_max(), &mut terminate, &mut interrupt).await;
            }
        }
    }
    tracing::info!("stopped");
    Ok(())
}

async fn drain(databases: &Databases, drain_max: Duration, terminate: &mut Signal, interrupt: &mut Signal) {
    let sessions = databases.sessions();
    tracing::info!(sessions, "no new connections; sessions end as soon as they are at rest");
    databases.begin_drain();
    let all_ended = async {
        while databases.sessions() > 0 {
            sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        ended = timeout(drain_max, all_ended) => {
            if ended.is_err() {
                tracing::warn!(sessions = databases.sessions(), "not ended within --drain-timeout: closed");
            }
        }
        _ = terminate.recv() => tracing::warn!("a second SIGTERM: all sessions are closed"),
        _ = interrupt.recv() => tracing::warn!("SIGINT: all sessions are closed"),
        () = databases.stop_requested(true) => tracing::warn!("SHUTDOWN: all sessions are closed"),
    }
}

/// Waits for the sessions of a removed database. Those that remain after `drain_max` are ended.
pub(crate) async fn drain_one(database: &Database, drain_max: Duration, close_max: Duration) {
    let (name, shared) = (&database.name, database.family.shared());
    let sessions = || shared.metrics.sessions();
    tracing::info!(
        database = name,
        sessions = sessions(),
        "not served any more; sessions end as soon as they are at rest"
    );
    let all_ended = || async {
        while sessions() > 0 {
            sleep(LOOK_EVERY).await;
        }
    };
    if timeout(drain_max, all_ended()).await.is_err() {
        tracing::warn!(database = name, sessions = sessions(), "not ended within --drain-timeout: closed");
        database.family.close_sessions();
        let _ = timeout(close_max, all_ended()).await;
    }
}
