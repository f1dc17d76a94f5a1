//! Watches the servers of an upstream of several hosts: see [`crate::shared::servers`].
//!
//! A connection to each host reads its role and position every second; with reads at replicas every 250 ms, and at once when a read waits for it.
//! A host that does not answer is asked again after a pause that grows. Nothing else waits for the watch: service connections find a primary by themselves (`target_session_attrs`). The watch only takes wrong hosts out of the choice,
//! if the connection string asks for a primary; the failover watch then moves the stream.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use freshet_net::postgres::Client;
use freshet_types::Lsn;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::postgres::Pg;
use crate::postgres::question::{CONFIGURATION, POSTMASTER_START, SYSTEM_ID};
use crate::postgres::service::connection::ServiceError;
use crate::shared::servers::{Found, Leader, Role};

/// Interval of questions to a server that answers.
const EVERY: Duration = Duration::from_secs(1);
/// The same if replicas are read.
const EVERY_FOR_READS: Duration = Duration::from_millis(250);
/// Shortest interval of questions for which reads wait.
const EVERY_MIN: Duration = Duration::from_millis(1);
/// The longest pause before the next question to a server that does not answer. It begins with [`EVERY`], and doubles.
const PAUSE_MAX: Duration = Duration::from_secs(16);
/// Reads do not wait longer for an answer.
const LATE: Duration = Duration::from_millis(500);
/// Time for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a server is, how far it is, and its configuration. It is asked up to a thousand times a second, and is therefore prepared.
///
/// Functions that fail on the other kind of server are not called there. A promotion in between does no harm.
static QUESTION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {SYSTEM_ID}, {POSTMASTER_START}, r.standby::text, \
         CASE WHEN r.standby THEN (SELECT received_tli FROM pg_catalog.pg_stat_wal_receiver)::text \
         ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) END, \
         CASE WHEN r.standby THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END::text, \
         CASE WHEN NOT r.standby OR pg_catalog.pg_last_wal_receive_lsn() = pg_catalog.pg_last_wal_replay_lsn() THEN 0 \
         ELSE pg_catalog.round(extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp())::numeric, 3) END::text, {CONFIGURATION} \
         FROM (SELECT pg_catalog.pg_is_in_recovery() AS standby OFFSET 0) r"
    )
});

/// Starts the watch, if there are several hosts.
pub fn watch_servers(pg: &Arc<Pg>) {
    let hosts = &pg.own.upstream.conninfo().hosts;
    if hosts.len() < 2 {
        return;
    }
    pg.servers.begin(hosts.iter().map(|host| host.address.to_string()), &pg.settings.pool.replicas);
    for at in 0..hosts.len() {
        pg.tasks.spawn(watch(pg.clone(), at));
    }
}

/// Watches one server; never returns.
async fn watch(pg: Arc<Pg>, at: usize) {
    let reads = pg.pooling.reads_replicas();
    let every = if reads { EVERY_FOR_READS } else { EVERY };
    let wanted = pg.servers.wanted(at).unwrap_or_default();
    let (mut client, mut pause, mut configuration) = (None, every, None);
    // The first question decides, and each that nobody waits for.
    let mut is_due = true;
    loop {
        let (asked_at, began) = (pg.clock.now(), Instant::now());
        let answer = answer(&pg, at, &mut client, reads).await;
        let is_up = answer.is_ok();
        if is_up {
            pause = every;
        } else {
            client = None;
        }
        if let Ok(found) = &answer
            && configuration.replace(found.configuration.clone()).is_some_and(|before| before != found.configuration)
        {
            pg.pooling.reconnect_at(at); // those that are open may still have the settings of before
        }
        let is_new = pg.servers.note(at, answer.map_err(|error| error.to_string()), asked_at);
        if is_new {
            tracing::info!("server {} of the upstream: {}", at + 1, pg.servers.describe(at));
        }
        if is_new || is_due {
            leave_out(&pg);
        }
        is_due = rest(began, pause, &wanted, is_up).await;
        if !is_up {
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Returns when the server is to be asked again; false: since a read waits for it.
async fn rest(began: Instant, pause: Duration, wanted: &Notify, is_up: bool) -> bool {
    let is_due = tokio::select! {
        () = tokio::time::sleep(pause) => true,
        () = wanted.notified(), if is_up => false,
    };
    if !is_due {
        sleep_until(began + EVERY_MIN).await;
    }
    is_due
}

/// Patroni's members say this, in answer to a question that was sent at `asked`; None: they do not say.
pub fn note_leader(pg: &Pg, leader: Option<Leader>, asked: std::time::Instant) {
    let (is_new, servers) = (pg.servers.note_leader(leader.clone(), asked), &pg.servers);
    match leader.filter(|_| is_new) {
        Some(Leader::At(at)) => tracing::info!("Patroni's leader is {}", servers.address(at)),
        Some(Leader::Nobody) => tracing::warn!("Patroni has no leader"),
        Some(Leader::OneOf(named)) => {
            let named: Vec<_> = named.into_iter().map(|at| servers.address(at)).collect();
            tracing::info!("Patroni's members do not agree on the leader, which changes: {}", named.join(", "));
        }
        None => {}
    }
    leave_out(pg);
}

/// Ends the wait of the first service logins for Patroni's members, as soon as all servers have answered, or then.
pub async fn choose_from(pg: &Pg, then: Instant) {
    let answered = async {
        loop {
            let next = pg.servers.next_answer();
            if pg.servers.have_answered() {
                return;
            }
            next.await;
        }
    };
    let _ = timeout_at(then, answered).await;
    leave_out(pg);
    pg.own.upstream.release();
}

/// Takes wrong servers out of the choice, and ends the change stream of one.
fn leave_out(pg: &Pg) {
    let upstream = &pg.own.upstream;
    if !upstream.conninfo().target_session_attrs.is_for_primaries() {
        return; // the operator takes any server, or wants a standby
    }
    let _one_at_a_time = pg.servers.deciding();
    let stream = pg.identity();
    for change in pg.servers.decide(stream.as_deref(), upstream.host_in_use()) {
        upstream.leave_out(change.at, change.left_out.is_some());
        if let Some(why) = change.left_out {
            if !change.was_left_out && upstream.was_in_use(change.at) {
                // Those that lead there must not be used again.
                pg.pooling.reconnect(None);
            }
            tracing::warn!("the server {} is left out: {why}", change.address);
        } else {
            tracing::info!("the server {} is no longer left out", change.address);
        }
    }
    // What the cache holds is true to that server only.
    if stream.is_some_and(|stream| pg.servers.has_left_out(&stream)) {
        pg.restart_stream.notify_one();
    }
}

/// Asks the server; if reads wait for it, they wait no longer than [`LATE`].
async fn answer(pg: &Pg, at: usize, client: &mut Option<Client>, reads: bool) -> Result<Found, ServiceError> {
    let asking = ask(pg, at, client);
    tokio::pin!(asking);
    if reads {
        match timeout(LATE, &mut asking).await {
            Ok(answer) => return answer,
            Err(_) => pg.servers.note_late(at),
        }
    }
    asking.await
}

async fn ask(pg: &Pg, at: usize, client: &mut Option<Client>) -> Result<Found, ServiceError> {
    let client = match client {
        Some(client) if !client.is_dead() => client,
        other => other.insert(Client::connect_to(&pg.own.upstream, at).await?),
    };
    let mut answers = client.query_prepared(&[(&*QUESTION, Vec::new())], ANSWER_TIMEOUT).await?;
    let rows = answers.pop().unwrap_or_default();
    let unexpected = || ServiceError::UnexpectedAnswer("the role of a server");
    let [[Some(system_id), Some(start), Some(standby), timeline, position, lag, Some(configuration)]] =
        rows.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]
    else {
        return Err(unexpected());
    };
    let role = if standby == "true" { Role::Standby } else { Role::Primary };
    // The name of a log file begins with the timeline in hexadecimal digits.
    let radix = if role == Role::Primary { 16 } else { 10 };
    Ok(Found {
        system_id: system_id.clone(),
        postmaster_start: start.clone(),
        role,
        timeline: timeline.as_ref().and_then(|text| u32::from_str_radix(text, radix).ok()),
        position: position.as_ref().and_then(|text| Lsn::parse(text)),
        lag_seconds: lag.clone().unwrap_or_default(),
        configuration: configuration.clone(),
        gtids: None,
    })
}
