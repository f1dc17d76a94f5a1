//! The follower on real servers.

mod recorder;
mod slots;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use freshet_net::Upstream;
use freshet_net::postgres::{Client, Purpose};
use freshet_replication::{Control, FollowerConfig, follow};
use freshet_testbed::{Postgres, Settings};
use freshet_types::{Cell, Change, Lsn};
use tokio::time::sleep;

use recorder::{Event, Fixture, PATIENCE, Recorder};

/// A row in short form: values, `-` for NULL, `?` for unknown values.
fn short(row: &[Cell]) -> String {
    let cell = |cell: &Cell| match cell {
        Cell::Null => "-".into(),
        Cell::Absent => "?".into(),
        Cell::Unchanged => "=".into(),
        Cell::Text(text) => String::from_utf8_lossy(text.get(..text.len().min(8)).unwrap_or_default()).into_owned(),
    };
    row.iter().map(cell).collect::<Vec<_>>().join(",")
}

/// Changes in short form.
fn shorts(changes: &[Change]) -> Vec<String> {
    let change = |change: &Change| match change {
        Change::Insert { new, .. } => format!("+{}", short(new)),
        Change::Update { old, new, .. } => format!("{}>{}", short(old), short(new)),
        Change::Delete { old, .. } => format!("-{}", short(old)),
        Change::AnyRow(_) => "any".into(),
        Change::Redefined { name, .. } => format!("redefined {name}"),
    };
    changes.iter().map(change).collect()
}

const SCHEMA: &str = "
    CREATE TABLE pk(id int PRIMARY KEY, v text, big text);
    CREATE TABLE ix(a int, b int NOT NULL UNIQUE, c text);
    ALTER TABLE ix REPLICA IDENTITY USING INDEX ix_b_key;
    CREATE TABLE fu(id int, v text, big text);
    ALTER TABLE fu REPLICA IDENTITY FULL;
    ALTER TABLE pk ALTER big SET STORAGE EXTERNAL;
    ALTER TABLE fu ALTER big SET STORAGE EXTERNAL;
    CREATE TABLE unpublished(id int PRIMARY KEY);
    CREATE TABLE later(id int PRIMARY KEY);
    CREATE PUBLICATION freshet FOR TABLE pk, ix, fu;";

fn maps_every_kind_of_change(major: u32) -> Result<()> {
    let server = Postgres::find(Some(major))?.start(&Settings::default())?;
    server.psql(SCHEMA)?;
    // Without event triggers, which would report the definitions.
    let fixture = Fixture::follow_with(server, |config| config.ensure_publication = false)?;
    let identity = fixture.runtime.block_on(fixture.recorder.connected())?;
    assert_eq!(identity.server_version_num / 10_000, major);
    assert_eq!((identity.timeline, identity.database.as_str()), (1, "postgres"));
    assert_eq!(identity.wal_segment_bytes, 16 << 20);
    let start = fixture.server.psql("SELECT extract(epoch FROM pg_postmaster_start_time())::text")?;
    assert_eq!(identity.postmaster_start, start);
    let system = fixture.server.psql("SELECT system_identifier FROM pg_control_system()")?;
    assert_eq!(identity.system_id, system);
    // Requests that interrupt receives all the time must not lose or repeat a byte.
    let control = fixture.control.clone();
    let pestering = fixture.runtime.spawn(async move {
        loop {
            control.request_keepalive();
            sleep(Duration::from_millis(1)).await;
        }
    });

    for (sql, expected) in [
        ("INSERT INTO pk VALUES (1, NULL, repeat('z', 5000))", "+1,-,zzzzzzzz"),
        ("UPDATE pk SET v = 'x'", "1,?,?>1,x,="),
        ("UPDATE pk SET id = 2", "1,?,?>2,x,="),
        ("DELETE FROM pk", "-2,?,?"),
        ("INSERT INTO ix VALUES (1, 2, 'c')", "+1,2,c"),
        ("UPDATE ix SET c = 'd'", "?,2,?>1,2,d"),
        ("UPDATE ix SET b = 3", "?,2,?>1,3,d"),
        ("DELETE FROM ix", "-?,3,?"),
        ("INSERT INTO fu VALUES (1, NULL, repeat('z', 5000))", "+1,-,zzzzzzzz"),
        ("UPDATE fu SET v = 'é'", "1,-,zzzzzzzz>1,é,zzzzzzzz"),
        ("DELETE FROM fu", "-1,é,zzzzzzzz"),
    ] {
        assert_eq!(shorts(&fixture.after(sql)?), [expected], "{sql}");
    }
    whole_tables(&fixture)?;
    pestering.abort();
    fixture.finish()
}

fn whole_tables(fixture: &Fixture) -> Result<()> {
    let (pk, fu, later) = (fixture.table("pk")?, fixture.table("fu")?, fixture.table("later")?);
    let truncated = fixture.after("TRUNCATE pk, fu")?;
    assert_eq!(truncated, [Change::AnyRow(pk), Change::AnyRow(fu)]);

    // One psql session with one transaction; changes that a savepoint rolled back are not delivered.
    let kept = fixture.after(
        "BEGIN; INSERT INTO pk VALUES (1); SAVEPOINT s; INSERT INTO pk VALUES (2); ROLLBACK TO s; \
         INSERT INTO pk VALUES (3); COMMIT",
    )?;
    assert_eq!(shorts(&kept), ["+1,-,-", "+3,-,-"]);
    let many = fixture.after("INSERT INTO pk SELECT g FROM generate_series(10, 20010) g")?;
    assert_eq!(many, [Change::AnyRow(pk)]);

    let altered = fixture.after("ALTER TABLE pk ADD COLUMN extra int; INSERT INTO pk VALUES (5)")?;
    assert_eq!(altered, [Change::AnyRow(pk)], "the definition changed");
    assert_eq!(shorts(&fixture.after("DELETE FROM pk WHERE id = 5")?), ["-5,?,?,?"]);
    // A changed identity changes the description too.
    let altered = fixture.after("ALTER TABLE pk REPLICA IDENTITY FULL; DELETE FROM pk WHERE id = 3")?;
    assert_eq!(altered, [Change::AnyRow(pk)]);

    fixture.server.psql(
        "INSERT INTO later VALUES (1); INSERT INTO unpublished VALUES (1); ALTER PUBLICATION freshet ADD TABLE later",
    )?;
    let added = fixture.after("INSERT INTO later VALUES (2)")?;
    assert_eq!(shorts(&added), ["+2"]);
    assert!(added.iter().all(|change| change.table() == later));
    Ok(())
}

/// The stream must soon reach a position that was read from the server, without a request and without another write.
fn positions_come_promptly(major: u32) -> Result<()> {
    let fixture = Fixture::start(major, &Settings::default(), SCHEMA)?;
    fixture.runtime.block_on(async {
        let identity = fixture.recorder.connected().await?;
        let mut client = Client::connect(&fixture.url, Purpose::Sql).await?;
        for (what, sql) in [
            ("published", "INSERT INTO public.ix VALUES (1, (SELECT coalesce(max(b), 0) + 1 FROM public.ix))"),
            ("unpublished", "INSERT INTO public.unpublished SELECT coalesce(max(id), 0) + 1 FROM public.unpublished"),
            ("no transaction", "SELECT pg_logical_emit_message(false, 'x', repeat('x', 9000))"),
        ] {
            let mut times = Vec::new();
            for round in 0..60 {
                client.query(sql).await?;
                let rows = client.query("SELECT pg_current_wal_insert_lsn()").await?;
                let end = rows.first().and_then(|row| row.first()?.as_deref()).and_then(Lsn::parse).context("LSN")?;
                times.push(fixture.recorder.passes(end.without_page_header(identity.wal_segment_bytes)).await?);
                // Over several confirmations, and at different times after one.
                sleep(Duration::from_millis(round)).await;
            }
            times.sort_unstable();
            let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
            println!("PostgreSQL {major}, {what}: median {median:?}, worst {worst:?}");
            ensure!(worst < Duration::from_secs(10), "{what}: {times:?}");
        }
        while fixture.recorder.take().is_some() {}
        for _ in 0..5 {
            let (before, began) = (fixture.recorder.advances.load(Ordering::SeqCst), Instant::now());
            fixture.control.request_keepalive();
            while fixture.recorder.advances.load(Ordering::SeqCst) == before {
                ensure!(began.elapsed() < PATIENCE, "no answer to a request");
                sleep(Duration::from_micros(100)).await;
            }
            println!("PostgreSQL {major}, keepalive on request: {:?}", began.elapsed());
        }
        Ok(())
    })?;
    fixture.finish()
}

fn a_restart_of_the_server_is_a_new_epoch(major: u32) -> Result<()> {
    let fixture = Fixture::start(major, &Settings::default(), SCHEMA)?;
    let first = fixture.runtime.block_on(fixture.recorder.connected())?;
    fixture.server.restart()?;
    let second = fixture.runtime.block_on(async {
        println!("after the restart: {}", fixture.recorder.disconnected().await?);
        loop {
            match fixture.recorder.next().await? {
                Event::Connected(identity) => return anyhow::Ok(identity),
                Event::Disconnected(why) => println!("… {why}"),
                other => bail!("{other:?}"),
            }
        }
    })?;
    assert_eq!(first.system_id, second.system_id);
    assert_ne!(first.postmaster_start, second.postmaster_start);
    assert_eq!(fixture.recorder.epoch.load(Ordering::SeqCst), 2);
    assert_eq!(shorts(&fixture.after("INSERT INTO ix VALUES (1, 2, 'c')")?), ["+1,2,c"]);

    fixture.control.restart();
    fixture.runtime.block_on(async {
        let why = fixture.recorder.disconnected().await?;
        ensure!(why.contains("restart of the change stream"), "{why}");
        fixture.recorder.connected().await
    })?;
    // The walsender has ended with its slot.
    assert_eq!(fixture.server.psql("SELECT count(*) FROM pg_replication_slots")?, "1");
    fixture.finish()
}

#[test]
fn maps_every_kind_of_change_15() -> Result<()> {
    maps_every_kind_of_change(15)
}

#[test]
fn maps_every_kind_of_change_18() -> Result<()> {
    maps_every_kind_of_change(18)
}

#[test]
fn positions_come_promptly_15() -> Result<()> {
    positions_come_promptly(15)
}

#[test]
fn positions_come_promptly_18() -> Result<()> {
    positions_come_promptly(18)
}

#[test]
fn a_restart_of_the_server_is_a_new_epoch_15() -> Result<()> {
    a_restart_of_the_server_is_a_new_epoch(15)
}

#[test]
fn a_restart_of_the_server_is_a_new_epoch_18() -> Result<()> {
    a_restart_of_the_server_is_a_new_epoch(18)
}

/// An open write transaction delays the slot, not the process; then the stream is established.
#[test]
fn waits_for_open_write_transactions() -> Result<()> {
    let server = Postgres::find(Some(15))?.start(&Settings::default())?;
    server.psql(SCHEMA)?;
    let url = Arc::new(Upstream::parse(&server.url())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut client = runtime.block_on(Client::connect(&url, Purpose::Sql))?;
    runtime.block_on(client.query("BEGIN; INSERT INTO public.ix VALUES (1, 1, 'before')"))?;
    let fixture = Fixture::follow(server)?;
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'transactionid'";
    let begun = Instant::now();
    while fixture.server.psql(waits)? != "1" {
        ensure!(begun.elapsed() < PATIENCE, "the slot does not wait for the transaction");
    }
    assert!(fixture.recorder.take().is_none(), "the slot waits");
    runtime.block_on(client.query("COMMIT"))?;
    fixture.runtime.block_on(fixture.recorder.connected())?;
    assert_eq!(shorts(&fixture.after("UPDATE ix SET c = 'after'")?), ["?,1,?>1,1,after"]);
    fixture.finish()
}

/// A commit that is in the log and not yet visible, since it waits for a synchronous standby, is in the slot's snapshot and will never be delivered:
/// no stream is established until it is visible.
#[test]
fn waits_for_logged_commits_to_become_visible() -> Result<()> {
    let server = Postgres::find(Some(15))?.start(&Settings::default())?;
    server.psql(SCHEMA)?;
    let url = Arc::new(Upstream::parse(&server.url())?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    server.set("synchronous_standby_names", "nobody")?;
    let connect = || runtime.block_on(Client::connect(&url, Purpose::Sql));
    let run = |client: &mut Client, sql: &str| runtime.block_on(client.query(sql)).map(drop);
    let pause = || std::thread::sleep(Duration::from_millis(700));

    // Each open transaction delays one phase of building the snapshot; the commit falls into the last one.
    let (mut first, mut second, mut third) = (connect()?, connect()?, connect()?);
    run(&mut first, "BEGIN; INSERT INTO public.ix VALUES (1, 1)")?;
    // Objects that it created would wait for the standby, too.
    let fixture = Fixture::follow_with(server, |config| config.ensure_publication = false)?;
    pause();
    run(&mut second, "BEGIN; INSERT INTO public.ix VALUES (2, 2)")?;
    run(&mut first, "ROLLBACK")?;
    pause();
    let hanging = runtime.spawn(async move { third.query("INSERT INTO public.ix VALUES (3, 3)").await.map(drop) });
    pause();
    run(&mut second, "ROLLBACK")?;
    pause();
    assert!(fixture.recorder.take().is_none(), "the commit is not visible yet");
    let walsender = "SELECT query FROM pg_stat_activity WHERE backend_type = 'walsender'";
    assert_eq!(fixture.server.psql(walsender)?, "SELECT pg_catalog.pg_current_snapshot()");
    assert_eq!(fixture.server.psql("SELECT count(*) FROM ix")?, "0");
    fixture.server.set("synchronous_standby_names", "")?;
    runtime.block_on(hanging)??;
    fixture.runtime.block_on(fixture.recorder.connected())?;
    fixture.finish()
}

/// A stopped walsender keeps its socket open: only its silence shows it.
#[test]
fn a_silent_stream_is_dead() -> Result<()> {
    let server = Postgres::find(Some(15))?.start(&Settings::default())?;
    server.psql(SCHEMA)?;
    let fixture = Fixture::follow_with(server, |config| config.silence_max = Duration::from_secs(3))?;
    fixture.runtime.block_on(fixture.recorder.connected())?;
    // The stream lives as long as the server answers, idle or not.
    std::thread::sleep(Duration::from_secs(6));
    assert!(fixture.recorder.take().is_none(), "an idle stream lives");
    let walsender = fixture.server.psql("SELECT active_pid FROM pg_replication_slots")?.parse()?;
    freshet_testbed::process::pause(walsender)?;
    let why = fixture.runtime.block_on(fixture.recorder.disconnected())?;
    assert!(why.contains("silent"), "{why}");
    fixture.runtime.block_on(fixture.recorder.connected())?;
    freshet_testbed::process::resume(walsender)?;
    assert_eq!(shorts(&fixture.after("INSERT INTO ix VALUES (1, 2, 'c')")?), ["+1,2,c"]);
    fixture.finish()
}

/// What an administrator must change is reported once, and noticed when it is done.
#[test]
fn missing_prerequisites_are_named() -> Result<()> {
    let settings = Settings { wal_level: "replica".into(), ..Settings::default() };
    let fixture = Fixture::start(15, &settings, "CREATE ROLE plain LOGIN")?;
    let why = fixture.runtime.block_on(fixture.recorder.disconnected())?;
    assert!(why.contains("ALTER SYSTEM SET wal_level = 'logical'"), "{why}");
    fixture.server.set("wal_level", "logical")?;
    fixture.server.set("max_replication_slots", "1")?;
    fixture.server.restart()?;
    fixture.runtime.block_on(async {
        while !matches!(fixture.recorder.next().await?, Event::Connected(_)) {}
        anyhow::Ok(())
    })?;
    let second = {
        let recorder = Arc::new(Recorder::default());
        let config = FollowerConfig::new(fixture.url.clone());
        fixture.runtime.spawn(follow(config, recorder.clone(), Arc::new(Control::new())));
        fixture.runtime.block_on(recorder.disconnected())?
    };
    assert!(second.contains("ALTER SYSTEM SET max_replication_slots = 11"), "{second}");

    let plain = Arc::new(Upstream::parse(&format!("{}?user=plain", fixture.server.url()))?);
    let recorder = Arc::new(Recorder::default());
    fixture.runtime.spawn(follow(FollowerConfig::new(plain), recorder.clone(), Arc::new(Control::new())));
    let why = fixture.runtime.block_on(recorder.disconnected())?;
    assert!(why.contains("ALTER ROLE \"plain\" REPLICATION;"), "{why}");

    fixture.finish()
}

/// A publication that leaves out changes is not used, and names are quoted.
#[test]
fn an_unsuitable_publication_is_named() -> Result<()> {
    let server = Postgres::find(Some(15))?.start(&Settings::default())?;
    let url = Arc::new(Upstream::parse(&server.url())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut config = FollowerConfig { publication: "o'd\\d".into(), ..FollowerConfig::new(url) };
    let first = |config: &FollowerConfig| -> Result<Event> {
        let (recorder, control) = (Arc::new(Recorder::default()), Arc::new(Control::new()));
        let follower = runtime.spawn(follow(config.clone(), recorder.clone(), control.clone()));
        let event = runtime.block_on(recorder.next())?;
        control.shutdown();
        runtime.block_on(follower)?;
        Ok(event)
    };
    config.ensure_publication = false;
    let missing = format!("{:?}", first(&config)?);
    assert!(missing.contains("CREATE PUBLICATION") && missing.contains("is missing"), "{missing}");
    config.ensure_publication = true;
    let created = first(&config)?;
    assert!(matches!(created, Event::Connected(_)), "{created:?}");
    assert_eq!(server.psql("SELECT pubname, puballtables FROM pg_publication")?, "o'd\\d|f");
    server.psql("ALTER PUBLICATION \"o'd\\d\" SET (publish = 'insert')")?;
    let partial = format!("{:?}", first(&config)?);
    assert!(partial.contains("ALTER PUBLICATION") && partial.contains("does not send every change"), "{partial}");
    server.psql("DROP PUBLICATION \"o'd\\d\"; CREATE PUBLICATION \"o'd\\d\" FOR ALL TABLES")?;
    let all = format!("{:?}", first(&config)?);
    assert!(all.contains("is FOR ALL TABLES"), "{all}");
    Ok(())
}
