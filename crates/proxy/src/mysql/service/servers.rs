//! Watches the servers of an upstream of several hosts: see [`crate::shared::servers`].
//!
//! A connection to each host reads its role and what it has executed, every second. A host that does not answer is asked again after a pause that
//! grows. The watch does not choose: the stream does, when it begins, and by then nothing is served from the cache. The watch ends a choice: the host in
//! use can no longer be written, is left out, or does not answer several questions while there is no stream. Then it ends the stream, as soon as
//! another host can be chosen.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::mysql::{Client, ConnectError, identity, role};
use tokio::time::{sleep, timeout};

use crate::mysql::MySql;
use crate::mysql::service::connection::ServiceError;
use crate::shared::servers::{Executed, Found, Gtids, Role};

/// Interval of questions to a server that answers.
const EVERY: Duration = Duration::from_secs(1);
/// The longest pause before the next question to a server that does not answer. It begins with [`EVERY`], and doubles; the one in use is asked as
/// often as before.
const PAUSE_MAX: Duration = Duration::from_secs(16);
/// Time for one answer, and for a connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
        if found.is_none() {
            mysql.own.upstream.note_silent(at);
        }
        if mysql.servers.note(at, answer.map_err(|error| error.to_string()), asked_at) {
            tracing::info!("server {} of the upstream: {}", at + 1, mysql.servers.describe(at));
        }
        leave_out(&mysql);
        match &found {
            Some(found) => follow_primary(&mysql, at, found),
            None => give_up(&mysql, at),
        }
        sleep(pause).await;
        let is_chosen = mysql.own.upstream.chosen() == Some(at);
        pause = if found.is_some() || is_chosen { EVERY } else { (pause * 2).min(PAUSE_MAX) };
    }
}

/// Takes wrong servers out of the choice.
fn leave_out(mysql: &MySql) {
    let _one_at_a_time = mysql.servers.deciding();
    for change in mysql.servers.decide_by_gtids(mysql.identity().as_deref()) {
        let was_in_use = mysql.own.upstream.leave_out(change.at, change.left_out.is_some());
        if let Some(why) = change.left_out {
            if was_in_use {
                mysql.pools.reconnect(None);
            }
            tracing::warn!("the server {} is left out: {why}", change.address);
        } else {
            tracing::info!("the server {} is no longer left out", change.address);
        }
    }
}

/// The server has just answered: it is no longer used if it is not the primary, and the stream moves to it if it is, and none is in use.
fn follow_primary(mysql: &MySql, at: usize, found: &Found) {
    let (upstream, servers) = (&mysql.own.upstream, &mysql.servers);
    if found.role != Role::Primary {
        if upstream.reject(at) {
            mysql.pools.reconnect(None);
            tracing::warn!("the server {} can no longer be written: waiting for another primary", servers.address(at));
        }
        return;
    }
    // Without a stream, the follower chooses by itself.
    let Some(stream) = mysql.identity() else { return };
    let is_stream = stream.system_id == found.system_id && stream.postmaster_start == found.postmaster_start;
    match upstream.chosen() {
        None if servers.role_in_use(at) != Some(Role::Primary) => {} // it is left out
        None if is_stream => {
            if upstream.choose(at) {
                tracing::info!("the server {} is the primary again", servers.address(at));
            }
        }
        chosen => {
            if chosen.is_none_or(|chosen| chosen == at && !is_stream) {
                tracing::warn!("the change stream moves to the primary, {}: starting anew there", servers.address(at));
                mysql.restart_stream.notify_one();
            }
        }
    }
}

/// The server has not answered: it is no longer used after several such questions, if the change stream is lost, too.
fn give_up(mysql: &MySql, at: usize) {
    let is_lost = mysql.identity().is_none() && mysql.servers.is_down_for_long(at);
    if is_lost && mysql.own.upstream.reject(at) {
        mysql.own.upstream.note_silent(at);
        mysql.pools.reconnect(None);
        tracing::warn!("the server {} does not answer: waiting for another primary", mysql.servers.address(at));
    }
}

async fn ask(mysql: &MySql, at: usize, client: &mut Option<Client>) -> Result<Found, ServiceError> {
    let client = match client {
        Some(client) if !client.is_dead() => client,
        other => {
            let connected = timeout(ANSWER_TIMEOUT, Client::connect_to(&mysql.own.upstream, at)).await;
            other.insert(connected.unwrap_or(Err(ConnectError::Timeout(ANSWER_TIMEOUT)))?)
        }
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
    // Such as GTIDs with tags.
    let executed = executed.unwrap_or(Executed::Unknown);
    let is_primary = role::is_off(read_only) && !client.ask_for_secondary(ANSWER_TIMEOUT).await?;
    let (receives, lag_seconds) = client.ask_for_source(ANSWER_TIMEOUT).await?;
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
