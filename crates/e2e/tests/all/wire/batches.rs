//! Batches of the extended protocol in the shapes that drivers send, and batches that lack their end.

use anyhow::Result;

use super::SCHEMA;
use crate::support::frames::{
    bind_text, close_portal, describe_portal, describe_statement, execute, parse, sync, unnamed,
};
use crate::support::{Pair, Version, on_both};

on_both!(messages_are_answered_without_sync, shapes_of_drivers_hit, a_description_of_another_statement);

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
