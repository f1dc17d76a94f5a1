//! Reads inside transaction blocks: which of them are served from the cache, and that each transaction sees exactly what it would see without
//! Freshet.

use anyhow::{Result, ensure};

use super::{SCHEMA, until_hit};
use crate::support::frames::{bind_text, describe_portal, execute, parse, query, sync, unnamed};
use crate::support::{
    Database, PATIENCE, Pair, RawClient, Version, ensure_hits, eventually, on_both, rest, time_passes, undisturbed,
};

on_both!(
    read_committed_hits_until_the_first_write,
    answers_of_a_block_are_kept,
    prepared_statements_hit_in_blocks,
    a_block_that_begins_in_a_batch,
    repeatable_read_keeps_its_snapshot,
    repeatable_read_takes_nothing_newer,
    serializable_reads_pass,
    savepoints_and_failures,
    blocks_that_are_not_understood_pass,
    settings_of_a_block_end_with_it,
    an_idle_transaction_is_kept_awake,
    the_snapshot_of_a_function_call_counts,
);

const READ: &str = "select votes from film where id = 60";
const OTHER: &str = "select votes from film where id = 61";

/// How many of these reads came from the cache.
fn hits(pair: &Pair, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    if !pair.freshet.is_there() {
        return work().map(|()| u64::MAX);
    }
    let before = pair.freshet.metrics()?.hits();
    work()?;
    Ok(pair.freshet.metrics()?.hits() - before)
}

/// Repeats a transaction until so many of its reads come from the cache.
fn until_hits(pair: &Pair, expected: u64, transaction: impl Fn() -> Result<()>) -> Result<()> {
    eventually(PATIENCE, || {
        let hits = hits(pair, &transaction)?;
        ensure!(hits >= expected, "{hits} of {expected} reads hit: {:?}", pair.freshet.metrics()?);
        Ok(())
    })
}

fn read_committed_hits_until_the_first_write(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    undisturbed(&pair.freshet, || {
        c.query("rollback")?;
        until_hit(&pair, &mut c, READ)?;
        until_hit(&pair, &mut c, OTHER)?;
        ensure_hits(&pair.freshet, 2, || {
            c.query("begin")?;
            ensure!(c.value(READ)? == "60" && c.value(OTHER)? == "61", "the entries");
            Ok(())
        })
    })?;
    let hit = hits(&pair, || {
        c.query("update film set votes = 1060 where id = 60")?;
        for _ in 0..3 {
            ensure!(c.value(READ)? == "1060", "the own write");
            ensure!(c.value(OTHER)? == "61", "another row");
        }
        Ok(())
    })?;
    ensure!(hit == 0 || hit == u64::MAX, "{hit} reads behind a write hit");
    c.query("rollback")?;
    ensure!(c.value(READ)? == "60", "what was rolled back");
    // Another session's commit is seen by the next statement of the block.
    let mut other = pair.connect()?;
    c.query("begin isolation level read committed read only")?;
    for votes in 100..120 {
        other.query(&format!("update film set votes = {votes} where id = 60"))?;
        ensure!(c.value(READ)? == votes.to_string(), "READ COMMITTED misses a commit that was acknowledged");
    }
    c.query("commit")?;
    Ok(())
}

/// What drivers with autocommit off send.
fn answers_of_a_block_are_kept(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    until_hits(&pair, 3, || {
        let mut c = pair.connect()?;
        for _ in 0..3 {
            c.query("begin")?;
            ensure!(c.value(READ)? == "60" && c.value(OTHER)? == "61", "the reads");
            c.query("commit")?;
        }
        Ok(())
    })?;
    // A write of the transaction does not spoil what it read before.
    let third = "select votes from film where id = 62";
    until_hits(&pair, 1, || {
        let mut c = pair.connect()?;
        c.query("begin")?;
        ensure!(c.value(third)? == "62", "the read");
        c.query("update film set votes = votes where id = 63")?;
        c.query("commit")?;
        rest();
        ensure!(c.value(third)? == "62", "the read");
        Ok(())
    })?;
    // One that changes what was read does.
    let mut c = pair.connect()?;
    for votes in 0..20 {
        c.query("begin")?;
        c.query("select votes from film where id = 64")?;
        c.query(&format!("update film set votes = {votes} where id = 64"))?;
        c.query("commit")?;
        let mut other = pair.connect()?;
        for client in [&mut c, &mut other] {
            let value = client.value("select votes from film where id = 64")?;
            ensure!(value == votes.to_string(), "wrote {votes}, read {value}");
        }
    }
    Ok(())
}

fn prepared_statements_hit_in_blocks(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    c.query("begin")?;
    c.exchange(&[parse("s", "select votes from film where id = $1"), sync()].concat(), 1)?;
    c.query("commit")?;
    let run = |c: &mut RawClient| c.exchange(&[bind_text("", "s", &["60"]), execute("", 0), sync()].concat(), 1);
    eventually(PATIENCE, || {
        let hit = hits(&pair, || {
            c.query("begin")?;
            let answer = run(&mut c)?;
            ensure!(answer.iter().any(|m| m.tag == b'D' && m.body.ends_with(b"60")), "{answer:?}");
            ensure!(answer.last().is_some_and(|m| m.body == b"T"), "the status inside a block");
            c.query("commit").map(drop)
        })?;
        ensure!(hit > 0, "no hit: {:?}", pair.freshet.metrics()?);
        Ok(())
    })
}

/// pgjdbc and others send BEGIN together with the first statement.
fn a_block_that_begins_in_a_batch(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    until_hits(&pair, 2, || {
        let mut c = pair.connect()?;
        for _ in 0..3 {
            let begin = [parse("", "BEGIN"), bind_text("", "", &[]), execute("", 0)].concat();
            let read = [parse("", READ), bind_text("", "", &[]), describe_portal(""), execute("", 0)].concat();
            let answer = c.exchange(&[begin, read, sync()].concat(), 1)?;
            ensure!(answer.last().is_some_and(|m| m.body == b"T"), "{answer:?}");
            c.exchange(&[unnamed(OTHER, &[]), sync()].concat(), 1)?;
            c.exchange(&[unnamed("COMMIT", &[]), sync()].concat(), 1)?;
        }
        Ok(())
    })
}

fn repeatable_read_keeps_its_snapshot(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut other, OTHER)?;
    // The entry is older than the snapshot and nothing has touched it: it is the snapshot's.
    until_hits(&pair, 1, || {
        let mut c = pair.connect()?;
        c.query("begin isolation level repeatable read")?;
        ensure!(c.value(READ)? == "60", "the first read");
        rest();
        ensure!(c.value(OTHER)? == "61", "the second read");
        c.query("commit").map(drop)
    })?;
    for round in 0..10 {
        let (old, new) = (if round == 0 { 61 } else { 1000 + round - 1 }, 1000 + round);
        c.query("begin isolation level repeatable read read only")?;
        c.query(READ)?;
        other.query(&format!("update film set votes = {new} where id = 61"))?;
        until_hit(&pair, &mut other, OTHER)?;
        for _ in 0..3 {
            let value = c.value(OTHER)?;
            ensure!(value == old.to_string(), "round {round}: a snapshot of {old} shows {value}");
        }
        c.query("commit")?;
        ensure!(c.value(OTHER)? == new.to_string(), "after the snapshot");
    }
    Ok(())
}

/// Two rows that always change together: no transaction sees one of them older than the other.
fn repeatable_read_takes_nothing_newer(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut writer, mut c) = (pair.connect()?, pair.connect()?);
    writer.query("update film set votes = 0 where id in (60, 61)")?;
    for round in 1..=150 {
        c.query("begin isolation level repeatable read")?;
        let first = c.value(if round % 2 == 0 { READ } else { OTHER })?;
        if round % 3 == 0 {
            writer.query(&format!("update film set votes = {round} where id in (60, 61)"))?;
        }
        let mut reader = pair.connect()?;
        reader.query(READ)?;
        reader.query(OTHER)?;
        for read in [READ, OTHER, READ] {
            let value = c.value(read)?;
            ensure!(value == first, "round {round}: {read} gives {value} in a snapshot of {first}");
        }
        c.query("commit")?;
    }
    Ok(())
}

fn serializable_reads_pass(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    let hit = hits(&pair, || {
        c.query("begin isolation level serializable")?;
        for _ in 0..3 {
            ensure!(c.value(READ)? == "60", "the read");
        }
        c.query("commit").map(drop)
    })?;
    ensure!(hit == 0 || hit == u64::MAX, "{hit} serializable reads hit");
    Ok(())
}

fn savepoints_and_failures(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    undisturbed(&pair.freshet, || {
        c.query("rollback")?;
        until_hit(&pair, &mut c, READ)?;
        ensure_hits(&pair.freshet, 1, || {
            c.query("begin")?;
            c.query("savepoint a")?;
            ensure!(c.value(READ)? == "60", "behind a savepoint");
            c.query("release a").map(drop)
        })
    })?;
    let hit = hits(&pair, || {
        c.query("savepoint b")?;
        c.query("update film set votes = 5 where id = 60")?;
        c.query("rollback to b")?;
        ensure!(c.value(READ)? == "60", "a rolled back write");
        c.query("savepoint d")?;
        c.query("select 1/0")?;
        let failed = c.query(READ)?;
        ensure!(failed.iter().any(|m| m.field(b'C').as_deref() == Some("25P02")), "{failed:?}");
        c.query("rollback to d")?;
        ensure!(c.value(READ)? == "60", "after a failure");
        Ok(())
    })?;
    ensure!(hit == 0 || hit == u64::MAX, "{hit} reads behind a write hit");
    c.query("commit")?;
    ensure!(c.value(READ)? == "60", "in the end");
    Ok(())
}

fn blocks_that_are_not_understood_pass(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut c, READ)?;
    let beginnings: [&[&str]; 4] = [
        &["begin; select 1"],
        &["begin", "set transaction isolation level repeatable read", "select 1 from film where id = 1"],
        &["begin", "commit and chain", "set transaction isolation level repeatable read", "select 1 from film limit 1"],
        &["begin", "begin"],
    ];
    for (round, beginning) in beginnings.iter().enumerate() {
        let before = c.value(READ)?;
        for sql in *beginning {
            c.query(sql)?;
        }
        other.query(&format!("update film set votes = {} where id = 60", 2000 + round))?;
        until_hit(&pair, &mut other, READ)?;
        let repeatable = beginning.iter().any(|sql| sql.contains("repeatable"));
        let expected = if repeatable { before } else { (2000 + round).to_string() };
        let value = c.value(READ)?;
        ensure!(value == expected, "{beginning:?}: {value}, not {expected}");
        c.query("commit")?;
    }
    // The session's default level counts.
    c.query("set default_transaction_isolation = 'repeatable read'")?;
    c.query("begin")?;
    let before = c.value(READ)?;
    other.query("update film set votes = 3000 where id = 60")?;
    until_hit(&pair, &mut other, READ)?;
    ensure!(c.value(READ)? == before, "the default level is not heeded");
    c.query("commit")?;
    ensure!(c.value(READ)? == "3000", "after the snapshot");
    Ok(())
}

fn settings_of_a_block_end_with_it(version: Version) -> Result<()> {
    let pair = Pair::new(
        version,
        &format!(
            "{SCHEMA} create table moment (id int primary key, at timestamptz);
        insert into moment values (1, '2026-01-01 12:00:00+00');"
        ),
    )?;
    let read = "select at from moment where id = 1";
    let mut c = pair.connect()?;
    c.query("set timezone = 'UTC'")?;
    until_hit(&pair, &mut c, read)?;
    for end in ["rollback", "commit"] {
        c.query("begin")?;
        let utc = c.value(read)?;
        c.query("set local timezone = 'Asia/Tokyo'")?;
        ensure!(c.value(read)? == "2026-01-01 21:00:00+09", "SET LOCAL is not heeded");
        c.query(end)?;
        ensure!(c.value(read)? == utc, "SET LOCAL outlives its block");
    }
    Ok(())
}

/// A session that reads from the cache is not idle.
fn an_idle_transaction_is_kept_awake(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    c.query("set idle_in_transaction_session_timeout = '2s'")?;
    until_hit(&pair, &mut c, READ)?;
    c.query("begin")?;
    for _ in 0..40 {
        ensure!(c.value(READ)? == "60", "the read");
        time_passes("longer than the time-out, in sum", std::time::Duration::from_millis(100));
    }
    ensure!(c.value("select count(*) from film where votes = -1")? == "0", "the session has ended");
    c.query("commit")?;
    Ok(())
}

/// Statements that say nothing of data take the snapshot too.
fn the_snapshot_of_a_function_call_counts(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &[])?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    for round in 0..10 {
        let before = other.value(READ)?;
        c.query("begin isolation level repeatable read")?;
        c.query("select 1 + 1")?;
        other.query(&format!("update film set votes = {} where id = 60", 5000 + round))?;
        let value = c.value(READ)?;
        ensure!(value == before, "round {round}: a snapshot of {before} shows {value}");
        c.query("commit")?;
        // If the old state had been cached, it would be served now.
        rest();
        for client in [&mut c, &mut other] {
            let value = client.value(READ)?;
            ensure!(value == (5000 + round).to_string(), "round {round}: {value} is served");
        }
    }
    c.exchange(&query("select 1"), 1).map(drop)
}
