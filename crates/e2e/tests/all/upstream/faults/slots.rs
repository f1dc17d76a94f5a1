//! Slots: the effect of a lost connection with each kind, and of others who change the slot.

use anyhow::{Result, ensure};
use freshet_testbed::{Settings, process};

use super::watch::{RESET, Watch};
use super::{LASTING, healthy, logged, primary, times, walsender, with_each_slot};
use crate::support::{Database, Freshet, PATIENCE, RawClient, Version, eventually, on_both};

on_both!(
    a_walsender_that_is_ended,
    an_end_while_tables_are_published,
    a_slot_that_is_dropped,
    an_invalidated_slot,
    the_end_of_freshet,
);

/// Rows that no session writes.
const ENTRIES: std::ops::RangeInclusive<i64> = 61..=79;

/// All the entries are hits at once; returns how often.
fn read_all(client: &mut RawClient, freshet: &Freshet) -> Result<u64> {
    let before = freshet.metrics()?.hits();
    for id in ENTRIES {
        let value = client.value(&format!("select n from counter where id = {id}"))?;
        ensure!(value == id.to_string(), "{value}, not {id}");
    }
    Ok(freshet.metrics()?.hits() - before)
}

/// With a temporary slot the cache is emptied; with a lasting one it serves the same entries on, and sees what was written
/// meanwhile.
fn a_walsender_that_is_ended(version: Version) -> Result<()> {
    let database = primary(version, &Settings::default())?;
    for options in [&[][..], &LASTING] {
        let freshet = Freshet::start(&database, options)?;
        if !freshet.is_there() {
            return Ok(());
        }
        let mut client = RawClient::login(freshet.address, database.login())?;
        eventually(PATIENCE, || {
            let hits = read_all(&mut client, &freshet)?;
            ensure!(hits == 19, "{hits} hits");
            Ok(())
        })?;
        for round in 0..3 {
            end_walsender(&database, &freshet, &mut client, round)?;
        }
        database.run(RESET)?;
        let watch = Watch::start(&freshet, &database.name, database.address());
        let scenario = || {
            for _ in 0..5 {
                let before = times(&freshet, "change stream");
                database.server.psql("select pg_terminate_backend(pid) from pg_stat_replication")?;
                logged(&freshet, "change stream", before)?;
                watch.until_back(&freshet)?;
            }
            Ok(())
        };
        let outcome: Result<()> = scenario();
        watch.finish()?;
        outcome?;
        healthy(&freshet)?;
        database.run(RESET)?;
    }
    Ok(())
}

/// The stream ends while Freshet publishes tables: no transaction of its own may keep the next stream from starting.
fn an_end_while_tables_are_published(version: Version) -> Result<()> {
    const TABLES: usize = 150;
    let database = primary(version, &Settings::default())?;
    let freshet = Freshet::start(&database, &[])?;
    if !freshet.is_there() {
        return Ok(());
    }
    let mut client = RawClient::login(freshet.address, database.login())?;
    let mut direct = RawClient::login(database.address(), database.login())?;
    for round in 0..6 {
        let tables = || (0..TABLES).map(|number| format!("t_{round}_{number}"));
        let create: Vec<String> = tables().map(|name| format!("create table {name} (id int primary key);")).collect();
        database.run(&create.concat())?;
        healthy(&freshet)?;
        let published = "select count(*) from pg_publication_rel";
        let before = direct.value(published)?;
        eventually(PATIENCE, || {
            // Asked again: the first time Freshet may not know them yet.
            for name in tables() {
                client.query(&format!("select id from {name}"))?;
            }
            ensure!(direct.value(published)? != before, "no table is published");
            Ok(())
        })?;
        let stands = times(&freshet, "change stream established");
        database.server.psql("select pg_terminate_backend(pid) from pg_stat_replication")?;
        logged(&freshet, "change stream established", stands)?;
        healthy(&freshet)?;
    }
    Ok(())
}

fn end_walsender(database: &Database, freshet: &Freshet, client: &mut RawClient, round: i64) -> Result<()> {
    let lasting = database.server.psql("select temporary from pg_replication_slots")? == "f";
    let before = freshet.metrics()?;
    let (stands, on) = (times(freshet, "change stream established"), times(freshet, "change stream continues;"));
    // A write at the same time, which is delivered after the break.
    database.run(&format!(
        "select pg_terminate_backend(pid) from pg_stat_replication; update counter set n = {round} where id = 1"
    ))?;
    if lasting {
        logged(freshet, "change stream continues;", on)?;
    } else {
        logged(freshet, "change stream established", stands)?;
    }
    eventually(PATIENCE, || {
        let hits = read_all(client, freshet)?;
        ensure!(hits == 19, "{hits} hits");
        Ok(())
    })?;
    let after = freshet.metrics()?;
    let more = |name: &str| after.count(name) - before.count(name);
    let (flushed, installed) = (more("freshet_flushed_total"), more("freshet_cached_total"));
    if lasting {
        let invalidated = more("freshet_invalidations_total");
        ensure!(installed == 0, "{installed} entries were made again: {flushed} flushed, {invalidated} invalidated");
    } else {
        ensure!(flushed >= 19 && installed >= 19, "{flushed} entries were flushed, and {installed} made again");
    }
    ensure!(client.value("select n from counter where id = 1")? == round.to_string(), "a write was missed");
    Ok(())
}

/// The lasting slot is dropped between two connections: it is unknown what was missed, so the cache is flushed.
fn a_slot_that_is_dropped(version: Version) -> Result<()> {
    let database = primary(version, &Settings::default())?;
    let freshet = Freshet::start(&database, &LASTING)?;
    if !freshet.is_there() {
        return Ok(());
    }
    let watch = Watch::start(&freshet, &database.name, database.address());
    let scenario = || {
        for create in ["", "perform pg_create_logical_replication_slot('freshet_shop', 'pgoutput');"] {
            watch.until_back(&freshet)?;
            let before = times(&freshet, "change stream established");
            database.run(&format!(
                "do $$ begin loop
                    perform pg_terminate_backend(active_pid) from pg_replication_slots where active;
                    begin perform pg_drop_replication_slot('freshet_shop'); exit;
                    exception when object_in_use then perform pg_sleep(0.002); end;
                end loop; {create} end $$"
            ))?;
            logged(&freshet, "change stream established", before)?;
        }
        watch.until_back(&freshet)
    };
    let outcome = scenario();
    watch.finish()?;
    outcome?;
    healthy(&freshet)
}

/// The server gives up a slot that holds back too much.
fn an_invalidated_slot(version: Version) -> Result<()> {
    let settings = Settings::default().with("max_slot_wal_keep_size = 1MB").with("min_wal_size = 32MB");
    let database = primary(version, &settings)?;
    database.run("create table big (t text)")?;
    with_each_slot(&database, |freshet, watch| {
        let Some(pid) = walsender(&database.server)? else { return Ok(()) };
        let before = times(freshet, "change stream established");
        process::pause(pid)?;
        let mut client = database.connect()?;
        client.run("insert into big select repeat(md5(g::text), 30) from generate_series(1, 60000) g")?;
        client.run("truncate big; select pg_switch_wal()")?;
        // The checkpoint ends the walsender, and waits for its end.
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| database.run("checkpoint"));
            eventually(PATIENCE, || {
                let waits = "select wait_event from pg_stat_activity where backend_type = 'checkpointer'";
                let waits = database.connect()?.value(waits)?;
                ensure!(waits == "ReplicationSlotDrop", "the checkpointer waits for {waits}");
                Ok(())
            })?;
            process::resume(pid)?;
            checkpoint.join().map_err(|_| anyhow::anyhow!("a panic"))?
        })?;
        logged(freshet, "change stream established", before)?;
        watch.until_back(freshet)
    })
}

/// A Freshet that ends drops its slot; one that is killed leaves it to the next of its name.
fn the_end_of_freshet(version: Version) -> Result<()> {
    let database = primary(version, &Settings::default())?;
    let slots = || database.server.psql("select count(*) from pg_replication_slots");
    for options in [&[][..], &LASTING] {
        let freshet = Freshet::start(&database, options)?;
        let Some(pid) = freshet.pid() else { return Ok(()) };
        ensure!(slots()? == "1", "{}", slots()?);
        process::terminate(pid)?;
        eventually(PATIENCE, || {
            ensure!(!freshet.is_alive(), "it goes on");
            Ok(())
        })?;
        eventually(PATIENCE, || {
            ensure!(slots()? == "0", "{}", slots()?);
            Ok(())
        })?;
    }
    drop(Freshet::start(&database, &LASTING)?);
    ensure!(slots()? == "1", "{}", slots()?);
    let freshet = Freshet::start(&database, &LASTING)?;
    ensure!(slots()? == "1", "{}", slots()?);
    let watch = Watch::start(&freshet, &database.name, database.address());
    let outcome = watch.until_back(&freshet);
    watch.finish()?;
    outcome
}
