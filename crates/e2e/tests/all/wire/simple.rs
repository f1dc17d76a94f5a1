//! The simple query protocol.

use anyhow::Result;

use super::SCHEMA;
use crate::support::frames::{copy_data, copy_done, copy_fail, query};
use crate::support::{Pair, RawClient, Version, on_both};

on_both!(
    results_in_text,
    several_statements,
    empty_queries,
    errors,
    notices_and_settings,
    transactions,
    copy,
    notifications,
    statements_and_cursors_of_sql,
    temporary_tables,
    simple_queries_in_a_pipeline,
);

fn results_in_text(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for sql in [
        "select * from item where id = 7",
        "select name, price from item where id < 20 order by id",
        "select * from item where id = -1",
        "select count(*), sum(price) from item where id between 10 and 30",
        "  /* why */ SELECT name -- a comment\n FROM item WHERE id = 3;  ",
        "select i.name, l.line from item i join log l on l.id = i.id where i.id = 5",
    ] {
        pair.same_with_hits(1, |c| c.query(sql).map(drop))?;
    }
    Ok(())
}

fn several_statements(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for sql in [
        "select 1; select * from item where id = 1; select 2",
        "update log set line = 'again' where id = 1; select * from log where id = 1; update log set line = 'line 1' where id = 1",
        "select * from item where id = 1; select 1/0; select 3",
        "begin; select * from item where id = 2; commit",
        ";;select * from item where id = 2;;",
    ] {
        pair.same(|c| c.query(sql).map(drop))?;
    }
    Ok(())
}

fn empty_queries(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        for sql in ["", ";", "  ", "-- nothing", "/* nothing */ ;"] {
            c.query(sql)?;
        }
        Ok(())
    })
}

fn errors(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        for sql in [
            "select * from item where id = 8",
            "selec 1",
            "select 1/0",
            "select * from nowhere where id = 1",
            "select nothing from item where id = 1",
            "select * from item where id = 'x'",
            "insert into log values (1, 'twice')",
            "insert into log values (11, 'bad')",
            "vacuum nowhere",
            "select id / 0 from item where id = 1",
        ] {
            c.query(sql)?;
        }
        Ok(())
    })
}

fn notices_and_settings(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        for sql in [
            "do $$ begin raise notice 'seen %', 1; raise warning 'and this'; end $$",
            "set application_name = 'another'",
            "set timezone = 'Asia/Tokyo'",
            "select seen from item where id = 1",
            "set datestyle = 'german'",
            "select born, seen from item where id = 1",
            "reset all",
            "select born, seen from item where id = 1",
            "set client_encoding = 'latin1'",
            "select name from item where id = 1",
            "commit",
            "drop table if exists nowhere",
        ] {
            c.query(sql)?;
        }
        Ok(())
    })
}

fn transactions(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select * from item where id = 6";
    pair.same_with_hits(1, |c| {
        c.query(read)?;
        for sql in [
            "begin",
            read,
            "savepoint a",
            "select 1/0",
            read,
            "rollback to a",
            read,
            "commit",
            "begin isolation level serializable",
            read,
            "select 1/0",
            "commit",
            "start transaction read only",
            "update log set line = 'no' where id = 1",
            "rollback",
            "begin",
            "update log set line = 'maybe' where id = 2",
            "select line from log where id = 2",
            "rollback",
            "select line from log where id = 2",
        ] {
            c.query(sql)?;
        }
        c.query(read).map(drop)
    })
}

fn copy(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        c.query("truncate log")?;
        c.send(&query("copy log from stdin"))?;
        c.until(b'G')?;
        c.send(&[copy_data(b"1\tone\n2\tt"), copy_data(b"wo\n"), copy_data(b""), copy_done()].concat())?;
        c.until(b'Z')?;
        c.query("copy (select * from log order by id) to stdout with (format csv, header)")?;
        c.query("copy item (id, name) to stdout with (format binary)")?;
        // Everything in one write, as a client may that does not wait for CopyInResponse.
        let all = [query("copy log from stdin"), copy_data(b"3\tthree\n"), copy_done(), query("select 4")].concat();
        c.exchange(&all, 2)?;
        c.exchange(&[query("copy log from stdin"), copy_data(b"4\tfour\n"), copy_fail("changed my mind")].concat(), 1)?;
        // The server gives up in the middle; what still comes is swallowed.
        let bad = [query("copy log from stdin"), copy_data(b"5\n"), copy_data(b"6\tsix\n"), copy_done()].concat();
        c.exchange(&bad, 1)?;
        // Data after the end of a copy is ignored.
        c.exchange(&[copy_data(b"x"), copy_done(), query("select count(*) from log")].concat(), 1)?;
        c.expect_silence()
    })
}

fn notifications(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        c.query("listen news")?;
        c.query("notify news, 'to myself'")?;
        c.query("begin; notify news, 'late'; select 1")?;
        c.query("commit")?;
        // From another session, while this one is idle: it arrives without being asked for.
        let mut other = RawClient::login(pair.address(), pair.login())?;
        other.query("notify news, 'from another'")?;
        c.until(b'A')?;
        c.query("unlisten *")?;
        c.query("select * from item where id = 1").map(drop)
    })
}

fn statements_and_cursors_of_sql(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same(|c| {
        for sql in [
            "prepare p (int) as select * from item where id = $1",
            "execute p(5)",
            "execute p(6)",
            "prepare p as select 1",
            "deallocate p",
            "execute p(5)",
            "begin",
            "declare c scroll cursor for select id from item order by id",
            "fetch 3 from c",
            "move 2 in c",
            "fetch backward 1 from c",
            "close c",
            "fetch 1 from c",
            "commit",
            "create function pg_temp.f() returns int language sql as 'select 1'",
            "select pg_temp.f()",
            "discard all",
            "select pg_temp.f()",
            "select pg_advisory_lock(1)",
            "select pg_advisory_unlock(1)",
            "table log",
            "values (1), (2)",
            "select from item where id = 4",
            "explain (costs off) select 1",
            "show server_version",
        ] {
            c.query(sql)?;
        }
        Ok(())
    })
}

fn temporary_tables(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.makes_tables = true;
        for sql in [
            "select name from item where id = 1",
            "create temporary table item (id int, name text)",
            "select name from item where id = 1",
            "insert into item values (1, 'a shadow')",
            "select name from item where id = 1",
            "select name from public.item where id = 1",
            "drop table pg_temp.item",
            "select name from item where id = 1",
        ] {
            c.query(sql)?;
        }
        Ok(())
    })
}

/// Drivers wait for ReadyForQuery, but the protocol lets them send on.
fn simple_queries_in_a_pipeline(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let reads = ["select * from item where id = 1", "select * from item where id = 2", "select 3", "select 1/0"];
    pair.same_with_hits(2, |c| {
        let all: Vec<u8> = reads.iter().chain(&reads).flat_map(|sql| query(sql)).collect();
        c.exchange(&all, 8)?;
        c.expect_silence()
    })
}
