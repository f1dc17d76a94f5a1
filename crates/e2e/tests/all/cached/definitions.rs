//! Changes of definitions and privileges count at once through Freshet, and within D around it; with event triggers and without. Results of relations
//! that were not changed stay.
//!
//! Versions 15 and 18. In version 13 the output plugin sends no messages, so everything there is as without triggers.

use anyhow::{Result, ensure};

use super::{SCHEMA, SEEN_WITHIN, until_hit};
use crate::support::{Database, Metrics, PATIENCE, Pair, RawClient, Version, eventually, on_both, rest, rest_within};

on_both!(
    through_freshet,
    around_freshet,
    around_freshet_as_a_replica_would,
    without_the_right_to_create_triggers,
    triggers_that_go_and_come,
    the_rest_stays,
    revoked_rights,
    rights_that_are_not_in_the_stream,
    a_lost_replica_identity,
    publications_changed_by_others,
    ddl_of_roles_without_rights,
);

/// What [`CHANGES`] work on.
const DEFINED: &str = "create schema early;
    create table film (id int primary key, title text not null, genre text, votes int not null default 0);
    insert into film select i, 'film ' || i, 'drama', i from generate_series(1, 20) i;
    create table spare (id int primary key, title text); insert into spare values (1, 'spare');
    create view seen as select id, title from film;
    create materialized view kept as select id, title from spare; create unique index on kept (id);
    create table parts (id int primary key, name text) partition by range (id);
    create table part_1 partition of parts for values from (0) to (10); insert into parts values (1, 'one');
    create table part_2 (id int primary key, name text); insert into part_2 values (11, 'two');
    create table parent (id int primary key, name text); create table child (id int primary key, name text);
    insert into child values (1, 'one');
    create type mood as enum ('sad', 'happy');
    create table moods (id int primary key, name mood); insert into moods values (1, 'sad');
    create table notes (id int primary key, note varchar); insert into notes values (1, 'One');
    create extension citext; create table member (id int primary key, email citext); insert into member values (1, 'One');
    create function differ(citext, citext) returns boolean language sql as 'select true';
    create text search configuration words (copy = simple); create text search configuration owned (copy = simple);
    create text search dictionary own (template = simple);
    alter text search configuration owned alter mapping for asciiword with own;
    create function differ(varchar, varchar) returns boolean language sql as 'select true';";

/// Reads, and what changes their results.
const CHANGES: [(&str, &str); 35] = [
    ("select * from film where id = 1", "alter table film add column year int default 1999"),
    ("select * from film where id = 1", "alter table film alter column votes type text using votes || ' votes'"),
    ("select * from film where id = 1", "alter table film rename column genre to kind"),
    ("select * from film where id = 1", "alter table film drop column kind"),
    ("select title from film where id = 1", "alter table film rename to other; alter table spare rename to film"),
    ("select title from film where id = 1", "alter table film rename to spare; alter table other rename to film"),
    ("select title from film where id = 1", "create table early.film as select 1 as id, 'shadow' as title"),
    ("select title from film where id = 1", "alter schema early rename to late"),
    ("select title from film where id = 1", "alter schema late rename to early"),
    ("select title from film where id = 1", "alter table early.film rename to movie"),
    ("select title from film where id = 1", "create view early.film as select 1 as id, 'view' as title"),
    ("select title from film where id = 1", "drop view early.film"),
    (
        "select lower(note) from notes where id = 1",
        "create function lower(varchar) returns text immutable language sql as 'select ''mine''::text'",
    ),
    ("select lower(note) from notes where id = 1", "drop function lower(varchar)"),
    (
        "select count(*) from notes where note = 'Two'",
        "create operator = (leftarg = varchar, rightarg = varchar, function = differ)",
    ),
    ("select count(*) from notes where note = 'Two'", "drop operator = (varchar, varchar)"),
    (
        "select lower(email) from member where id = 1",
        "create function lower(citext) returns text immutable language sql as 'select ''mine''::text'",
    ),
    (
        "select count(*) from member where email = 'Two'",
        "create operator early.= (leftarg = citext, rightarg = citext, function = differ)",
    ),
    ("select count(*) from member where email = 'Two'", "drop operator early.= (citext, citext)"),
    ("select * from seen where id = 1", "create or replace view seen as select id, upper(title) as title from film"),
    ("select title from kept where id = 1", "update spare set title = 'later'; refresh materialized view kept"),
    (
        "select title from kept where id = 1",
        "update spare set title = 'last'; refresh materialized view concurrently kept",
    ),
    ("select count(*) from parts", "alter table parts attach partition part_2 for values from (10) to (20)"),
    ("select count(*) from parts", "alter table parts detach partition part_2"),
    ("select count(*) from parent", "alter table child inherit parent"),
    ("select name from moods where id = 1", "alter type mood rename value 'sad' to 'blue'"),
    (
        "select to_json(name) from moods where id = 1",
        "create function blurred(mood) returns json immutable language sql as 'select ''\"mine\"''::json';
         create cast (mood as json) with function blurred(mood)",
    ),
    ("select to_json(name) from moods where id = 1", "drop cast (mood as json)"),
    (
        "select to_tsvector('words', title || ' running') from film where id = 1",
        "alter text search configuration words alter mapping for asciiword with english_stem",
    ),
    (
        "select to_tsvector('words', title || ' running') from film where id = 1",
        "alter text search configuration words drop mapping for asciiword",
    ),
    (
        "select to_tsvector('words', title || ' running') from film where id = 1",
        "create text search configuration early.words (copy = english)",
    ),
    (
        "select count(*) from film where to_tsvector('owned', title) @@ to_tsquery('owned', 'film')",
        "alter text search dictionary own (accept = false)",
    ),
    (
        "select plainto_tsquery('early.words', title) from film where id = 1",
        "drop text search configuration early.words",
    ),
    ("select title from film where id = 1", "truncate film"),
    (
        "select title from spare where id = 1",
        "drop table spare cascade; create table spare (id int primary key, title text); insert into spare values (1, 'new')",
    ),
];

/// A database for [`CHANGES`], in which names are looked for in `early` first.
fn defined(version: Version) -> Result<Database> {
    let database = Database::shared(version)?;
    database.run(DEFINED)?;
    database.run(&format!("alter database {} set search_path = early, public", database.name))?;
    Ok(database)
}

/// Data and column names of the answer, without the object ids of its tables.
fn answer(client: &mut RawClient, sql: &str) -> Result<Vec<String>> {
    let messages = client.query(sql)?;
    let text = |m: &crate::support::Message| match m.tag {
        b'D' => Some(format!("{:?}", m.columns())),
        b'E' => Some(format!("{:?}", m.field(b'M'))),
        b'T' => Some(String::from_utf8_lossy(&m.body).split('\0').next().unwrap_or_default().to_owned()),
        _ => None,
    };
    Ok(messages.iter().filter_map(text).collect())
}

fn as_it_is(database: &Database, client: &mut RawClient, read: &str, change: &str) -> Result<()> {
    let (direct, through) = (answer(&mut database.connect()?, read)?, answer(client, read)?);
    ensure!(direct == through, "{read} after {change}\n direct:  {direct:?}\n through: {through:?}");
    Ok(())
}

/// Freshet has no stream, if it does not catch up within this.
const CATCH_UP_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// Lets a read come from the cache if it ever does: not every one can at every moment.
fn warm(pair: &Pair, client: &mut RawClient, read: &str) -> Result<bool> {
    for _ in 0..5 {
        let before = pair.freshet.metrics()?;
        client.query(read)?;
        if pair.freshet.metrics()?.hits() > before.hits() {
            return Ok(true);
        }
        if rest_within(CATCH_UP_MAX).is_err() {
            return Ok(false);
        }
    }
    Ok(!pair.freshet.is_there())
}

/// So many of [`CHANGES`] meet a cached result, also where materialised views are not cached.
const WARM_MIN: usize = 24;

/// Waits until the log says so.
fn logged(pair: &Pair, text: &str) -> Result<()> {
    if !pair.freshet.is_there() {
        return Ok(());
    }
    eventually(PATIENCE, || {
        ensure!(pair.freshet.log().contains(text), "no {text:?} in the log:\n{}", pair.freshet.log());
        Ok(())
    })
}

const IN_STREAM: &str = "DDL is in the change stream";

fn through_freshet(version: Version) -> Result<()> {
    let pair = Pair::over(defined(version)?, "select 1", &[])?;
    logged(&pair, IN_STREAM)?;
    let (mut own, mut other) = (pair.connect()?, pair.connect()?);
    let mut cold = Vec::new();
    for (read, change) in CHANGES {
        warm(&pair, &mut own, read)?;
        if !warm(&pair, &mut other, read)? {
            cold.push((read, change));
        }
        own.run(change)?;
        as_it_is(&pair.database, &mut other, read, change)?;
        as_it_is(&pair.database, &mut own, read, change)?;
    }
    ensure!(CHANGES.len() - cold.len() >= WARM_MIN, "never cached: {cold:?}");
    Ok(())
}

/// Each change is made by `run`, and is seen by a session that had the result before, within D.
fn seen_around(pair: &Pair, prelude: &str) -> Result<()> {
    let mut client = pair.connect()?;
    let mut cold = Vec::new();
    for (read, change) in CHANGES {
        if !warm(pair, &mut client, read)? {
            cold.push((read, change));
        }
        let mut direct = pair.database.connect()?;
        direct.run(prelude)?;
        direct.run(change)?;
        eventually(SEEN_WITHIN, || as_it_is(&pair.database, &mut client, read, change))?;
    }
    ensure!(CHANGES.len() - cold.len() >= WARM_MIN, "never cached: {cold:?}");
    Ok(())
}

fn around_freshet(version: Version) -> Result<()> {
    let pair = Pair::over(defined(version)?, "select 1", &[])?;
    logged(&pair, IN_STREAM)?;
    seen_around(&pair, "select 1")
}

fn around_freshet_as_a_replica_would(version: Version) -> Result<()> {
    let pair = Pair::over(defined(version)?, "select 1", &[])?;
    logged(&pair, IN_STREAM)?;
    seen_around(&pair, "set session_replication_role = replica")
}

/// A role that may replicate and publish its tables, and nothing more.
fn without_the_right_to_create_triggers(version: Version) -> Result<()> {
    let database = defined(version)?;
    let role = format!("{}_plain", database.name);
    database.run(&format!(
        "create role {role} login replication; grant create on database {} to {role};
        grant usage, create on schema public, early to {role};
        alter table film owner to {role}; alter table spare owner to {role}; alter table parts owner to {role};
        alter table part_1 owner to {role}; alter table part_2 owner to {role}; alter table moods owner to {role};
        grant execute on function pg_control_system() to {role}; alter table notes owner to {role};
        alter table member owner to {role}",
        database.name
    ))?;
    let server = &database.server;
    let url = format!("postgres://{role}:{}@{}:{}/{}", server.password(), server.host(), server.port(), database.name);
    let freshet = crate::support::Freshet::start_unready(database.address(), &url, &[])?;
    let pair = Pair { freshet, database };
    let outcome = pair.freshet.wait_ready().and_then(|()| {
        logged(&pair, "DDL is found by polling")?;
        if pair.freshet.is_there() {
            ensure!(pair.freshet.log().contains("--print-triggers"), "the log does not say what to do");
        }
        until_hit(&pair, &mut pair.connect()?, "select title from film where id = 1")?;
        seen_around(&pair, "select 1")
    });
    let clean = format!("reassign owned by {role} to postgres; drop owned by {role}");
    let database = &pair.database;
    outcome.and_then(|()| database.run(&clean))
}

/// With the triggers present, dropped, disabled and created again, every change is noticed.
fn triggers_that_go_and_come(version: Version) -> Result<()> {
    let pair = Pair::over(defined(version)?, "select 1", &[])?;
    logged(&pair, IN_STREAM)?;
    let mut client = pair.connect()?;
    let read = "select title from kept where id = 1";
    for (round, state) in [
        "alter event trigger freshet_ddl_end disable",
        "alter event trigger freshet_ddl_end enable always",
        "alter event trigger freshet_ddl_end enable",
        "drop event trigger freshet_ddl_end",
        "drop schema freshet cascade",
    ]
    .into_iter()
    .enumerate()
    {
        warm(&pair, &mut client, read)?;
        // In one go: what the state is while the view is refreshed shows in no table that could be looked at.
        pair.database.run(&format!("{state}; update spare set title = 'new {round}'"))?;
        pair.database.run("refresh materialized view concurrently kept")?;
        eventually(SEEN_WITHIN, || as_it_is(&pair.database, &mut client, read, state))?;
    }
    logged(&pair, "the event triggers were changed")?;
    seen_around(&pair, "select 1")
}

fn flushed(metrics: &Metrics) -> (u64, u64) {
    (metrics.count("freshet_flushed_total"), metrics.count("freshet_invalidations_total"))
}

fn the_rest_stays(version: Version) -> Result<()> {
    let schema = format!("{SCHEMA} create table aside (id int primary key, x int); create schema early;");
    // A server of its own: roles belong to all databases of a server, and other tests make some.
    let database = Database::create(version.start(&freshet_testbed::Settings::default())?)?;
    let pair = Pair::over(database, &schema, &[])?;
    logged(&pair, IN_STREAM)?;
    let mut c = pair.connect()?;
    let read = "select title from film where id = 1";
    until_hit(&pair, &mut c, read)?;
    for change in [
        "create table unrelated (id int primary key)",
        "alter table unrelated add column x int default 1",
        "create index on unrelated (x)",
        "create index concurrently on aside (x)",
        "grant select on aside to public",
        "grant select (x) on aside to public",
        "revoke select on aside from public",
        "alter table aside enable row level security; create policy p on aside using (true)",
        "analyze",
        "vacuum film",
        "comment on table film is 'films'",
        "create temporary table temporary (id int primary key); create index on temporary (id); drop table temporary",
        "create temporary view film as select 1 as id; drop view pg_temp.film",
        "create view above as select * from aside; create or replace view above as select *, 1 as y from aside",
        "create materialized view drawn as select x from aside; refresh materialized view drawn",
        "create table early.aside (id int); alter table early.aside rename to other; drop table early.other",
        "alter table aside replica identity full",
        "begin; alter table film add column gone int; rollback",
        "drop table unrelated cascade",
    ] {
        let before = pair.freshet.metrics()?;
        pair.database.run(change)?;
        // The next look at the catalogue has been taken once a change behind it is seen.
        until_hit(&pair, &mut c, read)?;
        rest();
        until_hit(&pair, &mut c, read)?;
        let after = pair.freshet.metrics()?;
        ensure!(flushed(&before) == flushed(&after), "{change}: {:?} then {:?}", flushed(&before), flushed(&after));
    }
    Ok(())
}

/// A role of this test alone, and a connection of it.
fn stranger(pair: &Pair) -> Result<(String, RawClient)> {
    let role = format!("{}_stranger", pair.database.name);
    pair.database.run(&format!("create role {role} login"))?;
    let client = RawClient::login(pair.address(), pair.database.login_as(&role))?;
    Ok((role, client))
}

fn revoked_rights(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    logged(&pair, IN_STREAM)?;
    let (role, mut client) = stranger(&pair)?;
    let mut owner = pair.connect()?;
    let read = "select title from film where id = 1";
    for (give, take) in [
        ("grant select on film to ROLE", "revoke select on film from ROLE"),
        ("grant select (id, title) on film to ROLE", "revoke select (title) on film from ROLE"),
        ("grant select on all tables in schema public to ROLE", "revoke all on all tables in schema public from ROLE"),
        (
            "grant usage on schema public to public; grant select on film to ROLE",
            "revoke usage on schema public from public",
        ),
        ("grant usage on schema public to public", "alter table film enable row level security"),
        ("create policy all_rows on film using (true)", "alter policy all_rows on film using (id > 1)"),
        ("alter policy all_rows on film using (true)", "drop policy all_rows on film"),
        ("alter table film disable row level security", "alter table film rename to hidden"),
        ("alter table hidden rename to film", "drop owned by ROLE"),
    ] {
        owner.run(&give.replace("ROLE", &role))?;
        // Tables under policies are not cached, so this may hit or not.
        warm(&pair, &mut client, read)?;
        owner.run(&take.replace("ROLE", &role))?;
        // Acknowledged: not one row more.
        let rows = client.query(read)?.iter().filter(|m| m.tag == b'D').count();
        ensure!(rows == 0, "{rows} rows after {take}");
        ensure!(owner.query("select count(*) from pg_class")?.iter().any(|m| m.tag == b'D'), "the owner reads on");
    }
    pair.database.run(&format!("drop owned by {role}; drop role {role}"))
}

/// What no event trigger sees is polled.
fn rights_that_are_not_in_the_stream(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    logged(&pair, IN_STREAM)?;
    let (role, mut client) = stranger(&pair)?;
    let group = format!("{role}_group");
    pair.database.run(&format!("create role {group}; grant select on film to {group}; create role {group}_2"))?;
    let read = "select title from film where id = 1";
    for (give, take) in [
        ("grant GROUP to ROLE", "revoke GROUP from ROLE"),
        ("alter role ROLE superuser", "alter role ROLE nosuperuser"),
        ("alter table film owner to GROUP_2; grant GROUP_2 to ROLE", "reassign owned by GROUP_2 to postgres"),
    ] {
        let named = |sql: &str| sql.replace("ROLE", &role).replace("GROUP", &group);
        pair.database.run(&named(give))?;
        until_hit(&pair, &mut client, read)?;
        pair.database.run(&named(take))?;
        eventually(SEEN_WITHIN, || {
            let rows = client.query(read)?.iter().filter(|m| m.tag == b'D').count();
            ensure!(rows == 0, "{rows} rows after {take}");
            Ok(())
        })?;
    }
    pair.database.run(&format!("drop owned by {role}, {group}, {group}_2; drop role {role}, {group}, {group}_2"))
}

fn a_lost_replica_identity(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA} create table by_index (id int not null, title text); create unique index by_id on by_index (id);
        alter table by_index replica identity using index by_id; insert into by_index values (1, 'one');
        create table whole (id int primary key, title text); insert into whole values (1, 'one');"
    );
    let pair = Pair::new(version, &schema)?;
    logged(&pair, IN_STREAM)?;
    let (mut own, mut other) = (pair.connect()?, pair.connect()?);
    for (table, lose, mend) in [
        ("film", "alter table film drop constraint film_pkey cascade", "alter table film add primary key (id)"),
        (
            "by_index",
            "drop index by_id",
            "create unique index by_id on by_index (id); \
            alter table by_index replica identity using index by_id",
        ),
        ("whole", "alter table whole replica identity nothing", "alter table whole replica identity default"),
    ] {
        let read = format!("select title from {table} where id = 1");
        until_hit(&pair, &mut other, &read)?;
        // In one transaction: it would fail if the table were still published.
        own.run(&format!("begin; {lose}; update {table} set title = 'lost' where id = 1; commit"))?;
        ensure!(other.value(&read)? == "lost", "{table}: the update was not seen");
        own.run(&format!("update {table} set title = 'again' where id = 1"))?;
        ensure!(other.value(&read)? == "again", "{table}: an update without an identity was not seen");
        own.run(mend)?;
        until_hit(&pair, &mut other, &read)?;
        own.run(&format!("update {table} set title = 'back' where id = 1"))?;
        ensure!(other.value(&read)? == "back", "{table}: an update was not seen after the identity came back");
    }
    Ok(())
}

fn publications_changed_by_others(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    logged(&pair, IN_STREAM)?;
    let mut c = pair.connect()?;
    let read = "select title from film where id = 1";
    for (number, change) in [
        "alter publication freshet drop table film",
        "alter publication freshet set table role",
        "alter publication freshet drop table film; alter publication freshet add table film",
        "alter publication freshet set table film (id, genre)",
        "alter publication freshet set table film where (id > 5)",
        "alter publication freshet set (publish = 'insert')",
        "alter publication freshet set (publish = 'insert, update, delete, truncate')",
        "drop publication freshet",
        "create publication freshet for table film",
    ]
    .into_iter()
    .enumerate()
    {
        warm(&pair, &mut c, read)?;
        if let Err(error) = pair.database.run(change) {
            ensure!(change.starts_with("create"), "{change}: {error:#}");
        }
        let title = format!("title {number}");
        pair.database.run(&format!("update film set title = '{title}' where id = 1"))?;
        eventually(SEEN_WITHIN, || {
            ensure!(c.value(read)? == title, "{change}");
            Ok(())
        })?;
    }
    until_hit(&pair, &mut c, read)
}

/// The triggers run for all roles, and make no statement fail.
fn ddl_of_roles_without_rights(version: Version) -> Result<()> {
    let pair = Pair::new(version, &format!("{SCHEMA} create schema early;"))?;
    logged(&pair, IN_STREAM)?;
    let name = &pair.database.name;
    pair.database.run(&format!("alter database {name} set search_path = early, public"))?;
    let (role, mut client) = stranger(&pair)?;
    pair.database.run(&format!("grant all on schema early to {role}; grant select on film to {role}"))?;
    let mut reader = pair.connect()?;
    let read = "select title from film where id = 1";
    until_hit(&pair, &mut reader, read)?;
    client.run(
        "set standard_conforming_strings = off; set statement_timeout = '60s';
        create table film (id int primary key, title text); insert into film values (1, 'theirs')",
    )?;
    pair.database.run(&format!("grant select on early.film to {}", pair.database.server.superuser()))?;
    ensure!(reader.value(read)? == "theirs", "a table of a role without rights was not noticed");
    client.run("create function early.lower(text) returns text language sql as 'select $1'; drop table film")?;
    ensure!(reader.value(read)? == "film 1", "a drop by a role without rights was not noticed");
    pair.database.run(&format!("drop owned by {role}; drop role {role}"))
}
