//! Watches the servers of an upstream of several hosts: see [`crate::shared::servers`].
//!
//! A connection to each host reads its role and what it has executed, every second. A host that does not answer is asked again after a pause that
//! grows. Service connections find the primary by themselves. The watch takes wrong hosts out of the choice, and is the first to see that the primary
//! is another one: then the stream moves there, with an empty cache.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::{Client, Error, Rows, identity, role};
use tokio::time::sleep;

use crate::mysql::MySql;
use crate::mysql::service::connection::ServiceError;
use crate::shared::ServerIdentity;
use crate::shared::servers::{Executed, Found, Gtids, Role};

/// Interval of questions to a server that answers.
const EVERY: Duration = Duration::from_secs(1);
/// The longest pause before the next question to a server that does not answer. It begins with [`EVERY`], and doubles.
const PAUSE_MAX: Duration = Duration::from_secs(16);
/// Time for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The columns of `SHOW REPLICA STATUS` that are read: whether the threads run that receive and apply, and the lag.
const RECEIVES: usize = 10;
const APPLIES: usize = 11;
const SECONDS_BEHIND: usize = 32;

/// Starts the watch, if there are several hosts.
pub(super) fn watch_servers(mysql: &Arc<MySql>) {
    let upstream = &mysql.own.upstream;
    if !upstream.has_several_hosts() {
        return;
    }
    mysql.servers.begin(upstream.addresses().map(ToString::to_string), &mysql.settings.pool.replicas);
    for at in 0..upstream.addresses().len() {
        mysql.tasks.spawn(watch(mysql.clone(), at));
    }
}

/// Watches one server; never returns.
async fn watch(mysql: Arc<MySql>, at: usize) {
    let (mut client, mut pause) = (None, EVERY);
    loop {
        let asked_at = mysql.clock.now();
        let answer = ask(&mysql, at, &mut client).await;
        if answer.is_ok() {
            pause = EVERY;
        } else {
            client = None;
        }
        let found = answer.as_ref().ok().cloned();
        if mysql.servers.note(at, answer.map_err(|error| error.to_string()), asked_at) {
            tracing::info!("server {} of the upstream: {}", at + 1, mysql.servers.describe(at));
        }
        leave_out(&mysql);
        if let Some(found) = &found {
            follow_primary(&mysql, at, found);
        }
        sleep(pause).await;
        if found.is_none() {
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Takes wrong servers out of the choice.
fn leave_out(mysql: &MySql) {
    for change in mysql.servers.decide_by_gtids(mysql.identity().as_deref()) {
        mysql.own.upstream.leave_out(change.at, change.left_out.is_some());
        if let Some(why) = change.left_out {
            // Those that lead there must not be used again.
            mysql.pools.reconnect(None);
            tracing::warn!("the server {} is left out: {why}", change.address);
        } else {
            tracing::info!("the server {} is no longer left out", change.address);
        }
    }
}

/// The server has just answered: sessions use it if it is the primary and no other one is, or no longer if it is none.
fn follow_primary(mysql: &MySql, at: usize, found: &Found) {
    let (upstream, servers) = (&mysql.own.upstream, &mysql.servers);
    let was_chosen = upstream.chosen();
    if found.role != Role::Primary {
        upstream.reject(at);
        if was_chosen == Some(at) {
            mysql.pools.reconnect(None);
            tracing::warn!("the server {} can no longer be written: waiting for another primary", servers.address(at));
        }
        return;
    }
    if servers.role_in_use(at) != Some(Role::Primary) {
        return; // it is left out
    }
    let is_free = was_chosen.is_none_or(|other| other != at && servers.is_down(other));
    if is_free && upstream.choose(at) {
        tracing::info!("the server {} is the primary", servers.address(at));
    }
    let is_stream = |stream: &ServerIdentity| {
        stream.system_id == found.system_id && stream.postmaster_start == found.postmaster_start
    };
    if upstream.chosen() == Some(at) && mysql.identity().is_some_and(|stream| !is_stream(&stream)) {
        tracing::warn!("the change stream moves to the primary, {}: starting anew there", servers.address(at));
        mysql.restart_stream.notify_one();
    }
}

async fn ask(mysql: &MySql, at: usize, client: &mut Option<Client>) -> Result<Found, ServiceError> {
    let client = match client {
        Some(client) if !client.is_dead() => client,
        other => other.insert(Client::connect_to(&mysql.own.upstream, at).await?),
    };
    let unexpected = || ServiceError::UnexpectedAnswer("the role of a server");
    let is_mariadb = client.server().is_mariadb;
    let executed = if is_mariadb {
        "CONCAT_WS(',', @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos)"
    } else {
        "@@GLOBAL.gtid_executed"
    };
    let question = format!("SELECT {}, @@GLOBAL.read_only, {executed}", identity::columns(is_mariadb));
    let rows = client.query_timeout(&question, ANSWER_TIMEOUT).await?;
    let [run @ .., Some(read_only), Some(executed)] = rows.first().map(Vec::as_slice).unwrap_or_default() else {
        return Err(unexpected());
    };
    let run = identity::read(run).ok_or_else(unexpected)?;
    let executed = if is_mariadb { Executed::of_mariadb(executed) } else { Executed::of_mysql(executed) };
    let executed = executed.ok_or_else(unexpected)?;
    let is_primary = role::is_off(read_only) && !client.ask_for_secondary(ANSWER_TIMEOUT).await?;
    let (receives, lag_seconds) = replication(client).await?;
    Ok(Found {
        system_id: run.server,
        postmaster_start: run.start,
        role: if is_primary { Role::Primary } else { Role::Replica },
        timeline: None,
        position: None,
        lag_seconds: if is_primary { "0".to_owned() } else { lag_seconds },
        configuration: String::new(),
        gtids: Some(Gtids { executed, receives }),
    })
}

/// Whether the server receives from another one, and how many seconds it is behind it: empty if that is not known.
async fn replication(client: &mut Client) -> Result<(bool, String), Error> {
    let server = client.server();
    let is_mariadb = server.is_mariadb;
    let question =
        if !is_mariadb && server.is_at_least(8, 0, 22) { "SHOW REPLICA STATUS" } else { "SHOW SLAVE STATUS" };
    // MariaDB wants another right for it than for the rest.
    let rows = match client.query_timeout(question, ANSWER_TIMEOUT).await {
        Err(Error::Server(_)) if is_mariadb => {
            let rows = client.query_timeout("SHOW GLOBAL STATUS LIKE 'Slaves_running'", ANSWER_TIMEOUT).await?;
            return Ok((
                rows.iter().any(|row| !matches!(row.as_slice(), [_, Some(count)] if count == "0")),
                String::new(),
            ));
        }
        Err(Error::Server(_)) => Rows::new(),
        rows => rows?,
    };
    let value = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten();
    let runs = |row: &[Option<String>], at| value(row, at).is_some_and(|runs| runs != "No");
    let receives = rows.iter().any(|row| runs(row, RECEIVES) || runs(row, APPLIES));
    let lag = rows.iter().find_map(|row| value(row, SECONDS_BEHIND));
    Ok((receives, lag.unwrap_or_default()))
}
