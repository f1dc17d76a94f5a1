//! Batches of the extended protocol as drivers send them, and incomplete batches.

use anyhow::Result;

use super::SCHEMA;
use crate::support::frames::{
    bind_text, close_portal, close_statement, describe_portal, describe_statement, execute, flush, parse, query, sync,
    unnamed,
};
use crate::support::{Pair, Version, on_both};

on_both!(
    messages_are_answered_without_sync,
    shapes_of_drivers_hit,
    shapes_that_begin_with_the_server_hit,
    a_description_of_another_statement,
    what_the_server_refuses_first,
    portals_with_names,
    statements_of_the_batch_itself,
    pipelines_that_begin_a_block,
    pipelines_whose_begin_fails,
);

const READ: &str = "select id, name, price from item where id = $1";

/// The server tells an error at once; a time-out of the client's between two messages begins at once.
fn messages_are_answered_without_sync(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        for messages in [
            [parse("", "select 1/0"), bind_text("", "", &[]), execute("", 0)].concat(),
            unnamed("select 1/0", &[]),
            [unnamed(READ, &["1"]), unnamed(READ, &["x"])].concat(),
            [parse("", READ), parse("", "selec")].concat(),
        ] {
            c.send(&messages)?;
            c.until(b'E')?;
            c.exchange(&sync(), 1)?;
            c.exchange(&[unnamed(READ, &["2"]), sync()].concat(), 1)?;
        }
        c.expect_silence()
    })
}

/// All but the first part of each is sent in one go, and answered from the cache.
fn shapes_of_drivers_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let prepared = [parse("s", READ), describe_statement("s"), sync()].concat();
    let (bind, bind_named) = (bind_text("", "", &["5"]), bind_text("", "s", &["5"]));
    let run = || execute("", 0);
    let shapes = [
        // tokio-postgres with types, Npgsql, pgjdbc with parameters of unknown types.
        (None, [parse("", READ), describe_statement(""), bind.clone(), run()].concat()),
        // libpq, psycopg, pgx, asyncpg, node-postgres.
        (None, [parse("", READ), bind.clone(), describe_portal(""), run()].concat()),
        (Some(&prepared), [bind_named.clone(), describe_portal(""), run()].concat()),
        (Some(&prepared), [bind_named.clone(), run()].concat()),
        (Some(&prepared), [describe_statement("s"), bind_named.clone(), run()].concat()),
        // Those that close their portals.
        (None, [parse("", READ), bind.clone(), describe_portal(""), run(), close_portal("")].concat()),
        (None, [parse("", READ), describe_statement(""), bind, run(), close_portal("")].concat()),
        (Some(&prepared), [bind_named.clone(), describe_portal(""), run(), close_portal("")].concat()),
        (Some(&prepared), [bind_named.clone(), run(), close_portal(""), bind_named, run(), close_portal("")].concat()),
    ];
    for (prepared, shape) in shapes {
        pair.same_with_hits(1, |c| {
            if let Some(prepared) = prepared {
                c.exchange(prepared, 1)?;
            }
            c.exchange(&[shape.clone(), sync()].concat(), 1)?;
            c.expect_silence()
        })?;
    }
    Ok(())
}

/// What only the server can do goes ahead: the statements get their names, and lose them.
fn shapes_that_begin_with_the_server_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let old = [parse("old", READ), sync()].concat();
    let (bind, bind_named, run) = (|| bind_text("", "", &["5"]), || bind_text("", "s", &["5"]), || execute("", 0));
    // On a connection of its own each: what is sent first, and the batch.
    let shapes = [
        // node-postgres and pgjdbc, whenever they name a statement.
        (None, [parse("s", READ), bind_named(), describe_portal(""), run()].concat()),
        // postgres.js, pgjdbc with parameters of unknown types.
        (None, [parse("s", READ), describe_statement("s"), bind_named(), run()].concat()),
        // pgjdbc and Npgsql, where a statement takes another's place.
        (Some(&old), [close_statement("old"), parse("s", READ), bind_named(), describe_portal(""), run()].concat()),
        (Some(&old), [close_statement("old"), close_portal("c"), parse("", READ), bind(), run()].concat()),
    ];
    for (first, shape) in shapes {
        for block in [false, true] {
            pair.same_with_hits(1, |c| {
                if block {
                    c.exchange(&query("begin"), 1)?;
                }
                if let Some(first) = first {
                    c.exchange(first, 1)?;
                }
                c.exchange(&[shape.clone(), sync()].concat(), 1)?;
                if !block {
                    // The name is known, or is not.
                    c.exchange(&[describe_statement("s"), sync()].concat(), 1)?;
                }
                c.expect_silence()
            })?;
        }
    }
    // asyncpg and postgres.js wait for the description; without a cache of statements, each time.
    for (parsed, rest) in [
        ("s", [bind_named(), run(), sync()].concat()),
        ("", [bind(), run(), sync()].concat()),
        ("", [parse("", READ), bind(), run(), sync()].concat()),
    ] {
        pair.same_with_hits(2, |c| {
            for name in [parsed, if parsed.is_empty() { "" } else { "t" }] {
                c.send(&[parse(name, READ), describe_statement(name), flush()].concat())?;
                c.until(b'T')?;
                c.exchange(&rest, 1)?;
            }
            c.expect_silence()
        })?;
    }
    Ok(())
}

/// Nothing of a batch is answered behind a message that the server refuses.
fn what_the_server_refuses_first(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let named = || [parse("s", READ), bind_text("", "s", &["5"]), execute("", 0)].concat();
    let read = || [unnamed(READ, &["5"]), sync()].concat();
    for block in [false, true] {
        pair.same_with_hits(1, |c| {
            c.exchange(&read(), 1)?;
            if block {
                c.exchange(&query("begin"), 1)?;
            }
            c.exchange(&[named(), sync()].concat(), 1)?;
            // The name is in use; the batches behind it are sent with it.
            c.exchange(&[named(), bind_text("", "s", &["6"]), execute("", 0), sync(), read(), read()].concat(), 3)?;
            if block {
                c.exchange(&query("rollback"), 1)?;
            }
            c.exchange(&read(), 1)?;
            // The statement that is closed is the one that is bound.
            c.exchange(&[close_statement("s"), bind_text("", "s", &["5"]), execute("", 0), sync()].concat(), 1)?;
            c.exchange(&[named(), sync(), read()].concat(), 2)?;
            c.expect_silence()
        })?;
    }
    Ok(())
}

/// They are closed in their batch (r2dbc), or stay open in the transaction block.
fn portals_with_names(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let on = |portal: &str, end: Vec<u8>| {
        let bind = bind_text(portal, "", &["5"]);
        [parse("", READ), bind, describe_portal(portal), execute(portal, 0), end, sync()].concat()
    };
    for block in [false, true] {
        pair.same_with_hits(2, |c| {
            if block {
                c.exchange(&query("begin"), 1)?;
            }
            for portal in ["", "B_0", "B_1"] {
                c.exchange(&on(portal, close_portal(portal)), 1)?;
                // It is not there any more.
                c.exchange(&[close_portal(portal), sync()].concat(), 1)?;
            }
            c.expect_silence()
        })?;
    }
    pair.same(|c| {
        for _ in 0..3 {
            c.exchange(&query("begin"), 1)?;
            c.exchange(&on("B_0", close_portal("B_0")), 1)?;
            c.exchange(&on("B_0", Vec::new()), 1)?;
            // The name is in use.
            c.exchange(&on("B_0", close_portal("B_0")), 1)?;
            c.exchange(&query("rollback"), 1)?;
            c.exchange(&on("B_0", Vec::new()), 1)?;
            c.exchange(&on("B_0", close_portal("B_0")), 1)?;
        }
        c.expect_silence()
    })
}

/// The description counts only where the statement is the one that is bound.
fn a_description_of_another_statement(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        c.exchange(&[parse("s", READ), sync()].concat(), 1)?;
        c.exchange(&[parse("t", "select name from item where id = $1"), sync()].concat(), 1)?;
        let bind = || [bind_text("", "s", &["5"]), execute("", 0)].concat();
        c.exchange(&[describe_statement("t"), bind(), sync()].concat(), 1)?;
        c.exchange(&[describe_statement("u"), bind(), sync()].concat(), 1)?;
        c.exchange(&[describe_statement("s"), bind(), bind(), sync()].concat(), 1)?;
        c.exchange(&[describe_statement("s"), bind_text("", "s", &["x"]), execute("", 0), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

/// A statement that a batch prepares takes the place of the one before at once, for all executions behind it.
fn statements_of_the_batch_itself(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let run = |parameter| [bind_text("", "", &[parameter]), execute("", 0)].concat();
    let other = "select name, id from item where id = $1";
    pair.same_with_hits(7, |c| {
        c.exchange(&[parse("", other), run("5"), parse("", other), run("6"), sync()].concat(), 1)?;
        c.exchange(&[parse("", READ), run("5"), run("6"), sync()].concat(), 1)?;
        c.exchange(&[parse("", other), run("5"), run("6"), parse("", READ), run("6"), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

/// As psycopg sends them without autocommit: `BEGIN` goes ahead of reads that are cached.
fn pipelines_that_begin_a_block(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = |id: &str| unnamed(READ, &[id]);
    let (begin, write) = (unnamed("begin", &[]), unnamed("update item set name = name where id = $1", &["5"]));
    for begin in [begin, unnamed("begin isolation level read committed read only", &[])] {
        pair.same_with_hits(7, |c| {
            c.exchange(&[read("5"), sync()].concat(), 1)?;
            // Each answer is asked for; one is sent ahead of the other's.
            c.send(&[begin.clone(), read("5"), flush()].concat())?;
            c.until(b'C')?;
            c.until(b'C')?;
            c.send(&[read("6"), read("5"), flush()].concat())?;
            c.until(b'C')?;
            c.until(b'C')?;
            c.exchange(&sync(), 1)?;
            // It is a block: the first refuses, the second warns.
            c.query("vacuum item")?;
            c.query("rollback")?;
            c.exchange(&[begin.clone(), read("5"), read("6"), sync()].concat(), 1)?;
            c.query("begin")?;
            c.query("commit")?;
            c.exchange(&[begin.clone(), read("5"), sync(), read("6"), sync()].concat(), 2)?;
            c.query("commit")?;
            c.expect_silence()
        })?;
    }
    // What else may follow it, and levels at which the first read is the server's.
    for (level, rest) in [
        ("", [read("5"), write.clone()].concat()),
        ("", [read("5"), unnamed("commit", &[]), read("6")].concat()),
        ("", [read("5"), unnamed("select 1 / $1::int", &["0"]), read("6")].concat()),
        ("isolation level repeatable read", read("5")),
        ("isolation level serializable", [read("5"), read("6")].concat()),
    ] {
        pair.same_with_hits(1, |c| {
            c.exchange(&[read("5"), sync(), read("6"), sync()].concat(), 2)?;
            c.exchange(&[unnamed(&format!("begin {level}"), &[]), rest.clone(), sync()].concat(), 1)?;
            c.query("rollback")?;
            c.expect_silence()
        })?;
    }
    Ok(())
}

/// What follows is skipped up to the `Sync`, whenever that comes.
fn pipelines_whose_begin_fails(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = |id: &str| unnamed(READ, &[id]);
    let failing = [parse("", "begin"), bind_text("", "", &["1"]), execute("", 0)].concat();
    let long = unnamed("select length($1)", &[&"x".repeat(1_000_000)]);
    pair.same_with_hits(3, |c| {
        c.exchange(&[read("5"), sync()].concat(), 1)?;
        c.exchange(&[failing.clone(), read("5"), sync(), read("5"), sync()].concat(), 2)?;
        for behind in [read("5"), [query("select 1"), read("5")].concat(), long.clone(), Vec::new()] {
            c.send(&[failing.clone(), read("5"), flush()].concat())?;
            c.until(b'E')?;
            c.send(&[behind, flush()].concat())?;
            c.exchange(&[sync(), read("5"), sync()].concat(), 2)?;
        }
        c.expect_silence()
    })
}
