//! Pipelines: several Syncs in flight, with hits, misses and errors. The order is preserved, and exactly one ReadyForQuery answers each Sync.

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::support::frames::{
    bind_text, close_statement, describe_statement, execute, frame, parse, query, sync, terminate, unnamed,
};
use crate::support::{Message, Pair, Version, on_both, rest};

on_both!(
    hits_and_misses_and_errors,
    several_executes_before_one_sync,
    reads_that_fail,
    an_error_skips_to_the_sync,
    other_messages_within_a_batch,
    the_client_stops_writing,
    an_error_ends_an_implicit_transaction,
    a_write_before_a_read,
    simple_and_extended_mixed,
    transactions_in_a_pipeline,
    syncs_without_anything,
    a_long_pipeline,
    terminate_at_the_end,
);

const READ: &str = "select id, name from item where id = $1";
const UNCACHED: &str = "select id, name, random() < 2 from item where id = $1";

fn hits_and_misses_and_errors(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        let mut all = Vec::new();
        for (sql, id) in
            [(READ, "1"), (READ, "2"), (UNCACHED, "1"), (READ, "x"), (READ, "1"), ("selec", "1"), (READ, "3")]
        {
            all.extend(unnamed(sql, &[id]));
            all.extend(sync());
        }
        c.exchange(&all, 7)?;
        c.expect_silence()
    })
}

fn several_executes_before_one_sync(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(3, |c| {
        c.exchange(&[unnamed(READ, &["1"]), unnamed(READ, &["2"]), unnamed(READ, &["1"]), sync()].concat(), 1)?;
        c.exchange(&[parse("s", READ), describe_statement("s"), sync()].concat(), 1)?;
        let one = |id| [bind_text("", "s", &[id]), execute("", 0)].concat();
        c.exchange(&[one("1"), sync()].concat(), 1)?;
        c.exchange(&[one("1"), one("2"), one("3"), sync()].concat(), 1)?;
        c.exchange(&[unnamed(READ, &["1"]), unnamed(UNCACHED, &["2"]), unnamed(READ, &["3"]), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

/// Freshet's own question stands behind reads that are to be kept, before their `Sync`: it is skipped with all else behind an
/// error, and its answer is nobody's.
fn reads_that_fail(version: Version) -> Result<()> {
    const AT_ONCE: &str = "select 60 / (id - 1) from item where id >= $1 order by id";
    const BEHIND_ROWS: &str = "select 60 / (id - 1) from item where id >= $1 order by id desc";
    let pair = Pair::new(version, SCHEMA)?;
    let one = |sql, id| [unnamed(sql, &[id]), sync()].concat();
    let some = |rows| [parse("", READ), bind_text("", "", &["2"]), execute("", rows), sync()].concat();
    pair.same_with_hits(4, |c| {
        c.exchange(&one(AT_ONCE, "1"), 1)?;
        c.exchange(&one(BEHIND_ROWS, "1"), 1)?;
        c.exchange(&one(AT_ONCE, "2"), 1)?;
        c.exchange(&[unnamed(READ, &["1"]), unnamed(BEHIND_ROWS, &["1"]), one(READ, "2")].concat(), 1)?;
        c.exchange(&[one(AT_ONCE, "1"), one(READ, "1"), one(BEHIND_ROWS, "1"), one(READ, "-1")].concat(), 4)?;
        c.exchange(&[some(1), some(7), one(READ, "")].concat(), 3)?;
        c.query("select count(*) from item")?;
        c.expect_silence()
    })
}

fn an_error_skips_to_the_sync(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        let read = || unnamed(READ, &["1"]);
        c.exchange(&[read(), sync()].concat(), 1)?;
        c.exchange(&[unnamed("select 1/0", &[]), read(), read(), sync(), read(), sync()].concat(), 2)?;
        c.exchange(&[read(), unnamed("select 1/0", &[]), read(), sync(), read(), sync()].concat(), 2)?;
        // A Parse that is skipped leaves no statement; a Close that is skipped leaves it.
        c.exchange(&[parse("a", READ), sync()].concat(), 1)?;
        let skipped = [parse("bad", "selec"), parse("b", READ), close_statement("a"), sync()];
        c.exchange(&skipped.concat(), 1)?;
        c.exchange(&[bind_text("", "b", &["1"]), execute("", 0), sync()].concat(), 1)?;
        c.exchange(&[bind_text("", "a", &["1"]), execute("", 0), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

/// Which ReadyForQuery belongs to what depends on whether the part before failed. (PostgreSQL 18 is itself confused
/// after one that did not fail, so the session ends there.)
fn other_messages_within_a_batch(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let simple = query("select id, name from item where id = 1");
    let call = frame(b'F', b"\0\0\x05\x75\0\x01\0\x01\0\x01\0\0\0\x04\xff\xff\xff\xfb\0\x01");
    let read = || [unnamed(READ, &["1"]), sync()].concat();
    for inside in [&simple, &call] {
        pair.same(|c| c.exchange(&[unnamed(READ, &["2"]), inside.clone(), sync()].concat(), 2).map(drop))?;
        // In the part that is skipped it is skipped as well: one ReadyForQuery, not two.
        pair.same_with_hits(1, |c| {
            c.exchange(&read(), 1)?;
            c.exchange(&[parse("bad", "selec"), inside.clone(), sync()].concat(), 1)?;
            c.exchange(&read(), 1)?;
            rest();
            c.exchange(&read(), 1)?;
            c.exchange(&[unnamed("select 1/0", &[]), inside.clone(), sync(), read(), read()].concat(), 3)?;
            c.expect_silence()
        })?;
    }
    Ok(())
}

/// A client may close its half of the connection after its last request, and still wants all answers.
fn the_client_stops_writing(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for last in
        ["select * from item where id = 1", "select id, random() < 2 from item where id = 2", "select pg_sleep(0.2)"]
    {
        pair.same(|c| {
            c.send(&[query(last), unnamed(READ, &["3"]), sync(), query(last)].concat())?;
            c.socket()?.shutdown(std::net::Shutdown::Write)?;
            while c.read_or_end()?.is_some() {}
            Ok(())
        })?;
    }
    Ok(())
}

fn an_error_ends_an_implicit_transaction(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        let write = unnamed("update log set line = 'undone' where id = $1", &["1"]);
        c.exchange(&[write.clone(), unnamed("select 1/0", &[]), sync()].concat(), 1)?;
        c.query("select line from log where id = 1")?;
        c.exchange(&[write, sync()].concat(), 1)?;
        c.query("select line from log where id = 1")?;
        c.query("update log set line = 'line 1' where id = 1")?;
        c.expect_silence()
    })
}

/// A read must see the write before it, also where both are in flight.
fn a_write_before_a_read(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = || unnamed("select line from log where id = $1", &["5"]);
    let write = |line| unnamed("update log set line = $1 where id = 5", &[line]);
    pair.same(|c| {
        for round in ["a", "b", "c"] {
            c.exchange(&[read(), sync(), write(round), sync(), read(), sync()].concat(), 3)?;
            c.exchange(&[write("d"), read(), write("e"), read(), sync(), read(), sync()].concat(), 2)?;
            c.exchange(&[query("update log set line = 'f' where id = 5"), read(), sync()].concat(), 2)?;
        }
        c.exchange(&[write("line 5"), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

fn simple_and_extended_mixed(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let simple = query("select id, name from item where id = 1");
    pair.same_with_hits(2, |c| {
        let extended = || [unnamed(READ, &["1"]), sync()].concat();
        c.exchange(&[simple.clone(), extended(), simple.clone(), extended()].concat(), 4)?;
        c.expect_silence()
    })
}

fn transactions_in_a_pipeline(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        let step = |sql: &str| [unnamed(sql, &[]), sync()].concat();
        let read = || [unnamed(READ, &["1"]), sync()].concat();
        c.exchange(&[step("begin"), read(), step("select 1/0"), read(), step("rollback"), read()].concat(), 6)?;
        c.exchange(&[unnamed("begin", &[]), unnamed(READ, &["1"]), unnamed("commit", &[]), sync()].concat(), 1)?;
        c.exchange(&[step("begin"), read(), step("commit"), read()].concat(), 4)?;
        c.expect_silence()
    })
}

fn syncs_without_anything(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.exchange(&[unnamed(READ, &["1"]), sync(), sync(), sync()].concat(), 3)?;
        c.exchange(&[sync(), unnamed("", &[]), sync(), sync()].concat(), 3)?;
        c.expect_silence()
    })
}

/// More than any buffer holds, written while nothing is read: neither side may wait for the other for ever.
fn a_long_pipeline(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let rounds = 3000;
    let mut all = Vec::new();
    for round in 0..rounds {
        let id = (round % 50 + 1).to_string();
        all.extend(unnamed(if round > 1500 && round % 7 == 0 { UNCACHED } else { READ }, &[&id]));
        all.extend(sync());
    }
    pair.same_with_hits(100, |c| {
        let mut socket = c.socket()?;
        let all = all.clone();
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut socket, &all));
        c.exchange(&[], rounds)?;
        writer.join().expect("the writer does not panic")?;
        let ready = c.heard.iter().filter(|m: &&Message| m.tag == b'Z').count();
        ensure!(ready == rounds, "{ready} answers to {rounds}");
        c.expect_silence()
    })
}

fn terminate_at_the_end(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.send(&[unnamed(READ, &["1"]), sync(), unnamed(READ, &["2"]), sync(), terminate()].concat())?;
        c.until(b'Z')?;
        c.until(b'Z')?;
        ensure!(c.read_unheard()?.is_none(), "something after Terminate");
        Ok(())
    })
}
