//! Lasting slots: what continues after a connection broke, and what does not.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use freshet_net::postgres::{Client, Purpose};
use freshet_replication::{Control, FollowerConfig, follow};
use freshet_testbed::{Postgres, Server, Settings, StopMode, process};
use freshet_types::{Change, ChangeSet, Commit};

use super::recorder::{Event, Fixture, PATIENCE, Recorder};
use super::{SCHEMA, shorts};

const SLOT: &str = "freshet_shop";

fn server(major: u32, settings: &Settings) -> Result<Server> {
    let server = Postgres::find(Some(major))?.start(settings)?;
    server.psql(SCHEMA)?;
    Ok(server)
}

/// A follower with an established lasting slot.
fn lasting(server: Server, change: impl FnOnce(&mut FollowerConfig)) -> Result<Fixture> {
    let fixture = Fixture::follow_with(server, |config| {
        config.slot.name = Some("shop".parse().expect("a name"));
        change(config);
    })?;
    fixture.runtime.block_on(fixture.recorder.connected())?;
    Ok(fixture)
}

impl Fixture {
    /// The next event, except commits without changes.
    fn happens(&self) -> Result<Event> {
        loop {
            match self.runtime.block_on(self.recorder.next())? {
                Event::Commit(Commit { changes, .. }) if changes.is_empty() => {}
                other => return Ok(other),
            }
        }
    }

    fn suspended(&self) -> Result<String> {
        match self.happens()? {
            Event::Suspended(why) => Ok(why),
            other => bail!("{other:?}"),
        }
    }

    /// The stream continues, perhaps after more than one attempt.
    fn resumed(&self) -> Result<()> {
        loop {
            match self.happens()? {
                Event::Resumed => return Ok(()),
                Event::Suspended(_) => {}
                other => bail!("{other:?}"),
            }
        }
    }

    /// The epoch ends, and another begins; returns the reasons.
    fn begins_anew(&self) -> Result<String> {
        let mut reasons = String::new();
        loop {
            match self.happens()? {
                Event::Connected(_) => break,
                Event::Suspended(why) | Event::Disconnected(why) => reasons += &why,
                Event::Resumed | Event::Commit(_) => {}
            }
        }
        ensure!(!reasons.is_empty(), "a new epoch without the end of the old one");
        Ok(reasons)
    }

    fn walsender(&self) -> Result<u32> {
        let sql = format!("SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{SLOT}'");
        Ok(self.server.psql(&sql)?.parse()?)
    }

    fn slots(&self) -> Result<String> {
        self.server.psql("SELECT string_agg(slot_name, ',') FROM pg_replication_slots")
    }
}

/// No commit without a connection is lost, none is delivered twice, and a definition that changed meanwhile is noticed.
fn an_epoch_goes_on(major: u32) -> Result<()> {
    // Without event triggers, which would report the definition.
    let fixture = lasting(server(major, &Settings::default())?, |config| config.ensure_publication = false)?;
    assert_eq!(fixture.slots()?, SLOT);
    assert_eq!(shorts(&fixture.after("INSERT INTO pk VALUES (1, 'a')")?), ["+1,a,-"]);
    let mut expected = 2;
    for round in 0..5 {
        fixture.server.psql(&format!("SELECT pg_terminate_backend({})", fixture.walsender()?))?;
        for id in expected..expected + 20 {
            fixture.server.psql(&format!("INSERT INTO pk VALUES ({id})"))?;
        }
        let why = fixture.suspended()?;
        ensure!(why.contains("terminating connection"), "{why}");
        fixture.resumed()?;
        for id in expected..expected + 20 {
            let rows = fixture.runtime.block_on(fixture.recorder.changes())?;
            assert_eq!(shorts(&rows), [format!("+{id},-,-")], "round {round}");
        }
        expected += 20;
    }
    let pk = fixture.table("pk")?;
    fixture.server.psql(&format!("SELECT pg_terminate_backend({})", fixture.walsender()?))?;
    fixture.suspended()?;
    fixture.server.psql("ALTER TABLE pk ADD COLUMN extra int")?;
    fixture.resumed()?;
    assert_eq!(fixture.after("INSERT INTO pk VALUES (0)")?, [Change::AnyRow(pk)], "the definition changed");
    let server = &fixture.server;
    let count = server.psql("SELECT count(*) FROM pg_replication_slots")?;
    assert_eq!(count, "1");
    // The end of the epoch drops the slot.
    let Fixture { runtime, server, control, task, .. } = fixture;
    control.shutdown();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await })??;
    assert_eq!(server.psql("SELECT count(*) FROM pg_replication_slots")?, "0");
    Ok(())
}

#[test]
fn an_epoch_goes_on_15() -> Result<()> {
    an_epoch_goes_on(15)
}

#[test]
fn an_epoch_goes_on_18() -> Result<()> {
    an_epoch_goes_on(18)
}

/// The epoch ends during a read of the slot's state: the slot is dropped over the same connection, since a new one may lead to another server. Here
/// none is accepted.
#[test]
fn a_look_does_not_lose_the_connection() -> Result<()> {
    let fixture = lasting(server(15, &Settings::default())?, |_| {})?;
    let mut client = fixture.runtime.block_on(Client::connect(&fixture.url, Purpose::Sql))?;
    let mut ask = |sql: &str| fixture.runtime.block_on(client.query_timeout(sql, PATIENCE));
    let looks = "SELECT pid::text FROM pg_stat_activity WHERE query LIKE '%(e.lsn, s.restart_lsn)%' AND pid <> pg_backend_pid()";
    let start = Instant::now();
    let looking: u32 = loop {
        match ask(looks)?.as_slice() {
            [row] => break row.iter().flatten().next().map_or("", String::as_str).parse()?,
            found => ensure!(start.elapsed() < PATIENCE, "{found:?} look at the slot"),
        }
    };
    fixture.server.psql("\\c template1\nALTER DATABASE postgres ALLOW_CONNECTIONS false")?;
    process::pause(looking)?;
    sleep(Duration::from_secs(3)); // each two seconds there is a look
    fixture.control.restart();
    sleep(Duration::from_millis(100));
    process::resume(looking)?;
    let slots = format!("SELECT slot_name::text FROM pg_replication_slots WHERE slot_name = '{SLOT}'");
    let start = Instant::now();
    while !ask(&slots)?.is_empty() {
        ensure!(start.elapsed() < PATIENCE, "the slot has been left behind");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A transaction that was being sent when the connection broke is sent again as a whole.
#[test]
fn a_transaction_is_not_torn() -> Result<()> {
    let fixture = lasting(server(15, &Settings::default())?, |_| {})?;
    for round in 0..5 {
        let first = round * 100_000;
        fixture.server.psql(&format!("INSERT INTO ix SELECT 0, g FROM generate_series({first}, {first} + 9000) g"))?;
        // Most likely the client has not received all of it yet.
        fixture.server.psql(&format!("SELECT pg_terminate_backend({})", fixture.walsender()?))?;
        let mut rows = None;
        loop {
            match fixture.happens()? {
                Event::Commit(Commit { changes: ChangeSet::Rows(changes), .. }) => {
                    ensure!(rows.is_none(), "it came twice");
                    rows = Some(changes.len());
                }
                Event::Resumed if rows.is_some() => break,
                Event::Resumed => {
                    rows = Some(fixture.runtime.block_on(fixture.recorder.changes())?.len());
                    break;
                }
                Event::Suspended(_) => {}
                other => bail!("{other:?}"),
            }
        }
        assert_eq!(rows, Some(9001), "round {round}");
    }
    Ok(())
}

/// The server process holds the slot, without knowing that its connection is broken.
#[test]
fn a_walsender_left_behind_is_ended() -> Result<()> {
    let fixture = lasting(server(15, &Settings::default())?, |config| config.silence_max = Duration::from_secs(3))?;
    let walsender = fixture.walsender()?;
    process::pause(walsender)?;
    let why = fixture.suspended()?;
    ensure!(why.contains("silent"), "{why}");
    fixture.server.psql("INSERT INTO pk VALUES (1, 'a')")?;
    let why = fixture.suspended()?;
    ensure!(why.contains("still in use"), "{why}");
    // Only now can it receive the signal.
    process::resume(walsender)?;
    fixture.resumed()?;
    assert_eq!(shorts(&fixture.runtime.block_on(fixture.recorder.changes())?), ["+1,a,-"]);
    ensure!(fixture.walsender()? != walsender, "the same process");
    Ok(())
}

/// Cases that end the epoch and its slot: anything that leaves a doubt about what was missed.
fn doubts_end_the_epoch(major: u32) -> Result<()> {
    let fixture = lasting(server(major, &Settings::default())?, |_| {})?;
    let drop = format!("PERFORM pg_drop_replication_slot('{SLOT}')");
    let create = format!("pg_create_logical_replication_slot('{SLOT}', 'pgoutput')");
    let write = "INSERT INTO ix SELECT 1, coalesce(max(b), 0) + 1 FROM ix";
    for (what, action, then, reason) in [
        ("dropped", drop.clone(), String::new(), "does not exist"),
        ("created again", format!("{drop}; PERFORM {create}"), String::new(), "another process moved the slot"),
        // If the follower is faster it finds none.
        ("created again later", drop, format!("{write}; SELECT {create}"), ""),
        (
            "advanced",
            format!(
                "PERFORM pg_logical_emit_message(false, 'x', 'x'), pg_switch_wal();
                PERFORM pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())"
            ),
            String::new(),
            "another process moved the slot",
        ),
    ] {
        // Between two connections of the follower, which reconnects after a tenth of a second.
        let sql = format!(
            "DO $$ BEGIN LOOP
                PERFORM pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND active;
                BEGIN {action}; EXIT; EXCEPTION WHEN object_in_use THEN PERFORM pg_sleep(0.002); END;
            END LOOP; END $$; {then}"
        );
        let done = fixture.server.psql(&sql);
        ensure!(done.is_ok() || reason.is_empty(), "{what}: {done:?}");
        let why = fixture.begins_anew()?;
        ensure!(why.contains(reason), "{what}: {why}");
        assert_eq!(fixture.slots()?, SLOT, "{what}");
        assert_eq!(fixture.after(write)?.len(), 1, "{what}");
    }
    fixture.server.restart()?;
    let why = fixture.begins_anew()?;
    ensure!(why.contains("was restarted"), "{why}");
    assert_eq!(fixture.slots()?, SLOT);
    fixture.server.stop(StopMode::Immediate)?;
    fixture.server.start()?;
    let why = fixture.begins_anew()?;
    ensure!(why.contains("was restarted"), "{why}");
    assert_eq!(fixture.slots()?, SLOT);
    Ok(())
}

#[test]
fn doubts_end_the_epoch_15() -> Result<()> {
    doubts_end_the_epoch(15)
}

#[test]
fn doubts_end_the_epoch_18() -> Result<()> {
    doubts_end_the_epoch(18)
}

/// The slot of a dead process is dropped. That of a living one is not touched.
#[test]
fn names_are_for_one_at_a_time() -> Result<()> {
    let server = server(15, &Settings::default())?;
    server.psql(&format!("SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')"))?;
    let first = lasting(server, |_| {})?;
    assert_eq!(first.server.psql("SELECT plugin FROM pg_replication_slots")?, "pgoutput");
    let recorder = Arc::new(Recorder::default());
    let mut config = FollowerConfig::new(first.url.clone());
    config.slot.name = Some("shop".parse().expect("a name"));
    let task = first.runtime.spawn(follow(config, recorder.clone(), Arc::new(Control::new())));
    let why = first.runtime.block_on(recorder.disconnected())?;
    ensure!(why.contains("in use by process") && why.contains("--slot"), "{why}");
    task.abort();
    assert_eq!(shorts(&first.after("INSERT INTO pk VALUES (1, 'a')")?), ["+1,a,-"]);
    first.finish()
}

/// A server that shuts down waits until its walsenders have confirmed everything.
#[test]
fn a_shutdown_of_the_server_is_not_held_up() -> Result<()> {
    let fixture = lasting(server(18, &Settings::default())?, |_| {})?;
    for id in 0..100 {
        fixture.server.psql(&format!("INSERT INTO pk VALUES ({id})"))?;
    }
    fixture.server.stop(StopMode::Fast)?;
    fixture.server.start()?;
    fixture.begins_anew()?;
    fixture.server.stop(StopMode::Fast)
}

/// Log that an open transaction holds back counts, too: the slot is dropped, and a new one is created after the transaction.
fn a_slot_that_holds_too_much_goes(name: Option<&str>) -> Result<()> {
    let server = server(15, &Settings::default())?;
    server.psql("CREATE TABLE big(t text)")?;
    let fixture = Fixture::follow_with(server, |config| {
        config.slot.name = name.map(|name| name.parse().expect("a name"));
        config.slot.lag_bytes_max = 8 << 20;
    })?;
    fixture.runtime.block_on(fixture.recorder.connected())?;
    let mut writer = fixture.runtime.block_on(Client::connect(&fixture.url, Purpose::Sql))?;
    fixture.runtime.block_on(writer.query("BEGIN; INSERT INTO public.pk VALUES (-1)"))?;
    let write = "INSERT INTO big SELECT repeat(md5(g::text), 30) FROM generate_series(1, 20000) g; CHECKPOINT";
    fixture.server.psql(write)?;
    let why = match fixture.happens()? {
        Event::Disconnected(why) => why,
        other => bail!("{other:?}"),
    };
    ensure!(why.contains("--slot-lag-bytes"), "{why}");
    fixture.runtime.block_on(writer.query("COMMIT"))?;
    loop {
        match fixture.happens()? {
            Event::Connected(_) => break,
            Event::Disconnected(_) => {}
            other => bail!("{other:?}"),
        }
    }
    assert_eq!(fixture.server.psql("SELECT count(*) FROM pg_replication_slots")?, "1");
    assert_eq!(shorts(&fixture.after("INSERT INTO pk VALUES (1, 'a')")?), ["+1,a,-"]);
    fixture.finish()
}

#[test]
fn a_temporary_slot_that_holds_too_much_goes() -> Result<()> {
    a_slot_that_holds_too_much_goes(None)
}

#[test]
fn a_lasting_slot_that_holds_too_much_goes() -> Result<()> {
    a_slot_that_holds_too_much_goes(Some("shop"))
}

/// A stream that does not advance for too long is given up before it counts as dead.
#[test]
fn a_late_stream_is_given_up() -> Result<()> {
    let fixture = lasting(server(15, &Settings::default())?, |config| config.slot.lag_max = Duration::from_secs(2))?;
    let walsender = fixture.walsender()?;
    process::pause(walsender)?;
    fixture.server.psql("INSERT INTO pk VALUES (1, 'a')")?;
    let why = match fixture.happens()? {
        Event::Disconnected(why) => why,
        other => bail!("{other:?}"),
    };
    process::resume(walsender)?;
    ensure!(why.contains("--slot-lag-seconds"), "{why}");
    fixture.begins_anew().ok();
    assert_eq!(shorts(&fixture.after("INSERT INTO pk VALUES (2, 'a')")?), ["+2,a,-"]);
    fixture.finish()
}

/// The server invalidates a slot that holds too much log.
#[test]
fn an_invalidated_slot_is_made_anew() -> Result<()> {
    let settings = Settings::default().with("max_slot_wal_keep_size = 1MB").with("min_wal_size = 32MB");
    let fixture = lasting(server(15, &settings)?, |_| {})?;
    let walsender = fixture.walsender()?;
    process::pause(walsender)?;
    fixture.server.psql("CREATE TABLE big(t text)")?;
    let write =
        "INSERT INTO big SELECT repeat(md5(g::text), 30) FROM generate_series(1, 60000) g; SELECT pg_switch_wal()";
    fixture.server.psql(write)?;
    // The checkpoint ends the walsender and waits for it.
    let server = &fixture.server;
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| server.psql("CHECKPOINT"));
        let waits = "SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        let start = Instant::now();
        while server.psql(waits)? != "ReplicationSlotDrop" {
            ensure!(start.elapsed() < PATIENCE, "the checkpointer does not wait for the walsender");
        }
        process::resume(walsender)?;
        checkpoint.join().map_err(|_| anyhow::anyhow!("the checkpoint's thread"))?
    })?;
    let why = fixture.begins_anew()?;
    println!("{why}");
    assert_eq!(
        fixture.server.psql("SELECT slot_name, wal_status FROM pg_replication_slots")?,
        format!("{SLOT}|reserved")
    );
    assert_eq!(shorts(&fixture.after("INSERT INTO pk VALUES (1, 'a')")?), ["+1,a,-"]);
    fixture.finish()
}
