//! While no server takes connections, sessions wait for one: a restart, or a server that does not come back.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use freshet_testbed::{Server, Settings, StopMode};

use super::is_silent;
use super::operator::all_at_rest;
use crate::pooling::until_sessions_wait;
use crate::support::frames::{bind_text, cancel, execute, parse, query, sync};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    a_restart_is_waited_for,
    who_waits_in_vain_is_told,
    a_silent_server_is_not_waited_for_without_end,
    who_waits_can_cancel,
);

const SCHEMA: &str = "create table t (id int primary key, v int); insert into t values (1, 10), (2, 20)";
const READ: &str = "select v from t where id = 2";

fn over(server: Arc<Server>, more: &[&str]) -> Result<Pair> {
    let options = ["--auth", "trust", "--pool", "transaction", "--default-pool-size", "2"];
    Pair::over(Database::create(server)?, SCHEMA, &[&options, more].concat())
}

/// More sessions than connections write while the server is down: each write is done once, and nobody notices anything but the wait.
fn a_restart_is_waited_for(version: Version) -> Result<()> {
    for mode in [StopMode::Fast, StopMode::Immediate] {
        let server = version.start(&Settings::default())?;
        let pair = over(server.clone(), &["--failover-timeout", "2m"])?;
        let mut clients = (0..5).map(|_| pair.connect()).collect::<Result<Vec<_>>>()?;
        for client in &mut clients {
            client.run("update t set v = v + 1 where id = 1")?;
        }
        all_at_rest(pair.address(), pair.login())?;
        server.stop(mode)?;
        for (n, client) in clients.iter_mut().enumerate() {
            client.send(&query(&format!("insert into t values ({}, 0)", 10 + n)))?;
        }
        until_sessions_wait(&pair.freshet)?;
        for client in &clients {
            ensure!(is_silent(client)?, "{mode:?}: a session does not wait");
        }
        std::thread::scope(|scope| -> Result<()> {
            let late = scope.spawn(|| pair.connect()?.value(READ));
            server.start()?;
            let value = late.join().expect("no panic").context("a client that came meanwhile")?;
            ensure!(value == "20", "{value}");
            Ok(())
        })?;
        for client in &mut clients {
            let answer = client.until(b'Z')?;
            ensure!(answer.iter().any(|message| message.tag == b'C'), "{mode:?}: {answer:?}");
            ensure!(client.value("select v from t where id = 1")? == "15");
        }
        ensure!(clients[0].value("select count(*) from t")? == "7");
        for v in ["21", "22"] {
            clients[0].run(&format!("update t set v = {v} where id = 2"))?;
            ensure!(clients[1].value(READ)? == v, "{mode:?}: a stale read");
            let hits = pair.freshet.metrics()?.hits();
            eventually(PATIENCE, || {
                ensure!(clients[1].value(READ)? == v, "{mode:?}: a stale read");
                ensure!(pair.freshet.metrics()?.hits() > hits, "no hit behind the restart");
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Behind the time-out a session gets the error. Sessions that need nothing of the server stay.
fn who_waits_in_vain_is_told(version: Version) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let pair = over(server.clone(), &["--failover-timeout", "1s"])?;
    let (mut idle, mut first, mut second) = (pair.connect()?, pair.connect()?, pair.connect()?);
    for client in [&mut idle, &mut first, &mut second] {
        client.run("update t set v = v + 1 where id = 1")?;
    }
    all_at_rest(pair.address(), pair.login())?;
    server.stop(StopMode::Fast)?;
    for client in [&mut first, &mut second] {
        client.send(&query("update t set v = v + 1 where id = 1"))?;
        let answer = client.until(b'E')?;
        let error = answer.last().map(|message| String::from_utf8_lossy(&message.body).into_owned());
        ensure!(error.as_ref().is_some_and(|text| text.contains("08006")), "{error:?}");
    }
    server.start()?;
    idle.run("update t set v = v + 1 where id = 1")?;
    ensure!(pair.connect()?.value("select v from t where id = 1")? == "14");
    Ok(())
}

/// In the place of the server something takes connections and says nothing: the wait ends all the same.
fn a_silent_server_is_not_waited_for_without_end(version: Version) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let pair = over(server.clone(), &["--failover-timeout", "3s"])?;
    let (mut idle, mut told) = (pair.connect()?, pair.connect()?);
    for client in [&mut idle, &mut told] {
        client.run("update t set v = v + 1 where id = 1")?;
    }
    all_at_rest(pair.address(), pair.login())?;
    server.stop(StopMode::Fast)?;
    let silent = TcpListener::bind(("127.0.0.1", server.port()))?;
    told.send(&query("update t set v = v + 1 where id = 1"))?;
    let error = told.until(b'E')?;
    ensure!(String::from_utf8_lossy(&error[0].body).contains("08006"), "{error:?}");
    drop(silent);
    server.start()?;
    idle.run("update t set v = v + 1 where id = 1")?;
    ensure!(idle.value("select v from t where id = 1")? == "13");
    Ok(())
}

/// Who waits for a server, or in the queue, can cancel: the statement never runs, and the session goes on.
fn who_waits_can_cancel(version: Version) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let pair = over(server.clone(), &["--failover-timeout", "2m"])?;
    let (mut a, mut b, mut c) = (pair.connect()?, pair.connect()?, pair.connect()?);
    let key = c.key_data.clone();
    a.run("begin; update t set v = 11 where id = 1")?;
    b.run("begin; update t set v = 21 where id = 2")?;
    for batch in [false, true] {
        let insert = "insert into t values (9, 9)";
        c.send(&if batch {
            [parse("", insert), bind_text("", "", &[]), execute("", 0), sync()].concat()
        } else {
            query(insert)
        })?;
        ensure!(is_silent(&c)?, "there is a connection");
        RawClient::open(pair.address())?.send(&cancel(&key))?;
        let answer = c.until(b'Z')?;
        let is_told = String::from_utf8_lossy(&answer[0].body).contains("57014");
        ensure!(answer.len() == 2 && answer[0].tag == b'E' && is_told, "in the queue: {answer:?}");
    }
    for client in [&mut a, &mut b] {
        client.run("commit")?;
    }
    all_at_rest(pair.address(), pair.login())?;
    server.stop(StopMode::Fast)?;
    c.send(&query("insert into t values (9, 9)"))?;
    until_sessions_wait(&pair.freshet)?;
    RawClient::open(pair.address())?.send(&cancel(&key))?;
    let answer = c.until(b'Z')?;
    ensure!(String::from_utf8_lossy(&answer[0].body).contains("57014"), "{answer:?}");
    server.start()?;
    ensure!(c.value("select count(*) from t")? == "2", "a cancelled statement has run");
    Ok(())
}
