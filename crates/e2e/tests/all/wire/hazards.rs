//! Known defects of other proxies, each with a test of its own.

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::support::frames::{
    bind_text, close_statement, describe_statement, execute, flush, parse, query, sync, unnamed,
};
use crate::support::{PATIENCE, Pair, RawClient, Version, eventually, on_both, rest};

on_both!(
    pgpool_174_a_sync_that_the_client_did_not_send,
    proxysql_5119_a_sync_that_is_held_back,
    proxysql_5079_no_ready_for_query_after_an_error,
    pgpool_59_flush_with_a_suspended_portal,
    pgdog_574_unnamed_statements_of_different_sessions,
    pgdog_759_the_rest_of_a_pipeline_goes_to_the_next_client,
    a_local_answer_overtakes_replies_in_flight,
);

const READ: &str = "select id, name from item where id = $1";

fn hit(id: &str) -> Vec<u8> {
    [unnamed(READ, &[id]), sync()].concat()
}

/// A Sync of the proxy's own would end the implicit transaction: what the client later rolls back would be committed.
fn pgpool_174_a_sync_that_the_client_did_not_send(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.exchange(&hit("1"), 1)?;
        let write = unnamed("update log set line = 'not to stay' where id = 2", &[]);
        c.send(&[write, flush()].concat())?;
        c.until(b'C')?;
        // Reads that would hit, were it not for the open implicit transaction.
        for _ in 0..3 {
            rest();
            c.send(&[unnamed(READ, &["1"]), flush()].concat())?;
            c.until(b'C')?;
        }
        let mut other = RawClient::login(pair.database.address(), pair.login())?;
        ensure!(other.value("select line from log where id = 2")? == "line 2", "committed before its Sync");
        let answers = c.exchange(&[unnamed("select 1/0", &[]), sync()].concat(), 1)?;
        ensure!(answers.iter().filter(|m| m.tag == b'Z').count() == 1, "{answers:?}");
        ensure!(other.value("select line from log where id = 2")? == "line 2", "committed although it failed");
        c.exchange(&hit("1"), 1)?;
        rest();
        c.exchange(&hit("1"), 1)?;
        c.expect_silence()
    })
}

/// A Sync is answered at once, whatever was sent before it and however little that was.
fn proxysql_5119_a_sync_that_is_held_back(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        for before in [
            Vec::new(),
            parse("s", READ),
            describe_statement("s"),
            bind_text("", "s", &["1"]),
            close_statement("s"),
            flush(),
            unnamed(READ, &["1"]),
            unnamed("", &[]),
        ] {
            c.exchange(&[before.clone(), sync()].concat(), 1)?;
            // In two writes.
            c.send(&before)?;
            rest();
            c.exchange(&sync(), 1)?;
            rest();
            c.exchange(&hit("1"), 1)?;
        }
        c.expect_silence()
    })
}

/// One for each Sync and one for each Query, after errors of every kind, in a pipeline and not.
fn proxysql_5079_no_ready_for_query_after_an_error(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let failing = || {
        [
            [unnamed("selec", &[]), sync()].concat(),
            [unnamed("select 1/0", &[]), sync()].concat(),
            [unnamed(READ, &["x"]), unnamed(READ, &["1"]), sync()].concat(),
            [parse("", READ), bind_text("", "nowhere", &[]), sync()].concat(),
            [execute("nowhere", 0), sync()].concat(),
            query("selec"),
            query("select 1; select 1/0; select 2"),
            query("insert into log values (1, 'twice')"),
        ]
    };
    pair.same_with_hits(2, |c| {
        c.exchange(&hit("1"), 1)?;
        rest();
        for fails in failing() {
            let answers = c.exchange(&fails, 1)?;
            ensure!(answers.iter().filter(|m| m.tag == b'E').count() == 1, "{answers:?}");
            c.exchange(&hit("1"), 1)?;
        }
        rest();
        c.exchange(&failing().iter().flat_map(|fails| [hit("1"), fails.clone()].concat()).collect::<Vec<_>>(), 16)?;
        c.expect_silence()
    })
}

/// The suspended portal is answered at the Flush, and so is what comes after it.
fn pgpool_59_flush_with_a_suspended_portal(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let list = "select id, name from item where id < $1 order by id";
    pair.same_with_hits(1, |c| {
        c.exchange(&hit("1"), 1)?;
        rest();
        c.exchange(&hit("1"), 1)?;
        c.send(&[parse("", list), bind_text("", "", &["20"]), execute("", 4), flush()].concat())?;
        c.until(b's')?;
        for _ in 0..3 {
            c.send(&[execute("", 4), flush()].concat())?;
            c.until(b's')?;
        }
        c.send(&[execute("", 4), flush()].concat())?;
        c.until(b'C')?;
        c.exchange(&sync(), 1)?;
        rest();
        c.exchange(&hit("1"), 1)?;
        c.expect_silence()
    })
}

/// The unnamed statement of one session is never bound by another, whatever both have been served from the cache.
fn pgdog_574_unnamed_statements_of_different_sessions(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let texts = [
        "select 'first', name from item where id = $1",
        "select 'second', price::text from item where id = $1",
        "select 'third', name, random() < 2 from item where id = $1",
    ];
    let mut sessions = Vec::new();
    for (number, text) in texts.iter().cycle().take(9).enumerate() {
        let mut client = pair.connect()?;
        crate::cached::until_hit(&pair, &mut pair.connect()?, "select id, name from item where id = 1")?;
        client.exchange(&[unnamed(text, &["1"]), sync()].concat(), 1)?;
        sessions.push((number % 3, client));
    }
    rest();
    let names = ["first", "second", "third"];
    for round in 0..4 {
        for (kind, client) in &mut sessions {
            // Parsed anew (a hit, perhaps), then bound without being parsed again.
            client.exchange(&[unnamed(texts[*kind], &["1"]), sync()].concat(), 1)?;
            let id = (round + 2).to_string();
            let answer = client.exchange(&[bind_text("", "", &[&id]), execute("", 0), sync()].concat(), 1)?;
            let row = answer.iter().find(|m| m.tag == b'D').map(crate::support::Message::columns).unwrap_or_default();
            let first = row.first().cloned().flatten().unwrap_or_default();
            ensure!(first == names[*kind].as_bytes(), "{} got {}", names[*kind], first.escape_ascii());
        }
    }
    Ok(())
}

/// Every session has an upstream connection of its own, and it ends with the session: nothing is left for another.
fn pgdog_759_the_rest_of_a_pipeline_goes_to_the_next_client(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut pids = Vec::new();
    for round in 0..8 {
        let mut leaves = pair.connect()?;
        pids.push(leaves.value("select pg_backend_pid()")?);
        let marked = format!("select 'left over {round}', random() < 2 from item");
        let all: Vec<u8> =
            (0..50).flat_map(|_| [unnamed(&marked, &[]), sync(), hit("1"), query(&marked)].concat()).collect();
        leaves.send(&all)?;
        if round % 2 == 0 {
            // Some of the answers are read, so that others are in flight.
            leaves.until(b'Z')?;
        }
        drop(leaves);
        let mut next = pair.connect()?;
        let answers = next.exchange(&[hit("2"), query("select 'mine'")].concat(), 2)?;
        let foreign = answers.iter().any(|m| m.body.windows(9).any(|w| w == b"left over"));
        ensure!(!foreign && answers.iter().filter(|m| m.tag == b'D').count() == 2, "{answers:?}");
        next.expect_silence()?;
        ensure!(!pids.contains(&next.value("select pg_backend_pid()")?), "a connection is used again");
    }
    eventually(PATIENCE, || {
        let left = pair
            .connect()?
            .value(&format!("select count(*) from pg_stat_activity where pid in ({})", pids.join(",")))?;
        ensure!(left == "0", "{left} upstream connections outlive their sessions");
        Ok(())
    })
}

/// What is known waits for what is owed.
fn a_local_answer_overtakes_replies_in_flight(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let slow = |seconds: &str| [unnamed("select pg_sleep($1)", &[seconds]), sync()].concat();
    pair.same_with_hits(1, |c| {
        c.exchange(&hit("1"), 1)?;
        c.query("select id, name from item where id = 1")?;
        rest();
        let known = || [hit("1"), query("select id, name from item where id = 1")].concat();
        c.exchange(
            &[known(), slow("0.1"), known(), parse("s", READ), sync(), known(), slow("0.05"), known()].concat(),
            11,
        )?;
        // An answer that is only half there.
        let large = query("select id, repeat('x', 3000000) from generate_series(1, 3) id");
        c.exchange(&[large, known()].concat(), 3)?;
        c.expect_silence()
    })
}
