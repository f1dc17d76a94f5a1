//! Columns of composite types: their values, fields and comparisons are served from the cache, and never another answer than the database's. Changes of
//! rows and of the type are noticed.

use anyhow::{Result, ensure};

use super::beside_direct::Reads;
use super::until_hit;
use crate::support::frames::{bind_text, execute, parse_typed, query, sync};
use crate::support::{Pair, Version, on_both, rest};

on_both!(
    fields_hit,
    types_are_watched,
    types_altered_beside_freshet,
    settings_are_part_of_the_key,
    code_is_not_served,
    columns_named_as_functions,
    others_pass
);

const SCHEMA: &str = "
    create type mood as enum ('sad', 'ok');
    create domain code as text;
    create type place as (lat numeric, since timestamptz, \"Odd name\" text);
    create type address as (street text, city text, zip code, m mood, at place, tags int[], raw bytea, f float8, took interval, count int);
    create table t (id int primary key, n int, addr address);
    insert into t select i, i % 3, row('Street ' || i, case when i % 2 = 0 then 'Rome' else 'Oslo' end, 'z' || i, 'ok',
        row(i, '2024-03-0' || i || ' 12:00:00+00', 'a,\"b'), array[i, 7], '\\x0102', 0.1::float8 + 0.2, '1 day 2 hours', i)::address
        from generate_series(1, 9) i;
    insert into t values (10, 1, null), (11, 2, row(null, null, null, null, null, null, null, null, null, null));
    create table other (id int primary key, addr address, city text);
    insert into other select id, addr, (addr).city from t where id < 4;
    create view cities as select id, (addr).city as city, addr from t;";

const READS: [&str; 22] = [
    "select addr from t where id = 2",
    "select (addr).city from t where id = 2",
    "select (t.addr).city, (addr).zip, (addr).m from t where n = 1 order by id",
    "select id from t where (addr).city = 'Rome' order by id",
    "select count(*) from t where (addr).at is null",
    "select id from t where addr is null order by id",
    "select id from t where addr is not null order by id",
    "select (addr).at.lat, ((addr).at).\"Odd name\", ((t.addr).at).since from t where id = 3",
    "select (addr).tags[1] from t where id = 4",
    "select id, n from t where addr = (select o.addr from t o where o.id = 5)",
    "select id from t where (addr).city = 'Oslo' and n = 2 order by id",
    "select (addr).city, count(*), max((addr).zip) from t group by 1 order by 1",
    "select distinct addr from t where n = 0 order by addr",
    "select t.id from t join other o on (o.addr).zip = (t.addr).zip order by 1",
    "select t.id from t join other o on o.city = (t.addr).city where o.id = 1 order by 1",
    "select * from t where id = 6",
    "select * from cities where city = 'Rome' order by id",
    "select to_json(addr), addr::text from t where id = 2",
    "select (addr).f, (addr).took, (addr).raw from t where id = 2",
    "select id from t where (addr).at.since > '2024-03-05 00:00:00+00' order by id",
    "select id from t where ((addr).city, n) = ('Rome', 0) order by id",
    "select id from t where exists (select 1 from other where (other.addr).city = (t.addr).city) order by id limit 3",
];

const BOUND: [(&str, &str); 3] = [
    ("select id from t where (addr).city = $1 order by id", "Rome"),
    ("select (addr).city from t where id = $1", "3"),
    ("select (addr).street from t where (addr).tags[1] = $1", "4"),
];

fn reads() -> Reads {
    Reads::new(&READS, &BOUND)
}

fn fields_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    reads().all_hit(&pair)?;
    let mut c = pair.connect()?;
    let changes = [
        "insert into t select 12, 0, addr from t where id = 2",
        "update t set addr.city = 'Rome' where id = 5",
        "update t set addr.city = null where id = 6",
        "update t set addr = null where id = 2",
        "update t set addr.at.lat = 99 where id = 3",
        "update t set addr = row('s', 'Rome', 'z1', 'sad', null, '{4}', null, 1, null, 1) where n = 1",
        "update other set addr.city = 'Rome' where id = 1",
        "delete from t where (addr).city = 'Oslo'",
        "delete from other",
    ];
    for change in changes {
        c.run(change)?;
        reads().same(&pair, &mut c, change)?;
    }
    reads().all_hit(&pair)
}

fn types_are_watched(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let changes = [
        "alter type address add attribute more int",
        "alter type address drop attribute raw",
        "alter type address rename attribute city to town",
        "alter type address rename attribute town to city",
        "alter type place add attribute lon numeric",
        "alter type place rename attribute lat to latitude",
        "alter type place rename attribute latitude to lat",
        "alter type mood rename value 'ok' to 'fine'",
        "alter type mood rename value 'fine' to 'ok'",
        "alter type address rename to location",
        "alter type location drop attribute count",
    ];
    let mut c = pair.connect()?;
    for change in changes {
        let read = "select addr from t where id = 2";
        until_hit(&pair, &mut c, read)?;
        until_hit(&pair, &mut c, "select (addr).street, (addr).at from t where n = 1 order by id")?;
        for read in READS {
            c.exchange(&query(read), 1)?;
        }
        c.run(change)?;
        reads().same(&pair, &mut c, change)?;
    }
    until_hit(&pair, &mut c, "select addr from t where id = 2")
}

/// `ALTER TYPE` directly at the server, with event triggers and without them.
fn types_altered_beside_freshet(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let reads = Reads::new(&["select addr from t where id = 2", "select to_json(addr) from t where id = 3"], &[]);
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    for triggers in ["with event triggers", "without"] {
        if triggers == "without" {
            direct.run("drop event trigger if exists freshet_ddl_end")?;
            // That empties the cache, once.
            rest();
        }
        for change in [
            "alter type address add attribute more int",
            "alter type address drop attribute more",
            "alter type place rename attribute lat to latitude",
            "alter type place rename attribute latitude to lat",
        ] {
            reads.all_hit(&pair)?;
            direct.run(change)?;
            rest();
            reads.same(&pair, &mut c, &format!("{change}, {triggers}"))?;
        }
    }
    reads.all_hit(&pair)
}

/// How the fields are printed depends on them.
fn settings_are_part_of_the_key(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    reads().all_hit(&pair)?;
    for set in [
        "set datestyle = 'German'",
        "set intervalstyle = 'iso_8601'",
        "set bytea_output = 'escape'",
        "set timezone = 'Asia/Tokyo'",
        "set extra_float_digits = -5",
    ] {
        let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
        for client in [&mut c, &mut direct] {
            client.run(set)?;
        }
        for _ in 0..3 {
            for read in READS {
                let (expected, got) = (direct.exchange(&query(read), 1)?, c.exchange(&query(read), 1)?);
                ensure!(expected == got, "{read} after {set}:\n  expected {expected:?}\n  got {got:?}");
            }
        }
        until_hit(&pair, &mut c, "select addr from t where id = 2")?;
    }
    Ok(())
}

/// Made beside the type: functions by the names of fields, casts, operators, operator classes.
fn code_is_not_served(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    let steps = [
        "create table rate (v text); insert into rate values ('one');
         create function nothing(address) returns text language sql stable as 'select v from rate'",
        "create function lat(address) returns text language sql stable as 'select v from rate'",
        "create function city(address) returns text language sql stable as 'select v from rate'",
        "create function as_text(address) returns text language sql stable as 'select v from rate';
         create cast (address as text) with function as_text(address)",
        "create function same(address, address) returns boolean language sql stable as 'select count(*) = 1 from rate';
         create operator = (leftarg = address, rightarg = address, function = same)",
    ];
    let reads = [
        "select addr.nothing from t addr where id = 2",
        "select (addr).nothing from t where id = 2",
        "select (addr).lat from t where id = 2",
        "select city(addr) from t where id = 2",
        "select (addr).city from t where id = 2",
        "select addr::text from t where id = 2",
        "select (addr).text from t where id = 2",
        "select id from t where addr = (select addr from t where id = 2) order by id",
        "select count(addr) from t",
        "select count(t) from t",
    ];
    for step in steps {
        c.run(step)?;
        let mut direct = pair.database.connect()?;
        for change in
            ["update rate set v = v || '+'", "insert into rate values ('two')", "delete from rate where v = 'two'"]
        {
            for _ in 0..2 {
                for read in reads {
                    let (expected, got) = (direct.exchange(&query(read), 1)?, c.exchange(&query(read), 1)?);
                    ensure!(expected == got, "{read} after {step}:\n  expected {expected:?}\n  got {got:?}");
                }
            }
            c.run(change)?;
        }
    }
    Ok(())
}

/// `max(t)` is the column of that name, if there is no such function of a whole row (PostgreSQL 18 has one).
fn columns_named_as_functions(version: Version) -> Result<()> {
    let made = "create table w (id int primary key, max int, min int, sum int, count int, avg int, lower text, length text, n int);
        insert into w select i, 10 - i, i, i, i, i, 'L' || i, 'X' || i, i % 3 from generate_series(1, 9) i";
    let pair = Pair::new(version, made)?;
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    let reads = [
        "select max(w) from w",
        "select max(w) from w where id < 4",
        "select max(w) from w order by id limit 2",
        "select max(w) from w where n = 1 order by id limit 2",
        "select min(w) from w where id = 3",
        "select sum(w) from w where n = 1 order by id",
        "select avg(w) from w where id in (2, 3) order by id",
        "select count(w) from w where n = 2",
        "select lower(w) from w where id = 3",
        "select id from w where length(w) = 'X4'",
        "select id from w where lower(w) = 'L4' order by max(w) limit 1",
        "select max(max(w)) from w where n = 2",
        "select max(x) from (select w as x from w where id < 4) s",
        "select n, max(w) from w group by n, max(w) order by 1, 2",
        "select id from w group by id having max(w) > 3 order by id",
        "select w.max from w where id = 2",
    ];
    for change in [
        "update w set max = 50 where id = 3",
        "update w set min = 50 where id = 3",
        "update w set sum = 1, avg = 3 where n = 1",
        "update w set lower = 'L4', length = 'X4' where id = 5",
        "update w set max = 0 where id = 5",
        "insert into w values (0, 3, 3, 3, 3, 3, 'L4', 'X4', 1)",
        "insert into w values (20, 3, 3, 3, 3, 3, 'L4', 'X4', 2)",
        "update w set count = null, length = null where id = 8",
        "delete from w where id < 3",
    ] {
        for _ in 0..3 {
            for read in reads {
                let (expected, got) = (direct.exchange(&query(read), 1)?, c.exchange(&query(read), 1)?);
                ensure!(expected == got, "{read} before {change}:\n  expected {expected:?}\n  got {got:?}");
            }
        }
        c.run(change)?;
        for read in reads {
            let (expected, got) = (direct.exchange(&query(read), 1)?, c.exchange(&query(read), 1)?);
            ensure!(expected == got, "{read} after {change}:\n  expected {expected:?}\n  got {got:?}");
        }
    }
    until_hit(&pair, &mut c, "select w.max from w where id = 4")
}

/// Types with other fields, and what cannot be known.
fn others_pass(version: Version) -> Result<()> {
    let made = "
        create function allows(text) returns boolean language sql stable as 'select true';
        create domain checked as text check (allows(value));
        create type with_check as (a checked); create type with_span as (a int);
        create type span as range (subtype = float8);
        create type of_span as (a span); create type of_zone as (a timetz); create type of_many as (a with_span[]);
        create table held (id int primary key, c with_check, s of_span, z of_zone, m of_many, many with_span[], r regclass);
        create type of_name as (a regclass); create table named (id int primary key, o of_name);
        create table dated (id int primary key, addr address); insert into dated select id, addr from t;
        insert into held values (1); insert into named values (1, row('t'::regclass));";
    let pair = Pair::new(version, &[SCHEMA, made].concat())?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let oid: u32 = pair.database.connect()?.value("select 'address'::regtype::oid")?.parse()?;
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    until_hit(&pair, &mut c, "select addr from t where id = 2")?;
    let typed = |sql: &str, value: &str| {
        [parse_typed("", sql, &[oid]), bind_text("", "", &[value]), execute("", 0), sync()].concat()
    };
    for (read, reason) in [
        (query("select c from held"), "user_type"),
        (query("select (o).a from named"), "construct"),
        (query("select o from named"), "construct"),
        (query("select (addr).* from t where id = 2"), "not_parsed"),
        (query("select coalesce(addr, '(a,b,c,ok,\"(1,now,x)\",,,,,1)') from dated where id = 10"), "clock_literal"),
        (query("select count(addr) from t where id = 2"), "construct"),
        (typed("select id from t where addr = $1", "(a,b,c,ok,\"(1,now,x)\",,,,,1)"), "clock_literal"),
    ] {
        let before = pair.freshet.metrics()?;
        for _ in 0..3 {
            let (expected, got) = (direct.exchange(&read, 1)?, c.exchange(&read, 1)?);
            ensure!(reason == "clock_literal" || expected == got, "{}", read.escape_ascii());
        }
        let after = pair.freshet.metrics()?;
        let passed = after.passed_since(&before);
        let label = format!("reason=\"{reason}\"");
        ensure!(passed.iter().any(|line| line.contains(&label)), "{}: {passed:?}", read.escape_ascii());
        ensure!(after.hits() == before.hits(), "{} hits", read.escape_ascii());
    }
    until_hit(&pair, &mut c, "select addr from t where id = 2")
}
