//! What an operator sees of shared connections, and orders.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use super::{PID, is_silent, shared, shared_with};
use crate::pooling::until_more;
use crate::support::frames::query;
use crate::support::{Database, Login, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    pins_are_shown,
    databases_show_their_limits,
    a_restart_in_a_pause_is_not_noticed,
    reconnect_replaces_connections,
);

const SCHEMA: &str = "create table t (id int primary key, v int); insert into t values (1, 10), (2, 20)";

pub(super) fn console(pair: &Pair) -> Result<RawClient> {
    RawClient::login(pair.address(), Login { database: "pgbouncer", ..pair.login() })
}

/// The rows of a SHOW, by the names of their columns.
pub(super) fn shown(console: &mut RawClient, show: &str) -> Result<Vec<HashMap<String, String>>> {
    let answer = console.query(show)?;
    let description = answer.iter().find(|message| message.tag == b'T').context("no rows")?;
    let mut names = Vec::new();
    let mut rest = description.body.get(2..).unwrap_or_default();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = rest.get(end + 19..).unwrap_or_default();
    }
    let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
    let rows = answer.iter().filter(|message| message.tag == b'D');
    Ok(rows.map(|row| names.iter().cloned().zip(row.columns().into_iter().map(text)).collect()).collect())
}

/// Values of a row of SHOW, which has this value in its first named column.
pub(super) fn row(console: &mut RawClient, show: &str, (key, value): (&str, &str)) -> Result<HashMap<String, String>> {
    let rows = shown(console, show)?;
    rows.into_iter().find(|row| row[key] == value).with_context(|| format!("{show}: no {key} {value}"))
}

/// Waits until no session of the database has a connection.
pub(crate) fn all_at_rest(address: SocketAddr, login: Login<'_>) -> Result<()> {
    let mut console = RawClient::login(address, Login { database: "pgbouncer", ..login })?;
    eventually(PATIENCE, || {
        let row = row(&mut console, "show pools", ("database", login.database))?;
        ensure!(row["sv_active"] == "0", "{row:?}");
        Ok(())
    })
}

fn does(console: &mut RawClient, command: &str) -> Result<()> {
    let answer = console.query(command)?;
    ensure!(answer.iter().any(|message| message.tag == b'C'), "{command}: {answer:?}");
    Ok(())
}

fn pins_are_shown(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 4)?;
    let more = [("application_name", "the app")];
    let mut client = RawClient::login(pair.address(), Login { more: &more, ..pair.login() })?;
    let mut console = console(&pair)?;
    let mut pin = || -> Result<(String, String)> {
        let row = row(&mut console, "show clients", ("application_name", "the app"))?;
        Ok((row["pin"].clone(), row["pin_time"].clone()))
    };
    let count = |what: &str, reason: &str| -> Result<u64> {
        Ok(pair.freshet.metrics()?.count(&format!("freshet_{what}{{reason=\"{reason}\"}}")))
    };
    let seconds = |reason: &str| -> Result<f64> {
        Ok(pair.freshet.metrics()?.value(&format!("freshet_pin_seconds_total{{reason=\"{reason}\"}}")))
    };
    client.run("select 1 from t")?;
    for (keeps, reason, ends) in [
        ("declare c cursor with hold for select 5", "cursor", "close c"),
        ("set seq_page_cost = 1.5", "settings", "reset seq_page_cost"),
        ("begin", "transaction", "commit"),
    ] {
        eventually(PATIENCE, || {
            ensure!(pin()?.0.is_empty(), "pinned by {}", pin()?.0);
            Ok(())
        })?;
        let before = count("pins_total", reason)?;
        client.run(keeps)?;
        let since = eventually(PATIENCE, || {
            let (now, since) = pin()?;
            ensure!(now == reason, "{keeps}: {now}");
            Ok(since)
        })?;
        ensure!(since.ends_with("UTC"), "{since}");
        ensure!(count("pinned_sessions", reason)? == 1 && count("pins_total", reason)? == before + 1);
        until_more(|| seconds(reason))?;
        client.run(ends)?;
        eventually(PATIENCE, || {
            ensure!(count("pinned_sessions", reason)? == 0, "still pinned");
            Ok(())
        })?;
        ensure!(count("pins_total", reason)? == before + 1);
    }
    client.run("declare c cursor with hold for select 5")?;
    drop(client);
    eventually(PATIENCE, || {
        ensure!(count("pinned_sessions", "cursor")? == 0, "the session has ended");
        Ok(())
    })
}

fn databases_show_their_limits(version: Version) -> Result<()> {
    let options = ["--max-db-connections", "9", "--min-pool-size", "1", "--reserve-pool-size", "2"];
    let pair = shared_with(version, SCHEMA, 3, &options)?;
    let name = pair.login().database;
    let (mut client, mut console) = (pair.connect()?, console(&pair)?);
    client.run("select 1 from t")?;
    let row = row(&mut console, "show databases", ("name", name))?;
    for (column, value) in [
        ("pool_mode", "transaction"),
        ("pool_size", "3"),
        ("min_pool_size", "1"),
        ("reserve_pool_size", "2"),
        ("server_lifetime", "3600"),
        ("max_connections", "9"),
        ("current_connections", "1"),
        ("current_client_connections", "1"),
    ] {
        ensure!(row[column] == value, "{column} is {}, not {value}", row[column]);
    }
    // Where the database authenticates the clients, each has its own connection.
    let database = Database::shared(version)?;
    let pair = Pair::over(database, SCHEMA, &["--pool", "transaction"])?;
    let (_client, mut console) = (pair.connect()?, self::console(&pair)?);
    let row = self::row(&mut console, "show databases", ("name", pair.login().database))?;
    ensure!(row["pool_mode"] == "session" && row["pool_size"] == "0" && row["current_connections"] == "1", "{row:?}");
    Ok(())
}

fn a_restart_in_a_pause_is_not_noticed(version: Version) -> Result<()> {
    let server = version.start(&freshet_testbed::Settings::default())?;
    let options = ["--auth", "trust", "--pool", "transaction", "--default-pool-size", "3"];
    let pair = Pair::over(Database::create(server.clone())?, SCHEMA, &options)?;
    let mut clients = (0..5).map(|_| pair.connect()).collect::<Result<Vec<_>>>()?;
    for client in &mut clients {
        client.run("update t set v = v + 1 where id = 1")?;
        ensure!(client.value("select v from t where id = 2")? == "20");
    }
    let mut console = console(&pair)?;
    does(&mut console, "pause")?;
    let (first, _) = clients.split_first_mut().context("a client")?;
    first.send(&query("update t set v = v + 1 where id = 1"))?;
    ensure!(is_silent(first)?, "not paused");
    server.restart()?;
    ensure!(is_silent(first)?, "it has noticed");
    does(&mut console, "resume")?;
    first.until(b'Z')?;
    for client in &mut clients {
        client.run("update t set v = v + 1 where id = 1")?;
        ensure!(client.value("select v from t where id = 2")? == "20");
    }
    ensure!(clients[0].value("select v from t where id = 1")? == "21");
    Ok(())
}

fn reconnect_replaces_connections(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 2)?;
    let (mut a, mut b, mut console) = (pair.connect()?, pair.connect()?, console(&pair)?);
    a.run("begin; update t set v = 11 where id = 1")?;
    let idle = b.value(PID)?;
    does(&mut console, "reconnect")?;
    let replaced = b.value(PID)?;
    ensure!(replaced != idle, "an idle connection is used again");
    let mut waits = self::console(&pair)?;
    waits.send(&query(&format!("wait_close {}", pair.login().database)))?;
    ensure!(is_silent(&waits)?, "the transaction is still open");
    a.run("commit")?;
    let answer = waits.until(b'Z')?;
    ensure!(answer.iter().any(|message| message.tag == b'C'), "{answer:?}");
    ensure!(b.value(PID)? == replaced, "replaced once more");
    Ok(())
}
