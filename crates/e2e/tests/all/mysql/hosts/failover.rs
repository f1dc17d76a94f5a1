//! The primary changes: switched over, or killed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use anyhow::{Context, Result, ensure};

use super::{Hosts, IS_STREAM_SERVER, POSITION, READ, REASON, ROLE, STATE};
use crate::mysql::support::{Kind, RawClient, on_both, packets};
use crate::operating::upgrades::{Successor, old_ends_well};
use crate::pooling::until_sessions_wait;
use crate::support::{Freshet, PATIENCE, eventually, get, pace};

on_both!(
    a_switch_over_under_writers,
    nothing_stale_behind_a_switch_over,
    a_silent_primary,
    a_restart_beside_a_second_primary,
    a_killed_primary,
    two_that_can_be_written,
    an_upgrade,
);

const WRITERS: usize = 4;

/// Writes numbers until the end; returns those whose writes were acknowledged, and those that were refused. A session that ended is replaced.
fn write(
    hosts: &Hosts,
    freshet: &Freshet,
    writer: usize,
    end: &AtomicBool,
    done: &AtomicUsize,
) -> (Vec<usize>, Vec<usize>) {
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    let mut client: Option<RawClient> = None;
    for n in (writer..).step_by(WRITERS) {
        if end.load(SeqCst) {
            break;
        }
        let connected = client.take().map_or_else(|| hosts.connect(freshet), Ok);
        let Ok(mut session) = connected else { continue };
        match session.query(&format!("INSERT INTO log (n) VALUES ({n})")).map(|answer| answer.error()) {
            Ok(None) => {
                acknowledged.push(n);
                done.fetch_add(1, SeqCst);
                client = Some(session);
            }
            Ok(Some(_)) => {
                refused.push(n);
                client = Some(session);
            }
            Err(_) => {}
        }
        pace(std::time::Duration::from_millis(2));
    }
    (acknowledged, refused)
}

/// The primary becomes read-only and lives on, the replica is promoted.
fn a_switch_over_under_writers(kind: Kind) -> Result<()> {
    let Some((hosts, freshet)) = Hosts::with_freshet(kind)? else { return Ok(()) };
    hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "replica")])?;
    hosts.hits_again(&freshet, &["before"])?;
    let (end, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let more = |count: usize| {
        let from = done.load(SeqCst);
        eventually(PATIENCE, || {
            ensure!(done.load(SeqCst) >= from + count, "{} writes", done.load(SeqCst));
            Ok(())
        })
    };
    let written = std::thread::scope(|scope| -> Result<Vec<_>> {
        let (hosts, freshet, end, done) = (&hosts, &freshet, &end, &done);
        let writers: Vec<_> =
            (0..WRITERS).map(|one| scope.spawn(move || write(hosts, freshet, one, end, done))).collect();
        let switched = (|| {
            more(40)?;
            hosts.demote()?;
            hosts.catch_up()?;
            hosts.promote()?;
            more(40)
        })();
        end.store(true, SeqCst);
        let written = writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
        switched.map(|()| written)
    })?;
    // Each acknowledged write is there once, and no other.
    let rows = hosts.replica.sql_in(&hosts.database.name, "SELECT n FROM log")?;
    let there: Vec<usize> = rows.lines().map(str::parse).collect::<Result<_, _>>()?;
    let count = |wanted: usize| there.iter().filter(|n| **n == wanted).count();
    for (acknowledged, refused) in &written {
        for n in acknowledged {
            ensure!(count(*n) == 1, "the acknowledged write {n} is there {} times", count(*n));
        }
        for n in refused {
            ensure!(count(*n) == 0, "the refused write {n} is there");
        }
    }
    hosts.hits_again(&freshet, &["after", "again"])?;
    hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "primary"), (IS_STREAM_SERVER, "yes"), (STATE, "up")])?;
    hosts.shows(&freshet, &hosts.primary_address(), &[(ROLE, "replica"), (IS_STREAM_SERVER, "no")])?;
    // All are at the new one, whichever connection they get.
    for _ in 0..8 {
        ensure!(hosts.port(&freshet)? == hosts.replica.port().to_string(), "at the old primary");
    }
    Ok(())
}

/// A session that has hit at the old primary sees each write that was acknowledged at the new one.
fn nothing_stale_behind_a_switch_over(kind: Kind) -> Result<()> {
    let Some((hosts, freshet)) = Hosts::with_freshet(kind)? else { return Ok(()) };
    hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "replica")])?;
    let (mut writer, mut reader, mut pinned) =
        (hosts.connect(&freshet)?, hosts.connect(&freshet)?, hosts.connect(&freshet)?);
    hosts.hits_again(&freshet, &["before"])?;
    ensure!(reader.value(READ)? == "before" && pinned.value(READ)? == "before", "not warm");
    hosts.demote()?;
    hosts.catch_up()?;
    hosts.promote()?;
    // The old primary's error, or a wait, until Freshet has seen the new one.
    let mut at_new = 0;
    for n in 0.. {
        let name = format!("n{n}");
        let answer = writer.query(&format!("UPDATE item SET name = '{name}' WHERE id = 1"))?;
        if answer.error().is_none() {
            at_new += 1;
            for session in [&mut reader, &mut pinned] {
                let found = session.value(READ)?;
                ensure!(found == name, "{found} behind the acknowledged {name}");
            }
            if at_new == 200 {
                break;
            }
        }
        ensure!(n < 1_000_000, "no write was acknowledged");
    }
    hosts.hits_again(&freshet, &["after"])
}

/// The primary stops to answer, but its connections stay open. Sessions that have begun to connect there go to the new one.
fn a_silent_primary(kind: Kind) -> Result<()> {
    let Some((hosts, freshet)) = Hosts::with_freshet(kind)? else { return Ok(()) };
    hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "replica")])?;
    hosts.hits_again(&freshet, &["before"])?;
    hosts.catch_up()?;
    hosts.database.server.pause()?;
    let moved = std::thread::scope(|scope| -> Result<String> {
        let waiting = scope.spawn(|| -> Result<String> { eventually(PATIENCE, || hosts.port(&freshet)) });
        hosts.promote()?;
        waiting.join().expect("no panic")
    });
    let hits = moved.and_then(|port| {
        ensure!(port == hosts.replica.port().to_string(), "not at the new one");
        hosts.hits_again(&freshet, &["after"])
    });
    hosts.database.server.resume()?;
    hits?;
    hosts.shows(&freshet, &hosts.primary_address(), &[(ROLE, "primary"), (STATE, "left out")])?;
    ensure!(hosts.port(&freshet)? == hosts.replica.port().to_string(), "at the old one again");
    Ok(())
}

/// A second server can be written; a short absence of the primary does not make it the one in use.
fn a_restart_beside_a_second_primary(kind: Kind) -> Result<()> {
    let Some((hosts, freshet)) = Hosts::with_freshet(kind)? else { return Ok(()) };
    hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "replica")])?;
    hosts.promote()?;
    hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "primary"), (STATE, "left out")])?;
    // All connections of Freshet end, those of the watch and of the stream, too.
    let ids = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user NOT IN \
               ('system user', 'event_scheduler')";
    for id in hosts.database.server.sql(ids)?.lines() {
        let _ = hosts.database.server.sql(&format!("KILL {id}"));
    }
    hosts.hits_again(&freshet, &["after"])?;
    ensure!(hosts.port(&freshet)? == hosts.database.server.port().to_string(), "at the second primary");
    hosts.shows(&freshet, &hosts.primary_address(), &[(ROLE, "primary"), (IS_STREAM_SERVER, "yes"), (STATE, "up")])?;
    Ok(())
}

/// All that is sent while there is no primary is done once, at the new one. The old one comes back, and can be written.
fn a_killed_primary(kind: Kind) -> Result<()> {
    let Some((hosts, freshet)) = Hosts::with_freshet(kind)? else { return Ok(()) };
    let before = hosts.shows(&freshet, &hosts.primary_address(), &[(IS_STREAM_SERVER, "yes")])?[POSITION].clone();
    let mut clients = (0..5).map(|_| hosts.connect(&freshet)).collect::<Result<Vec<_>>>()?;
    for (n, client) in clients.iter_mut().enumerate() {
        client.run(&format!("INSERT INTO log (n) VALUES ({n})"))?;
        // Otherwise ROW_COUNT() keeps its connection.
        client.value(READ)?;
    }
    let mut pinned = hosts.connect(&freshet)?;
    pinned.run("BEGIN")?;
    pinned.run("INSERT INTO log (n) VALUES (1000)")?;
    hosts.hits_again(&freshet, &["before"])?;
    hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "replica"), (STATE, "up")])?;
    hosts.catch_up()?;
    // The watch has seen the stream's server with all that it has.
    eventually(PATIENCE, || {
        let position = |address: &str| Ok::<_, anyhow::Error>(hosts.row(&freshet, address)?[POSITION].clone());
        let (primary, replica) = (position(&hosts.primary_address())?, position(&hosts.replica_address())?);
        ensure!(primary == replica && primary != before, "{primary} and {replica}, {before} before");
        Ok(())
    })?;
    hosts.database.server.kill9()?;
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&packets::query(&format!("INSERT INTO log (n) VALUES ({})", 100 + n)))?;
    }
    until_sessions_wait(&freshet)?;
    hosts.promote()?;
    for client in &mut clients {
        let answer = client.answer()?;
        ensure!(answer.error().is_none(), "{:?}", answer.error());
        client.value(READ)?;
    }
    // A transaction does not survive its server.
    ensure!(pinned.query("COMMIT").map_or(true, |answer| answer.error().is_some()), "a transaction has survived");
    let rows = clients[0].value("SELECT CONCAT(COUNT(*), ' ', COUNT(DISTINCT n), ' ', SUM(n)) FROM log")?;
    ensure!(rows == "10 10 520", "{rows}");
    hosts.hits_again(&freshet, &["after", "again"])?;
    let new = hosts.replica.port().to_string();
    hosts.database.server.start_again()?;
    let row = hosts.shows(&freshet, &hosts.primary_address(), &[(ROLE, "primary"), (STATE, "left out")])?;
    ensure!(row[REASON].contains("old primary"), "{row:?}");
    // Nor is it used when the new one ends for a while.
    hosts.replica.restart()?;
    hosts.replica.sql("SET GLOBAL read_only = OFF")?;
    for client in &mut clients {
        ensure!(client.value("SELECT @@GLOBAL.port")? == new, "at the old primary");
    }
    hosts.hits_again(&freshet, &["behind a restart"])
}

/// The replica can be written, too. It replaces the primary only when that ends.
fn two_that_can_be_written(kind: Kind) -> Result<()> {
    let Some((hosts, freshet)) = Hosts::with_freshet(kind)? else { return Ok(()) };
    hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "replica")])?;
    hosts.promote()?;
    let row = hosts.shows(&freshet, &hosts.replica_address(), &[(ROLE, "primary"), (STATE, "left out")])?;
    ensure!(row[REASON].contains("second primary"), "{row:?}");
    hosts.hits_again(&freshet, &["before"])?;
    let mut client = hosts.connect(&freshet)?;
    let port = client.value("SELECT @@GLOBAL.port").context("the port")?;
    ensure!(port == hosts.database.server.port().to_string(), "at the second primary");
    hosts.database.server.stop()?;
    ensure!(client.value("SELECT @@GLOBAL.port")? == hosts.replica.port().to_string(), "not at the other");
    hosts.hits_again(&freshet, &["after"])
}

/// A new process serves its clients while a session of the old one goes on, so before it has a change stream.
fn an_upgrade(kind: Kind) -> Result<()> {
    let hosts = Hosts::start(kind)?;
    let servers = [hosts.replica_address(), hosts.primary_address()];
    let mut freshet = hosts.freshet_over(&servers.each_ref().map(String::as_str), &["--upgrade-grace", "1h"])?;
    if !freshet.is_there() {
        return Ok(());
    }
    let mut old = hosts.connect(&freshet)?;
    old.run("BEGIN")?;
    old.run("INSERT INTO log (n) VALUES (1)")?;
    let successor = Successor::of(&freshet, freshet.pid().context("no process")?)?;
    for n in 2..5 {
        hosts.connect(&freshet)?.run(&format!("INSERT INTO log (n) VALUES ({n})"))?;
    }
    let cachez = get(freshet.http, "/cachez")?;
    ensure!(cachez.1.contains("sessions of the process before this one go on"), "{cachez:?}");
    old.run("COMMIT")?;
    drop(old);
    old_ends_well(&mut freshet)?;
    ensure!(hosts.connect(&freshet)?.value("SELECT COUNT(*) FROM log")? == "4");
    successor.end()
}
