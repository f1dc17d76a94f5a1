//! The end of `freshet serve`: at once, or after a drain.
//!
//! Service managers and orchestrators send SIGTERM, and follow it with a kill. So SIGTERM starts a drain: no
//! connection is accepted, `/readyz` reports it, and idle sessions are ended. Sessions within a statement or a
//! transaction get a bounded time. SIGINT, or a second SIGTERM, ends everything at once. The console of PostgreSQL has SHUTDOWN for both.
//!
//! After a [`Handover`] to a new process, sessions first get a time in which idle ones go on, too.

use std::sync::Arc;
use std::time::Duration;

use freshet_proxy::{Database, Databases};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::handover::{Handover, SuccessorEnd};
use crate::notify::ServiceManager;

/// How often the remaining sessions are counted.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What the end takes after the drain, at most: spans are exported, the change stream ends.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Limits of the time for sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// For transactions, in a drain.
    pub(crate) drain: Duration,
    /// For sessions after a handover, before the drain.
    pub(crate) grace: Duration,
}

/// The signals that end the program.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Returns when the program must end. An error if a process that had taken over has failed.
pub(crate) async fn until_stopped(
    databases: &Databases,
    manager: &Arc<ServiceManager>,
    times: impl Fn() -> Times,
    mut handover: Handover,
) -> anyhow::Result<()> {
    let drain_max = || {
        let drain_max = times().drain;
        manager.stopping(drain_max + END_TIMEOUT);
        drain_max
    };
    let mut signals =
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    let mut successor = None;
    tokio::select! {
        _ = signals.terminate.recv() => drain(databases, (drain_max(), || databases.sessions()), &mut signals).await,
        _ = signals.interrupt.recv() => {}
        () = databases.stop_requested(false) => {
            if !databases.stops_at_once() {
                drain(databases, (drain_max(), || databases.sessions()), &mut signals).await;
            }
        }
        mut end = handover.complete(manager) => {
            if outlive_grace(databases, times().grace, &mut signals, (&handover, &mut end)).await {
                // Clients that log in are no sessions yet.
                drain(databases, (drain_max(), || handover.connections() as u64), &mut signals).await;
            }
            end.receive_all().await;
            successor = Some(end);
        }
    }
    tracing::info!("stopped");
    successor.map_or(Ok(()), |end| end.check())
}

/// Lets sessions go on after a handover, as long as the new process is there. Returns whether those that are left must be drained.
async fn outlive_grace(
    databases: &Databases,
    grace: Duration,
    signals: &mut Signals,
    (handover, successor): (&Handover, &mut SuccessorEnd),
) -> bool {
    let all_ended = async {
        while handover.connections() > 0 {
            sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        ended = timeout(grace, all_ended) => ended.is_err(),
        () = successor.come() => true,
        _ = signals.terminate.recv() => true,
        _ = signals.interrupt.recv() => false,
        () = databases.stop_requested(false) => !databases.stops_at_once(),
    }
}

/// `open`: how many are waited for.
async fn drain(databases: &Databases, (drain_max, open): (Duration, impl Fn() -> u64), signals: &mut Signals) {
    let sessions = databases.sessions();
    tracing::info!(sessions, "no new connections; sessions end as soon as they are at rest");
    databases.begin_drain();
    let all_ended = async {
        while open() > 0 {
            sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        ended = timeout(drain_max, all_ended) => {
            if ended.is_err() {
                tracing::warn!(sessions = databases.sessions(), "not ended within --drain-timeout: closed");
            }
        }
        _ = signals.terminate.recv() => tracing::warn!("a second SIGTERM: all sessions are closed"),
        _ = signals.interrupt.recv() => tracing::warn!("SIGINT: all sessions are closed"),
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
