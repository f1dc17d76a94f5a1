//! Enums: casts to them, as Prisma and Metabase send, their functions and their columns are served from the cache. Changes of the type, or of the
//! meaning of its name, are noticed.

use anyhow::{Result, ensure};

use super::beside_direct::Reads;
use super::until_hit;
use crate::support::frames::query;
use crate::support::{Pair, RawClient, Version, on_both};

on_both!(casts_hit, types_are_watched, names_are_watched, casts_of_others_pass, domains_pass);

const SCHEMA: &str = r#"
    create type mood as enum ('sad', 'ok', 'happy');
    create type "Status" as enum ('OPEN', 'DONE');
    create table moods (id int primary key, m mood, s "Status", ms mood[]);
    insert into moods values (1, 'sad', 'OPEN', '{sad,ok}'), (2, 'happy', 'DONE', '{happy}'), (3, 'sad', 'DONE', null);
    create view sad as select id, s from moods where m = 'sad'::mood;
    create schema first;"#;

const READS: [&str; 12] = [
    "select 'sad'::mood",
    "select enum_range(null::mood)",
    "select enum_first(null::mood), enum_last(null::public.mood), enum_range('ok'::mood, null)",
    "select unnest(enum_range(null::\"Status\"))::text",
    "select id, m, s, ms from moods where m = 'sad' order by id",
    "select id from moods where m = cast('sad' as mood) order by m, id",
    "select id from moods where s = 'DONE'::public.\"Status\" and m in ('sad'::mood, 'happy'::mood) order by id",
    "select id from moods where m = any ('{sad,happy}'::mood[]) order by id",
    "select id from moods where ms @> array['ok']::mood[]",
    "select count(*) from moods where m > 'sad'::mood",
    "select coalesce(max(m), 'ok'::mood), m::text from moods where id < 9 group by m order by 2",
    "select * from sad order by id",
];

/// What Prisma and Metabase send.
const BOUND: [(&str, &str); 4] = [
    ("select id from moods where s = cast($1::text as \"Status\") order by id", "DONE"),
    ("select id from moods where s = CAST($1::text AS \"public\".\"Status\") order by id offset 0", "DONE"),
    ("select id from moods where m = $1::mood order by id", "sad"),
    ("select id from moods where m = any ($1::mood[]) order by id", "{sad,happy}"),
];

fn reads() -> Reads {
    Reads::new(&READS, &BOUND)
}

fn casts_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    reads().all_hit(&pair)?;
    let mut c = pair.connect()?;
    c.run("insert into moods values (4, 'sad', 'DONE', '{ok}'); delete from moods where id = 3")?;
    reads().same(&pair, &mut c, "rows that came and went")?;
    c.run("update moods set m = 'happy', s = 'DONE'")?;
    reads().same(&pair, &mut c, "an update")
}

fn types_are_watched(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let changes = [
        "alter type mood add value 'angry' before 'sad'",
        "alter type \"Status\" add value 'LATE'",
        "alter type mood rename value 'happy' to 'glad'",
        "alter type mood rename value 'glad' to 'happy'",
        "alter type mood rename to temper",
        "alter type temper rename to mood",
    ];
    let mut c = pair.connect()?;
    for change in changes {
        // Behind a new name some reads fail until it is the old one again.
        if !change.contains("'glad' to") && !change.contains("temper rename") {
            reads().all_hit(&pair)?;
        }
        c.run(change)?;
        reads().same(&pair, &mut c, change)?;
    }
    reads().all_hit(&pair)
}

/// Another type of the name, found first, takes its place.
fn names_are_watched(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    let mut direct = pair.database.connect()?;
    for client in [&mut c, &mut direct] {
        client.run("set search_path = first, public")?;
    }
    let read = "select enum_range(null::mood)";
    let makes = [
        ("create type first.mood as enum ('other')", "drop type first.mood"),
        ("create table first.mood (x int)", "drop table first.mood"),
        ("create domain first.mood as text", "drop domain first.mood"),
        ("create type first.mood as (x int)", "drop type first.mood"),
        ("create temp table mood (x int)", "drop table mood"),
    ];
    for (make, drop) in makes {
        until_hit(&pair, &mut c, read)?;
        for change in [make, drop] {
            c.run(change)?;
            if change.contains("temp") {
                direct.run(change)?;
            } else if make.contains("temp") {
                direct.run(drop)?;
            }
            let (expected, got) = (direct.exchange(&query(read), 1)?, c.exchange(&query(read), 1)?);
            ensure!(expected == got, "after {change}:\n  expected {expected:?}\n  got {got:?}");
        }
    }
    Ok(())
}

/// A cast runs a user-defined function.
fn casts_of_others_pass(version: Version) -> Result<()> {
    let made = "create table rate (m mood); insert into rate values ('sad');
        create function to_mood(int) returns mood language sql stable as 'select m from rate';
        create function to_moods(text) returns mood[] language sql stable as 'select array_agg(m) from rate';
        create cast (int as mood) with function to_mood(int);";
    let pair = Pair::new(version, &[SCHEMA, made].concat())?;
    let mut c = pair.connect()?;
    let passes = |c: &mut RawClient, sql: &str| super::never_hits(&pair, c, sql, "construct");
    passes(&mut c, "select 1::mood")?;
    passes(&mut c, "select array[1]::mood[]")?;
    passes(&mut c, "select id from moods where m = id::mood")?;
    let other = "select 'OPEN'::\"Status\"";
    until_hit(&pair, &mut c, other)?;
    // One that comes later.
    c.run("drop cast (int as mood)")?;
    until_hit(&pair, &mut c, "select 'sad'::text::mood")?;
    c.run("create cast (text as mood[]) with function to_moods(text)")?;
    until_hit(&pair, &mut c, other)?;
    passes(&mut c, "select 'sad'::text::mood[]")?;
    // As Hibernate makes them.
    c.run("create cast (varchar as \"Status\") with inout as implicit")?;
    until_hit(&pair, &mut c, other)
}

fn domains_pass(version: Version) -> Result<()> {
    let pair = Pair::new(version, &[SCHEMA, "create domain bad as mood check (value <> 'ok')"].concat())?;
    super::never_hits(&pair, &mut pair.connect()?, "select 'sad'::bad", "construct")
}
