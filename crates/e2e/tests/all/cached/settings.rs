//! Settings that change a statement's meaning or the form of its result: each combination has its own results.

use anyhow::Result;

use crate::support::frames::{bind_text, execute, parse, sync, unnamed};
use crate::support::{Pair, Version, on_both_at_length, rest};

on_both_at_length!(
    settings_that_change_the_result,
    search_paths,
    settings_of_a_transaction,
    settings_by_function,
    settings_of_roles_and_databases,
    settings_in_a_pipeline,
    prepared_statements_under_other_settings,
);

const SCHEMA: &str = "
    create table sample (id int primary key, at timestamptz, day date, span interval, exact float8, bytes bytea, name text);
    insert into sample values (1, '2024-03-01 12:00:00+00', '2024-03-02', '1 year 2 days 03:04:05', 0.1::float8 + 0.2,
        '\\x00ff', 'é');
    create schema other;
    create table other.sample (like sample including all);
    insert into other.sample select * from sample;
    update other.sample set name = 'other';";

const READ: &str =
    "select at, day, span, exact, bytes, name, to_tsvector(id || ' running'), 'runs' @@ 'run' from sample where id = 1";

const SETTINGS: &[&str] = &[
    "set timezone = 'Asia/Tokyo'",
    "set timezone = 'America/New_York'",
    "set datestyle = 'german'",
    "set datestyle = 'sql, dmy'",
    "set intervalstyle = 'iso_8601'",
    "set extra_float_digits = -10",
    "set bytea_output = 'escape'",
    "set client_encoding = 'latin1'",
    "set time zone 3",
    "set time zone interval '+05:30' hour to minute",
    "set names 'utf8'",
    "set session characteristics as transaction isolation level serializable",
    "set search_path = other",
    "set standard_conforming_strings = off",
    "set enable_seqscan = off",
    "set default_text_search_config = 'french'",
];

/// Twice in a row, so that the second may come from the cache, under each setting and after it is taken back.
fn settings_that_change_the_result(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for set in SETTINGS {
        pair.same_with_hits(1, |c| {
            c.query(READ)?;
            c.query(set)?;
            for _ in 0..2 {
                c.query(READ)?;
                c.exchange(&[unnamed(READ, &[]), sync()].concat(), 1)?;
                rest();
            }
            c.query("reset all")?;
            c.query(READ)?;
            rest();
            c.query(READ)?;
            c.query("set search_path = public; reset search_path")?;
            c.query(READ)?;
            Ok(())
        })?;
    }
    Ok(())
}

fn search_paths(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let name = "select name from sample where id = 1";
    pair.same_with_hits(1, |c| {
        c.query(name)?;
        for path in
            ["other", "other, public", "public, other", "'$user', other", "\"Other\"", "''", "pg_catalog, other"]
        {
            c.query(&format!("set search_path = {path}"))?;
            c.query(name)?;
            rest();
            c.query(name)?;
            c.query("select name from public.sample where id = 1")?;
        }
        c.query("set schema 'other'")?;
        c.query(name)?;
        c.query("discard all")?;
        c.query(name)?;
        Ok(())
    })
}

fn settings_of_a_transaction(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query(READ)?;
        for sql in [
            "begin",
            "set local timezone = 'Asia/Tokyo'",
            READ,
            "savepoint s",
            "set local search_path = other",
            READ,
            "rollback to s",
            READ,
            "commit",
            READ,
            "begin",
            "set timezone = 'Asia/Kolkata'",
            READ,
            "rollback",
            READ,
            "begin; set search_path = other; commit",
            READ,
            "begin; set search_path = public; select 1/0",
            "rollback",
            READ,
            "set local search_path = public",
            READ,
        ] {
            c.query(sql)?;
            if sql == READ {
                rest();
                c.query(sql)?;
            }
        }
        Ok(())
    })
}

fn settings_by_function(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA}
        create function hide() returns void language plpgsql as $$ begin
            set search_path = other;
            create temporary table if not exists hidden (id int);
        end $$;
        create function show_other(int) returns int language sql set search_path = other as 'select $1';"
    );
    let pair = Pair::new(version, &schema)?;
    pair.same_with_hits(1, |c| {
        for sql in [
            READ,
            "select set_config('search_path', 'other', false)",
            READ,
            "select set_config('timezone', 'Asia/Tokyo', true)",
            READ,
            "select set_config(name, 'public', false) from pg_settings where name = 'search_path'",
            READ,
            "update pg_settings set setting = 'other' where name = 'search_path'",
            READ,
            "reset all",
            "do $$ begin perform set_config('search_path', 'other', false); end $$",
            READ,
            "reset all",
            READ,
            "select show_other(1)",
            READ,
            "select hide()",
            READ,
        ] {
            c.query(sql)?;
            if sql == READ {
                rest();
                c.query(sql)?;
            }
        }
        Ok(())
    })
}

fn settings_of_roles_and_databases(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let name = &pair.database.name;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    // New sessions start with them.
    pair.database.run(&format!("alter database {name} set timezone = 'Asia/Tokyo'"))?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    pair.database.run(&format!("alter role postgres in database {name} set search_path = other"))?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))
}

/// A prepared statement means what it would mean if it were prepared now.
fn prepared_statements_under_other_settings(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.makes_tables = true;
        c.exchange(&[parse("s", READ), sync()].concat(), 1)?;
        c.exchange(&[parse("", READ), sync()].concat(), 1)?;
        for set in [
            "select 1",
            "set search_path = other",
            "set timezone = 'Asia/Tokyo'",
            "create temporary table sample as select * from other.sample; update sample set name = 'temporary'",
            "drop table pg_temp.sample",
            "set search_path = nowhere",
            "reset all",
        ] {
            c.query(set)?;
            for _ in 0..2 {
                c.exchange(&[bind_text("", "s", &[]), execute("", 0), sync()].concat(), 1)?;
                rest();
            }
        }
        c.expect_silence()
    })
}

/// The setting is in flight when the read is sent.
fn settings_in_a_pipeline(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = || [unnamed(READ, &[]), sync()].concat();
    let set = |sql: &str| [unnamed(sql, &[]), sync()].concat();
    pair.same_with_hits(1, |c| {
        c.exchange(&read(), 1)?;
        let all = [read(), set("set timezone = 'Asia/Tokyo'"), read(), set("set search_path = other"), read()];
        c.exchange(&all.concat(), 5)?;
        c.exchange(&[set("reset all"), read(), set("set search_path to nonsense, other"), read()].concat(), 4)?;
        c.exchange(&[unnamed("set timezone = 'Asia/Kolkata'", &[]), unnamed(READ, &[]), sync(), read()].concat(), 2)?;
        c.expect_silence()
    })
}
