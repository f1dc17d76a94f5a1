//! Named portals and statements: fetched in parts, closed in between, flushed, and failing at every step.

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::support::frames::{
    BINARY, Bound, TEXT, bind, bind_text, close_portal, close_statement, describe_portal, describe_statement, execute,
    flush, parse, query, sync, unnamed,
};
use crate::support::{Pair, RawClient, Version, on_both, rest};

on_both!(
    parts_between_hits,
    several_portals_at_once,
    closed_in_between,
    flush_at_every_place,
    errors_at_every_place,
    formats_of_each_column,
    syncs_in_flight,
    behind_a_hit_by_flush,
    again_in_a_block,
    cursors_of_sql_and_portals,
);

const READ: &str = "select id, name from item where id = $1";
const LIST: &str = "select id, name, price from item where id < $1 order by id";

fn hit() -> Vec<u8> {
    [unnamed(READ, &["1"]), sync()].concat()
}

/// What a read leaves behind it up to the `Sync` is there behind a hit as well: its portal, and a transaction that has begun.
fn behind_a_hit_by_flush(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let statement = |sql: &str| unnamed(sql, &[]);
    pair.same_with_hits(10, |c| {
        for more in [
            execute("", 0),
            execute("", 2),
            describe_portal(""),
            [describe_portal(""), execute("", 0), unnamed(READ, &["2"])].concat(),
            [close_portal(""), execute("", 0)].concat(),
            statement("lock table item in access share mode"),
            statement("set local work_mem = '1MB'"),
            statement("set transaction isolation level repeatable read"),
            statement("set transaction isolation level read committed"),
            statement("begin isolation level repeatable read"),
            statement("begin"),
            statement("commit"),
            statement("rollback"),
            statement("savepoint a"),
            statement("declare c cursor for select 1"),
            statement("vacuum item"),
            statement("discard all"),
            [statement("insert into item (id) values (1000)"), statement("select 1 / 0"), unnamed(READ, &["1"])]
                .concat(),
        ] {
            c.send(&[unnamed(READ, &["1"]), flush()].concat())?;
            c.until(b'C')?;
            c.exchange(&[more, sync()].concat(), 1)?;
            c.query("rollback")?;
            rest();
        }
        c.expect_silence()
    })
}

/// In a block the portal is there behind the `Sync`, too.
fn again_in_a_block(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(8, |c| {
        let first = |rows| [parse("", LIST), bind_text("", "", &["9"]), execute("", rows), sync()].concat();
        for rows in [0, 2] {
            c.exchange(&first(rows), 1)?;
            rest();
            for more in [execute("", 0), execute("", 2), describe_portal(""), close_portal("")] {
                c.query("begin")?;
                c.exchange(&first(rows), 1)?;
                c.exchange(&[more.clone(), sync()].concat(), 1)?;
                c.exchange(&[execute("", 0), sync()].concat(), 1)?;
                c.exchange(&hit(), 1)?;
                c.query("select id, name from item where id = 1")?;
                c.exchange(&[execute("", 0), sync()].concat(), 1)?;
                c.query("rollback")?;
                // The portal of another statement, before.
                c.query("begin")?;
                c.exchange(&[unnamed("select generate_series(1, 9) + random() * 0", &[]), sync()].concat(), 1)?;
                c.exchange(&first(rows), 1)?;
                c.exchange(&[more.clone(), sync()].concat(), 1)?;
                c.query("rollback")?;
            }
        }
        c.expect_silence()
    })
}

/// A limit ends with PortalSuspended, and the portal with the Sync; what hits before and after does not matter.
fn parts_between_hits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(3, |c| {
        c.exchange(&hit(), 1)?;
        rest();
        let part =
            |limit| [parse("l", LIST), bind_text("", "l", &["9"]), execute("", limit), close_statement("l"), sync()];
        for limit in [1, 3, 8, 9] {
            c.exchange(&hit(), 1)?;
            c.exchange(&part(limit).concat(), 1)?;
            c.exchange(&[hit(), part(limit).concat(), hit(), hit()].concat(), 4)?;
            rest();
        }
        // The rest of a portal that ended with the Sync.
        c.exchange(&[execute("", 0), sync()].concat(), 1)?;
        c.exchange(&hit(), 1)?;
        // Suspended and flushed, twice, other statements' reads in between (pgpool #59).
        c.send(&[parse("", LIST), bind_text("p", "", &["9"]), execute("p", 2), flush()].concat())?;
        c.until(b's')?;
        c.send(&[unnamed(READ, &["1"]), execute("p", 3), flush()].concat())?;
        c.until(b's')?;
        c.send(&[execute("p", 0), flush()].concat())?;
        c.until(b'C')?;
        c.exchange(&sync(), 1)?;
        rest();
        c.exchange(&hit(), 1)?;
        c.expect_silence()
    })
}

fn several_portals_at_once(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.exchange(&hit(), 1)?;
        c.query("begin")?;
        c.exchange(&[parse("l", LIST), bind_text("a", "l", &["9"]), bind_text("b", "l", &["6"]), sync()].concat(), 1)?;
        for (portal, limit) in [("a", 2), ("b", 2), ("a", 1), ("b", 9), ("a", 9), ("a", 9), ("b", 1)] {
            c.exchange(&[execute(portal, limit), sync()].concat(), 1)?;
            c.exchange(&hit(), 1)?;
            c.query("select id, name from item where id = 1")?;
        }
        c.exchange(&[describe_portal("a"), describe_statement("l"), describe_portal("b"), sync()].concat(), 1)?;
        c.query("commit")?;
        c.exchange(&[describe_portal("a"), sync()].concat(), 1)?;
        rest();
        c.exchange(&hit(), 1)?;
        c.expect_silence()
    })
}

fn closed_in_between(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let run = |name| [bind_text("", name, &["1"]), execute("", 0), sync()].concat();
    pair.same_with_hits(2, |c| {
        c.exchange(&[parse("s", READ), sync()].concat(), 1)?;
        for _ in 0..2 {
            c.exchange(&run("s"), 1)?;
            rest();
        }
        c.exchange(&[close_portal(""), sync(), run("s")].concat(), 2)?;
        c.exchange(&[bind_text("", "s", &["1"]), execute("", 0), close_statement("s"), sync(), run("s")].concat(), 2)?;
        c.exchange(&[parse("s", READ), sync(), run("s"), close_statement("s"), sync(), run("s")].concat(), 4)?;
        // Closed in the part that is skipped: it stays.
        c.exchange(
            &[parse("s", READ), sync(), parse("x", "selec"), close_statement("s"), sync(), run("s")].concat(),
            3,
        )?;
        rest();
        c.exchange(&run("s"), 1)?;
        // A portal that is open keeps what its statement was.
        c.query("begin")?;
        let keep = [bind_text("p", "s", &["2"]), close_statement("s"), execute("p", 0), sync()];
        c.exchange(&keep.concat(), 1)?;
        c.query("commit")?;
        c.exchange(&run("s"), 1)?;
        c.expect_silence()
    })
}

/// Flush after any message changes when answers come, never what they are.
fn flush_at_every_place(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let steps = || {
        [
            parse("", READ),
            describe_statement(""),
            bind_text("", "", &["1"]),
            describe_portal(""),
            execute("", 0),
            sync(),
        ]
    };
    pair.same_with_hits(1, |c| {
        c.exchange(&hit(), 1)?;
        for place in 0..=6 {
            let mut all = steps().to_vec();
            all.insert(place, flush());
            c.exchange(&[hit(), all.concat(), hit()].concat(), 3)?;
        }
        let flushed: Vec<u8> = steps().iter().flat_map(|step| [step.clone(), flush(), flush()].concat()).collect();
        c.exchange(&flushed, 1)?;
        // Nothing but a Flush, between Syncs and before a hit.
        c.exchange(&[flush(), hit(), flush(), sync(), flush(), hit()].concat(), 3)?;
        rest();
        c.exchange(&hit(), 1)?;
        // Flushed answers are awaited before more is sent, in the middle of several executions.
        c.send(&[unnamed(READ, &["2"]), flush()].concat())?;
        c.until(b'C')?;
        c.send(&[unnamed(READ, &["1"]), flush()].concat())?;
        c.until(b'C')?;
        c.send(&[unnamed("select 1/0", &[]), flush()].concat())?;
        c.until(b'E')?;
        c.exchange(&[flush(), unnamed(READ, &["1"]), flush(), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

/// Each step of each unit of a pipeline fails in turn: one error, the rest skipped, one ReadyForQuery for each Sync.
fn errors_at_every_place(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let failing: [Vec<u8>; 6] = [
        unnamed("selec", &[]),
        [parse("", READ), bind_text("", "nowhere", &["1"]), describe_portal(""), execute("", 0)].concat(),
        [parse("", READ), bind_text("", "", &["x"]), execute("", 0)].concat(),
        [parse("", READ), bind_text("", "", &["1"]), describe_portal("nowhere"), execute("", 0)].concat(),
        [parse("", READ), bind_text("", "", &["1"]), execute("nowhere", 0)].concat(),
        unnamed("select 1 / (id - 1) from item where id = $1", &["1"]),
    ];
    pair.same_with_hits(4, |c| {
        c.exchange(&hit(), 1)?;
        rest();
        for fails in &failing {
            for place in 0..4 {
                let mut units = vec![hit(), [unnamed(READ, &["2"]), sync()].concat(), hit()];
                let skipped = [fails.clone(), unnamed(READ, &["1"]), unnamed("selec", &[]), sync()].concat();
                units.insert(place, skipped);
                let answers = c.exchange(&units.concat(), 4)?;
                let errors = answers.iter().filter(|m| m.tag == b'E').count();
                ensure!(errors == 1, "{errors} errors");
            }
            rest();
            c.exchange(&hit(), 1)?;
        }
        c.expect_silence()
    })
}

/// One statement, bound with other formats each time, from the cache and not.
fn formats_of_each_column(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let sql = "select id, name, price, born, seen from item where id = $1";
    let formats: [&[i16]; 6] = [
        &[],
        &[TEXT],
        &[BINARY],
        &[BINARY, TEXT, TEXT, BINARY, BINARY],
        &[TEXT, BINARY, BINARY, TEXT, TEXT],
        &[TEXT, TEXT, TEXT, TEXT, TEXT],
    ];
    let run = |results, describe: bool| {
        let bound = bind("", "s", Bound { values: &[Some(b"7")], results, ..Bound::default() });
        let describe = if describe { describe_portal("") } else { Vec::new() };
        [bound, describe, execute("", 0), sync()].concat()
    };
    pair.same_with_hits(formats.len() as u64 * 2, |c| {
        c.exchange(&[parse("s", sql), sync()].concat(), 1)?;
        for _ in 0..2 {
            for results in formats {
                c.exchange(&run(results, true), 1)?;
                c.exchange(&run(results, false), 1)?;
            }
            rest();
        }
        // All of them in flight at once.
        let all: Vec<u8> = formats.iter().flat_map(|results| run(results, true)).collect();
        c.exchange(&all, formats.len())?;
        c.expect_silence()
    })
}

/// Hits between misses between statements that pass, all in flight: the order is that of the requests.
fn syncs_in_flight(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let one = |sql: &str, id: &str| [unnamed(sql, &[id]), sync()].concat();
    let uncached = "select id, random() < 2 from item where id = $1";
    pair.same_with_hits(9, |c| {
        for id in 1..10 {
            c.exchange(&one(READ, &id.to_string()), 1)?;
        }
        rest();
        let mut all = Vec::new();
        let mut count = 0;
        for round in 0..20 {
            let id = (round % 9 + 1).to_string();
            all.extend(one(READ, &id));
            all.extend(one(uncached, &id));
            all.extend(one(LIST, &id));
            all.extend(query(&format!("select id, name from item where id = {id}")));
            all.extend(one(READ, &id));
            all.extend(sync());
            count += 6;
        }
        c.exchange(&all, count)?;
        // The same in small pieces, so that a batch is often cut.
        for piece in all.chunks(7) {
            c.send(piece)?;
        }
        c.exchange(&[], count)?;
        c.expect_silence()
    })
}

/// The server's SQL cursors are portals, and the protocol's portals are cursors.
fn cursors_of_sql_and_portals(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c: &mut RawClient| {
        c.exchange(&hit(), 1)?;
        c.query("begin")?;
        c.query("declare c cursor for select id from item order by id")?;
        c.exchange(&[execute("c", 3), execute("c", 2), sync()].concat(), 1)?;
        c.query("fetch 2 from c")?;
        c.exchange(&[parse("", LIST), bind_text("p", "", &["9"]), execute("p", 2), sync()].concat(), 1)?;
        c.query("fetch 2 from p")?;
        c.query("close p")?;
        c.exchange(&[execute("p", 2), sync()].concat(), 1)?;
        c.query("rollback")?;
        c.query("begin; declare h cursor with hold for select id from item where id < 5 order by id; commit")?;
        rest();
        c.exchange(&hit(), 1)?;
        c.exchange(&[execute("h", 2), sync(), hit(), execute("h", 0), sync()].concat(), 3)?;
        c.exchange(&[close_portal("h"), sync()].concat(), 1)?;
        c.query("fetch 1 from h")?;
        rest();
        c.exchange(&hit(), 1)?;
        c.expect_silence()
    })
}
