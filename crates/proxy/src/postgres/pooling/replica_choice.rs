//! What a session asks of a replica, and which server answers it: see [`super::replica_read`].

use std::sync::Arc;
use std::time::Duration;

use freshet_cache::Watermark;
use freshet_types::{CatalogVersion, End, Epoch, Reason, TableId, Tag};
use tokio::time::{Instant, timeout_at};

use crate::postgres::Pg;
use crate::postgres::pooling::cancel::CancelTarget;
use crate::postgres::pooling::obtain::Login;
use crate::postgres::pooling::shown::{Shown, WAIT_MAX, current, settle};
use crate::rules::Way;
use crate::shared::servers::{Found, InUse, Route, Who, route};

/// The longest wait for a new connection, and for the server's word after the answer.
pub(super) const STEP_MAX: Duration = Duration::from_secs(1);
/// The longest wait for a replica that has reached the floor, if a rule or a hint wants one.
const FORCED_MAX: Duration = Duration::from_millis(100);

/// What a session asks of a replica.
pub(crate) struct Request {
    pub(crate) message: Vec<u8>,
    /// The message replaces the unnamed statement.
    pub(crate) parses: bool,
    pub(crate) login: Arc<Login>,
    pub(crate) target: Arc<CancelTarget>,
    pub(crate) watermark: Watermark,
    /// The number of the session's settings.
    pub(crate) settings: u32,
    /// All tables of the statement were published in it.
    pub(crate) epoch: Epoch,
    pub(crate) reads: Reads,
    /// What a replica has shown to the session, and the primary does not show yet.
    pub(crate) debt: Option<Shown>,
    /// What a rule or a hint wants.
    pub(crate) way: Option<Way>,
}

/// What the statement reads.
pub(crate) struct Reads {
    pub(crate) tables: Vec<TableId>,
    pub(crate) tags: Vec<Tag>,
    /// Under which the tables and tags are known.
    pub(crate) catalog: CatalogVersion,
}

/// The server of a read, and what it has answered last; None: the read goes to the primary.
pub(super) async fn choose(shared: &Arc<Pg>, request: &Request, who: &Who) -> Option<(InUse, Arc<Found>)> {
    tokio::select! {
        biased;
        chosen = floor_and_server(shared, request, who) => chosen,
        () = paid(shared, request.debt.as_ref()) => None,
    }
}

/// A standby that may answer; None: there is none in time.
async fn floor_and_server(shared: &Arc<Pg>, request: &Request, who: &Who) -> Option<(InUse, Arc<Found>)> {
    // A session in debt would have to wait for the primary, perhaps for long.
    let is_long = request.debt.is_some() && shared.servers.is_stuck(shared.clock.now());
    let waits = match request.way {
        _ if is_long => STEP_MAX,
        Some(Way::Replica) => FORCED_MAX,
        _ => WAIT_MAX,
    };
    let deadline = Instant::now() + waits;
    let floor = floor(shared, request, deadline).await?;
    server(shared, request, who, (floor, deadline)).await
}

/// Returns when the primary shows all that a replica has shown to the session.
async fn paid(shared: &Arc<Pg>, debt: Option<&Shown>) {
    if let Some(debt) = debt {
        while !debt.is_void(shared) {
            if settle(shared.clone(), debt.clone()).await {
                return;
            }
        }
    }
    std::future::pending::<()>().await;
}

/// The position that a replica must have replayed; None: it is not known in time.
async fn floor(shared: &Arc<Pg>, request: &Request, deadline: Instant) -> Option<End> {
    // A commit that does not become visible would keep the session from the primary, if nothing does yet.
    if request.debt.is_none() && shared.servers.is_stuck(shared.clock.now()) {
        return None;
    }
    let written_since = shared.servers.written_since();
    let known = || shared.cache.replica_floor(&request.watermark, written_since, shared.clock.now());
    let found = match known() {
        Err(Reason::Watermark | Reason::Fence) => {
            // A log end that is asked for now is later than all of it.
            let since = shared.clock.now();
            shared.want_log_end_since(since);
            current(shared, since, deadline).await;
            known()
        }
        found => found,
    };
    found.ok().filter(|floor| floor.epoch == request.epoch)
}

/// A standby that has replayed this, or lacks nothing of it that the statement reads; None: there is none in time.
async fn server(
    shared: &Arc<Pg>,
    request: &Request,
    who: &Who,
    (floor, deadline): (End, Instant),
) -> Option<(InUse, Arc<Found>)> {
    let (servers, Reads { tags, catalog, .. }) = (&shared.servers, &request.reads);
    let limits = &shared.settings.pool.replicas;
    // A session in debt would wait there, perhaps for long, and who wants a replica does not care for the primary's weight.
    let is_open = request.debt.is_none() || !servers.is_stuck(shared.clock.now());
    let weighs = limits.primary_weight > 0 && is_open && request.way.is_none();
    let is_untouched = |replayed| shared.cache.untouched_since(tags, *catalog, floor, replayed);
    loop {
        // Answers may come faster than the time-out is looked at.
        if Instant::now() >= deadline {
            return None;
        }
        let next = servers.next_answer();
        tokio::pin!(next);
        next.as_mut().enable();
        let stream = shared.identity()?;
        let in_use = || shared.pooling.pools.in_use();
        let primary = weighs.then(|| servers.load_of_primary(&stream, in_use(), limits.primary_weight)).flatten();
        match route(floor.lsn, &servers.views(&stream, who, limits), primary, is_untouched) {
            Route::Server(chosen) => return Some((InUse::begin(shared, &chosen, who), chosen.found)),
            Route::Primary => {
                servers.note_primary(&stream);
                return None;
            }
            Route::Nowhere => return None,
            Route::Wait(behind) => {
                for at in &behind {
                    servers.want(*at);
                }
                if timeout_at(deadline, next).await.is_err() {
                    for at in behind {
                        servers.note_behind(at);
                    }
                    return None;
                }
            }
        }
    }
}
