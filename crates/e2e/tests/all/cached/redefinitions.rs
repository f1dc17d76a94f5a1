//! Promises 3 and 4 hold for definitions and privileges, also for those that no event trigger reports: once DDL through Freshet is acknowledged, no
//! session gets the state before it; and no session goes back to that state once it has seen the new one.

use anyhow::{Context as _, Result, ensure};
use freshet_testbed::{Settings, process};

use super::{SCHEMA, until_hit};
use crate::support::frames::{query, sync, unnamed};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    definitions_are_seen_at_once,
    rights_are_seen_at_once,
    nobody_goes_back_behind_a_definition,
    a_late_look_holds_nobody_for_long,
    dropped_triggers_are_made_again,
    long_texts_define_what_they_say,
    nobody_else_owns_the_triggers,
    hits_go_on_beside_a_long_definition,
);

const MORE: &str = "
    create view named as select id, 'a' as name from film;
    create table swapped (id int primary key, name text); insert into swapped values (1, 'a');
    create table swapped_b (id int primary key, name text); insert into swapped_b values (1, 'b');
    create table parts (region text not null, n int not null, primary key (region, n)) partition by list (region);
    create table part_a partition of parts for values in ('a'); create table part_b partition of parts for values in ('b');
    insert into parts values ('a', 1), ('b', 1);
    create table parent (id int primary key); create table child (primary key (id)) inherits (parent);
    insert into parent values (1); insert into child values (2);
    create table typed (id int primary key, v text); insert into typed values (1, '1');
    create schema early; create procedure rename_back() language plpgsql as
        $$ begin create or replace view named as select id, 'called'::text as name from film; end $$;";

/// A database of a server of its own, whose role changes are no other test's, and no triggers that tell of DDL, if `polled`.
fn pair(version: Version, polled: bool, options: &[&str]) -> Result<Pair> {
    let database = Database::create(version.start(&Settings::default().with("max_prepared_transactions = 5"))?)?;
    let options = [options, &["--max-staleness", "60s", "--refresh-share", "0"]].concat();
    let pair = Pair::over(database, &format!("{SCHEMA}{MORE}"), &options)?;
    if polled && pair.freshet.is_there() {
        logged(&pair, "DDL is in the change stream")?;
        pair.database.run("alter event trigger freshet_ddl_end disable")?;
        logged(&pair, "DDL is found by polling")?;
    }
    Ok(pair)
}

fn logged(pair: &Pair, text: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let log = pair.freshet.log();
        ensure!(log.contains(text), "not logged: {text}");
        Ok(())
    })
}

fn definitions_are_seen_at_once(version: Version) -> Result<()> {
    let pair = pair(version, true, &["--commit-wait", "60s"])?;
    let (mut definer, mut reader, mut direct) = (pair.connect()?, pair.connect()?, pair.database.connect()?);
    for client in [&mut reader, &mut direct] {
        client.run("set search_path = early, public")?;
    }
    let named = "select name from named where id = 1";
    let (parts, parents) = ("select count(*) from parts", "select count(*) from parent");
    let (swapped, typed) = ("select name from swapped where id = 1", "select v from typed where id = 1");
    for round in 0..3 {
        for (read, change) in [
            (parts, "alter table parts detach partition part_b"),
            (parts, "alter table parts attach partition part_b for values in ('b')"),
            (named, "create or replace view named as select id, 'b'::text as name from film"),
            (
                named,
                "do $$ begin execute 'create or replace view named as select id, ''c''::text as name from film'; end $$",
            ),
            (named, "call rename_back()"),
            (
                named,
                "begin; alter view named rename to old; create view named as select id, 'd'::text as name from film; drop view old; commit",
            ),
            (named, "drop view named; create view named as select id, 'e'::text as name from film"),
            (
                swapped,
                "alter table swapped rename to x; alter table swapped_b rename to swapped; alter table x rename to swapped_b",
            ),
            (parents, "alter table child no inherit parent"),
            (parents, "alter table child inherit parent"),
            (typed, "alter table typed alter column v type text using v || '1'"),
            (swapped, "create view early.swapped as select id, 'early'::text as name from film"),
            (swapped, "drop view early.swapped"),
            (swapped, "alter table swapped set schema early"),
            (swapped, "alter table early.swapped set schema public"),
        ] {
            until_hit(&pair, &mut reader, read)?;
            let several = change.contains(';') && !change.starts_with("do");
            if round == 1 && !several {
                definer.exchange(&[unnamed(change, &[]), sync()].concat(), 1)?;
            } else if round == 2 && !several && !change.starts_with("call") {
                for sql in ["begin", change, "prepare transaction 'p'", "commit prepared 'p'"] {
                    definer.run(sql)?;
                }
            } else {
                definer.run(change)?;
            }
            let (now, right) = (reader.value(read)?, direct.value(read)?);
            ensure!(now == right, "round {round}: {change} was acknowledged; {read} shows {now}, not {right}");
        }
    }
    ensure!(!pair.freshet.is_there() || pair.freshet.metrics()?.count("freshet_fences_total") == 0, "fences");
    Ok(())
}

fn denied(client: &mut RawClient, sql: &str) -> Result<bool> {
    Ok(client.query(sql)?.iter().any(|message| message.tag == b'E'))
}

/// Roles are found by looking, with triggers as well.
fn rights_are_seen_at_once(version: Version) -> Result<()> {
    for polled in [false, true] {
        let pair = pair(version, polled, &["--commit-wait", "60s"])?;
        pair.database.run("create role reader login; create role readers; grant select on swapped to readers")?;
        pair.database.run("alter view named owner to readers; grant select on film to readers")?;
        let mut definer = pair.connect()?;
        let mut reader = RawClient::login(pair.address(), pair.database.login_as("reader"))?;
        for (read, grant, revoke) in [
            (
                "select title from film where id = 1",
                "grant select on film to reader",
                "revoke select on film from reader",
            ),
            ("select name from swapped where id = 1", "grant readers to reader", "revoke readers from reader"),
            ("select title from film where id = 2", "alter role reader superuser", "alter role reader nosuperuser"),
        ] {
            for _ in 0..3 {
                definer.run(grant)?;
                until_hit(&pair, &mut reader, read)?;
                definer.run(revoke)?;
                ensure!(
                    denied(&mut reader, read)?,
                    "{revoke} was acknowledged, and {read} is answered; polled: {polled}"
                );
            }
        }
    }
    Ok(())
}

/// The server's process that Freshet looks at the catalogue with.
fn looks(pair: &Pair) -> Result<u32> {
    let sql = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()
        and datname = current_database() and query like '%pg_publication %' limit 1";
    let mut direct = pair.database.connect()?;
    let mut pid = 0;
    eventually(PATIENCE, || {
        pid = direct.value(sql)?.parse().context("no session reads the catalogue")?;
        Ok(())
    })?;
    Ok(pid)
}

/// The definition is visible, and neither looked at nor acknowledged.
fn nobody_goes_back_behind_a_definition(version: Version) -> Result<()> {
    let pair = pair(version, true, &["--commit-wait", "60s"])?;
    let (mut definer, mut passing, mut filling, mut hitting) =
        (pair.connect()?, pair.connect()?, pair.connect()?, pair.connect()?);
    let (read, other) = ("select name from named where id = 1", "select name from named where id = 2");
    let change = |name: &str| format!("create or replace view named as select id, '{name}'::text as name from film");
    definer.run("drop view named; create view named as select id, 'x'::text as name from film")?;
    for (name, in_block) in [("one", false), ("two", true)] {
        for client in [&mut passing, &mut filling, &mut hitting] {
            until_hit(&pair, client, read)?;
        }
        let looks = pair.freshet.is_there().then(|| looks(&pair)).transpose()?;
        looks.map(process::pause).transpose()?;
        let seen = (|| {
            if in_block {
                definer.run("begin")?;
                definer.run(&change(name))?;
                definer.send(&query("commit"))?;
            } else {
                definer.send(&query(&change(name)))?;
            }
            let mut direct = pair.database.connect()?;
            eventually(PATIENCE, || {
                let now = direct.value(read)?;
                ensure!(now == name, "not committed: {now}");
                Ok(())
            })?;
            passing.run("select pg_sleep(0), random(), name from named where id = 3")?;
            let passed = passing.value(read)?;
            for _ in 0..5 {
                filling.value(other)?;
            }
            Ok::<_, anyhow::Error>((passed, hitting.value(other)?, hitting.value(read)?))
        })();
        looks.map(process::resume).transpose()?;
        definer.until(b'Z')?;
        let (passed, first, second) = seen?;
        ensure!(passed == name, "{passed} is read behind an answer that showed {name}");
        ensure!(first != name || second == name, "{second} is read behind {first}");
    }
    Ok(())
}

fn a_late_look_holds_nobody_for_long(version: Version) -> Result<()> {
    let pair = pair(version, true, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut definer, mut reader) = (pair.connect()?, pair.connect()?);
    let read = "select name from named where id = 1";
    until_hit(&pair, &mut reader, read)?;
    let before = pair.freshet.metrics()?;
    let looks = looks(&pair)?;
    process::pause(looks)?;
    let seen = definer
        .run("drop view named; create view named as select id, 'late'::text as name from film")
        .and_then(|()| reader.value(read));
    let after = pair.freshet.metrics();
    process::resume(looks)?;
    let (seen, after) = (seen?, after?);
    ensure!(seen == "late", "{seen} is read behind the fence");
    ensure!(after.count("freshet_fences_total") > before.count("freshet_fences_total"), "there was no fence");
    until_hit(&pair, &mut reader, read)?;
    ensure!(reader.value(read)? == "late", "once it was looked at");
    until_hit(&pair, &mut reader, "select title from film where id = 1")
}

fn dropped_triggers_are_made_again(version: Version) -> Result<()> {
    let pair = pair(version, false, &["--test-fault", "triggers-at-once"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut definer = pair.connect()?;
    let sql = "select count(*) from pg_event_trigger where evtname like 'freshet%' and evtenabled = 'A'";
    for drop in
        ["drop event trigger freshet_sql_drop", "drop event trigger freshet_ddl_start", "drop schema freshet cascade"]
    {
        definer.run(drop)?;
        let mut direct = pair.database.connect()?;
        eventually(PATIENCE, || {
            let count = direct.value(sql)?;
            ensure!(count == "3", "{count} triggers after {drop}");
            Ok(())
        })?;
    }
    logged(&pair, "made again")
}

/// Only changes of rows are acknowledged while the catalogue is not checked.
fn long_texts_define_what_they_say(version: Version) -> Result<()> {
    let pair = pair(version, true, &["--commit-wait", "60s"])?;
    let (mut definer, mut reader) = (pair.connect()?, pair.connect()?);
    let read = "select name from named where id = 1";
    let rows = |from: usize| {
        let rows: Vec<String> = (from..from + 2000).map(|id| format!("({id}, '{id:040}')")).collect();
        format!("insert into swapped values {}", rows.join(", "))
    };
    until_hit(&pair, &mut reader, read)?;
    let looks = pair.freshet.is_there().then(|| looks(&pair)).transpose()?;
    looks.map(process::pause).transpose()?;
    let written = definer
        .run(&rows(10_000))
        .and_then(|()| definer.exchange(&[unnamed(&rows(20_000), &[]), sync()].concat(), 1).map(drop));
    let fences = pair.freshet.is_there().then(|| pair.freshet.metrics()).transpose();
    looks.map(process::resume).transpose()?;
    written?;
    ensure!(fences?.is_none_or(|metrics| metrics.count("freshet_fences_total") == 0), "they were looked for");
    for (name, from) in [("one", 30_000), ("two", 40_000)] {
        until_hit(&pair, &mut reader, read)?;
        definer
            .run(&format!("{}; create or replace view named as select id, '{name}' as name from film", rows(from)))?;
        let now = reader.value(read)?;
        ensure!(now == name, "{read} shows {now}, not {name}");
    }
    Ok(())
}

fn nobody_else_owns_the_triggers(version: Version) -> Result<()> {
    let database = Database::create(version.start(&Settings::default())?)?;
    database.run(
        "create role other; create schema freshet authorization other;
        create function freshet.note_ddl() returns event_trigger language plpgsql as $$ begin end $$;
        alter function freshet.note_ddl() owner to other",
    )?;
    let pair = Pair::over(database, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    logged(&pair, "DDL is in the change stream")?;
    let owners = "select count(*) from (select nspowner from pg_namespace where nspname = 'freshet'
        union all select proowner from pg_proc where proname = 'note_ddl') o (id) where id <> 'other'::regrole";
    let count = pair.database.connect()?.value(owners)?;
    ensure!(count == "2", "{count} of the schema and the function were taken over");
    Ok(())
}

fn hits_go_on_beside_a_long_definition(version: Version) -> Result<()> {
    let pair = pair(version, true, &["--commit-wait", "60s"])?;
    let (mut definer, mut reader) = (pair.connect()?, pair.connect()?);
    let mut direct = pair.database.connect()?;
    direct.run("select pg_advisory_lock(7)")?;
    definer.send(&query("do $$ begin perform pg_advisory_lock(7); end $$"))?;
    for id in 1..4 {
        reader.run("select random()")?;
        until_hit(&pair, &mut reader, &format!("select title from film where id = {id}"))?;
    }
    direct.run("select pg_advisory_unlock(7)")?;
    definer.until(b'Z')?;
    Ok(())
}
