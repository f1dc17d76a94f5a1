//! Peers that store data themselves: look-aside stores, and MariaDB with its query cache.

use anyhow::Result;
use freshet_testbed::{Mariadb, MariadbSettings};
use rustix::process::Signal;

use super::{CACHE_BYTES, CONNECTIONS_MAX, PeerKind, Place, Plan, find, port, threads};
use crate::target::{Counters, Family, Kind, Target};

/// The account whose statements bypass the query cache.
const DIRECT: &str = "direct";

pub(super) fn memcached(place: &Place) -> Result<Plan> {
    let (program, port) = (find("memcached")?, port()?);
    let mut command = place.owner.command(&program);
    command.args(["-l", "127.0.0.1", "-U", "0", "-p", &port.to_string()]);
    command.args(["-m", &(CACHE_BYTES >> 20).to_string(), "-t", &threads().to_string()]);
    let address = format!("127.0.0.1:{port}");
    let target = Target {
        name: PeerKind::Memcached.name().to_owned(),
        kind: Kind::Memcached(address.clone()),
        url: format!("memcached://{address}"),
        counters: Some(Counters::Memcached(address)),
        lookaside: None,
    };
    Ok(Plan { command, target, end: Signal::TERM })
}

/// Redis runs all commands on one thread.
pub(super) fn redis(place: &Place) -> Result<Plan> {
    let (program, port) = (find("redis-server")?, port()?);
    let mut command = place.owner.command(&program);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    command.args(["--maxmemory", &CACHE_BYTES.to_string(), "--maxmemory-policy", "allkeys-lru"]);
    command.arg("--dir").arg(&place.directory);
    let address = format!("127.0.0.1:{port}");
    let target = Target {
        name: PeerKind::Redis.name().to_owned(),
        kind: Kind::Redis(address.clone()),
        url: format!("redis://{address}"),
        counters: Some(Counters::Redis(address)),
        lookaside: None,
    };
    Ok(Plan { command, target, end: Signal::TERM })
}

/// MariaDB with all data in memory, with or without a query cache. Blocks.
///
/// The server runs init-connect for accounts without all privileges. It turns the query cache off for one of them. Writes of all accounts must still
/// search the cache for entries to invalidate.
pub(super) fn start_mariadb(cached: bool) -> Result<Mariadb> {
    let size = if cached { CACHE_BYTES } else { 0 };
    let settings = MariadbSettings::default()
        .with("innodb-buffer-pool-size = 512M\ninnodb-log-file-size = 256M")
        .with(format!("max-connections = {}", CONNECTIONS_MAX * 2))
        .with(format!("query-cache-type = {}\nquery-cache-size = {size}", u8::from(cached)))
        .with("init-connect = 'SET query_cache_type = 0'")
        .with("log-bin = binlog\nbinlog-format = ROW\nserver-id = 1\nsync-binlog = 0");
    let server = Mariadb::start(&settings)?;
    server.sql(&format!(
        "CREATE USER {DIRECT}@'%' IDENTIFIED BY 'freshet'; GRANT ALL ON freshet.* TO {DIRECT}@'%'; \
         GRANT RELOAD, PROCESS ON *.* TO {DIRECT}@'%'"
    ))?;
    Ok(server)
}

pub(super) fn mariadb_target(kind: PeerKind, server: &Mariadb) -> Target {
    let cached = kind == PeerKind::MariadbQcache;
    let direct = format!("mysql://{DIRECT}:freshet@127.0.0.1:{}/freshet", server.port());
    Target {
        name: kind.name().to_owned(),
        kind: Kind::Sql(Family::Mysql),
        url: if cached { server.url() } else { direct },
        counters: cached.then_some(Counters::Qcache),
        lookaside: None,
    }
}
