//! Temporary tables: one that hides another table is never confused with it, and a session whose temporary tables were dropped reads from the cache
//! again.

use anyhow::{Result, ensure};

use super::{READ, Twins, pair, pair_of};
use crate::support::frames::{bind_text, execute, parse, query, sync};
use crate::support::{Database, Pair, Version, on_both};

on_both!(
    a_temporary_table_shadows,
    ways_to_make_a_temporary_table,
    reads_hit_again_once_it_is_gone,
    gone_with_its_transaction,
    temporary_objects_of_other_kinds,
    names_that_none_of_them_has,
    rows_of_a_temporary_child,
    more_than_are_looked_at,
    definitions_are_looked_for_at_once,
    the_temporary_schema_is_made_by_the_session_alone,
);

const NAME: &str = "select name from sample where id = 1";

fn a_temporary_table_shadows(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let mut twins = Twins::new(&pair)?;
    let bound = [bind_text("", "s", &[]), execute("", 0), sync()].concat();
    twins.new_key(NAME)?;
    twins.exchange(&[parse("s", NAME), sync()].concat(), 1)?;
    twins.fills_until_hit(&bound)?;
    twins.run(&["create temporary table sample as select 1 as id, 'a shadow' as name"])?;
    for _ in 0..3 {
        twins.run(&[NAME, "select name from public.sample where id = 1", "select name from pg_temp.sample"])?;
        twins.exchange(&bound, 1)?;
        crate::support::rest();
    }
    twins.run(&["update sample set name = 'another shadow'", NAME])?;
    // Other sessions do not see it.
    Twins::new(&pair)?.known_key(NAME)?;
    twins.run(&["alter table pg_temp.sample rename to another", NAME, "alter table another rename to sample", NAME])?;
    // Searched last, it does not shadow.
    twins.run(&["set search_path = public, pg_temp", NAME, "reset search_path", NAME])?;
    twins.run(&["drop table sample", NAME])?;
    twins.exchange(&bound, 1)
}

fn ways_to_make_a_temporary_table(version: Version) -> Result<()> {
    let schema = format!(
        "{}
        create function shadow(text) returns int language plpgsql as $$ begin
            execute format('create temporary table sample as select 1 as id, %L as name', $1);
            return 1;
        end $$;",
        super::SCHEMA
    );
    let pair = pair_of(version, &schema)?;
    for make in [
        "create temp table sample (id, name) as values (1, 'x')",
        "select 1 as id, 'x' as name into temporary sample",
        "create table pg_temp.sample as select 1 as id, 'x' as name",
        "create local temporary view sample as select 1 as id, 'x' as name",
        "select shadow('x')",
        "do $$ begin perform shadow('x'); end $$",
        "select count(*) from public.sample where id = 1 and shadow('x') = 1",
        "explain analyze create temporary table sample as select 1 as id, 'x' as name",
        "prepare p as select shadow('x'); execute p",
        "begin; create temp table sample as select 1 as id, 'x' as name; commit",
        "set search_path = pg_temp, public; create table sample as select 1 as id, 'x' as name; reset search_path",
    ] {
        let mut twins = Twins::new(&pair)?;
        twins.fills_until_hit(&crate::support::frames::query(NAME))?;
        // EXPLAIN ANALYZE tells times.
        twins.direct.run(make)?;
        twins.through.run(make)?;
        // Once the catalogue has been looked at.
        twins.fills_until_hit(&crate::support::frames::query("select count(*) from public.sample"))?;
        twins.passes(NAME, "temporary_tables")?;
    }
    Ok(())
}

fn reads_hit_again_once_it_is_gone(version: Version) -> Result<()> {
    let pair = pair(version)?;
    for end in ["drop table pg_temp.sample", "discard temp", "discard all"] {
        let mut twins = Twins::new(&pair)?;
        twins.fills_until_hit(&crate::support::frames::query(READ))?;
        twins.run(&["create temporary table sample as select 1 as id", "select * from sample", end])?;
        twins.known_key(READ)?;
        // And again.
        twins.run(&["create temporary table sample as select 2 as id", "select * from sample"])?;
        twins.run(&[READ])?;
        twins.run(&[end])?;
        twins.known_key(READ)?;
    }
    Ok(())
}

fn gone_with_its_transaction(version: Version) -> Result<()> {
    let pair = pair(version)?;
    for sql in [
        &["begin", "create temporary table sample (id int) on commit drop", "select * from sample", "commit"][..],
        &["begin", "create temporary table sample (id int)", "select * from sample", "rollback"],
        &["begin", "savepoint s", "create temporary table sample (id int)", "rollback to s", READ, "commit"],
    ] {
        let mut twins = Twins::new(&pair)?;
        twins.fills_until_hit(&crate::support::frames::query(READ))?;
        twins.run(sql)?;
        twins.known_key(READ)?;
    }
    Ok(())
}

/// Not only tables may shadow: a type of the temporary schema comes before the built-in ones.
fn temporary_objects_of_other_kinds(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let cast = "select name::text, id::int8 from sample where id = 1";
    for make in [
        "create domain pg_temp.text as varchar(1)",
        "create type pg_temp.int8 as enum ('1', '2')",
        "create temporary sequence sample",
        "create temporary table int8 (i int)",
        "create function pg_temp.lower(text) returns text language sql as 'select ''shadow'''",
        "create collation pg_temp.c from \"C\"",
    ] {
        let mut twins = Twins::new(&pair)?;
        twins.fills_until_hit(&crate::support::frames::query(cast))?;
        twins.run(&[make])?;
        for _ in 0..3 {
            twins.run(&[cast, "select lower(name) from sample where id = 2"])?;
            crate::support::rest();
        }
        twins.run(&["discard all", cast])?;
    }
    Ok(())
}

/// Freshet's questions make no temporary schema, also where `pg_temp` is searched.
fn the_temporary_schema_is_made_by_the_session_alone(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let is_there = "select pg_my_temp_schema() <> 0";
    for path in ["pg_temp", "missing, PG_TEMP, public", "'$user', pg_temp", "public, pg_temp", "'A,b', public, pg_temp"]
    {
        let mut twins = Twins::new(&pair)?;
        twins.run(&[
            &format!("set search_path = {path}"),
            is_there,
            READ,
            is_there,
            "select name from public.sample",
        ])?;
        twins.run(&["update public.sample set name = name where id = 2", READ, is_there])?;
        if path.contains("public, pg_temp") {
            twins.fills_until_hit(&query(READ))?;
            twins.run(&[is_there])?;
        }
        twins.run(&[
            "create temporary table another (n int)",
            is_there,
            READ,
            "drop table another",
            "reset search_path",
        ])?;
        twins.fills_until_hit(&query(READ))?;
    }
    Ok(())
}

/// Only what may mean a temporary object passes.
fn names_that_none_of_them_has(version: Version) -> Result<()> {
    let schema = format!(
        "{}
        create table another (id int primary key, name text);
        insert into another values (1, 'one');
        create view seen as select name from another;
        create function makes() returns int language plpgsql as $$ begin
            create temporary table another (id int primary key, name text);
            return 1;
        end $$;",
        super::SCHEMA
    );
    let pair = pair_of(version, &schema)?;
    let bound = [bind_text("", "s", &[]), execute("", 0), sync()].concat();
    let others = [
        "select name from public.another where id = 1",
        "select a.id, a.name from public.another a",
        "select name from seen",
    ];
    for make in [
        &["create temp table another (id int primary key, name text)"][..],
        &["select 1 as id, 'x' as name into temp another"],
        &["create temp view another as select 1 as id, 'x' as name"],
        &["create temp sequence another"],
        &["create type pg_temp.another as (a int)"],
        &["create temp table t (id int constraint another primary key)"],
        &["select makes()"],
        &["do $$ begin perform makes(); end $$"],
        &[
            "begin",
            "create temp table another (id int) on commit delete rows",
            "insert into another values (1)",
            "commit",
        ],
    ] {
        let mut twins = Twins::new(&pair)?;
        twins.fills_until_hit(&query(READ))?;
        twins.exchange(&[parse("s", READ), sync()].concat(), 1)?;
        twins.fills_until_hit(&bound)?;
        others.iter().try_for_each(|other| twins.fills_until_hit(&query(other)).map(drop))?;
        twins.run(make)?;
        // Under the same keys as before.
        twins.known_key(READ)?;
        others.iter().try_for_each(|other| twins.known_key(other))?;
        ensure!(twins.fills_until_hit(&bound)? == 0, "a prepared statement had to be filled again");
        twins.passes("select name from ANOTHER where id = 1", "temporary_tables")?;
        twins.passes("with x as (select * from \"another\") select * from x", "temporary_tables")?;
        // What changes is seen.
        twins.run(&["update public.another set name = name || '!' where id = 1"])?;
        others.iter().try_for_each(|other| twins.fills_until_hit(&query(other)).map(drop))?;
        twins.run(&["discard temp"])?;
        twins.fills_until_hit(&query("select name from another where id = 1"))?;
    }
    Ok(())
}

/// Its own session sees them in the parent, through views too.
fn rows_of_a_temporary_child(version: Version) -> Result<()> {
    let pair = pair_of(version, &format!("{} create view seen as select name from sample;", super::SCHEMA))?;
    let mut twins = Twins::new(&pair)?;
    twins.fills_until_hit(&query("select name from seen"))?;
    twins.run(&[
        "create temp table another () inherits (sample)",
        "insert into another (id, name) values (7, 'seven')",
    ])?;
    twins.passes("select name from seen", "temporary_tables")?;
    twins.passes("select name from sample", "temporary_tables")?;
    Twins::new(&pair)?.fills_until_hit(&query("select name from seen"))?;
    twins.run(&["drop table another"])?;
    twins.fills_until_hit(&query("select name from seen")).map(drop)
}

/// With very many, or names that this session's encoding spells in its own way, everything passes.
fn more_than_are_looked_at(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let many = "do $$ begin for n in 1..900 loop
        execute format('create temp table %I ()', 'a table with a long name ' || n); end loop; end $$";
    let mut twins = Twins::new(&pair)?;
    twins.fills_until_hit(&query(READ))?;
    twins.run(&[many])?;
    twins.passes(READ, "temporary_tables")?;
    twins.run(&["discard temp"])?;
    twins.known_key(READ)?;
    twins.run(&["create temp table \"größe\" ()", "create temp table \"a\"\"b,\\c\" (\"größe\" int)"])?;
    twins.known_key(READ)?;
    twins.passes("select null as \"größe\" from sample", "temporary_tables")?;
    twins.run(&["set client_encoding = 'LATIN1'"])?;
    twins.passes("select id from sample", "temporary_tables")
}

/// The session's reads wait for a look at the catalogue behind what may have defined something: for one that is made for them.
fn definitions_are_looked_for_at_once(version: Version) -> Result<()> {
    let schema =
        format!("{} create table long (text text); create procedure does() language sql as 'select 1';", super::SCHEMA);
    let options = ["--max-staleness", "10m", "--test-fault", "no-timed-looks"];
    let pair = Pair::over(Database::create(super::server(version))?, &schema, &options)?;
    let long = format!("insert into long values ('{}')", "x".repeat(70_000));
    let mut twins = Twins::new(&pair)?;
    twins.fills_until_hit(&query(READ))?;
    for statement in [
        "call does()",
        "do $$ begin end $$",
        &long,
        "create temp table another ()",
        "drop table another",
        "discard all",
    ] {
        twins.run(&[statement])?;
        twins.known_key(READ)?;
    }
    Ok(())
}
