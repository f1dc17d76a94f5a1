//! Connections that break on either side, and a server that stops.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Settings, StopMode};

use super::SCHEMA;
use crate::support::frames::{query, sync, unnamed};
use crate::support::{
    Database, Freshet, Message, PATIENCE, Pair, RawClient, Version, eventually, on_both_at_length, time_passes,
};

on_both_at_length!(
    the_client_leaves_in_the_middle,
    a_session_is_terminated,
    the_server_is_down,
    started_before_the_server,
    the_server_is_killed,
    the_server_is_restarted_quickly,
);

const READ: &str = "select id, name from item where id = 1";

fn code(messages: &[Message]) -> Option<String> {
    messages.iter().find(|m| m.tag == b'E').and_then(|m| m.field(b'C'))
}

/// Reads to the end of the connection.
fn rest(client: &mut RawClient) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    while let Some(message) = client.read_unheard()? {
        messages.push(message);
    }
    Ok(messages)
}

/// The backends of clients on this database that are at that.
fn backends(pair: &Pair, what: &str) -> Result<String> {
    let sql = format!(
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and {what}"
    );
    pair.database.connect()?.value(&sql)
}

fn the_client_leaves_in_the_middle(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut stays = pair.connect()?;
    for last_words in [
        query("select pg_sleep(1.5)"),
        query("begin; update item set name = 'lost' where id = 1; select pg_sleep(1.5)"),
        // Half a message, half a pipeline, a result that the client does not read, a copy that is not finished.
        vec![b'Q', 0, 0, 0],
        vec![b'Q', 0, 0, 1, 0, b's'],
        unnamed(READ, &[]),
        query("select repeat('x', 1000) from generate_series(1, 100000)"),
        [query(READ), sync(), query(READ)].concat(),
        query("copy log from stdin"),
    ] {
        let mut leaves = pair.connect()?;
        leaves.query("set application_name = 'leaver'")?;
        leaves.send(&last_words)?;
        drop(leaves);
        stays.query(READ)?;
    }
    eventually(PATIENCE, || {
        let left = backends(&pair, "application_name = 'leaver'")?;
        ensure!(left == "0", "{left} sessions are left over");
        Ok(())
    })?;
    ensure!(pair.freshet.is_alive(), "Freshet has ended");
    stays.expect_silence()?;
    ensure!(stays.value("select name from item where id = 1")? == "item 1", "an unfinished transaction was committed");
    Ok(())
}

fn a_session_is_terminated(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut stays = pair.connect()?;
    stays.query(READ)?;
    for busy in [true, false] {
        let mut victim = pair.connect()?;
        let pid = victim.value("select pg_backend_pid()")?;
        if busy {
            victim.send(&query("select pg_sleep(60)"))?;
            eventually(PATIENCE, || {
                ensure!(backends(&pair, "wait_event = 'PgSleep'")? == "1", "nobody sleeps");
                Ok(())
            })?;
        }
        pair.database.run(&format!("select pg_terminate_backend({pid})"))?;
        let messages = rest(&mut victim)?;
        ensure!(code(&messages).as_deref() == Some("57P01"), "busy: {busy}: {messages:?}");
    }
    stays.query(READ)?;
    stays.expect_silence()?;
    // Also the connections that Freshet itself keeps: it recovers and goes on caching.
    if pair.freshet.is_there() {
        pair.database.run(
            "select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid()",
        )?;
        let messages = rest(&mut stays)?;
        ensure!(code(&messages).as_deref() == Some("57P01"), "{messages:?}");
        pair.connect()?.expect_silence()?;
        pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    }
    Ok(())
}

/// A new connection gets an error that says what is wrong, at once, or it is let in again.
fn refused(pair: &Pair) -> Result<()> {
    let mut client = RawClient::open(pair.address())?;
    let messages = client.start(pair.login())?;
    let code = code(&messages).context("let in")?;
    // connection_failure, cannot_connect_now, or what the server itself says while it starts or stops.
    ensure!(["08006", "08001", "57P03", "57P01"].contains(&code.as_str()), "{messages:?}");
    ensure!(client.read_unheard()?.is_none(), "the connection stays open after a refusal");
    Ok(())
}

fn own_pair(version: Version) -> Result<Pair> {
    let server = version.start(&Settings::default())?;
    Pair::over(Database::create(server)?, SCHEMA, &[])
}

fn the_server_is_down(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    pair.database.server.stop(StopMode::Fast)?;
    let messages = rest(&mut client)?;
    ensure!(code(&messages).as_deref() == Some("57P01"), "{messages:?}");
    for _ in 0..3 {
        refused(&pair)?;
    }
    eventually(PATIENCE, || {
        let (status, body) = pair.freshet.health()?;
        ensure!(status != 200, "/health says all is well: {body}");
        Ok(())
    })?;
    ensure!(pair.freshet.is_alive(), "Freshet has ended");
    pair.database.server.start()?;
    eventually(PATIENCE, || pair.connect()?.expect_silence())?;
    pair.freshet.wait_ready()?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))
}

fn started_before_the_server(version: Version) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let database = Database::create(server)?;
    database.run(SCHEMA)?;
    database.server.stop(StopMode::Fast)?;
    let freshet = Freshet::start_unready(database.address(), &database.url(), &[])?;
    let pair = Pair { freshet, database };
    if pair.freshet.is_there() {
        refused(&pair)?;
        ensure!(pair.freshet.is_alive(), "Freshet has ended: {}", pair.freshet.log());
    }
    pair.database.server.start()?;
    pair.freshet.wait_ready()?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))
}

fn the_server_is_killed(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut idle = pair.connect()?;
    let mut busy = pair.connect()?;
    busy.send(&query("select pg_sleep(60)"))?;
    pair.database.server.kill9()?;
    // Nobody said why; the connection just ends, with or without an error, but it must not hang.
    rest(&mut idle)?;
    rest(&mut busy)?;
    refused(&pair)?;
    pair.database.server.start()?;
    // Written while Freshet may still be blind: it must not serve what it knew before.
    pair.database.run("update item set name = 'after the crash' where id = 1")?;
    let name = eventually(PATIENCE, || pair.connect()?.value("select name from item where id = 1"))?;
    ensure!(name == "after the crash", "stale: {name}");
    pair.freshet.wait_ready()?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))
}

/// Down for so short a time that the lease has not run out.
fn the_server_is_restarted_quickly(version: Version) -> Result<()> {
    let pair = own_pair(version)?;
    for round in 0..3 {
        pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
        pair.database.server.restart()?;
        pair.database.run(&format!("update item set name = 'round {round}' where id = 1"))?;
        let name = eventually(PATIENCE, || pair.connect()?.value("select name from item where id = 1"))?;
        // A write around Freshet is seen after D = 1 s at the latest.
        if name != format!("round {round}") {
            time_passes("D, and room", Duration::from_millis(1500));
            let name = pair.connect()?.value("select name from item where id = 1")?;
            ensure!(name == format!("round {round}"), "stale: {name}");
        }
        pair.freshet.wait_ready()?;
    }
    Ok(())
}
