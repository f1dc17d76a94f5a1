//! The rows of each table.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use freshet_net::mysql::Address;
use freshet_types::Nanos;

use super::query::{Row, Table};
use crate::latency::Histogram;
use crate::mysql::MySql;
use crate::server::sessions::Link;
use crate::statement::registry::first_word;
use crate::statement::report::QueryReport;

/// The hostgroup of hits, and that of the server.
const CACHE: &str = "-1";
const SERVER: &str = "0";

const DIGESTS: &[&str] = &[
    "hostgroup",
    "schemaname",
    "username",
    "client_address",
    "digest",
    "digest_text",
    "count_star",
    "first_seen",
    "last_seen",
    "sum_time",
    "min_time",
    "max_time",
    "sum_rows_affected",
    "sum_rows_sent",
];
const POOL: &[&str] = &[
    "hostgroup",
    "srv_host",
    "srv_port",
    "status",
    "ConnUsed",
    "ConnFree",
    "ConnOK",
    "ConnERR",
    "MaxConnUsed",
    "Queries",
    "Queries_GTID_sync",
    "Bytes_data_sent",
    "Bytes_data_recv",
    "Latency_us",
];
const PROCESSES: &[&str] = &[
    "ThreadID",
    "SessionID",
    "user",
    "db",
    "cli_host",
    "cli_port",
    "hostgroup",
    "l_srv_host",
    "l_srv_port",
    "srv_host",
    "srv_port",
    "command",
    "time_ms",
    "info",
    "status_flags",
    "extended_info",
];
const COMMANDS: &[&str] = &[
    "Command",
    "Total_Time_us",
    "Total_cnt",
    "cnt_100us",
    "cnt_500us",
    "cnt_1ms",
    "cnt_5ms",
    "cnt_10ms",
    "cnt_50ms",
    "cnt_100ms",
    "cnt_500ms",
    "cnt_1s",
    "cnt_5s",
    "cnt_10s",
    "cnt_INFs",
];
/// Where the counters of [`COMMANDS`] end, in seconds.
const COMMAND_ENDS: [f64; 12] = [1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 10.0, f64::INFINITY];
/// The version of ProxySQL whose tables these are.
const VERSION: &str = "2.7.3";
const PAIRS: &[&str] = &["Variable_Name", "Variable_Value"];

/// Reads a table.
pub(super) fn read(mysql: &MySql, name: &str) -> Result<Table, String> {
    Ok(match name {
        // The statement asks for this one alone.
        "global_variables" => {
            let version = format!("{VERSION} (Freshet {})", env!("CARGO_PKG_VERSION"));
            Table {
                columns: &["variable_name", "variable_value"],
                rows: vec![row(["admin-version".to_owned(), version])],
            }
        }
        "stats_memory_metrics" => Table { columns: PAIRS, rows: pairs(memory(mysql)) },
        "stats_mysql_commands_counters" => Table { columns: COMMANDS, rows: commands(mysql) },
        "stats_mysql_connection_pool" => Table { columns: POOL, rows: vec![pool(mysql)] },
        "stats_mysql_global" => Table { columns: PAIRS, rows: pairs(global(mysql)) },
        "stats_mysql_processlist" => Table { columns: PROCESSES, rows: processes(mysql) },
        "stats_mysql_query_digest" => Table { columns: DIGESTS, rows: digests(mysql) },
        "stats_mysql_query_rules" => Table { columns: &["rule_id", "hits"], rows: rules(mysql) },
        "stats_mysql_users" => {
            Table { columns: &["username", "frontend_connections", "frontend_max_connections"], rows: users(mysql) }
        }
        // Admission depends on the figures, and other collectors read them, too.
        _ => return Err(format!("{name}: Freshet does not clear its figures; read stats_mysql_query_digest")),
    })
}

fn row<const N: usize>(cells: [String; N]) -> Row {
    cells.map(Some).to_vec()
}

fn pairs(figures: Vec<(&'static str, u64)>) -> Vec<Row> {
    figures.into_iter().map(|(name, figure)| row([name.to_owned(), figure.to_string()])).collect()
}

fn micros(seconds: f64) -> String {
    format!("{:.0}", seconds.max(0.0) * 1e6)
}

/// Ends of the buckets of the shortest and of the longest, in microseconds.
fn extremes(latency: &Histogram) -> [String; 2] {
    let ends: Vec<f64> = latency.in_seconds().filter(|(_, count)| *count > 0).map(|(end, _)| end).collect();
    // The last bucket has no end: at least what the one before it ends with.
    let last = latency.in_seconds().map(|(end, _)| end).filter(|end| end.is_finite()).last().unwrap_or_default();
    let shown = |end: Option<&f64>| micros(end.copied().unwrap_or_default().min(last));
    let begin = ends.first().map(|end| end.min(last) / 2.0);
    [shown(begin.as_ref()), shown(ends.last())]
}

/// A row for the hits of each statement, and one for what the database answered.
fn digests(mysql: &MySql) -> Vec<Row> {
    let schema = mysql.own.upstream.database().unwrap_or_default();
    let of = |report: QueryReport| {
        let shared = |hostgroup: &str| {
            let digest = format!("0x{}", report.digest.to_uppercase());
            let names = [schema, "", "", &digest, &report.query].map(str::to_owned);
            [hostgroup.to_owned()].into_iter().chain(names)
        };
        let seen = report.seen.map(|at| at.to_string());
        let line = |hostgroup: &str, count: u64, (seconds, latency): (f64, &Histogram), rows: [u64; 2]| -> Row {
            let cells = shared(hostgroup).chain([count.to_string()]).chain(seen.clone());
            let times = [micros(seconds)].into_iter().chain(extremes(latency));
            cells.chain(times).chain(rows.map(|rows| rows.to_string())).map(Some).collect()
        };
        let (hits, asked) = (report.hits, report.fills + report.passed);
        let hit_seconds = report.hit_latency.mean() * hits as f64 / 1e6;
        let from_cache = line(CACHE, hits, (hit_seconds, &report.hit_latency), [0, report.results.rows.hits]);
        let database = (report.database_seconds, &report.database_latency);
        let from_database = line(SERVER, asked, database, [report.results.rows.affected, report.results.rows.database]);
        [(hits, from_cache), (asked, from_database)].into_iter().filter(|(count, _)| *count > 0).map(|(_, row)| row)
    };
    reports(mysql).flat_map(|report| of(report).collect::<Vec<_>>()).collect()
}

/// Those of statements that are known.
fn reports(mysql: &MySql) -> impl Iterator<Item = QueryReport> {
    mysql.query_reports(usize::MAX).into_iter().filter(|report| !report.digest.is_empty())
}

/// By the first word of each statement.
fn commands(mysql: &MySql) -> Vec<Row> {
    let mut all: BTreeMap<String, (f64, [u64; COMMAND_ENDS.len()])> = BTreeMap::new();
    for report in reports(mysql) {
        let word = first_word(report.query.trim_start_matches('(')).to_ascii_uppercase();
        let word = if word.is_empty() { "UNKNOWN".to_owned() } else { word };
        let (seconds, counts) = all.entry(word).or_default();
        *seconds += report.database_seconds + report.hit_latency.mean() * report.hits as f64 / 1e6;
        for (end, count) in report.hit_latency.in_seconds().chain(report.database_latency.in_seconds()) {
            let at = COMMAND_ENDS.iter().position(|limit| end <= *limit);
            if let Some(cell) = at.and_then(|at| counts.get_mut(at)) {
                *cell += count;
            }
        }
    }
    let row = |(command, (seconds, counts)): (String, (f64, [u64; COMMAND_ENDS.len()]))| {
        let total = counts.iter().sum::<u64>().to_string();
        [command, micros(seconds), total].into_iter().chain(counts.map(|n| n.to_string())).map(Some).collect()
    };
    all.into_iter().map(row).collect()
}

/// Name and port of the server; a socket has its path and port 0, as in ProxySQL.
fn server(mysql: &MySql) -> [String; 2] {
    match mysql.own.upstream.address() {
        Address::Tcp { host, port } => [host.clone(), port.to_string()],
        Address::Unix(path) => [path.display().to_string(), "0".to_owned()],
    }
}

/// The server. Each session has a connection of its own.
fn pool(mysql: &MySql) -> Row {
    let (metrics, [from_clients, from_servers]) = (&mysql.metrics, mysql.sessions.traffic());
    let [host, port] = server(mysql);
    let status = if mysql.identity().is_some() { "ONLINE" } else { "SHUNNED" };
    let figures = [
        metrics.sessions(),
        0,
        mysql.sessions.begun(),
        metrics.upstream_failures.load(Relaxed),
        mysql.sessions.most(),
        metrics.fills() + metrics.passed(),
        0,
        from_clients,
        from_servers,
        mysql.waits.probe_took() / 1000,
    ];
    let words = [SERVER.to_owned(), host, port, status.to_owned()];
    words.into_iter().chain(figures.map(|figure| figure.to_string())).map(Some).collect()
}

fn processes(mysql: &MySql) -> Vec<Row> {
    let (now, [host, port]) = (mysql.clock.now(), server(mysql));
    let texts: BTreeMap<u64, String> =
        mysql.registry.each_query().map(|query| (query.digest, query.text.to_string())).collect();
    let row = |link: &Link| -> Row {
        let running = link.running();
        let since = running.map_or(now, |(_, since): (u64, Nanos)| since);
        let (client, local) = (link.about.client.map(|(_, peer)| peer), link.about.server.map(|(local, _)| local));
        vec![
            Some("0".to_owned()),
            Some(link.id.to_string()),
            Some(link.about.user.clone()),
            Some(link.about.database.clone()),
            client.map_or_else(|| Some("localhost".to_owned()), |peer| Some(peer.ip().to_string())),
            client.map(|peer| peer.port().to_string()),
            Some(SERVER.to_owned()),
            local.map(|local| local.ip().to_string()),
            local.map(|local| local.port().to_string()),
            Some(host.clone()),
            Some(port.clone()),
            Some(if running.is_some() { "Query" } else { "Sleep" }.to_owned()),
            Some((now.saturating_sub(since) / 1_000_000).to_string()),
            running.and_then(|(digest, _)| texts.get(&digest).cloned()),
            Some("0".to_owned()),
            None,
        ]
    };
    mysql.sessions.all().iter().map(|link| row(link)).collect()
}

fn users(mysql: &MySql) -> Vec<Row> {
    // There is no limit for a user.
    mysql
        .sessions
        .by_user(usize::MAX)
        .into_iter()
        .map(|(user, count)| row([user, count.to_string(), "0".to_owned()]))
        .collect()
}

fn rules(mysql: &MySql) -> Vec<Row> {
    let in_order = (1..).zip(mysql.rules.matches());
    in_order.map(|(number, rule): (usize, _)| row([number.to_string(), rule.matches.to_string()])).collect()
}

fn global(mysql: &MySql) -> Vec<(&'static str, u64)> {
    let (metrics, counters) = (&mysql.metrics, mysql.cache.counters());
    let levels = mysql.cache.levels(mysql.clock.now());
    let [from_clients, from_servers] = mysql.sessions.traffic();
    let (hits, fills) = (metrics.hits(), metrics.fills());
    let removed = [&counters.invalidated, &counters.evicted, &counters.flushed].map(|counter| counter.load(Relaxed));
    let running = mysql.sessions.all().iter().filter(|link| link.running().is_some()).count() as u64;
    let uptime = SystemTime::now().duration_since(mysql.started).unwrap_or_default().as_secs();
    vec![
        ("ProxySQL_Uptime", uptime),
        ("Client_Connections_aborted", metrics.login_failures.load(Relaxed)),
        ("Client_Connections_connected", metrics.sessions()),
        ("Client_Connections_created", metrics.connections.load(Relaxed)),
        ("Client_Connections_non_idle", running),
        ("Server_Connections_aborted", metrics.upstream_failures.load(Relaxed)),
        ("Server_Connections_connected", metrics.sessions()),
        ("Server_Connections_created", mysql.sessions.begun()),
        ("Questions", hits + fills + metrics.passed()),
        ("Slow_queries", mysql.settings.query_log.logged()),
        ("Queries_backends_bytes_recv", from_servers),
        ("Queries_backends_bytes_sent", from_clients),
        ("Queries_frontends_bytes_recv", from_clients),
        ("Queries_frontends_bytes_sent", from_servers + metrics.hit_bytes()),
        ("Query_Cache_Memory_bytes", levels.bytes),
        ("Query_Cache_count_GET", hits + fills),
        ("Query_Cache_count_GET_OK", hits),
        ("Query_Cache_count_SET", counters.installed.load(Relaxed)),
        ("Query_Cache_bytes_OUT", metrics.hit_bytes()),
        ("Query_Cache_Purged", removed.iter().sum()),
        ("Query_Cache_Entries", levels.entries),
        ("MySQL_Thread_Workers", metrics.worker_count() as u64),
    ]
}

fn memory(mysql: &MySql) -> Vec<(&'static str, u64)> {
    let levels = mysql.cache.levels(mysql.clock.now());
    let overhead = mysql.cache.overhead();
    vec![
        ("query_digest_memory", mysql.statement_bytes()),
        ("query_cache_memory", levels.bytes),
        ("query_cache_overhead", overhead),
        ("query_cache_limit", mysql.cache.limits().memory_bytes),
    ]
}
