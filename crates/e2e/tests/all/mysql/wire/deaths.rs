//! The server stops, dies, freezes or restarts; sessions that end by a time-out.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::{Database, Kind, Pair, SESSION_MODE, on_both, packets};
use crate::support::{PATIENCE, eventually, time_passes};

on_both!(
    stopped_and_started_again,
    killed_in_use,
    idle_for_too_long,
    a_client_that_goes_away,
    frozen_and_thawed,
    frozen_for_too_long,
);

/// A pair over a server of its own.
fn pair(kind: Kind) -> Result<Pair> {
    pair_with(kind, &[])
}

fn pair_with(kind: Kind, options: &[&str]) -> Result<Pair> {
    Pair::over(Database::create(kind.start(&Kind::settings())?)?, SCHEMA, options)
}

/// What a client hears who comes while the server is down: an error instead of a handshake.
fn refusal(pair: &Pair) -> Result<String> {
    let begun = Instant::now();
    let mut socket = std::net::TcpStream::connect(pair.address())?;
    let mut heard = Vec::new();
    socket.set_read_timeout(Some(PATIENCE))?;
    std::io::Read::read_to_end(&mut socket, &mut heard)?;
    ensure!(begun.elapsed() < PATIENCE, "an answer after {:?}", begun.elapsed());
    ensure!(heard.get(4) == Some(&0xff), "no error: {}", heard.escape_ascii());
    Ok(String::from_utf8_lossy(&heard).into_owned())
}

fn stopped_and_started_again(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let mut client = pair.connect()?;
    client.run("SELECT name FROM item WHERE id = 1")?;
    pair.database.server.stop()?;
    // The session is over, with or without a last word.
    let _ = client.send(&packets::query("SELECT name FROM item WHERE id = 2"));
    let end = client.bytes_to_end()?;
    ensure!(end.is_empty() || end.get(4) == Some(&0xff), "{}", end.escape_ascii());
    if pair.freshet.is_there() {
        refusal(&pair)?;
        refusal(&pair)?;
    }
    pair.database.server.start_again()?;
    eventually(PATIENCE, || pair.connect()?.run("SELECT name FROM item WHERE id = 1"))?;
    pair.freshet.wait_ready()?;
    pair.same_with_hits(1, |c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("SELECT name FROM item WHERE id = 1").map(drop)
    })
}

fn killed_in_use(kind: Kind) -> Result<()> {
    // Where sessions share connections, an idle one outlives the server.
    let pair = pair_with(kind, SESSION_MODE)?;
    let mut idle = pair.connect()?;
    let mut busy = pair.connect()?;
    let mut in_a_block = pair.connect()?;
    idle.run("SELECT name FROM item WHERE id = 1")?;
    in_a_block.run("BEGIN; INSERT INTO log (line) VALUES ('lost')")?;
    busy.send(&packets::query("SELECT SLEEP(30)"))?;
    pair.database.server.kill9()?;
    for client in [&mut busy, &mut in_a_block, &mut idle] {
        let end = client.bytes_to_end()?;
        ensure!(end.is_empty() || end.get(4) == Some(&0xff), "{}", end.escape_ascii());
    }
    pair.database.server.start_again()?;
    let lines = eventually(PATIENCE, || pair.connect()?.value("SELECT COUNT(*) FROM log"))?;
    ensure!(lines == "0", "{lines} lines");
    pair.freshet.wait_ready()?;
    ensure!(pair.connect()?.value("SELECT COUNT(*) FROM log")? == "0", "another number at the second time");
    Ok(())
}

fn idle_for_too_long(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("SET SESSION wait_timeout = 1")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.read_or_end()?;
        Ok(())
    })
}

/// Its block is rolled back, its locks are free, its connection to the server is closed.
fn a_client_that_goes_away(kind: Kind) -> Result<()> {
    let pair = Pair::in_session_mode(kind, SCHEMA)?;
    let mut watcher = pair.database.connect()?;
    for polite in [true, false] {
        let mut client = pair.connect()?;
        let id = client.handshake.connection;
        client.run("SELECT GET_LOCK('gone', 0); BEGIN; INSERT INTO log (line) VALUES ('rolled back')")?;
        if polite {
            client.send(&packets::quit())?;
        }
        drop(client);
        eventually(PATIENCE, || {
            let left =
                watcher.value(&format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}"))?;
            ensure!(left == "0", "its connection to the server is still there");
            Ok(())
        })?;
        ensure!(watcher.value("SELECT IS_FREE_LOCK('gone'), COUNT(*) FROM log")? == "1", "its lock is not free");
        ensure!(watcher.value("SELECT COUNT(*) FROM log")? == "0", "its block was not rolled back");
    }
    Ok(())
}

/// Nothing is answered, nothing is lost.
fn frozen_and_thawed(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let mut client = pair.connect()?;
    client.run("BEGIN")?;
    pair.database.server.pause()?;
    client.send(&packets::query("INSERT INTO log (line) VALUES ('late')"))?;
    let seen = std::thread::scope(|scope| {
        let newcomer = scope.spawn(|| pair.connect()?.value("SELECT COUNT(*) FROM log"));
        time_passes("the server stands still", Duration::from_secs(2));
        pair.database.server.resume()?;
        let answer = client.answer()?;
        ensure!(answer.affected == 1, "{answer:?}");
        client.run("COMMIT")?;
        newcomer.join().ok().context("a panic")?
    })?;
    ensure!(seen == "0" || seen == "1", "{seen}");
    pair.freshet.wait_ready()?;
    ensure!(pair.connect()?.value("SELECT COUNT(*) FROM log")? == "1", "the row is lost");
    Ok(())
}

/// A client that gets no handshake in time gets the reason, also after a time in which others were first.
fn frozen_for_too_long(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    pair.database.server.pause()?;
    let heard = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..100).map(|_| scope.spawn(|| refusal(&pair))).collect();
        clients.into_iter().map(|client| client.join().ok().context("a panic")?).collect::<Result<Vec<_>>>()
    });
    pair.database.server.resume()?;
    for heard in heard? {
        ensure!(heard.contains("cannot reach the database"), "{}", heard.escape_debug());
    }
    eventually(PATIENCE, || pair.connect()?.run("SELECT name FROM item WHERE id = 1"))
}
