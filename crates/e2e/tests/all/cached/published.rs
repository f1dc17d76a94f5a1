//! Restrictions of published tables: no write and no DDL fails because Freshet published the table, or locked something.

use anyhow::{Context as _, Result, ensure};

use super::{SEEN_WITHIN, never_hits, until_hit};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    generated_columns,
    identities_that_come_to_hold_generated_columns,
    without_event_triggers,
    tables_that_become_unlogged,
    unlogged_through_freshet_without_event_triggers,
    views_are_read_one_by_one,
    tables_are_published_one_by_one,
);

/// The tables that a condition of `pg_publication_tables` shows, in order.
fn published(database: &Database) -> Result<String> {
    let sql = "select coalesce(string_agg(tablename, ' ' order by tablename), '') from pg_publication_tables";
    database.connect()?.value(sql)
}

fn shows(client: &mut RawClient, read: &str, expected: &str) -> Result<()> {
    let found = client.value(read)?;
    ensure!(found == expected, "{read}: {found}, not {expected}");
    Ok(())
}

fn is_18(version: Version) -> bool {
    version == Version::V18
}

fn generated_columns(version: Version) -> Result<()> {
    let schema = "
        create table p (id int primary key, title text, views int default 0, slug text generated always as (lower(title)) stored);
        alter table p replica identity full;
        create table k (id int, v int default 0, twice int generated always as (id * 2) stored primary key);
        create table i (id int, v int default 0, twice int not null generated always as (id * 2) stored);
        create unique index i_twice on i (twice); alter table i replica identity using index i_twice;
        insert into p (id, title) values (1, 'Hello'); insert into k values (1); insert into i values (1);";
    let pair = Pair::new(version, schema)?;
    let mut c = pair.connect()?;
    let mut direct = pair.database.connect()?;
    for (read, write, expected) in [
        ("select slug from p where id = 1", "update p set title = 'Bye'", "bye"),
        ("select slug from p where slug = 'bye'", "update p set views = views + 1", "bye"),
        ("select count(*) from p where slug = 'bye'", "update p set title = 'Again'", "0"),
        ("select v from k where twice = 2", "update k set v = 5", "5"),
        ("select count(*) from k where twice = 2", "update k set id = 2", "0"),
        ("select v from i where twice = 2", "update i set v = 5", "5"),
        ("select count(*) from i where twice = 2", "update i set id = 2", "0"),
        ("select count(*) from i where twice = 4", "delete from i", "0"),
    ] {
        until_hit(&pair, &mut c, read)?;
        direct.run(write).context(write)?;
        eventually(SEEN_WITHIN, || {
            let found = c.value(read)?;
            ensure!(found == expected, "{read} after {write}: {found}, not {expected}");
            Ok(())
        })?;
    }
    if is_18(version) {
        direct.run(
            "create table v (id int primary key, n int, twice int generated always as (id * 2)); insert into v values (1, 1);
            create table w (id int primary key, n int, twice int generated always as (id * 2)); insert into w values (1, 1);
            alter table w replica identity full",
        )?;
        until_hit(&pair, &mut c, "select n, twice from v where id = 1")?;
        eventually(PATIENCE, || never_hits(&pair, &mut c, "select n from w where id = 1", "generated_identity"))?;
        for table in ["v", "w"] {
            direct.run(&format!("update {table} set n = 2; delete from {table}"))?;
            let read = format!("select count(*) from {table} where id = 1");
            eventually(SEEN_WITHIN, || shows(&mut c, &read, "0"))?;
        }
    }
    Ok(())
}

/// Warms reads, changes the tables, and sees that no update fails from the same transaction on.
fn identities_that_come_to_hold_generated_columns(version: Version) -> Result<()> {
    let schema = "
        create table a (id int primary key, n int); alter table a replica identity full; insert into a values (1, 0);
        create table b (id int primary key, n int); insert into b values (1, 0);
        create table c (id int primary key, n int); insert into c values (1, 0);
        create table d (id int primary key, n int not null, constraint other unique (n)); insert into d values (1, 0);
        alter table d replica identity using index other;";
    let pair = Pair::new(version, schema)?;
    let mut c = pair.connect()?;
    let mut direct = pair.database.connect()?;
    let virtually = if is_18(version) { "virtual" } else { "stored" };
    for (table, change) in [
        ("a", "alter table a add column s int generated always as (id + 1) stored".to_owned()),
        ("a", format!("alter table a add column t int generated always as (id + 1) {virtually}")),
        ("b", format!("alter table b add column t int generated always as (id + 1) {virtually}")),
        ("b", "alter table b replica identity full".to_owned()),
        ("c", "alter table c drop constraint c_pkey".to_owned()),
        ("d", "alter table d drop constraint other".to_owned()),
    ] {
        let read = format!("select n from {table} where id = 1");
        until_hit(&pair, &mut c, &read)?;
        direct
            .run(&format!("begin; {change}; update {table} set n = n + 1; rollback"))
            .with_context(|| change.clone())?;
        until_hit(&pair, &mut c, &read)?;
        direct
            .run(&format!("begin; {change}; update {table} set n = n + 1; commit"))
            .with_context(|| change.clone())?;
        for client in [&mut direct, &mut c] {
            client.run(&format!("update {table} set n = n + 1")).with_context(|| change.clone())?;
        }
        let expected = direct.value(&read)?;
        let found = c.value(&read)?;
        ensure!(found == expected, "{read} after {change}: {found}, not {expected}");
    }
    if is_18(version) {
        // A change of the publication by others does not make writes fail either.
        direct.run("create table s (id int primary key, n int, t int generated always as (id) stored); insert into s values (1, 0)")?;
        direct.run("alter table s replica identity full")?;
        until_hit(&pair, &mut c, "select n from s where id = 1")?;
        direct.run("alter publication freshet set (publish_generated_columns = none); update s set n = 1")?;
    }
    Ok(())
}

/// Then the catalogue watch does it, also for what was published before Freshet started.
fn without_event_triggers(version: Version) -> Result<()> {
    let database = Database::shared(version)?;
    database.run(
        "create table a (id int primary key, n int); insert into a values (1, 0);
        create table b (n int); insert into b values (0); create table c (id int primary key, n int); insert into c values (1, 0);
        create publication freshet for table b, c",
    )?;
    let pair = Pair::over(database, "select 1", &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    eventually(SEEN_WITHIN, || pair.database.run("update b set n = 1"))?;
    ensure!(published(&pair.database)? == "c", "{}", published(&pair.database)?);
    pair.database.run("drop schema freshet cascade")?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, "select n from a where id = 1")?;
    for table in ["a", "c"] {
        pair.database.run(&format!("alter table {table} drop constraint {table}_pkey"))?;
        eventually(SEEN_WITHIN, || pair.database.run(&format!("update {table} set n = 1")))?;
    }
    eventually(SEEN_WITHIN, || shows(&mut c, "select n from a where id = 1", "1"))
}

const LOGGED: &str = "
    create table plain (id int primary key, n int); create table \"The Table\" (id int primary key, n int);
    create schema s; create table s.deep (id int primary key, n int); create table other (id int primary key, n int);
    create table part (id int primary key, n int) partition by range (id);
    create table part1 partition of part for values from (0) to (9);
    insert into plain values (1, 0); insert into \"The Table\" values (1, 0); insert into s.deep values (1, 0);
    insert into other values (1, 0); insert into part values (1, 0);";

fn tables_that_become_unlogged(version: Version) -> Result<()> {
    let pair = Pair::new(version, LOGGED)?;
    let mut c = pair.connect()?;
    let mut direct = pair.database.connect()?;
    let name = "plain";
    for (table, statement) in [
        (name, "alter table plain set unlogged"),
        (name, "ALTER TABLE IF EXISTS ONLY public . plain SET\nUnlogged"),
        (
            name,
            "begin; insert into plain values (2, 2); alter table plain set unlogged; commit; delete from plain where id = 2",
        ),
        (name, "do $$ begin execute format('alter table %I set unlogged', 'plain'); end $$"),
        (name, "alter table plain set unlogged; alter table plain set logged; alter table plain set unlogged"),
        ("\"The Table\"", "alter table \"The Table\" set unlogged"),
        ("s.deep", "set search_path = s, public; alter table deep set unlogged; reset search_path"),
        ("part1", "alter table part1 set unlogged"),
    ] {
        let read = format!("select n from {table} where id = 1");
        for through in [true, false] {
            until_hit(&pair, &mut c, &read)?;
            until_hit(&pair, &mut c, "select n from other where id = 1")?;
            let client = if through { &mut c } else { &mut direct };
            client.run(statement).with_context(|| format!("{statement}, through Freshet: {through}"))?;
            client.run(&format!("update {table} set n = n + 1"))?;
            let expected = direct.value(&read)?;
            eventually(SEEN_WITHIN, || shows(&mut c, &read, &expected))?;
            ensure!(!pair.freshet.is_there() || published(&pair.database)?.contains("other"), "others stay published");
            direct.run(&format!("alter table {table} set logged"))?;
        }
    }
    if pair.freshet.is_there() {
        // What is only spoken of stays, as does what is somebody else's.
        until_hit(&pair, &mut c, "select n from plain where id = 1")?;
        c.run("create function f() returns int language sql as 'select 1 -- alter table plain set unlogged'")?;
        ensure!(published(&pair.database)?.contains("plain"), "it left for what is in a function");
        let other = format!("{}_other", pair.database.name);
        direct.run(&format!("create role {other}; grant create on schema public to {other}"))?;
        direct.run(&format!("set session authorization {other}"))?;
        direct.run("create table own (n int); alter table own set unlogged -- plain")?;
        direct.run("do $$ begin execute 'alter table own set logged /* set unlogged plain */'; end $$")?;
        direct.run("reset session authorization")?;
        ensure!(published(&pair.database)?.contains("plain"), "anybody may take it out");
    }
    if is_18(version) {
        direct.run("create table v (id int primary key, n int generated always as (id) virtual); insert into v (id) values (1)")?;
        until_hit(&pair, &mut c, "select n from v where id = 1")?;
        direct.run("alter table v alter n set expression as (id + 1)")?;
        eventually(SEEN_WITHIN, || shows(&mut c, "select n from v where id = 1", "2"))?;
    }
    Ok(())
}

/// Backends that hold the lock of one table of ours while they wait for that of another.
const CHAINED: &str = "
    select count(*) from pg_locks w join pg_locks h on h.pid = w.pid and h.granted and h.locktype = 'relation'
     and h.relation >= 16384 and h.relation <> w.relation
    where not w.granted and w.locktype = 'relation' and w.database = (select oid from pg_database where datname = current_database())";

const CHAIN: &str = "
    create table b (id int primary key); create view vb as select * from b;
    create table m (id int primary key); create view vm as select * from m;
    create table a (id int primary key); create view va as select * from a;
    insert into a values (1); insert into b values (1); insert into m values (1);";

fn unchained(monitor: &mut RawClient) -> Result<()> {
    for _ in 0..20 {
        let chained = monitor.value(CHAINED)?;
        assert!(chained == "0", "somebody holds a table's lock and waits for another's");
    }
    Ok(())
}

fn views_are_read_one_by_one(version: Version) -> Result<()> {
    let pair = Pair::new(version, CHAIN)?;
    let (mut c, mut holder, mut monitor) = (pair.connect()?, pair.database.connect()?, pair.database.connect()?);
    for view in ["va", "vb", "vm"] {
        until_hit(&pair, &mut c, &format!("select id from {view}"))?;
    }
    holder.run("begin; lock table m in access exclusive mode")?;
    // The catalogue is read again, with all views.
    pair.database
        .run("alter table b add column x int; alter table a add column x int; create table z (id int primary key)")?;
    if pair.freshet.is_there() {
        eventually(PATIENCE, || {
            unchained(&mut monitor)?;
            let before = pair.freshet.metrics()?;
            c.query("select id from z")?;
            c.query("select id from va")?;
            ensure!(pair.freshet.metrics()?.hits() >= before.hits() + 2, "the catalogue is not read yet");
            Ok(())
        })?;
    }
    pair.database.run(
        "begin; alter table a alter column id set default 1; alter table b alter column id set default 1; commit",
    )?;
    holder.run("commit")?;
    // No DDL brings that about.
    until_hit(&pair, &mut c, "select id from vm")?;
    ensure!(c.value("select id from vm")? == "1", "vm");
    let log = pair.freshet.log();
    ensure!(!log.contains("could not open relation"), "{log}");
    Ok(())
}

fn tables_are_published_one_by_one(version: Version) -> Result<()> {
    let pair = Pair::new(version, CHAIN)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut holder, mut monitor) = (pair.connect()?, pair.database.connect()?, pair.database.connect()?);
    // It conflicts with publishing, and not with reading.
    holder.run("begin; lock table m in share update exclusive mode")?;
    eventually(PATIENCE, || {
        for table in ["m", "a", "b"] {
            c.query(&format!("select id from {table}"))?;
        }
        unchained(&mut monitor)?;
        ensure!(published(&pair.database)? == "a b", "{}", published(&pair.database)?);
        Ok(())
    })?;
    holder.run("commit")?;
    until_hit(&pair, &mut c, "select id from m")
}

fn unlogged_through_freshet_without_event_triggers(version: Version) -> Result<()> {
    let pair = Pair::new(version, LOGGED)?;
    pair.database.run("drop schema if exists freshet cascade")?;
    let mut c = pair.connect()?;
    for (table, statement) in [
        ("plain", "alter table plain set unlogged"),
        ("\"The Table\"", "ALTER TABLE IF EXISTS ONLY public.\"The Table\" SET UNLOGGED"),
        ("s.deep", "begin; set local search_path = s, public; alter table deep set unlogged; commit"),
    ] {
        let read = format!("select n from {table} where id = 1");
        until_hit(&pair, &mut c, &read)?;
        c.run(statement).context(statement)?;
        c.run(&format!("update {table} set n = n + 1"))?;
        let expected = pair.database.connect()?.value(&read)?;
        eventually(SEEN_WITHIN, || shows(&mut c, &read, &expected))?;
    }
    Ok(())
}
