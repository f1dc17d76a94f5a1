//! The extended query protocol, one Sync at a time: statements, portals, formats.

use anyhow::Result;

use super::SCHEMA;
use crate::support::frames::{
    BINARY, Bound, TEXT, bind, bind_text, close_portal, close_statement, copy_data, copy_done, describe_portal,
    describe_statement, execute, flush, parse, parse_typed, query, sync, unnamed,
};
use crate::support::{Pair, Version, on_both, rest};

on_both!(
    the_unnamed_statement,
    named_statements,
    without_describe,
    describe_before_bind,
    binary_and_text,
    binary_results_of_many_types,
    parameter_types,
    nulls_and_empty_strings,
    wrong_binds,
    row_limits,
    flush_instead_of_sync,
    the_unnamed_statement_after_hits,
    named_statements_after_hits,
    statements_come_and_go,
    discard_forgets_statements,
    portals_live_in_transactions,
    changed_tables,
    statements_are_listed,
    copy_by_the_extended_protocol,
);

const READ: &str = "select id, name, price, born from item where id = $1";

fn the_unnamed_statement(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(3, |c| {
        for id in ["7", "8", "-1"] {
            c.exchange(&[unnamed(READ, &[id]), sync()].concat(), 1)?;
        }
        c.expect_silence()
    })
}

fn named_statements(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        c.exchange(&[parse("read", READ), describe_statement("read"), sync()].concat(), 1)?;
        for id in ["1", "2", "1", "2"] {
            c.exchange(&[bind_text("", "read", &[id]), execute("", 0), sync()].concat(), 1)?;
            rest();
        }
        c.exchange(&[bind_text("", "read", &["3"]), describe_portal(""), execute("", 0), sync()].concat(), 1)?;
        c.exchange(&[bind_text("p", "read", &["4"]), describe_portal("p"), execute("p", 0), sync()].concat(), 1)?;
        c.exchange(&[close_statement("read"), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

fn without_describe(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        for id in ["7", "3"] {
            c.exchange(&[parse("", READ), bind_text("", "", &[id]), execute("", 0), sync()].concat(), 1)?;
        }
        Ok(())
    })?;
    // The same result with its description, filled by those who did not ask for one.
    pair.same_with_hits(1, |c| c.exchange(&[unnamed(READ, &["7"]), sync()].concat(), 1).map(drop))
}

fn describe_before_bind(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        let all = [parse("", READ), describe_statement(""), bind_text("", "", &["5"]), execute("", 0), sync()];
        c.exchange(&all.concat(), 1)?;
        // As psycopg, pgx and tokio-postgres do: first learn the types, then bind.
        c.exchange(&[parse("s", READ), describe_statement("s"), sync()].concat(), 1)?;
        for _ in 0..2 {
            c.exchange(&[bind_text("", "s", &["5"]), describe_portal(""), execute("", 0), sync()].concat(), 1)?;
            rest();
        }
        let all = [bind_text("", "s", &["5"]), describe_portal(""), execute("", 0), close_portal(""), sync()];
        c.exchange(&all.concat(), 1)?;
        c.exchange(&[describe_statement("unknown"), sync()].concat(), 1)?;
        c.exchange(&[describe_portal("unknown"), sync()].concat(), 1)?;
        c.exchange(&[describe_statement("s"), describe_statement("s"), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

fn binary_and_text(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let text = Bound { values: &[Some(b"7")], ..Bound::default() };
    let binary = Bound { formats: &[BINARY], values: &[Some(&[0, 0, 0, 7])], results: &[] };
    let shapes = [
        text,
        Bound { formats: &[TEXT], results: &[TEXT], ..text },
        Bound { results: &[BINARY], ..binary },
        binary,
        Bound { results: &[BINARY], ..text },
        Bound { results: &[BINARY, TEXT, BINARY, TEXT], ..text },
        Bound { results: &[TEXT, TEXT, TEXT, BINARY], ..binary },
    ];
    // One after the other, so that a result filled in one format meets a request for another.
    pair.same_with_hits(shapes.len() as u64, |c| {
        for shape in shapes {
            let all = [parse("", READ), bind("", "", shape), describe_portal(""), execute("", 0), sync()];
            c.exchange(&all.concat(), 1)?;
        }
        c.expect_silence()
    })
}

fn binary_results_of_many_types(version: Version) -> Result<()> {
    let schema = "create table wide (id bigint primary key, a smallint, b real, c double precision, d boolean,
        e bytea, f uuid, g timestamptz, h interval, i jsonb, j integer[], k char(5), l numeric, m inet, n text);
        insert into wide values (1, -2, 1.5, 'NaN', true, '\\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
        '2024-01-01 00:00:00+00', '1 day 2 hours', '{\"a\": [1]}', '{1,null,3}', 'ab', 123456789.000100, '10.0.0.1', 'é')";
    let pair = Pair::new(version, schema)?;
    pair.same_with_hits(2, |c| {
        let sql = "select * from wide where id = $1";
        for results in [[BINARY], [TEXT]] {
            let values = Bound { values: &[Some(b"1")], results: &results, ..Bound::default() };
            let all = [parse("", sql), bind("", "", values), describe_portal(""), execute("", 0), sync()];
            c.exchange(&all.concat(), 1)?;
        }
        Ok(())
    })
}

fn parameter_types(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (int4, int8, text, unknown_type) = (23, 20, 25, 999_999);
    let eight = Bound { formats: &[BINARY], values: &[Some(&[0, 0, 0, 0, 0, 0, 0, 9])], results: &[] };
    let four = Bound { values: &[Some(&[0, 0, 0, 9])], ..eight };
    pair.same_with_hits(2, |c| {
        for (types, values) in [
            (vec![int8], eight),
            (vec![int4], four),
            (vec![0], four),
            (vec![int8], four),
            (vec![text], four),
            (vec![unknown_type], four),
            (vec![int4, int4], four),
        ] {
            let all = [parse_typed("", READ, &types), bind("", "", values), execute("", 0), sync()];
            c.exchange(&all.concat(), 1)?;
        }
        c.expect_silence()
    })
}

fn nulls_and_empty_strings(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let sql = "select id, name from item where name = $1 or name is not distinct from $1 order by id";
    pair.same(|c| {
        for value in [None, Some(b"".as_slice()), Some(b"NULL"), Some(b"item 5"), Some(b"caf\xc3"), Some(b"a\0b")] {
            let values = Bound { values: &[value], ..Bound::default() };
            c.exchange(
                &[parse("", sql), bind("", "", values), describe_portal(""), execute("", 0), sync()].concat(),
                1,
            )?;
        }
        Ok(())
    })
}

fn wrong_binds(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let good = Bound { values: &[Some(b"7")], ..Bound::default() };
    pair.same_with_hits(1, |c| {
        c.exchange(&[unnamed(READ, &["7"]), sync()].concat(), 1)?;
        for values in [
            Bound::default(),
            Bound { values: &[Some(b"7"), Some(b"8")], ..good },
            Bound { values: &[Some(b"x")], ..good },
            Bound { values: &[Some(b"7 ")], ..good },
            Bound { formats: &[BINARY], ..good },
            Bound { formats: &[BINARY, BINARY], ..good },
            Bound { formats: &[7], ..good },
            Bound { results: &[BINARY, BINARY], ..good },
            Bound { results: &[9], ..good },
        ] {
            c.exchange(&[parse("", READ), bind("", "", values), execute("", 0), sync()].concat(), 1)?;
        }
        c.expect_silence()
    })
}

fn row_limits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let sql = "select id from item where id < $1 order by id";
    pair.same(|c| {
        c.query("begin")?;
        let start = [parse("", sql), bind_text("p", "", &["8"]), describe_portal("p"), execute("p", 3), sync()];
        c.exchange(&start.concat(), 1)?;
        c.exchange(&[execute("p", 3), execute("p", 3), execute("p", 3), sync()].concat(), 1)?;
        c.query("commit")?;
        c.exchange(&[execute("p", 3), sync()].concat(), 1)?;
        for limit in [1, 7, 8, 100, -1] {
            c.exchange(&[parse("", sql), bind_text("", "", &["8"]), execute("", limit), sync()].concat(), 1)?;
        }
        // A limit with Flush instead of Sync, then the rest.
        c.send(&[parse("", sql), bind_text("", "", &["8"]), execute("", 5), flush()].concat())?;
        c.until(b's')?;
        c.send(&[execute("", 5), flush()].concat())?;
        c.until(b'C')?;
        c.exchange(&sync(), 1)?;
        c.expect_silence()
    })
}

fn flush_instead_of_sync(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        // Each step waits for its answer before the next, which only works if Flush is passed on.
        c.send(&[parse("", READ), flush()].concat())?;
        c.until(b'1')?;
        c.send(&[describe_statement(""), flush()].concat())?;
        c.until(b'T')?;
        c.send(&[bind_text("", "", &["6"]), flush()].concat())?;
        c.until(b'2')?;
        c.send(&[execute("", 0), flush()].concat())?;
        c.until(b'C')?;
        c.exchange(&sync(), 1)?;
        // An error is reported at once; the ReadyForQuery waits for the Sync.
        c.send(&[parse("", "select 1/0"), bind_text("", "", &[]), execute("", 0), flush()].concat())?;
        c.until(b'E')?;
        c.exchange(&[unnamed(READ, &["6"]), sync()].concat(), 1)?;
        c.exchange(&[unnamed(READ, &["6"]), flush(), sync()].concat(), 1)?;
        c.exchange(&[flush(), flush(), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

fn the_unnamed_statement_after_hits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let hit = || [unnamed(READ, &["7"]), sync()].concat();
    pair.same_with_hits(1, |c| {
        c.exchange(&hit(), 1)?;
        c.exchange(&[describe_statement(""), sync()].concat(), 1)?;
        c.exchange(&[bind_text("", "", &["20"]), execute("", 0), sync()].concat(), 1).map(drop)
    })?;
    pair.same_with_hits(1, |c| {
        c.exchange(&hit(), 1)?;
        let values = Bound { values: &[Some(b"21")], results: &[BINARY], ..Bound::default() };
        c.exchange(&[bind("q", "", values), execute("q", 1), sync()].concat(), 1)?;
        // A simple query replaces the unnamed statement.
        c.exchange(&hit(), 1)?;
        c.query("select 1")?;
        c.exchange(&[bind_text("", "", &["7"]), execute("", 0), sync()].concat(), 1).map(drop)
    })?;
    pair.same_with_hits(1, |c| {
        c.exchange(&hit(), 1)?;
        c.exchange(&[close_statement(""), sync()].concat(), 1)?;
        c.exchange(&[bind_text("", "", &["7"]), execute("", 0), sync()].concat(), 1)?;
        // A Parse that fails leaves no unnamed statement behind.
        c.exchange(&hit(), 1)?;
        c.exchange(&[parse("", "selec 1"), sync()].concat(), 1)?;
        c.exchange(&[bind_text("", "", &["7"]), execute("", 0), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

fn named_statements_after_hits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let use_of = |name, id| [bind_text("", name, &[id]), execute("", 0), sync()].concat();
    pair.same_with_hits(1, |c| {
        c.exchange(&[parse("a", READ), bind_text("", "a", &["7"]), execute("", 0), sync()].concat(), 1)?;
        c.exchange(&[parse("b", READ), sync()].concat(), 1)?;
        for _ in 0..2 {
            c.exchange(&use_of("a", "7"), 1)?;
            c.exchange(&use_of("b", "8"), 1)?;
            rest();
        }
        // Uses that only the server can answer.
        c.exchange(&[bind_text("", "a", &["7"]), execute("", 1), sync()].concat(), 1)?;
        c.query("execute a(9)")?;
        c.query("deallocate b")?;
        rest();
        c.exchange(&use_of("b", "8"), 1)?;
        // A name that is taken.
        c.exchange(&[parse("a", "select 1"), sync()].concat(), 1)?;
        rest();
        c.exchange(&use_of("a", "7"), 1)?;
        c.exchange(&[parse("a", READ), bind_text("", "a", &["7"]), execute("", 0), sync()].concat(), 1)?;
        c.exchange(&[bind_text("", "a", &["7"]), describe_portal(""), execute("", 0), sync()].concat(), 1)?;
        c.expect_silence()
    })
}

fn statements_come_and_go(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let name = "select name from item where id = $1";
    let use_of = |name| [bind_text("", name, &["7"]), describe_portal(""), execute("", 0), sync()].concat();
    pair.same_with_hits(2, |c| {
        // In memory from here on, whatever the statement is called.
        for sql in [READ, name] {
            c.exchange(&[unnamed(sql, &["7"]), sync()].concat(), 1)?;
        }
        c.exchange(&[parse("", READ), parse("", name), bind_text("", "", &["7"]), execute("", 0), sync()].concat(), 1)?;
        c.exchange(&[parse("s", READ), close_statement("s"), parse("s", name), sync()].concat(), 1)?;
        for _ in 0..2 {
            c.exchange(&use_of("s"), 1)?;
            rest();
        }
        c.exchange(&[close_statement("s"), close_statement("s"), close_portal("never"), sync()].concat(), 1)?;
        rest();
        c.exchange(&use_of("s"), 1)?;
        c.query("prepare s (int) as select price from item where id = $1")?;
        rest();
        c.exchange(&use_of("s"), 1)?;
        c.query("deallocate all")?;
        rest();
        c.exchange(&use_of("s"), 1)?;
        // A statement parsed in a transaction that is rolled back stays; one whose Parse is skipped does not exist.
        c.query("begin")?;
        c.exchange(&[parse("t", name), sync()].concat(), 1)?;
        c.query("rollback")?;
        c.exchange(&[parse("u", "selec"), parse("v", name), sync()].concat(), 1)?;
        rest();
        c.exchange(&use_of("t"), 1)?;
        c.exchange(&use_of("v"), 1)?;
        c.expect_silence()
    })
}

fn discard_forgets_statements(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for discard in ["discard all", "deallocate all", "deallocate prepare all"] {
        pair.same_with_hits(1, |c| {
            let use_it = || [bind_text("", "s", &["7"]), execute("", 0), sync()].concat();
            c.exchange(&[parse("s", READ), sync()].concat(), 1)?;
            for _ in 0..2 {
                c.exchange(&use_it(), 1)?;
                rest();
            }
            c.query(discard)?;
            rest();
            c.exchange(&use_it(), 1)?;
            c.exchange(&[parse("s", READ), bind_text("", "s", &["7"]), execute("", 0), sync()].concat(), 1)?;
            c.exchange(&[unnamed(discard, &[]), sync()].concat(), 1)?;
            rest();
            c.exchange(&use_it(), 1)?;
            c.expect_silence()
        })?;
    }
    Ok(())
}

fn portals_live_in_transactions(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        c.query("begin")?;
        c.exchange(&[parse("s", READ), bind_text("p", "s", &["7"]), sync()].concat(), 1)?;
        c.exchange(&[bind_text("p", "s", &["8"]), sync()].concat(), 1)?;
        c.query("rollback")?;
        c.exchange(&[bind_text("p", "s", &["7"]), bind_text("q", "s", &["8"]), execute("q", 0), sync()].concat(), 1)?;
        c.exchange(&[execute("p", 0), sync()].concat(), 1)?;
        // Executed twice: the second finds nothing left.
        c.exchange(&[bind_text("", "s", &["7"]), execute("", 0), execute("", 0), sync()].concat(), 1)?;
        c.exchange(&[bind_text("p", "s", &["7"]), close_portal("p"), execute("p", 0), sync()].concat(), 1)?;
        c.exchange(&[bind_text("p", "s", &["7"]), sync(), execute("p", 0), sync()].concat(), 2)?;
        c.expect_silence()
    })
}

/// "cached plan must not change result type", which a cache of results must say too.
fn changed_tables(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        c.makes_tables = true;
        c.query("drop table if exists shape; create table shape (id int primary key); insert into shape values (1)")?;
        c.exchange(&[parse("s", "select * from shape where id = $1"), describe_statement("s"), sync()].concat(), 1)?;
        let read = || [bind_text("", "s", &["1"]), execute("", 0), sync()].concat();
        c.exchange(&read(), 1)?;
        c.query("alter table shape add column more text default 'new'")?;
        c.exchange(&read(), 1)?;
        c.exchange(&[unnamed("select * from shape where id = $1", &["1"]), sync()].concat(), 1)?;
        c.query("drop table shape")?;
        c.exchange(&read(), 1)?;
        c.expect_silence()
    })
}

/// `pg_prepared_statements` shows the client's statements, and none of those that Freshet prepares on the same connection.
fn statements_are_listed(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.exchange(&[parse("s", READ), sync()].concat(), 1)?;
        let list = "select name, statement, parameter_types, from_sql from pg_prepared_statements order by name";
        c.exchange(&[parse("l", list), sync()].concat(), 1)?;
        let lists = [
            query(list),
            query(&list.to_uppercase().replace("PG_PREPARED_STATEMENTS", "pg_catalog.pg_prepared_statement()")),
            [unnamed(list, &[]), sync()].concat(),
            [bind_text("", "l", &[]), execute("", 0), sync()].concat(),
        ];
        for list in lists {
            for _ in 0..2 {
                c.exchange(&[bind_text("", "s", &["7"]), execute("", 0), sync()].concat(), 1)?;
                rest();
            }
            c.exchange(&list, 1)?;
            // Within a block, and in one that has failed.
            c.query("insert into log values (1, 'written')")?;
            c.query("begin")?;
            c.exchange(&list, 1)?;
            c.query("select 1/0")?;
            c.exchange(&list, 1)?;
            c.query("rollback")?;
        }
        // Nothing ends the transaction of a batch that has begun.
        let insert =
            [parse("", "insert into log values (5000, 'undone')"), bind_text("", "", &[]), execute("", 0), flush()];
        c.send(&insert.concat())?;
        c.until(b'C')?;
        let list = unnamed("select count(*) > 0 from pg_prepared_statements", &[]);
        c.exchange(&[list, parse("", "selec"), sync()].concat(), 1)?;
        c.query("select count(*) from log where id = 5000")?;
        c.expect_silence()
    })
}

fn copy_by_the_extended_protocol(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        c.query("truncate log; insert into log values (1, 'line 1')")?;
        c.exchange(&[unnamed("copy log to stdout", &[]), sync()].concat(), 1)?;
        c.query("truncate log")?;
        c.send(&[unnamed("copy log from stdin", &[]), sync()].concat())?;
        c.until(b'G')?;
        let data = [copy_data(b"1\tone\n"), copy_done(), sync()];
        c.exchange(&data.concat(), 1)?;
        c.exchange(&query("select * from log"), 1)?;
        c.expect_silence()
    })
}
