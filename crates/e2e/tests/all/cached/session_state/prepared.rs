//! Statements prepared by SQL, combined with reads from the cache.

use anyhow::Result;

use super::{READ, Twins, pair};
use crate::support::frames::{bind_text, close_statement, execute, parse, sync, unnamed};
use crate::support::{Version, on_both, rest};

on_both!(
    prepare_and_execute,
    the_session_goes_on_hitting,
    one_deallocated_leaves_the_others,
    deallocated_by_name_in_either_way,
    execute_sees_what_others_commit,
);

const BY_ID: &str = "select name from sample where id = $1";

fn bound(name: &str, id: &str) -> Vec<u8> {
    [bind_text("", name, &[id]), execute("", 0), sync()].concat()
}

fn prepare_and_execute(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    twins.run(&["prepare p (int) as select name from sample where id = $1"])?;
    for _ in 0..3 {
        twins.run(&[
            "execute p(1)",
            "execute p(2)",
            "execute p(3)",
            "execute p('x')",
            "execute p",
            "execute p(1 + 1)",
        ])?;
        // The protocol's own way to the same statement.
        twins.exchange(&bound("p", "1"), 1)?;
        rest();
    }
    twins.run(&["set search_path = other", "execute p(1)", "deallocate p", "execute p(1)"])?;
    twins.run(&["prepare p (int) as select name from sample where id = $1", "execute p(1)", "reset search_path"])?;
    twins.run(&["execute p(1)", "create temporary table sample as select 1 as id, 'a shadow' as name", "execute p(1)"])
}

fn the_session_goes_on_hitting(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.new_key(READ)?;
    for sql in [
        "prepare p (int) as select name from sample where id = $1",
        "execute p(1)",
        "explain execute p(1)",
        "deallocate p",
        "deallocate p",
        "prepare p as select 1",
        "deallocate all",
    ] {
        twins.run(&[sql])?;
        twins.known_key(READ)?;
    }
    Ok(())
}

/// Drivers with a bounded cache of statements (psycopg, Rails, pgx) drop one now and then: the others must not suffer.
fn one_deallocated_leaves_the_others(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.exchange(&[parse("keeps", BY_ID), sync()].concat(), 1)?;
    twins.fills_until_hit(&bound("keeps", "1"))?;
    for (make, drop) in [
        (parse("goes", "select 1"), "deallocate goes"),
        (parse("Goes", "select 1"), "deallocate \"Goes\""),
        (parse("goes", "select 1"), "deallocate prepare goes"),
    ] {
        twins.exchange(&[make, sync()].concat(), 1)?;
        twins.run(&[drop])?;
        twins.fills_until_hit(&bound("keeps", "1"))?;
        twins.run(&["prepare by_sql as select 1"])?;
        twins.fills_until_hit(&bound("keeps", "1"))?;
        twins.exchange(&[unnamed("deallocate by_sql", &[]), sync()].concat(), 1)?;
        twins.fills_until_hit(&bound("keeps", "1"))?;
    }
    Ok(())
}

fn deallocated_by_name_in_either_way(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    let make = || [parse("s", BY_ID), sync()].concat();
    for drop in ["deallocate s", "DEALLOCATE S", "deallocate prepare \"s\"", "/* x */ deallocate s;", "deallocate all"]
    {
        twins.exchange(&make(), 1)?;
        twins.fills_until_hit(&bound("s", "1"))?;
        twins.run(&[drop])?;
        // It was deallocated, and no answer may be given for it.
        twins.exchange(&bound("s", "1"), 1)?;
    }
    twins.exchange(&make(), 1)?;
    twins.fills_until_hit(&bound("s", "1"))?;
    // Another name, a transaction that is rolled back (it is gone all the same), and one that fails.
    twins.run(&["deallocate \"S\""])?;
    twins.exchange(&bound("s", "1"), 1)?;
    twins.run(&["begin", "deallocate s", "rollback"])?;
    twins.exchange(&bound("s", "1"), 1)?;
    twins.exchange(&make(), 1)?;
    twins.exchange(&[close_statement("s"), sync()].concat(), 1)?;
    twins.run(&["prepare s (int) as select name from other.sample where id = $1"])?;
    for _ in 0..3 {
        twins.exchange(&bound("s", "1"), 1)?;
        rest();
    }
    Ok(())
}

fn execute_sees_what_others_commit(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    twins.run(&["prepare p (int) as select name from sample where id = $1"])?;
    for name in ["a", "b", "c"] {
        twins.run(&["execute p(2)"])?;
        rest();
        pair.database.run(&format!("update sample set name = '{name}' where id = 2"))?;
        rest();
        twins.run(&["execute p(2)"])?;
    }
    Ok(())
}
