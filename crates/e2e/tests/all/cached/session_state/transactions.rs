//! The effects of transactions, locks and channels on a session that continues to read from the cache.

use anyhow::{Result, ensure};

use super::{READ, Twins, fills, pair};
use crate::support::frames::{bind_text, execute, parse, query, sync, unnamed};
use crate::support::{PATIENCE, Version, eventually, on_both};

on_both!(
    settings_of_a_transaction,
    advisory_locks,
    channels,
    cursors_that_outlive_their_transaction,
    prepared_transactions,
    a_hit_is_a_query_of_its_transaction,
);

fn settings_of_a_transaction(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    for sql in [
        &["begin", "set local timezone = 'Asia/Tokyo'", READ, "commit"][..],
        &["begin", "set timezone = 'Asia/Tokyo'", READ, "rollback"],
        &["begin", "savepoint s", "set timezone = 'Asia/Tokyo'", READ, "rollback to s", READ, "commit"],
        &["begin", "set timezone = 'Asia/Tokyo'", "select 1/0", "commit"],
        &["begin; set local search_path = other; commit"],
        &["set timezone = 'Asia/Tokyo'; select 1/0"],
        &["set local timezone = 'Asia/Tokyo'"],
        &["begin read only", READ, "end"],
        &["begin isolation level serializable", READ, "abort"],
    ] {
        twins.run(sql)?;
        twins.known_key(READ)?;
    }
    twins.run(&["begin", "savepoint s", "set timezone = 'Asia/Tokyo'", "release s", "commit"])?;
    // The first block may have filled it.
    twins.fills_until_hit(&query(READ)).map(drop)
}

fn advisory_locks(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut through = Twins::new(&pair)?;
    through.new_key(READ)?;
    // Only through Freshet: the twins would wait for each other.
    let (client, mut other) = (&mut through.through, pair.database.connect()?);
    client.run("select pg_advisory_lock(7)")?;
    crate::cached::until_hit(&pair, client, READ)?;
    ensure!(other.value("select pg_try_advisory_lock(7)")? == "f", "the lock was lost");
    crate::cached::until_hit(&pair, client, READ)?;
    ensure!(client.value("select pg_advisory_unlock(7)")? == "t", "the lock was not held by this session");
    crate::cached::until_hit(&pair, client, READ)?;
    ensure!(other.value("select pg_try_advisory_lock(7)")? == "t", "the lock was not given back");
    client.run("begin; select pg_advisory_xact_lock(8)")?;
    ensure!(other.value("select pg_try_advisory_lock(8)")? == "f", "the transaction's lock was lost");
    client.run("commit")?;
    crate::cached::until_hit(&pair, client, READ)?;
    ensure!(other.value("select pg_try_advisory_lock(8)")? == "t", "the transaction's lock was not released");
    // A session that ends gives its locks back.
    client.run("select pg_advisory_lock_shared(9)")?;
    crate::cached::until_hit(&pair, client, READ)?;
    drop(through);
    crate::support::eventually(crate::support::PATIENCE, || {
        ensure!(other.value("select pg_try_advisory_lock(9)")? == "t", "the lock outlives its session");
        Ok(())
    })
}

fn channels(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    for sql in
        ["listen news", "listen \"Other\"", "unlisten \"Other\"", "listen news", "unlisten *", "unlisten nothing"]
    {
        twins.run(&[sql])?;
        twins.known_key(READ)?;
    }
    Ok(())
}

fn cursors_that_outlive_their_transaction(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    twins.run(&["declare c scroll cursor with hold for select id, name from sample order by id"])?;
    twins.known_key(READ)?;
    for fetch in ["fetch 1 from c", "fetch 1 from c", "fetch 1 from c", "fetch backward all from c", "close c"] {
        twins.run(&[fetch])?;
        twins.known_key(READ)?;
    }
    twins.run(&["fetch 1 from c"])
}

/// A transaction that is prepared leaves its session, and its writes are seen when it is committed, by whomever.
fn prepared_transactions(version: Version) -> Result<()> {
    let settings = freshet_testbed::Settings::default().with("max_prepared_transactions = 5");
    let database = crate::support::Database::create(version.start(&settings)?)?;
    let pair = crate::support::Pair::over(database, super::SCHEMA, &[])?;
    let read = "select name from sample where id = 2";
    let mut client = pair.connect()?;
    crate::cached::until_hit(&pair, &mut client, read)?;
    client.run("begin; update sample set name = 'prepared' where id = 2")?;
    client.run("prepare transaction 'two'")?;
    // The session is free of it, and reads what is committed.
    crate::cached::until_hit(&pair, &mut client, read)?;
    ensure!(client.value(read)? == "plain", "what is only prepared was seen");
    client.run("commit prepared 'two'")?;
    ensure!(client.value(read)? == "prepared", "the session does not see its own COMMIT PREPARED");
    crate::cached::until_hit(&pair, &mut client, read)?;
    client.run("begin; update sample set name = 'not this' where id = 2; prepare transaction 'three'")?;
    client.run("rollback prepared 'three'")?;
    crate::cached::until_hit(&pair, &mut client, read)?;
    ensure!(client.value(read)? == "prepared", "what was rolled back was seen");
    Ok(())
}

/// Behind the first query of a block its level and access mode are fixed, also if it was answered from the cache.
fn a_hit_is_a_query_of_its_transaction(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    let write = "update sample set name = 'plain' where id = 2";
    let prepared = [parse("p", "set transaction read write"), sync()].concat();
    twins.exchange(&prepared, 1)?;
    let ends: &[&[Vec<u8>]] = &[
        &[query("set transaction read write"), query(write)],
        &[query("set transaction isolation level serializable"), query(READ)],
        &[query("set transaction_isolation = 'repeatable read'")],
        &[query("set local transaction_read_only = off"), query(write)],
        &[query("begin isolation level serializable")],
        &[query("start transaction read write"), query(write)],
        &[query("set transaction snapshot '00000003-0000001B-1'")],
        &[query("savepoint s"), query("set transaction read write"), query("rollback to s"), query(READ)],
        &[[unnamed("set transaction read write", &[]), sync()].concat(), query(write)],
        &[[bind_text("", "p", &[]), execute("", 0), sync()].concat(), query(write)],
        &[query("set session characteristics as transaction read only"), query("show transaction_read_only")],
        &[query("select name from sample where id = 2"), query("set transaction read write")],
        &[query(write)],
    ];
    for end in ends {
        let mut wrong = None;
        eventually(PATIENCE, || {
            let before = if pair.freshet.is_there() { Some(pair.freshet.metrics()?) } else { None };
            let (block, last) = ([query("begin read only"), query(READ)], [query("rollback")]);
            let all = block.iter().chain(*end).chain(&last);
            if let Err(error) = all.clone().try_for_each(|message| twins.exchange(message, 1)) {
                wrong.get_or_insert(error);
                return Ok(());
            }
            twins.run(&["reset all"])?;
            let Some(before) = before else { return Ok(()) };
            let after = pair.freshet.metrics()?;
            ensure!(after.hits() > before.hits(), "{} fills, no hit", fills(&after) - fills(&before));
            Ok(())
        })?;
        wrong.map_or(Ok(()), Err)?;
    }
    // Freshet's own prepared statements may have been deallocated.
    for _ in 0..2 {
        twins.run(&["do $$ begin execute 'deallocate all'; end $$"])?;
        twins.known_key(READ)?;
        twins.run(&["begin", READ, "set local enable_sort = off", "select 1", "rollback"])?;
    }
    twins.run(&["begin", READ, "update sample set name = name where id = 3", "commit"])?;
    twins.known_key(READ)
}
