//! The upstream fails in every known way while readers send queries: no answer is wrong, and the cache recovers by itself.

mod forwarder;
mod moves;
mod slots;
mod watch;

use std::sync::Arc;

use anyhow::{Result, ensure};
use freshet_testbed::{Server, Settings, StopMode, process};

use crate::support::{Database, Freshet, PATIENCE, RawClient, Version, eventually, on_both, time_passes};
use forwarder::{Forwarder, Garble};
use watch::{RESET, SCHEMA, Watch};

on_both!(restarts, a_stalled_walsender, a_garbled_stream, a_backend_that_crashes);

/// Options for a lasting slot.
const LASTING: [&str; 2] = ["--slot", "shop"];

/// A server of its own with something in it.
fn primary(version: Version, settings: &Settings) -> Result<Database> {
    let database = Database::create(version.start(settings)?)?;
    database.run(SCHEMA)?;
    Ok(database)
}

/// Readers and a writer, and a Freshet between them and the database, with and without a lasting slot.
fn with_each_slot(database: &Database, scenario: impl Fn(&Freshet, &Watch) -> Result<()>) -> Result<()> {
    for options in [&[][..], &LASTING] {
        let freshet = Freshet::start(database, options)?;
        let watch = Watch::start(&freshet, &database.name, database.address());
        let outcome = watch.until_back(&freshet).and_then(|()| scenario(&freshet, &watch));
        watch.finish()?;
        outcome?;
        healthy(&freshet)?;
        database.run(RESET)?;
    }
    Ok(())
}

/// Nothing panicked on the way.
fn healthy(freshet: &Freshet) -> Result<()> {
    ensure!(freshet.is_alive(), "Freshet has ended");
    ensure!(!freshet.log().contains("panicked"), "a panic");
    Ok(())
}

/// Waits until the log says this more often than before.
fn logged(freshet: &Freshet, text: &str, before: usize) -> Result<()> {
    if !freshet.is_there() {
        return Ok(());
    }
    eventually(PATIENCE, || {
        ensure!(times(freshet, text) > before, "no {text:?} in the log");
        Ok(())
    })
}

fn times(freshet: &Freshet, text: &str) -> usize {
    freshet.log().matches(text).count()
}

/// The process that sends the change stream.
fn walsender(server: &Server) -> Result<Option<u32>> {
    let children = server.children()?;
    Ok(children.iter().find(|process| process.title().contains("walsender")).map(|process| process.pid))
}

fn restarts(version: Version) -> Result<()> {
    let database = primary(version, &Settings::default())?;
    with_each_slot(&database, |freshet, watch| {
        for stop in [Some(StopMode::Fast), Some(StopMode::Immediate), None] {
            let before = times(freshet, "change stream established");
            match stop {
                Some(mode) => database.server.stop(mode)?,
                None => database.server.kill9()?,
            }
            database.server.start()?;
            logged(freshet, "change stream established", before)?;
            watch.until_back(freshet)?;
        }
        Ok(())
    })
}

/// The walsender stops with its connection open: only the lease shows it.
fn a_stalled_walsender(version: Version) -> Result<()> {
    let database = primary(version, &Settings::default())?;
    with_each_slot(&database, |freshet, watch| {
        let Some(pid) = walsender(&database.server)? else { return Ok(()) };
        process::pause(pid)?;
        let expired = eventually(PATIENCE, || {
            let (status, body) = freshet.health()?;
            ensure!(status == 503, "{status} {body}");
            let (hits, commits) = (freshet.metrics()?.hits(), freshet.metrics()?.count("freshet_commits_total"));
            time_passes("nothing hits", std::time::Duration::from_millis(300));
            let now = freshet.metrics()?;
            ensure!(now.hits() == hits && now.count("freshet_commits_total") == commits, "hits without a stream");
            Ok(())
        });
        process::resume(pid)?;
        expired?;
        watch.until_back(freshet)
    })
}

/// What cannot be understood ends the epoch: nothing of it is skipped.
fn a_garbled_stream(version: Version) -> Result<()> {
    let database = primary(version, &Settings::default())?;
    for options in [&[][..], &LASTING] {
        let forwarder = Forwarder::to(database.address())?;
        let freshet = Freshet::start_unready(database.address(), &forwarder.url(&database.name), options)?;
        if !freshet.is_there() {
            return Ok(());
        }
        freshet.wait_ready()?;
        let watch = Watch::start(&freshet, &database.name, database.address());
        let scenario = || {
            for what in [Garble::Frame, Garble::Length, Garble::Kind, Garble::Message] {
                watch.until_back(&freshet)?;
                let before = times(&freshet, "change stream established");
                forwarder.garble(what);
                // A new epoch, whatever the slot.
                logged(&freshet, "change stream established", before)?;
                ensure!(forwarder.has_garbled(), "nothing was garbled");
                ensure!(
                    times(&freshet, "change stream continues") == 0,
                    "{what:?}: the stream continues after a message that it did not understand"
                );
            }
            watch.until_back(&freshet)
        };
        let outcome = scenario();
        watch.finish()?;
        outcome?;
        healthy(&freshet)?;
        database.run(RESET)?;
    }
    Ok(())
}

/// A backend crashes, and the server recovers by itself: without a new start time, and without the asynchronous commits
/// whose log was not flushed. Positions of the lost log are used again, so what was read of it must not come back.
fn a_backend_that_crashes(version: Version) -> Result<()> {
    let settings = Settings::default().with("wal_writer_delay = 10s").with("restart_after_crash = on");
    let database = primary(version, &settings)?;
    for options in [&[][..], &LASTING] {
        let freshet = Freshet::start(&database, options)?;
        if !freshet.is_there() {
            return Ok(());
        }
        // Of a row that was not read before: an entry of it would be a right answer for D.
        for id in 10..15 {
            lose_a_commit(&database, &freshet, id)?;
        }
        healthy(&freshet)?;
        database.run("update counter set n = id")?;
    }
    Ok(())
}

fn lose_a_commit(database: &Database, freshet: &Freshet, id: i64) -> Result<()> {
    let read = &format!("select n from counter where id = {id}");
    let mut reader = RawClient::login(freshet.address, database.login())?;
    let mut writer = database.connect()?;
    let mut victim = database.connect()?;
    let pid = victim.value("select pg_backend_pid()")?.parse()?;
    // The session's context is known, so that the next read may be cached.
    eventually(PATIENCE, || {
        let before = freshet.metrics()?.hits();
        reader.value("select n from counter where id = 3")?;
        ensure!(freshet.metrics()?.hits() > before, "no hits");
        Ok(())
    })?;
    writer.run(&format!("set synchronous_commit = off; update counter set n = 1000 where id = {id}"))?;
    ensure!(reader.value(read)? == "1000", "the commit is visible");
    process::kill(pid)?;
    // The server ends all sessions before it recovers.
    eventually(PATIENCE, || {
        ensure!(writer.value("select 1").is_err(), "the server goes on");
        Ok(())
    })?;
    let mut again = eventually(PATIENCE, || database.connect())?;
    let truth = again.value(read)?;
    println!("the commit is {}", if truth == "1000" { "there" } else { "lost" });
    // More log than was lost.
    for _ in 0..20 {
        again.run("update counter set n = n where id = 20")?;
    }
    let mut reader = eventually(PATIENCE, || RawClient::login(freshet.address, database.login()))?;
    eventually(PATIENCE, || {
        let before = freshet.metrics()?.hits();
        let value = reader.value(read)?;
        assert_eq!(value, truth, "what was lost is still read");
        ensure!(freshet.metrics()?.hits() > before, "no hits");
        Ok(())
    })
}

/// The server that an [`Arc`] shares with its database.
fn address(server: &Arc<Server>) -> std::net::SocketAddr {
    (server.host(), server.port()).into()
}
