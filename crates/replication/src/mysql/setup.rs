//! From a URL to an established stream.
//!
//! All steps use one connection, so that every answer is about the server that will send the stream:
//!
//! 1. check the requirements of a stream, and name what is missing;
//! 2. read the position up to which everything is visible: the stream begins there;
//! 3. request the binlog from there, and wait for its first packet, which may be a refusal.
//!
//! A stream that continues after its connection broke requests what it has not yet received instead.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use freshet_net::mysql::{Client, ConnectError, Error, Rows, ServerVersion, identity, quote_account, role};
use freshet_types::{GtidSet, Lsn};
use freshet_wire::mysql::binlog::{dump, dump_gtid};
use tokio::time::timeout;

use crate::Identity;
use crate::error::Fault;
use crate::mysql::assemble::Assembler;
use crate::mysql::error::SetupError;
use crate::mysql::position::Place;
use crate::mysql::progress::Progress;
use crate::mysql::{FollowerConfig, LoggedDatabases, QUERY_TIMEOUT, xa};

/// The server sends a heartbeat after this part of the time without packets.
const HEARTBEATS: u32 = 5;

/// The settings that are checked; a server does not list settings that it does not know.
const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'gtid_mode', \
    'log_slave_updates', 'log_replica_updates', 'lower_case_table_names', 'wsrep_on')";

/// A connection to a server that can send its binlog.
pub(super) struct Opened {
    pub(super) client: Client,
    pub(super) identity: Identity,
    /// Its account, with quotes.
    user: String,
    name_case: u8,
}

/// Connects, and checks the requirements of a stream. Of several hosts, this chooses the one in use: there is no stream now, so no session is served from
/// the cache.
pub(super) async fn open(config: &FollowerConfig) -> Result<Opened, Fault> {
    config.upstream.begin_stream();
    let client = Client::connect_to_primary(&config.upstream).await?;
    at_host(config, client.host(), check(client, config)).await
}

/// Does this work with the host in use; an error as soon as that is another one, or none.
pub(super) async fn at_host<T>(
    config: &FollowerConfig,
    host: usize,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let done = config.upstream.while_chosen(host, work).await;
    done.unwrap_or_else(|| Err(ConnectError::NoPrimary.into()))
}

async fn check(mut client: Client, config: &FollowerConfig) -> Result<Opened, Fault> {
    let server = client.server().clone();
    let oldest = if server.is_mariadb { (10, 6) } else { (8, 0) };
    if !server.is_at_least(oldest.0, oldest.1, 0) {
        return Err(SetupError::Version(server.text).into());
    }
    let run = identity::ask(&mut client, QUERY_TIMEOUT).await?.ok_or(Fault::Answer("the server's identity"))?;
    let rows = client.query_timeout("SELECT CURRENT_USER()", QUERY_TIMEOUT).await?;
    let [Some(account)] = one_row(&rows, "CURRENT_USER")? else { return Err(Fault::Answer("CURRENT_USER")) };
    let identity = Identity {
        system_id: run.server,
        timeline: 0,
        postmaster_start: run.start,
        server_version_num: server.major * 10_000 + server.minor * 100 + server.patch,
        wal_segment_bytes: 0,
        database: String::new(),
    };
    let user = quote_account(account);
    let name_case = check_settings(&mut client, &server).await?;
    check_databases(&mut client, config, &user).await?;
    Ok(Opened { client, identity, user, name_case })
}

async fn check_settings(client: &mut Client, server: &ServerVersion) -> Result<u8, Fault> {
    let rows = client.query_timeout(SETTINGS, QUERY_TIMEOUT).await?;
    let mut settings = HashMap::new();
    for row in &rows {
        let [Some(name), Some(value)] = row.as_slice() else { return Err(Fault::Answer("SHOW VARIABLES")) };
        settings.insert(name.to_ascii_lowercase(), value.clone());
    }
    let is = |name: &str, wanted: &str| settings.get(name).is_some_and(|value| value.eq_ignore_ascii_case(wanted));
    let value = |name: &str| settings.get(name).cloned().unwrap_or_default();
    if !is("log_bin", "ON") {
        return Err(SetupError::NoBinlog.into());
    }
    if settings.contains_key("binlog_format") && !is("binlog_format", "ROW") {
        return Err(SetupError::Format(value("binlog_format")).into());
    }
    if !server.is_mariadb && !is("gtid_mode", "ON") {
        return Err(SetupError::GtidMode(value("gtid_mode")).into());
    }
    let logs_received = is("log_slave_updates", "ON") || is("log_replica_updates", "ON");
    if !logs_received && (is("wsrep_on", "ON") || receives(client, server).await?) {
        return Err(SetupError::ReceivedNotLogged.into());
    }
    match value("lower_case_table_names").parse() {
        Ok(case @ 0..=1) => Ok(case),
        _ => Err(SetupError::NameCase(value("lower_case_table_names")).into()),
    }
}

/// Whether it is a replica of another server.
async fn receives(client: &mut Client, server: &ServerVersion) -> Result<bool, Fault> {
    if server.is_mariadb {
        // This needs a privilege that Freshet may lack.
        return match client.query_timeout("SHOW ALL SLAVES STATUS", QUERY_TIMEOUT).await {
            Ok(rows) => Ok(!rows.is_empty()),
            Err(Error::Server(said)) if said.code == ACCESS_DENIED => Ok(has_received(client).await?),
            Err(error) => Err(error.into()),
        };
    }
    Ok(!client.query_timeout(role::source_question(server), QUERY_TIMEOUT).await?.is_empty())
}

/// Whether a MariaDB server receives changes now, or has ever received some: one that has lost its primary, or waits for START SLAVE, does not count
/// as running.
async fn has_received(client: &mut Client) -> Result<bool, Fault> {
    let sql = "SELECT @@GLOBAL.gtid_slave_pos = '' AND VARIABLE_VALUE = 0 FROM information_schema.GLOBAL_STATUS \
               WHERE VARIABLE_NAME = 'Slaves_running'";
    let rows = client.query_timeout(sql, QUERY_TIMEOUT).await?;
    Ok(one_row(&rows, "Slaves_running")? != [Some("1".to_owned())])
}

/// Reads the databases in the binlog.
async fn check_databases(client: &mut Client, config: &FollowerConfig, user: &str) -> Result<(), Fault> {
    let server = client.server();
    let renamed = !server.is_mariadb && server.is_at_least(8, 2, 0);
    let sql = if renamed { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    let rows = client.query_timeout(sql, QUERY_TIMEOUT).await.map_err(|error| fault_of(error, user))?;
    let [_, _, only, ignored, ..] = one_row(&rows, sql)? else { return Err(Fault::Answer(sql)) };
    let names = |list: &Option<String>| -> Vec<String> {
        list.iter().flat_map(|list| list.split(',')).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let databases = LoggedDatabases { only: names(only), ignored: names(ignored) };
    if config.schemas.accepts(&databases) {
        return Ok(());
    }
    let mut parts = Vec::new();
    for (setting, names) in [("binlog_do_db", databases.only), ("binlog_ignore_db", databases.ignored)] {
        parts.extend((!names.is_empty()).then(|| format!("{setting} = {}", names.join(", "))));
    }
    Err(SetupError::Filtered(parts.join("; ")).into())
}

/// The start of a new epoch's stream: directly after everything that is visible now. `told` is called with the reason if it takes long.
pub(super) async fn start(
    opened: &mut Opened,
    config: &FollowerConfig,
    told: &(dyn Fn(&str) + Sync),
) -> Result<Progress, Fault> {
    let assembler = Assembler::new(config.schemas.clone(), opened.name_case);
    let client = &mut opened.client;
    if client.server().is_mariadb {
        let rows = client.query_timeout("SHOW GLOBAL STATUS LIKE 'binlog_snapshot_%'", QUERY_TIMEOUT).await?;
        let [file, offset] = rows.as_slice() else { return Err(Fault::Answer("binlog_snapshot")) };
        let ([_, Some(file)], [_, Some(offset)]) = (file.as_slice(), offset.as_slice()) else {
            return Err(Fault::Answer("binlog_snapshot"));
        };
        let offset = offset.parse().map_err(|_| Fault::Answer("binlog_snapshot_position"))?;
        let place = Place::new(file.as_bytes(), offset).ok_or(Fault::Answer("binlog_snapshot_file"))?;
        let passed = place.lsn().ok_or(Fault::Answer("binlog_snapshot_position"))?;
        xa::wait_for_prepared(client, told).await?;
        return Ok(Progress { passed, place, executed: GtidSet::default(), assembler });
    }
    let rows = client.query_timeout("SELECT @@GLOBAL.gtid_executed", QUERY_TIMEOUT).await?;
    let [Some(text)] = one_row(&rows, "gtid_executed")? else { return Err(Fault::Answer("gtid_executed")) };
    let executed = GtidSet::parse(text).ok_or_else(|| SetupError::GtidTags(text.clone()))?;
    // The server will send the position.
    let place = Place::default();
    Ok(Progress { passed: Lsn::default(), place, executed, assembler })
}

/// Requests everything behind this position; returns the first packet.
pub(super) async fn follow_from(
    opened: &mut Opened,
    config: &FollowerConfig,
    progress: &Progress,
) -> Result<Vec<u8>, Fault> {
    let client = &mut opened.client;
    let mariadb = client.server().is_mariadb;
    let heartbeat_ns = (config.silence_max / HEARTBEATS).as_nanos();
    // Newer versions of MySQL know the second names. Without the capability, MariaDB does not send the events that begin a group.
    let settings = format!(
        "SET @master_heartbeat_period = {heartbeat_ns}, @source_heartbeat_period = {heartbeat_ns}, \
         @master_binlog_checksum = @@GLOBAL.binlog_checksum, @source_binlog_checksum = @@GLOBAL.binlog_checksum, \
         @mariadb_slave_capability = 4"
    );
    client.query_timeout(&settings, QUERY_TIMEOUT).await?;
    let command = if mariadb {
        let Place { file, offset, .. } = &progress.place;
        let Ok(start) = u32::try_from(*offset) else {
            return Err(SetupError::Position { file: file.clone(), offset: *offset }.into());
        };
        dump(file, start, server_id())
    } else {
        dump_gtid(&progress.executed, server_id())
    };
    client.send_command(&command).await?;
    match timeout(QUERY_TIMEOUT, client.receive_packet()).await {
        Ok(packet) => packet.map_err(|error| fault_of(error, &opened.user)),
        Err(_) => Err(Error::Timeout(QUERY_TIMEOUT).into()),
    }
}

/// A server id that is probably not in use: administrators number from below. A server ends a dump when another one with the same id begins.
fn server_id() -> u32 {
    RandomState::new().hash_one(0) as u32 | 1 << 31
}

/// `ER_SPECIFIC_ACCESS_DENIED_ERROR`
const ACCESS_DENIED: u16 = 1227;

/// The error, or the privilege to grant if one is missing.
fn fault_of(error: Error, user: &str) -> Fault {
    match error {
        Error::Server(source) if source.code == ACCESS_DENIED => {
            SetupError::Privilege { user: user.to_owned(), source }.into()
        }
        other => other.into(),
    }
}

fn one_row<'a>(rows: &'a Rows, what: &'static str) -> Result<&'a [Option<String>], Fault> {
    match rows.as_slice() {
        [row] => Ok(row),
        _ => Err(Fault::Answer(what)),
    }
}
