//! The life of one database: its services and its change stream, from the end of what must end before to its own end.

use std::time::Duration;

use freshet_proxy::postgres::Earlier;
use freshet_proxy::{Database, Databases, Family};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::Span;

use crate::config::DatabaseConfig;
use crate::handover::PredecessorEnd;
use crate::serve::kinds::{on_demand, upstream};
use crate::serve::{Following, mysql, postgres};

/// Time limit for the end of the change stream, after everything else has ended.
const FOLLOWER_END_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks for remaining sessions.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The services and the change stream of one database.
pub(super) struct Life {
    pub(super) database: Database,
    /// Two entries with the same slot must not run at the same time, nor two with the same database: writes of each wait for its own stream only.
    pub(super) slot: String,
    pub(super) stop: watch::Sender<bool>,
    pub(super) ended: watch::Receiver<bool>,
}

impl Life {
    pub(super) fn excludes(&self, database: &Database, slot: &str) -> bool {
        let same_slot = !slot.is_empty() && self.slot == slot;
        same_slot || upstream(&self.database) == upstream(database)
    }
}

/// Waits for the sessions of a database that began before it had an entry; those that are left after `drain_timeout` are ended. If it is opened on
/// demand, they are not, since they were there first; except connections for replication, which never end by themselves and connect again.
pub(super) async fn end_strays(
    databases: &Databases,
    database: &Database,
    sessions: Option<Earlier>,
    drain_timeout: Duration,
) {
    let ended = async {
        while databases.has_strays(database) || sessions.as_ref().is_some_and(|sessions| !sessions.have_ended()) {
            databases.dismiss_strays(database);
            sleep(LOOK_EVERY).await;
        }
    };
    let mut ended = std::pin::pin!(ended);
    let in_time = timeout(drain_timeout, ended.as_mut()).await.is_ok();
    if database.on_demand && !in_time {
        databases.kill_replication_strays(database);
        ended.await;
    } else if !in_time {
        tracing::warn!(database = database.name, "earlier sessions not ended within --drain-timeout: closed");
        databases.kill_strays(database);
    }
}

/// Runs the services and the stream of a database until it is stopped. `begins` is what must have ended before, `predecessor` what must have ended before
/// the stream begins.
pub(super) async fn live(
    (database, config, span): (Database, DatabaseConfig, Span),
    mut stopped: watch::Receiver<bool>,
    predecessor: PredecessorEnd,
    begins: impl Future<Output = ()>,
) {
    tokio::select! {
        () = begins => {}
        _ = stopped.wait_for(|stop| *stop) => return,
    }
    let shared = database.family.shared();
    if let (Family::Postgres(pg), Some(on_demand)) = (&database.family, on_demand(&database)) {
        postgres::start_on_demand(pg, on_demand);
        let _ = stopped.wait_for(|stop| *stop).await;
        return shared.tasks.end();
    }
    let watched = shared.clone();
    shared.tasks.spawn(async move { watched.scheduling_delay.watch().await });
    let Following { control, follower } = match &database.family {
        Family::MySql(mysql) => mysql::start_services(mysql, &span, predecessor),
        Family::Postgres(pg) => postgres::start_services(pg, &config.args, &span, predecessor),
    };
    // An error means that the program ends.
    let _ = stopped.wait_for(|stop| *stop).await;
    // Nothing may be served from the cache without its stream.
    shared.switches.end_cache();
    control.shutdown();
    // A persistent slot is dropped.
    timeout(FOLLOWER_END_TIMEOUT, follower).await.ok();
    shared.tasks.end();
    shared.cache.disconnected();
}
