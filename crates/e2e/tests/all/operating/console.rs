//! PgBouncer's console: its columns and words, its collectors, and what its commands do to sessions.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{SCHEMA, connect_as, ends_by_command, reader, rows, sqlstate, tags};
use crate::cached::until_hit;
use crate::clients::languages::Client;
use crate::clients::left_out;
use crate::clients::python::interpreter;
use crate::support::frames::{self, Bound, bind, describe_portal, execute, parse, sync, unnamed};
use crate::support::{Database, Login, Message, PATIENCE, Pair, RawClient, Version, eventually, on_both_at_length};

on_both_at_length!(columns_and_words_are_pgbouncers, collectors_read_it, paused_sessions_wait, sessions_are_killed);

/// The columns of PgBouncer 1.25.2.
const COLUMNS: [(&str, &str); 20] = [
    ("VERSION", "version"),
    ("STATE", "key value"),
    ("LISTS", "list items"),
    ("CONFIG", "key value default changeable"),
    (
        "DATABASES",
        "name host port database force_user pool_size min_pool_size reserve_pool_size server_lifetime pool_mode \
         load_balance_hosts max_connections current_connections max_client_connections current_client_connections \
         paused disabled",
    ),
    (
        "POOLS",
        "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active sv_active_cancel \
         sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us pool_mode load_balance_hosts",
    ),
    (
        "USERS",
        "name pool_size reserve_pool_size pool_mode max_user_connections current_connections \
         max_user_client_connections current_client_connections",
    ),
    ("CLIENTS", CLIENTS),
    ("SERVERS", SOCKET),
    (
        "STATS",
        "database total_server_assignment_count total_xact_count total_query_count total_received total_sent \
         total_xact_time total_query_time total_wait_time total_client_parse_count total_server_parse_count \
         total_bind_count avg_server_assignment_count avg_xact_count avg_query_count avg_recv avg_sent avg_xact_time \
         avg_query_time avg_wait_time avg_client_parse_count avg_server_parse_count avg_bind_count",
    ),
    (
        "STATS_TOTALS",
        "database server_assignment_count xact_count query_count bytes_received bytes_sent xact_time query_time \
         wait_time client_parse_count server_parse_count bind_count",
    ),
    (
        "STATS_AVERAGES",
        "database server_assignment_count xact_count query_count bytes_received bytes_sent xact_time query_time \
         wait_time avg_client_parse_count avg_server_parse_count avg_bind_count",
    ),
    ("TOTALS", "name value"),
    ("MEM", "name size used free memtotal"),
    ("DNS_HOSTS", "hostname ttl addrs"),
    ("DNS_ZONES", "zonename serial count"),
    ("PEERS", "peer_id host port pool_size"),
    ("PEER_POOLS", "peer_id cl_active_cancel_req cl_waiting_cancel_req sv_active_cancel sv_login"),
    (
        "FDS",
        "fd task user database addr port cancel link client_encoding std_strings datestyle timezone password \
         scram_client_key scram_server_key",
    ),
    ("client_encoding", "client_encoding"),
];
const SOCKET: &str = "type user database replication state addr port local_addr local_port connect_time request_time \
                      wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id";
/// With what is Freshet's own.
const CLIENTS: &str = "type user database replication state addr port local_addr local_port connect_time request_time \
                       wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id pin pin_time";
const BUFFERS: &str = "recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail";

fn console(pair: &Pair, user: &str) -> Result<RawClient> {
    RawClient::login(pair.address(), Login { user, database: "pgbouncer", ..pair.login() })
}

/// The names of an answer's columns.
fn columns(messages: &[Message]) -> String {
    let Some(description) = messages.iter().find(|m| m.tag == b'T') else { return String::new() };
    let mut names = Vec::new();
    let mut rest = description.body.get(2..).unwrap_or_default();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = rest.get(end + 19..).unwrap_or_default();
    }
    names.join(" ")
}

/// The value of a column in the row whose first is this.
fn value(console: &mut RawClient, show: &str, (first, column): (&str, &str)) -> Result<String> {
    let answer = console.query(show)?;
    let at = columns(&answer).split(' ').position(|name| name == column).with_context(|| format!("no {column}"))?;
    let row = rows(&answer).into_iter().find(|row| row[0] == first);
    Ok(row.with_context(|| format!("{show}: no {first} in {answer:?}"))?[at].clone())
}

fn fails(console: &mut RawClient, sql: &str, sqlstate: &str, message: &str) -> Result<()> {
    let answer = console.query(sql)?;
    let error = answer.iter().find(|m| m.tag == b'E').with_context(|| format!("{sql}: {answer:?}"))?;
    let said = (error.field(b'C').unwrap_or_default(), error.field(b'M').unwrap_or_default());
    ensure!(said == (sqlstate.to_owned(), message.to_owned()) && tags(&answer) == "EZ", "{sql}: {answer:?}");
    Ok(())
}

fn does(console: &mut RawClient, sql: &str, tag: &str) -> Result<()> {
    let answer = console.query(sql)?;
    let done = answer.iter().any(|m| m.tag == b'C' && m.body == [tag.as_bytes(), b"\0"].concat());
    ensure!(done, "{sql}: {answer:?}");
    Ok(())
}

fn columns_and_words_are_pgbouncers(version: Version) -> Result<()> {
    let database = Database::shared(version)?;
    let stats = format!("{}_stats", database.name);
    database.run(&format!("create role \"{stats}\" login"))?;
    let pair = Pair::over(database, SCHEMA, &["--stats-users", &stats])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client =
        RawClient::login(pair.address(), Login { more: &[("application_name", "the app")], ..pair.login() })?;
    until_hit(&pair, &mut client, "select title from film where id = 1")?;
    let other = reader(&pair, "other")?;
    let mut refused = RawClient::open(pair.address())?;
    let said = refused.start(Login { user: &other, database: "pgbouncer", ..pair.login() })?;
    ensure!(said.last().and_then(|m| m.field(b'M')).as_deref() == Some("not allowed"), "{said:?}");
    let (mut admin, mut watcher) = (console(&pair, pair.login().user)?, console(&pair, &stats)?);
    for (show, wanted) in COLUMNS {
        let answer = admin.query(&format!("SHOW {show};"))?;
        ensure!(columns(&answer) == wanted, "SHOW {show}: {}", columns(&answer));
        // The same by the extended protocol.
        let extended = admin.exchange(&[unnamed(&format!("SHOW {show}"), &[]), sync()].concat(), 1)?;
        ensure!(columns(&extended) == wanted && tags(&extended).starts_with("12T"), "SHOW {show}: {extended:?}");
    }
    for show in ["SOCKETS", "ACTIVE_SOCKETS"] {
        let answer = columns(&watcher.query(&format!("select {show}"))?);
        ensure!(answer == format!("{SOCKET} {BUFFERS}"), "SHOW {show}: {answer}");
    }
    let name = pair.login().database;
    ensure!(value(&mut watcher, "show state", ("active", "value"))? == "yes", "it is not active");
    ensure!(value(&mut watcher, "show pools", (name, "sv_active"))? == "1", "one session");
    ensure!(value(&mut watcher, "show databases", (name, "current_connections"))? == "1", "one session");
    // Freshet counts the refused one until it has closed the connection.
    eventually(PATIENCE, || {
        let clients = value(&mut watcher, "show lists", ("used_clients", "items"))?;
        ensure!(clients == "3", "{clients}, not a session and two consoles");
        Ok(())
    })?;
    let clients = rows(&watcher.query("show clients")?);
    ensure!(clients.iter().any(|row| row[2] == name && row[18] == "the app" && row[4] == "active"), "{clients:?}");
    // What the cache answers counts, as do its bytes.
    let queries = |watcher: &mut RawClient| -> Result<Vec<u64>> {
        let stats = rows(&watcher.query("show stats")?).remove(0);
        [3, 4, 5].map(|at| Ok(stats[at].parse()?)).into_iter().collect()
    };
    let before = queries(&mut watcher)?;
    for _ in 0..10 {
        client.query("select title from film where id = 1")?;
    }
    let after = queries(&mut watcher)?;
    let sent = frames::query("select title from film where id = 1").len() as u64 * 10;
    ensure!(after[0] == before[0] + 10 && after[1] == before[1] + sent && after[2] > before[2], "{before:?} {after:?}");
    words(&mut admin, &mut watcher)
}

fn words(admin: &mut RawClient, watcher: &mut RawClient) -> Result<()> {
    for sql in ["begin", "SHOW STATS; SHOW POOLS", "show nothing"] {
        fails(watcher, sql, "08P01", &format!("invalid command '{sql}', use SHOW HELP;"))?;
    }
    for sql in ["pause", "show fds", "kill", "kill_client 1", "shutdown", "reload", "set memory = 1", "resume"] {
        fails(watcher, sql, "08P01", "admin access needed")?;
    }
    fails(admin, "kill_client x", "08P01", "invalid client pointer supplied")?;
    fails(admin, "kill_client 99999", "08P01", "client not found")?;
    fails(admin, "resume", "08P01", "pooler is not paused/suspended")?;
    fails(admin, "resume nothing", "08P01", "database nothing is not paused")?;
    fails(admin, "pause nothing", "08P01", "no such database: nothing")?;
    fails(admin, "pause pgbouncer", "08P01", "cannot pause admin db: pgbouncer")?;
    fails(admin, "set a = b", "08P01", "SET failed")?;
    fails(
        admin,
        "suspend",
        "08P01",
        "SUSPEND is not supported: it is for a new process that takes the sockets over; PAUSE lets all sessions come to rest",
    )?;
    let help = watcher.query("show help")?;
    ensure!(tags(&help) == "NCZ" && help[0].field(b'M').as_deref() == Some("Console usage"), "{help:?}");
    ensure!(tags(&watcher.query("set client_encoding to 'utf8'")?) == "NCZ", "not ignored");
    ensure!(tags(&watcher.query(";")?) == "IZ", "an empty query");
    does(admin, "SET memory = 67108864;", "SET memory=67108864")?;
    ensure!(value(admin, "show config", ("memory", "value"))? == "67108864", "the memory is not another");
    does(admin, "set bypass to on", "SET bypass=on")?;
    does(admin, "set bypass = '0'", "SET bypass=0")?;
    does(admin, "reload", "RELOAD")?;
    does(admin, "reconnect", "RECONNECT")?;
    // After an error the batch is skipped up to its Sync, and values come in binary format if so asked.
    let bad = [parse("", "nothing"), execute("", 0), sync()].concat();
    ensure!(tags(&admin.exchange(&bad, 1)?) == "EZ", "an unknown command");
    let missing = admin.exchange(&[execute("x", 0), sync()].concat(), 1)?;
    ensure!(sqlstate(&missing).as_deref() == Some("34000"), "{missing:?}");
    let binary = Bound { results: &[1], ..Bound::default() };
    let prepared = [parse("l", "show lists"), bind("p", "l", binary), describe_portal("p"), execute("p", 0), sync()];
    let answer = admin.exchange(&prepared.concat(), 1)?;
    let row = answer.iter().find(|m| m.tag == b'D').context("no row")?.columns();
    ensure!(row == [Some(b"databases".to_vec()), Some(vec![0, 0, 0, 2])], "{row:?}");
    Ok(())
}

fn collectors_read_it(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    client.query("select title from film where id = 1")?;
    let (login, password) = (pair.login(), pair.login().password.unwrap_or_default());
    let url = format!("postgres://{}:{password}@{}/pgbouncer?sslmode=disable", login.user, pair.address());
    let go = Client {
        name: "pgbouncer_exporter's and Telegraf's queries (Go)",
        installed: &["test", "-e", "go/installed"],
        command: &["go", "-C", "go", "run", "./console"],
        hits: &[],
    };
    if go.is_installed() {
        let printed = go.run(&url)?;
        ensure!(printed.lines().count() == 12 && !printed.contains("false"), "{printed}");
    } else {
        left_out("Go, of script/setup-clients")?;
    }
    let psql = pair.database.server.installation().program("psql");
    let mut psql = Command::new(psql);
    psql.args(["-X", "-A", "-t", "-c", "show version", "-c", "show lists", &url]);
    let Some(python) = interpreter() else { return left_out("Python's drivers") };
    let mut psycopg = Command::new(python);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/clients/python/console_session.py");
    psycopg.args(["-B", script, &url]);
    for (mut command, wanted) in [(psql, "PgBouncer 1.25.2 (Freshet "), (psycopg, "read\n")] {
        let output = command.stdin(Stdio::null()).output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && printed.starts_with(wanted), "{command:?}: {printed}{errors}");
    }
    Ok(())
}

/// How many sessions of the database are active, or have run this statement last.
fn seen(pair: &Pair, text: &str) -> Result<String> {
    let sql = format!("select count(*) from pg_stat_activity where query = '{text}' and pid <> pg_backend_pid()");
    pair.database.connect()?.value(&sql)
}

fn paused_sessions_wait(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let name = pair.login().database;
    let (mut admin, mut watcher) = (console(&pair, pair.login().user)?, console(&pair, pair.login().user)?);
    let (mut idle, mut busy) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut idle, "select title from film where id = 1")?;
    busy.run("begin; insert into film values (1001, 'new')")?;
    admin.send(&frames::query(&format!("PAUSE {name}")))?;
    eventually(PATIENCE, || {
        ensure!(value(&mut watcher, "show databases", (name, "paused"))? == "1", "not paused yet");
        Ok(())
    })?;
    // A transaction goes on, and PAUSE waits for its end. Hits and others wait for RESUME.
    idle.send(&[frames::query("select title from film where id = 1"), frames::query("select 'passes'")].concat())?;
    busy.run("insert into film values (1002, 'newer')")?;
    busy.run("commit")?;
    let paused = admin.until(b'Z')?;
    ensure!(tags(&paused) == "CZ", "{paused:?}");
    busy.send(&[unnamed("select 'late'", &[]), sync()].concat())?;
    eventually(PATIENCE, || {
        let waiting = value(&mut watcher, "show pools", (name, "cl_waiting"))?;
        ensure!(waiting == "2", "{waiting} of both wait");
        Ok(())
    })?;
    ensure!(
        seen(&pair, "select ''passes''")? == "0" && seen(&pair, "select ''late''")? == "0",
        "it reached the database"
    );
    fails(&mut admin, "resume", "08P01", "pooler is not paused/suspended")?;
    does(&mut admin, &format!("RESUME {name}"), "RESUME")?;
    ensure!(tags(&idle.until(b'Z')?) == "TDCZ" && tags(&idle.until(b'Z')?) == "TDCZ", "the session at rest");
    ensure!(tags(&busy.until(b'Z')?) == "12TDCZ", "the other");
    // All of them; a login waits as well.
    does(&mut admin, "pause", "PAUSE")?;
    fails(&mut admin, "pause", "08P01", "already suspended/paused")?;
    ensure!(value(&mut watcher, "show state", ("paused", "value"))? == "yes", "not paused");
    let address = pair.address();
    let (user, password) = (pair.login().user.to_owned(), pair.login().password.map(str::to_owned));
    let database = name.to_owned();
    let late = std::thread::spawn(move || -> Result<String> {
        let login = Login { user: &user, database: &database, password: password.as_deref(), more: &[] };
        RawClient::login(address, login)?.value("select 'in'")
    });
    idle.send(&frames::query("select 'again'"))?;
    does(&mut admin, "resume", "RESUME")?;
    ensure!(tags(&idle.until(b'Z')?) == "TDCZ", "the session at rest");
    ensure!(late.join().map_err(|_| anyhow::anyhow!("panic"))?? == "in", "the late one");
    Ok(())
}

fn ends_by_force(client: &mut RawClient) -> Result<()> {
    let message = client.read()?;
    ensure!(message.field(b'M').as_deref() == Some("admin forced disconnect"), "{message:?}");
    ensure!(client.read_or_end()?.is_none(), "more came");
    Ok(())
}

fn sessions_are_killed(version: Version) -> Result<()> {
    let mut pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let other = reader(&pair, "other")?;
    let (mut admin, mut client, mut running) =
        (console(&pair, pair.login().user)?, pair.connect()?, connect_as(&pair, &other)?);
    client.query("select 1")?;
    running.query("select 1")?;
    running.send(&frames::query("select pg_sleep(1000)"))?;
    let clients = rows(&admin.query("show clients")?);
    let id = clients.iter().find(|row| row[1] == other).context("no such client")?[20].clone();
    does(&mut admin, &format!("kill_client {id}"), "KILL_CLIENT")?;
    ends_by_force(&mut running)?;
    client.query("select 1")?;
    // KILL pauses the database, as PgBouncer does.
    let name = pair.login().database.to_owned();
    does(&mut admin, &format!("kill {name}"), "KILL")?;
    ends_by_force(&mut client)?;
    does(&mut admin, &format!("resume {name}"), "RESUME")?;
    let mut client = pair.connect()?;
    client.query("select 1")?;
    does(&mut admin, "SHUTDOWN WAIT_FOR_CLIENTS", "SHUTDOWN")?;
    ends_by_command(&mut client)?;
    let status = eventually(PATIENCE, || pair.freshet.ended()?.context("it still runs"))?;
    ensure!(status.code() == Some(0), "{status}");
    Ok(())
}
