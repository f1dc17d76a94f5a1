//! A changed schema counts within D, whatever is cached; statements that cannot be cached pass, with their reason.

use anyhow::{Context, Result, ensure};

use super::{SCHEMA, SEEN_WITHIN, never_hits, until_hit};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both, rest};

on_both!(
    changed_columns,
    dropped_and_created_tables,
    tables_that_come_to_shadow_others,
    shadowing_by_temporary_tables,
    replica_identities,
    what_is_never_cached,
    kinds_of_relations,
    without_logical_decoding,
    databases_apart,
);

/// Frames of a read without the OID of the table, which a table made anew changes.
fn frames(
    pair: &Pair,
    client: &mut RawClient,
    sql: &str,
) -> Result<(Vec<crate::support::Message>, Vec<crate::support::Message>)> {
    let mut direct = pair.database.connect()?;
    Ok((direct.query(sql)?, client.query(sql)?))
}

/// Makes a read hit, changes the schema directly, and waits until the read sounds as it does directly.
fn reflected(pair: &Pair, change: &str, read: &str) -> Result<()> {
    let mut client = pair.connect()?;
    until_hit(pair, &mut client, read)?;
    pair.database.run(change)?;
    for client in [&mut client, &mut pair.connect()?] {
        eventually(SEEN_WITHIN, || {
            let (direct, through) = frames(pair, client, read)?;
            ensure!(direct == through, "{read} after {change}\n direct:  {direct:?}\n through: {through:?}");
            Ok(())
        })?;
    }
    Ok(())
}

fn changed_columns(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let all = "select * from film where id = 1";
    for change in [
        "alter table film add column year int",
        "alter table film add column rating numeric default 7.5",
        "alter table film alter column year set default 2000",
        "alter table film rename column title to name",
        "alter table film rename column name to title",
        "alter table film alter column votes type bigint",
        "alter table film alter column votes type text using votes || ' votes'",
        "alter table film drop column genre",
        "alter table film rename to movie; create view film as select 1 as id, 'from the view' as title",
        "drop view film; alter table movie rename to film",
    ] {
        if change.starts_with("drop view") {
            pair.database.run(change)?;
            continue;
        }
        reflected(&pair, change, all)?;
    }
    let title = "select title from film where id = 1";
    eventually(SEEN_WITHIN, || {
        ensure!(pair.connect()?.value(title)? == "film 1", "the table is back");
        Ok(())
    })?;
    reflected(&pair, "alter table film rename column title to name", title)
}

fn dropped_and_created_tables(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select title from film where id = 1";
    reflected(&pair, "drop table role; drop table film", read)?;
    pair.database.run("create table film (id int primary key, title text); insert into film values (1, 'second')")?;
    let mut client = pair.connect()?;
    eventually(SEEN_WITHIN, || {
        ensure!(client.value(read)? == "second", "not the new table");
        Ok(())
    })?;
    reflected(&pair, "update film set title = 'third'", read)?;
    // Emptied and refilled under the same name in one transaction.
    reflected(
        &pair,
        "begin; drop table film; create table film (id int primary key, title text);
        insert into film values (1, 'fourth'); commit",
        read,
    )?;
    reflected(
        &pair,
        "drop schema public cascade; create schema public; create table film (id int primary key, title text);
        insert into film values (1, 'fifth')",
        read,
    )?;
    until_hit(&pair, &mut client, read)
}

fn tables_that_come_to_shadow_others(version: Version) -> Result<()> {
    let pair = Pair::new(version, &format!("{SCHEMA} create schema early;"))?;
    let name = &pair.database.name;
    pair.database.run(&format!("alter database {name} set search_path = early, public"))?;
    let read = "select title from film where id = 1";
    let shadow =
        "create table early.film (id int primary key, title text); insert into early.film values (1, 'shadow')";
    reflected(&pair, shadow, read)?;
    reflected(&pair, "alter schema early rename to late", read)?;
    reflected(&pair, "alter schema late rename to early", read)?;
    reflected(&pair, "alter table early.film set schema public; ".replace("public", "pg_temp").as_str(), read)
        .or_else(|_| reflected(&pair, "drop table early.film", read))
}

fn shadowing_by_temporary_tables(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut shadowed, mut plain) = (pair.connect()?, pair.connect()?);
    let read = "select title from film where id = 1";
    until_hit(&pair, &mut shadowed, read)?;
    for create in [
        "create temporary table film as select 1 as id, 'shadow' as title",
        "select 1 as id, 'shadow' as title into temporary film",
        "do $$ begin create temporary table film as select 1 as id, 'shadow' as title; end $$",
        "create temporary view film as select 1 as id, 'shadow' as title",
    ] {
        shadowed.query(create)?;
        ensure!(shadowed.value(read)? == "shadow", "not the temporary table of {create}");
        ensure!(plain.value(read)? == "film 1", "a temporary table of another session");
        until_hit(&pair, &mut plain, read)?;
        ensure!(shadowed.value(read)? == "shadow", "a hit past the temporary table of {create}");
        shadowed.query("drop table if exists pg_temp.film")?;
        shadowed.query("drop view if exists pg_temp.film")?;
        ensure!(shadowed.value(read)? == "film 1", "after the temporary table of {create}");
    }
    Ok(())
}

fn replica_identities(version: Version) -> Result<()> {
    let schema = "create table bare (id int, name text); insert into bare values (1, 'one');
        create table full_rows (id int, name text); alter table full_rows replica identity full;
        insert into full_rows values (1, 'one');
        create table by_index (id int not null, name text); create unique index by_id on by_index (id);
        alter table by_index replica identity using index by_id; insert into by_index values (1, 'one');
        create table nothing (id int primary key, name text); alter table nothing replica identity nothing;
        insert into nothing values (1, 'one');";
    let pair = Pair::new(version, schema)?;
    let mut c = pair.connect()?;
    for table in ["full_rows", "by_index"] {
        let read = format!("select name from {table} where id = 1");
        until_hit(&pair, &mut c, &read)?;
        c.query(&format!("update {table} set name = 'two' where id = 1"))?;
        ensure!(c.value(&read)? == "two", "{table}");
    }
    for table in ["bare", "nothing"] {
        let read = format!("select name from {table} where id = 1");
        never_hits(&pair, &mut c, &read, "no_replica_identity")?;
        // The application's own writes must never fail because of Freshet.
        c.run(&format!("update {table} set name = 'two' where id = 1; delete from {table} where id = 2"))?;
        ensure!(c.value(&read)? == "two", "{table}");
    }
    // The key is dropped while results are cached and the table is published: its writes must still succeed.
    until_hit(&pair, &mut c, "select name from full_rows where id = 1")?;
    pair.database.run("alter table full_rows replica identity default")?;
    eventually(SEEN_WITHIN, || pair.database.run("update full_rows set name = 'three' where id = 1"))?;
    eventually(SEEN_WITHIN, || {
        ensure!(c.value("select name from full_rows where id = 1")? == "three", "stale");
        Ok(())
    })
}

fn what_is_never_cached(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA}; create extension isn; create table book (id int primary key, number isbn13); insert into book values (1, null);
        create extension hstore; create table tagged (id int primary key, tags hstore); insert into tagged values (1, 'a=>1');
        create function number_of(hstore) returns int language sql as 'select 1';
        create cast (hstore as int) with function number_of(hstore)"
    );
    let pair = Pair::new(version, &schema)?;
    let mut c = pair.connect()?;
    let mut wrong = Vec::new();
    for (sql, reason) in [
        ("select now(), title from film where id = 1", "function"),
        ("select title from film where id = 1 and now() > '2020-01-01'", "function"),
        ("select title, current_timestamp from film where id = 1", ""),
        ("select title from film where id = 1 and current_date > date '2020-01-01'", ""),
        ("select title from film where id = 1 and date 'today' > '2020-01-01'", "clock_literal"),
        ("select title from film where id = 1 and random() < 2", "function"),
        ("select title from film where id = 1 for update", "locks_rows"),
        ("select title from film where id = 1 for no key update", ""),
        ("select title from film where id = 1 for share", "locks_rows"),
        ("select title, nextval('s') from film where id = 1", "function"),
        ("select ctid, title from film where id = 1", ""),
        ("select xmin, title from film where id = 1", ""),
        ("select count(*) from pg_class where relname = 'film'", ""),
        ("select table_name from information_schema.tables where table_name = 'film'", ""),
        ("select title from film tablesample system (100) where id = 1", ""),
        ("select txid_current() > 0 from film where id = 1", "function"),
        ("select pg_backend_pid() > 0 from film where id = 1", "function"),
        ("select current_setting('work_mem') from film where id = 1", "construct"),
        (
            "with w as (insert into film values (900, 'w') on conflict do nothing returning 1) select title from film",
            "",
        ),
        ("select number from book where id = 1", "user_type"),
        ("select tags from tagged where id = 1", "user_type"), // a cast that is not the extension's
        ("explain select title from film where id = 1", "not_select"),
        ("select 1; select title from film where id = 1", "several_statements"),
        ("update film set votes = votes where id = 1", "not_select"),
    ] {
        if let Err(error) = never_hits(&pair, &mut c, sql, reason) {
            wrong.push(format!("{error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
    Ok(())
}

fn kinds_of_relations(version: Version) -> Result<()> {
    let schema = "create table plain (id int primary key, name text); insert into plain values (1, 'one');
        create view seen as select * from plain;
        create materialized view kept as select * from plain;
        create unlogged table volatile (id int primary key, name text); insert into volatile values (1, 'one');
        create table parted (id int primary key, name text) partition by range (id);
        create table part_1 partition of parted for values from (0) to (10); insert into parted values (1, 'one');
        create table parent (id int primary key, name text); create table child (primary key (id)) inherits (parent);
        insert into child values (1, 'one');
        create type mood as enum ('sad', 'happy');
        create table moods (id int primary key, name mood); insert into moods values (1, 'sad');";
    let pair = Pair::new(version, schema)?;
    let mut c = pair.connect()?;
    for _ in 0..3 {
        for relation in ["seen", "kept", "volatile", "parted", "parent", "moods", "plain", "child", "part_1"] {
            let read = format!("select count(*) from {relation} where name::text = 'new'");
            ensure!(c.value(&read)? == "0", "{relation} before");
        }
        rest();
    }
    // Whether or not they are cached: a change is seen at once by the session that makes it, and soon by others.
    for (write, relation) in [
        ("update plain set name = 'new'", "plain"),
        ("select 1", "seen"),
        ("refresh materialized view kept", "kept"),
        ("update volatile set name = 'new'", "volatile"),
        ("update parted set name = 'new'", "part_1"),
        ("select 1", "parted"),
        ("update parent set name = 'new'", "child"),
        ("select 1", "parent"),
        ("alter type mood rename value 'sad' to 'new'", "moods"),
    ] {
        c.run(write)?;
        let read = format!("select count(*) from {relation} where name::text = 'new'");
        ensure!(c.value(&read)? == "1", "{relation} after {write}");
        eventually(SEEN_WITHIN, || {
            ensure!(pair.connect()?.value(&read)? == "1", "{relation} after {write}, in another session");
            Ok(())
        })?;
    }
    Ok(())
}

fn without_logical_decoding(version: Version) -> Result<()> {
    let settings = freshet_testbed::Settings { wal_level: "replica".into(), ..Default::default() };
    let database = Database::create(version.start(&settings)?)?;
    database.run(SCHEMA)?;
    let freshet =
        crate::support::Freshet::start_unready(database.address(), &database.url(), &["--log-format", "json"])?;
    let pair = Pair { freshet, database };
    let mut c = pair.connect()?;
    never_hits(&pair, &mut c, "select title from film where id = 1", "no_stream")?;
    c.run("update film set title = 'new' where id = 1")?;
    ensure!(c.value("select title from film where id = 1")? == "new", "a read without a stream");
    if pair.freshet.is_there() {
        // It says why, where an operator looks.
        eventually(PATIENCE, || {
            let status = format!("{:?}", c.query("SHOW FRESHET STATUS")?);
            let health = pair.freshet.health()?.1;
            ensure!(status.contains("wal_level"), "SHOW FRESHET STATUS does not say why: {status}");
            ensure!(health.contains("wal_level"), "/health does not say why: {health}");
            Ok(())
        })?;
        let probes = pair.freshet.probes()?;
        ensure!(probes == [200, 200, 503], "/livez, /readyz, /cachez: {probes:?}");
        let log = pair.freshet.log();
        let lines =
            log.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>().context("log")?;
        let says_why =
            |line: &serde_json::Value| line["level"] == "WARN" && line["message"].to_string().contains("wal_level");
        ensure!(lines.iter().any(says_why), "the log does not say why: {log}");
    }
    Ok(())
}

fn databases_apart(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let other = Database::shared(version)?;
    other.run("create table film (id int primary key, title text); insert into film values (1, 'elsewhere')")?;
    let read = "select title from film where id = 1";
    let (mut here, mut there) = (pair.connect()?, RawClient::login(pair.address(), other.login())?);
    until_hit(&pair, &mut here, read)?;
    ensure!(there.value(read)? == "elsewhere", "a result of another database");
    never_hits(&pair, &mut there, read, "other_database")?;
    other.run("update film set title = 'changed'")?;
    ensure!(there.value(read)? == "changed", "stale in another database");
    Ok(())
}
