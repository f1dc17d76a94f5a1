//! Sessions that the server ends, and statements that it cancels: the client gets the server's own message.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::cached::until_hit;
use crate::support::frames::{query, sync, unnamed};
use crate::support::{
    PATIENCE, Pair, RawClient, Version, ensure_same, eventually, on_both, rest, time_passes, undisturbed,
};

on_both!(
    idle_in_a_transaction,
    idle_for_too_long,
    never_idle_while_it_hits,
    statements_that_take_too_long,
    own_statements_under_short_timeouts,
    transactions_that_take_too_long,
    terminated_at_any_moment,
    locked_out,
);

const READ: &str = "select id, name from item where id = 1";
/// Could be cached, but takes minutes.
const SLOW_READ: &str =
    "select count(*) from item a, item b, item c, item d, item e where a.id + b.id + c.id < d.id + e.id";

/// Everything up to the end of the connection.
fn to_the_end(client: &mut RawClient) -> Result<()> {
    while client.read_or_end()?.is_some() {}
    Ok(())
}

fn idle_in_a_transaction(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query(READ)?;
        c.query("set idle_in_transaction_session_timeout = '300ms'")?;
        rest();
        c.query(READ)?;
        c.query("begin")?;
        c.query(READ)?;
        to_the_end(c)
    })?;
    // Also in an aborted one.
    pair.same(|c| {
        c.query("set idle_in_transaction_session_timeout = '300ms'")?;
        c.query("begin; select 1/0")?;
        to_the_end(c)
    })
}

fn idle_for_too_long(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query(READ)?;
        rest();
        c.query(READ)?;
        c.query("set idle_session_timeout = '400ms'")?;
        c.query(READ)?;
        to_the_end(c)
    })
}

/// The server sees nothing of what comes from the cache, but the session is not idle.
fn never_idle_while_it_hits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut client = pair.connect()?;
    client.query("set idle_session_timeout = '2s'")?;
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut client, READ)?;
        let before = pair.freshet.metrics()?.hits();
        for _ in 0..20 {
            let tags: String = client.query(READ)?.iter().map(|m| char::from(m.tag)).collect();
            ensure!(tags == "TDCZ", "{tags}");
            time_passes("longer than the time-out, in sum", Duration::from_millis(200));
        }
        let hits = pair.freshet.metrics()?.hits() - before;
        ensure!(hits >= 15 || !pair.freshet.is_there(), "{hits} hits");
        Ok(())
    })?;
    client.expect_silence()
}

/// A cancelled fill is answered by the server's error, each time.
fn statements_that_take_too_long(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query(READ)?;
        rest();
        c.query("set statement_timeout = '200ms'")?;
        for _ in 0..2 {
            let answer = c.query(SLOW_READ)?;
            ensure!(answer.iter().any(|m| m.field(b'C').as_deref() == Some("57014")), "{answer:?}");
            let batch = [unnamed(SLOW_READ, &[]), unnamed(READ, &[]), sync(), unnamed(READ, &[]), sync()];
            c.exchange(&batch.concat(), 2)?;
            rest();
            c.query(READ)?;
        }
        c.query("reset statement_timeout")?;
        c.query(READ)?;
        c.expect_silence()
    })
}

/// What Freshet asks for itself may be given up as well: that is nothing to the client.
fn own_statements_under_short_timeouts(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    until_hit(&pair, &mut pair.connect()?, READ)?;
    let mut expected = pair.database.connect()?.query(READ)?;
    expected.retain(|m| m.tag != b'S');
    for _ in 0..5 {
        let mut client = pair.connect()?;
        client.query("set statement_timeout = 1")?;
        for id in 1..40 {
            let answer = client.query(&format!("select id, name from item where id = {id}"))?;
            let timed_out = answer.iter().any(|m| m.field(b'C').as_deref() == Some("57014"));
            let tags: String = answer.iter().map(|m| char::from(m.tag)).collect();
            ensure!(tags == "TDCZ" || timed_out, "{tags}: {answer:?}");
            ensure!(id != 1 || timed_out || answer == expected, "{answer:?}");
        }
        client.query("set statement_timeout = 0")?;
        client.query("set statement_timeout = 0")?;
        client.expect_silence()?;
    }
    Ok(())
}

fn transactions_that_take_too_long(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        c.query(READ)?;
        // Only version 18 knows it; 15 says so.
        c.query("set transaction_timeout = '300ms'")?;
        if version == Version::V18 {
            c.query("begin")?;
            c.query(READ)?;
            to_the_end(c)?;
        }
        Ok(())
    })
}

/// Idle, after hits, in a fill, in a transaction, in a pipeline, in a copy: the same last words, and the end.
fn terminated_at_any_moment(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let running = |what: &str| format!("state <> 'idle' and query like '{what}%'");
    for (moment, last, seen) in [
        ("idle after hits", Vec::new(), "state = 'idle'".to_owned()),
        ("in a fill", query(SLOW_READ), running("select count")),
        ("in an extended fill", [unnamed(SLOW_READ, &[]), sync()].concat(), running("select count")),
        ("in a transaction", query("begin; select 'there'"), running("begin")),
        (
            "in a pipeline",
            [query(READ), query("select pg_sleep(60)"), query(READ)].concat(),
            running("select pg_sleep"),
        ),
        // Before it waits for data it is at line 0, then at line 1, and says so.
        ("in a copy", query("copy log from stdin"), running("copy") + " and wait_event = 'ClientRead'"),
    ] {
        let talk = |address| -> Result<_> {
            let mut client = RawClient::login(address, pair.login())?;
            let pid = client.value("select pg_backend_pid()")?;
            client.query(READ)?;
            rest();
            client.query(READ)?;
            client.heard.clear();
            client.send(&last)?;
            let mut watcher = pair.database.connect()?;
            eventually(PATIENCE, || {
                let sql = format!("select count(*) from pg_stat_activity where pid = {pid} and {seen}");
                ensure!(watcher.value(&sql)? == "1", "not seen {moment}");
                Ok(())
            })?;
            watcher.run(&format!("select pg_terminate_backend({pid})"))?;
            to_the_end(&mut client)?;
            // How far the statement had come is left to chance.
            client.heard.retain(|m| !matches!(m.tag, b'1' | b'2' | b'T'));
            Ok(client.heard)
        };
        let direct = talk(pair.database.address())?;
        for _ in 0..2 {
            let through = talk(pair.address())?;
            ensure_same(&direct, &through).map_err(|error| error.context(moment))?;
        }
    }
    until_hit(&pair, &mut pair.connect()?, READ)
}

/// A fill that waits for a lock waits as long as it would, and no other session's hits wait with it.
fn locked_out(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut other = pair.connect()?;
    until_hit(&pair, &mut other, READ)?;
    let mut locker = pair.database.connect()?;
    locker.run("begin; lock table log in access exclusive mode")?;
    pair.same(|c| {
        c.query("set lock_timeout = '200ms'")?;
        for _ in 0..2 {
            let answer = c.query("select line from log where id = 9")?;
            ensure!(answer.iter().any(|m| m.field(b'C').as_deref() == Some("55P03")), "{answer:?}");
        }
        c.expect_silence()
    })?;
    let mut waits = pair.connect()?;
    waits.send(&query("select line from log where id = 9"))?;
    until_hit(&pair, &mut other, READ)?;
    locker.run("update log set line = 'unlocked' where id = 9; commit")?;
    let row = waits.until(b'Z')?;
    let row = row.iter().find(|m| m.tag == b'D').map(crate::support::Message::columns);
    ensure!(row == Some(vec![Some(b"unlocked".to_vec())]), "{row:?}");
    Ok(())
}
