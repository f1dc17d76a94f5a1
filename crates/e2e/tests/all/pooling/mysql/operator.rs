//! What an operator sees of shared connections, and orders.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::stage::Stage;
use crate::mysql::support::{Database, Kind, RawClient, on_both, packets};
use crate::pooling::{until_more, until_sessions_wait};
use crate::support::{PATIENCE, eventually, get};

on_both!(
    pins_are_shown,
    a_restart_in_a_pause_is_not_noticed,
    a_restart_is_waited_for,
    who_waits_in_vain_is_told,
    reconnect_replaces_connections,
);

/// The pin of the only session.
fn pin(stage: &Stage) -> Result<Value> {
    let (status, body) = get(stage.pair.freshet.http, "/api/sessions")?;
    ensure!(status == 200, "{status} {body}");
    let figures: Value = serde_json::from_str(&body)?;
    Ok(figures["list"][0]["pin"].clone())
}

fn pins_are_shown(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let mut client = stage.connect()?;
    let count = |what: &str, reason: &str| -> Result<u64> {
        Ok(stage.pair.freshet.metrics()?.count(&format!("freshet_{what}{{reason=\"{reason}\"}}")))
    };
    let seconds = |reason: &str| -> Result<f64> {
        Ok(stage.pair.freshet.metrics()?.value(&format!("freshet_pin_seconds_total{{reason=\"{reason}\"}}")))
    };
    for (holding, reason, ending) in [
        ("LOCK TABLES line READ", "locked_tables", "UNLOCK TABLES"),
        ("BEGIN", "transaction", "COMMIT"),
        ("CREATE TEMPORARY TABLE scratch (n INT)", "temporary_table", "DROP TEMPORARY TABLE scratch"),
    ] {
        let before = count("pins_total", reason)?;
        client.run(holding)?;
        eventually(PATIENCE, || {
            ensure!(pin(&stage)? == reason, "{holding}: {}", pin(&stage)?);
            Ok(())
        })?;
        ensure!(count("pinned_sessions", reason)? == 1 && count("pins_total", reason)? == before + 1);
        until_more(|| seconds(reason))?;
        client.run(ending)?;
        eventually(PATIENCE, || {
            ensure!(pin(&stage)?.is_null() && count("pinned_sessions", reason)? == 0, "{ending}: still pinned");
            Ok(())
        })?;
    }
    Ok(())
}

/// Whether nothing comes from the server for a while.
fn is_silent(client: &RawClient) -> Result<bool> {
    let socket = client.socket()?;
    socket.set_read_timeout(Some(Duration::from_millis(300)))?;
    let heard = socket.peek(&mut [0]);
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(heard.is_err())
}

fn orders(operator: &mut RawClient, order: &str) -> Result<String> {
    let rows = operator.query(order)?.rows();
    let text = rows.iter().map(|row| row.iter().flatten().cloned().collect::<Vec<_>>().join("=")).collect::<Vec<_>>();
    ensure!(!text.is_empty(), "{order}: no rows");
    Ok(text.join(" "))
}

fn a_restart_in_a_pause_is_not_noticed(kind: Kind) -> Result<()> {
    let server = kind.start(&Kind::settings())?;
    let stage = Stage::over(Database::create(server.clone())?, kind, &["--default-pool-size", "3"])?;
    let mut clients = (0..4).map(|_| stage.connect()).collect::<Result<Vec<_>>>()?;
    let mut operator = stage.connect()?;
    for client in &mut clients {
        client.run("UPDATE line SET n = n + 1 WHERE id = 1")?;
        ensure!(client.value("SELECT n FROM line WHERE id = 2")? == "2");
    }
    let mut busy = stage.connect()?;
    busy.run("BEGIN")?;
    busy.run("UPDATE line SET n = n + 1 WHERE id = 1")?;
    ensure!(orders(&mut operator, "FRESHET PAUSE")? == "pause=on sessions_not_at_rest=1");
    // A transaction is ended first.
    busy.run("COMMIT")?;
    busy.send(&packets::query("SELECT n FROM line WHERE id = 3"))?;
    ensure!(is_silent(&busy)?, "not paused");
    eventually(PATIENCE, || {
        let told = orders(&mut operator, "FRESHET PAUSE")?;
        ensure!(told == "pause=on sessions_not_at_rest=0", "{told}");
        ensure!(stage.connections()? == 0, "{} connections are left", stage.connections()?);
        Ok(())
    })?;
    let (first, _) = clients.split_first_mut().context("a client")?;
    first.send(&packets::query("UPDATE line SET n = n + 1 WHERE id = 1"))?;
    server.restart()?;
    ensure!(is_silent(first)?, "it has noticed");
    ensure!(orders(&mut operator, "FRESHET RESUME")?.starts_with("pause=off"));
    first.answer()?;
    busy.answer()?;
    for client in &mut clients {
        client.run("UPDATE line SET n = n + 1 WHERE id = 1")?;
        ensure!(client.value("SELECT n FROM line WHERE id = 2")? == "2");
    }
    ensure!(busy.value("SELECT n FROM line WHERE id = 1")? == "11");
    Ok(())
}

/// Sessions write while the server is down: each write is done once, and nobody notices anything but the wait.
fn a_restart_is_waited_for(kind: Kind) -> Result<()> {
    let server = kind.start(&Kind::settings())?;
    let options = ["--default-pool-size", "6", "--failover-timeout", "2m"];
    let stage = Stage::over(Database::create(server.clone())?, kind, &options)?;
    let mut clients = (0..5).map(|_| stage.connect()).collect::<Result<Vec<_>>>()?;
    for client in &mut clients {
        client.run("UPDATE line SET n = n + 1 WHERE id = 1")?;
        ensure!(client.value("SELECT n FROM line WHERE id = 2")? == "2");
    }
    server.stop()?;
    for client in &mut clients {
        client.send(&packets::query("UPDATE line SET n = n + 1 WHERE id = 1"))?;
    }
    until_sessions_wait(&stage.pair.freshet)?;
    for client in &clients {
        ensure!(is_silent(client)?, "a session does not wait");
    }
    std::thread::scope(|scope| -> Result<()> {
        let late = scope.spawn(|| stage.connect()?.value("SELECT n FROM line WHERE id = 2"));
        server.start_again()?;
        let value = late.join().expect("no panic").context("a client that came meanwhile")?;
        ensure!(value == "2", "{value}");
        Ok(())
    })?;
    for client in &mut clients {
        client.answer()?;
    }
    ensure!(clients[0].value("SELECT n FROM line WHERE id = 1")? == "11");
    for name in ["pot", "jug"] {
        clients[0].run(&format!("UPDATE item SET name = '{name}' WHERE id = 1"))?;
        let hits = stage.pair.freshet.metrics()?.hits();
        eventually(PATIENCE, || {
            ensure!(clients[1].value(super::stage::READ)? == name, "a stale read");
            ensure!(stage.pair.freshet.metrics()?.hits() > hits, "no hit behind the restart");
            Ok(())
        })?;
    }
    Ok(())
}

/// Behind the time-out a session gets the error. Sessions that need nothing of the server stay.
fn who_waits_in_vain_is_told(kind: Kind) -> Result<()> {
    let server = kind.start(&Kind::settings())?;
    let options = ["--default-pool-size", "2", "--failover-timeout", "1s"];
    let stage = Stage::over(Database::create(server.clone())?, kind, &options)?;
    let (mut idle, mut told) = (stage.connect()?, stage.connect()?);
    for client in [&mut idle, &mut told] {
        client.run("UPDATE line SET n = n + 1 WHERE id = 1")?;
        ensure!(client.value("SELECT n FROM line WHERE id = 2")? == "2");
    }
    server.stop()?;
    let error = told.run("UPDATE line SET n = n + 1 WHERE id = 1").expect_err("a write without a server");
    ensure!(format!("{error:#}").contains("1053"), "{error:#}");
    server.start_again()?;
    idle.run("UPDATE line SET n = n + 1 WHERE id = 1")?;
    ensure!(idle.value("SELECT n FROM line WHERE id = 1")? == "4");
    Ok(())
}

fn reconnect_replaces_connections(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let (mut a, mut operator) = (stage.connect()?, stage.connect()?);
    a.run("BEGIN")?;
    a.run("UPDATE line SET n = 5 WHERE id = 1")?;
    operator.run("DO 1")?;
    let before = connections(&stage)?;
    ensure!(before.len() == 2, "{before:?}");
    orders(&mut operator, "FRESHET RECONNECT")?;
    eventually(PATIENCE, || {
        ensure!(stage.connections()? == 1, "the idle connection is left");
        Ok(())
    })?;
    a.run("COMMIT")?;
    a.run("DO 1")?;
    eventually(PATIENCE, || {
        let now = connections(&stage)?;
        ensure!(now.is_disjoint(&before), "the connection of the transaction is left: {before:?}, {now:?}");
        Ok(())
    })?;
    ensure!(a.value("SELECT n FROM line WHERE id = 1")? == "5");
    Ok(())
}

/// The server's numbers of the account's connections.
fn connections(stage: &Stage) -> Result<BTreeSet<String>> {
    let sql = format!("SELECT id FROM information_schema.processlist WHERE user = '{}'", stage.user);
    let rows = stage.pair.database.connect()?.query(&sql)?.rows();
    Ok(rows.into_iter().flatten().flatten().collect())
}
