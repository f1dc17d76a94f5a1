//! Code and names that are not in a statement's text: casts, operators that syntax looks up, operator classes, and values that print the names of
//! other objects. Each answer is the database's own after the objects behind it have changed; statements that are only similar are served from the
//! cache as before.

use anyhow::{Result, ensure};

use super::until_hit;
use crate::support::frames::{bind_text, execute, parse_typed, query, sync};
use crate::support::{Pair, RawClient, Version, on_both, rest};

on_both!(
    functions_behind_casts,
    functions_behind_implicit_casts,
    functions_behind_json,
    clocks_behind_casts,
    casts_that_run_the_servers_code_only,
    functions_behind_operators,
    functions_behind_types,
    functions_behind_operator_classes,
    names_of_other_objects,
    names_in_parameters,
);

/// What functions read, and what they are called for.
const RATES: &str = "
    create table rate (k varchar(9) primary key, v int); insert into rate values ('a', 1), ('b', 2), ('now', 3);
    create table sale (id int primary key, k varchar(9), ks varchar(9)[], n int, t text);
    insert into sale values (1, 'a', '{a,b}', 1, 'a'), (2, 'b', '{b}', 2, 'b');
    create domain code as varchar(9); create table coded (id int primary key, c code); insert into coded values (1, 'a');
    create table plain (id int primary key, n bigint); insert into plain values (1, 1), (2, 2);
    create type mood as enum ('sad', 'happy'); create table moods (id int primary key, m mood); insert into moods values (1, 'sad');
    create function to_code(varchar) returns int language sql stable as 'select v from rate where k = $1';
    create function to_code(text) returns int language sql stable as 'select v from rate where k = $1';
    create function to_code(int, varchar) returns boolean language sql stable as 'select v = $1 from rate where k = $2';";

/// What follows is changed by it.
const CHANGE: &str = "update rate set v = case when v < 100 then v + 100 else v - 100 end";

/// Asks a few times, so that whatever may be cached is.
fn warm(client: &mut RawClient, reads: &[Vec<u8>]) -> Result<()> {
    for _ in 0..3 {
        for read in reads {
            client.exchange(read, 1)?;
        }
        rest();
    }
    Ok(())
}

/// After each of the changes each read is answered as by the database: at once, and when the cache serves again.
fn stay_true(pair: &Pair, reads: &[(&str, Vec<u8>)], changes: &[&str]) -> Result<()> {
    let (mut direct, mut through) = (pair.database.connect()?, pair.connect()?);
    direct.run("create table public.canary (id int primary key); insert into public.canary values (1)")?;
    let messages: Vec<Vec<u8>> = reads.iter().map(|(_, messages)| messages.clone()).collect();
    for change in changes {
        until_hit(pair, &mut through, "select id from public.canary")?;
        warm(&mut through, &messages)?;
        through.run(change)?;
        same_answers(reads, change, &mut direct, &mut through)?;
        until_hit(pair, &mut through, "select id from public.canary")?;
        same_answers(reads, change, &mut direct, &mut through)?;
    }
    Ok(())
}

fn same_answers(
    reads: &[(&str, Vec<u8>)],
    change: &str,
    direct: &mut RawClient,
    through: &mut RawClient,
) -> Result<()> {
    let mut wrong = Vec::new();
    for (read, messages) in reads {
        let (expected, got) = (direct.exchange(messages, 1)?, through.exchange(messages, 1)?);
        let failed = change == CHANGE && expected.iter().any(|message| message.tag == b'E');
        if failed || expected != got {
            wrong.push(format!("{read}\n   expected {expected:?}\n   got      {got:?}"));
        }
    }
    ensure!(wrong.is_empty(), "after {change}:\n  {}", wrong.join("\n  "));
    Ok(())
}

fn asked<'a>(reads: &[&'a str]) -> Vec<(&'a str, Vec<u8>)> {
    reads.iter().map(|sql| (*sql, query(sql))).collect()
}

/// These reads follow the rates, and those are answered from the cache.
fn follow_rates(version: Version, schema: &str, reads: &[&str], cached: &[&str]) -> Result<()> {
    let pair = Pair::new(version, &[RATES, schema].concat())?;
    let mut client = pair.connect()?;
    for sql in cached {
        until_hit(&pair, &mut client, sql)?;
    }
    // Nor do casts disturb what Freshet itself asks, in the application's DDL, too.
    stay_true(&pair, &asked(reads), &[CHANGE, "alter table plain add column more int", CHANGE])
}

fn functions_behind_casts(version: Version) -> Result<()> {
    let schema = "create cast (varchar as integer) with function to_code(varchar);
        create cast (text as integer) with function to_code(text);
        create function of_row(sale) returns int language sql stable as 'select v from rate where k = $1.k';
        create cast (sale as integer) with function of_row(sale);
        create view code_of as select id, k::int as v from sale; create view texts as select id, lower(k) as l from sale;";
    let reads = [
        "select sum(k::int) from sale",
        "select cast(k as int) from sale where id = 1",
        "select ks::int[] from sale where id = 1",
        "select (ks[1])::int from sale where id = 1",
        "select array(select k from sale order by id)::int[] from plain where id = 1",
        "select c::int from coded",
        "select (select k from sale where id = 1)::int from plain where id = 1",
        "select x::int from (select k as x from sale where id = 1) q",
        "with q as (select coalesce(k, 'b') as x from sale) select min(x::int) from q",
        "select id from sale where k::int = 101",
        "select id from sale order by k::int % 100, id limit 1",
        "select lower(k)::int from sale where id = 1",
        "select (k || '')::int from sale where id = 1",
        "select (case when id = 1 then 'a' else 'b' end)::int from plain order by id",
        "select (string_to_array('a,b', ','))[1]::int from plain where id = 1",
        "select v from code_of where id = 1",
        "select l::int from texts where id = 1",
        "select s::int from sale s where id = 1",
        "select 'a'::varchar::int, n from plain where id = 1",
    ];
    let cached = [
        "select n::int from plain where id = 1",
        "select n::numeric, id from sale where id = 1",
        "select k, t, ks from sale where id = 1",
        "select id from sale where k = 'a'",
        "select id, n from sale where t = 'b' and lower(k) = 'b'",
        "select * from coded",
    ];
    follow_rates(version, schema, &reads, &cached)?;
    typed_parameters(version)
}

/// A parameter of the type that is cast.
fn typed_parameters(version: Version) -> Result<()> {
    let pair =
        Pair::new(version, &[RATES, "create cast (varchar as integer) with function to_code(varchar);"].concat())?;
    let typed = |sql: &'static str, values: &[&str], types: &[u32]| {
        (sql, [parse_typed("", sql, types), bind_text("", "", values), execute("", 0), sync()].concat())
    };
    let reads = [
        typed("select id, $1::int from plain where id = 1", &["a"], &[1043]),
        typed("select id, $1::int[] from plain where id = 1", &["{a,b}"], &[1015]),
        typed("select id from plain where n = $1::int % 100", &["a"], &[1043]),
    ];
    stay_true(&pair, &reads, &[CHANGE, CHANGE])
}

fn functions_behind_implicit_casts(version: Version) -> Result<()> {
    let schema = "create cast (varchar as integer) with function to_code(varchar) as implicit;";
    let reads = [
        "select id from sale where k = 101",
        "select id from sale where n + 100 = k",
        "select id from sale where k in (101, 7)",
        "select id from sale where k between 101 and 150",
        "select s.id from sale s join plain p on s.k = p.n + 100",
        "select count(*) from sale where k > n",
        "select row_number() over (order by k + n) from sale",
        "select repeat('x', k) from sale where id = 1",
        "select id from plain order by id limit (select k % 2 from sale where id = 1)",
        "select c + 0 from coded",
    ];
    let cached =
        ["select n from plain where id = 1", "select id, n from sale where t = 'a'", "select count(*) from plain"];
    follow_rates(version, schema, &reads, &cached)
}

fn functions_behind_json(version: Version) -> Result<()> {
    let schema = "create function of_mood(mood) returns json language sql stable as $$ select to_json(v) from rate where k = 'a' $$;
        create cast (mood as json) with function of_mood(mood);
        create function of_mood_b(mood) returns jsonb language sql stable as $$ select to_jsonb(v) from rate where k = 'a' $$;
        create cast (mood as jsonb) with function of_mood_b(mood);
        create domain humour as mood; create table humours (id int primary key, h humour); insert into humours values (1, 'sad');
        create view seen as select to_json(m) as j from moods;";
    let reads = [
        "select to_json(m) from moods",
        "select row_to_json(moods) from moods",
        "select row_to_json(q) from (select id, m from moods) q",
        "select json_agg(m) from moods",
        "select json_agg(moods) from moods",
        "select json_build_object('m', m) from moods",
        "select json_object_agg(id, m) from moods",
        "select json_build_array(m, id) from moods",
        "select array_to_json(array_agg(m)) from moods",
        "select to_json(array[m]) from moods",
        "select to_json(h) from humours",
        "select to_jsonb(m), jsonb_agg(m) from moods group by m",
        "select jsonb_build_object('m', m) from moods",
        "select j from seen",
        "select m::json::text from moods",
    ];
    let cached = [
        "select m from moods where id = 1",
        "select row_to_json(plain) from plain where id = 1",
        "select json_build_object('id', id) from moods",
        "select id from moods where m = 'sad'",
    ];
    follow_rates(version, schema, &reads, &cached)
}

/// 'now' in the data.
fn clocks_behind_casts(version: Version) -> Result<()> {
    let schema = "create cast (text as timestamptz) with inout as implicit;
        create table said (id int primary key, s text); insert into said values (1, 'now');";
    let pair = Pair::new(version, &[RATES, schema].concat())?;
    let mut client = pair.connect()?;
    for sql in [
        "select age(s, timestamptz '2020-01-01') from said",
        "select extract(epoch from age(lower(s), timestamptz '2020-01-01')) from said",
        "select s - timestamptz '2020-01-01' from said",
    ] {
        let first = client.value(sql)?;
        for _ in 0..3 {
            rest();
            client.query(sql)?;
        }
        ensure!(client.value(sql)? != first, "{sql}: the time did not change");
    }
    until_hit(&pair, &mut client, "select n from plain where id = 1")?;
    until_hit(&pair, &mut client, "select id, n from sale where k = 'a'")?;
    // A declared parameter is read as what it is declared.
    let sql = "select $1, id from plain where id = 1";
    let read = [parse_typed("", sql, &[1184]), bind_text("", "", &["now"]), execute("", 0), sync()].concat();
    let first = client.exchange(&read, 1)?;
    for _ in 0..3 {
        rest();
        client.exchange(&read, 1)?;
    }
    ensure!(client.exchange(&read, 1)? != first, "{sql}: the time did not change");
    Ok(())
}

/// Such as Hibernate's users make: they do what a cast in the text would.
fn casts_that_run_the_servers_code_only(version: Version) -> Result<()> {
    let schema = "create cast (varchar as mood) with inout as implicit;
        create cast (varchar as bigint) with inout as assignment; create cast (text as integer) with inout as implicit;
        update pg_cast set castcontext = 'a' where castsource = 'int4'::regtype and casttarget = 'bool'::regtype;
        update sale set t = id;";
    let pair = Pair::new(version, &[RATES, schema].concat())?;
    let mut client = pair.connect()?;
    let reads = [
        "select id from moods where m = 'sad' order by 1",
        "select id, m::text from moods order by 1",
        "select id from sale where n = t order by 1",
        "select s.id from sale s join moods m on m.id = s.t order by 1",
        "select id from sale where n order by 1",
        "select id from sale where t = '2' or n = 1 order by 1",
    ];
    for sql in &reads {
        client.query(sql)?;
        until_hit(&pair, &mut client, sql)?;
    }
    let changes = [
        "insert into moods values (2, 'happy'), (3, 'sad')",
        "insert into sale values (3, 'sad', null, 0, '2'), (4, 'happy', null, 1, null)",
        "update sale set n = 2 - n, t = '2'",
    ];
    stay_true(&pair, &asked(&reads), &changes)
}

fn functions_behind_operators(version: Version) -> Result<()> {
    let schema = "create operator = (leftarg = int, rightarg = varchar, function = to_code);
        create operator !~~ (leftarg = int, rightarg = varchar, function = to_code);";
    let reads = [
        "select nullif(id + 100, k) from sale order by id",
        "select case id + 100 when k then 'x' else 'y' end from sale order by id",
        "select id + 100 in (k, 'zz'::varchar) from sale order by id",
        "select id + 100 = any (ks) from sale order by id",
        "select id + 100 is distinct from k from sale order by id",
        "select id from plain where id + 100 in (select k from sale) order by 1",
        "select id + 100 not like k from sale order by id",
    ];
    let pair = Pair::new(version, &[RATES, schema].concat())?;
    let bound = asked(&reads);
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, "select id, n from sale where n > 0 order by n, k")?;
    until_hit(&pair, &mut client, "select max(n), count(distinct k) from sale group by t")?;
    // Which of them the server takes depends on the other operators of the name.
    stay_true(&pair, &bound, &[CHANGE, CHANGE, CHANGE])
}

/// Functions and operators for types whose values a statement may hold: domains, rows, arrays; and in the server's own schema.
fn functions_behind_types(version: Version) -> Result<()> {
    let schema = "create function lower(code) returns text language sql stable as 'select v::text from rate where k = $1';
        create function upper(sale) returns text language sql stable as 'select v::text from rate where k = $1.k';
        create function array_length(mood[], int) returns int language sql stable as $$ select v from rate where k = 'a' $$;
        create function pg_catalog.sign(varchar) returns int language sql stable as 'select v from public.rate where k = $1';
        create function same(sale, int) returns boolean language sql stable as 'select v = $2 from rate where k = $1.k';
        create operator = (leftarg = sale, rightarg = int, function = same);
        create function same(code, int) returns boolean language sql stable as 'select v > $2 from rate where k = $1';
        create operator > (leftarg = code, rightarg = int, function = same);";
    let reads = [
        "select lower(c) from coded",
        "select upper(s) from sale s order by id",
        "select array_length(array_agg(m), 1) from moods",
        "select sign(k) from sale order by id",
        "select s = 101 from sale s order by id",
        "select nullif(s, 101) is null from sale s order by id",
        "select c > 50 from coded",
        "select p.upper from sale as p(a, b) order by 1",
    ];
    follow_rates(version, schema, &reads, &["select k, n from sale where t < 'x'", "select * from coded"])
}

fn functions_behind_operator_classes(version: Version) -> Result<()> {
    let schema = "create function turned() returns boolean language sql stable as $$ select v > 100 from rate where k = 'a' $$;
        create function cmp(varchar, varchar) returns int language sql stable as
            'select case when turned() then bttextcmp($2, $1) else bttextcmp($1, $2) end';
        create function lt(varchar, varchar) returns boolean language sql stable as 'select cmp($1, $2) < 0';
        create function le(varchar, varchar) returns boolean language sql stable as 'select cmp($1, $2) <= 0';
        create function eq(varchar, varchar) returns boolean language sql stable as 'select cmp($1, $2) = 0';
        create function ge(varchar, varchar) returns boolean language sql stable as 'select cmp($1, $2) >= 0';
        create function gt(varchar, varchar) returns boolean language sql stable as 'select cmp($1, $2) > 0';
        create operator <<< (leftarg = varchar, rightarg = varchar, function = lt, commutator = >>>);
        create operator <<= (leftarg = varchar, rightarg = varchar, function = le);
        create operator === (leftarg = varchar, rightarg = varchar, function = eq);
        create operator >>= (leftarg = varchar, rightarg = varchar, function = ge);
        create operator >>> (leftarg = varchar, rightarg = varchar, function = gt);
        create operator class turning default for type varchar using btree as operator 1 <<<, operator 2 <<=, operator 3 ===,
            operator 4 >>=, operator 5 >>>, function 1 cmp(varchar, varchar);";
    let reads = [
        "select k from sale order by k",
        "select k from sale order by k limit 1",
        "select greatest(k, 'ab'::varchar) from sale where id = 1",
        "select distinct k from sale order by 1",
        "select row_number() over (order by k), id from sale order by id",
        "select array_agg(k order by k) from sale",
        "select * from sale order by ks",
        "select c from coded union select k from sale order by 1",
    ];
    follow_rates(version, schema, &reads, &["select t, id from sale order by t", "select n from plain order by n"])
}

const NAMES: &str = "create schema early; create table job (id int);
    create function work(int) returns int language sql as 'select 1'; create function work_of(job) returns int language sql as 'select 1';
    create type kind as enum ('x'); create collation rule from \"C\";
    create text search configuration words (copy = simple); create text search dictionary own (template = simple);
    create domain named as regclass; create domain several as regclass[];
    create table watched (id int primary key, note text, t regclass, ts regclass[], d named, ds several, ty regtype, p regproc,
        pd regprocedure, ro regrole, ns regnamespace, co regcollation, cf regconfig, di regdictionary);
    insert into watched values (1, 'one', 'job', '{job}', 'job', '{job}', 'job', 'work', 'work_of(job)', current_user::regrole, 'early', 'rule', 'words', 'own');
    create view seen as select id, t as shown from watched;
    create view typed as select id, t::text as shown from watched;
    create materialized view kept as select id, t, note from watched;
    create table parts (id int primary key, t regclass) partition by range (id);
    create table part_1 partition of parts for values from (0) to (10); insert into parts values (1, 'job');";

fn names_of_other_objects(version: Version) -> Result<()> {
    let pair = Pair::new(version, NAMES)?;
    let name = &pair.database.name;
    pair.database.run(&format!("alter database {name} set search_path = early, public"))?;
    let reads = [
        "select t from watched",
        "select * from watched",
        "select ts, d, ds from watched",
        "select ty from watched",
        "select p, pd from watched",
        "select ro, ns from watched",
        "select co from watched",
        "select cf, di from watched",
        "select t::text from watched",
        "select concat(t, '!'), t || '!' from watched",
        "select to_json(t), json_agg(t), json_build_object('t', t) from watched group by t",
        "select row_to_json(watched) from watched",
        "select row_to_json(q) from (select t, id from watched) q",
        "select watched from watched",
        "select watched::text from watched",
        "select count(*) from watched where t::text = 'job'",
        "select max(t::text), string_agg(format('%s', t), ',') from watched",
        "select array_to_string(ts, ',') from watched",
        "select x from (select t as x from watched) q",
        "with q as (select t from watched) select t from q",
        "select shown from seen",
        "select shown from typed",
        "select t from kept",
        "select t from parts",
        "select id from watched where t = 'job'",
    ];
    let changes = [
        "alter table job rename to job_old",
        "alter table job_old rename to job",
        "alter table job set schema early",
        "alter table early.job set schema public",
        "create table early.job (id int)",
        "drop table early.job",
        "create view early.job as select 1 as id",
        "drop view early.job",
        "alter function work(int) rename to labour",
        "create function early.labour(int) returns int language sql as 'select 2'",
        "alter schema early rename to late",
        "alter collation rule rename to ruler",
        "alter text search configuration words rename to more",
        "alter text search dictionary own rename to other",
        "create type public.job_type as enum ('y')",
        "drop table job cascade",
    ];
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, "select note from watched where id = 1")?;
    until_hit(&pair, &mut client, "select cf, note from watched")?;
    stay_true(&pair, &asked(&reads), &changes)
}

/// A name that is read as an object when the statement runs.
fn names_in_parameters(version: Version) -> Result<()> {
    let schema =
        "create table job (id int); create table spare (id int); create table seen (id int primary key, o oid);
        insert into seen select 1, 'job'::regclass::oid union select 2, 'spare'::regclass::oid";
    let pair = Pair::new(version, schema)?;
    let typed = |sql: &'static str, value: &str, oid: u32| {
        (sql, [parse_typed("", sql, &[oid]), bind_text("", "", &[value]), execute("", 0), sync()].concat())
    };
    let reads = [
        typed("select id from seen where o = $1", "job", 2205),
        typed("select id, $1 from seen where id = 1", "job", 2205),
        typed("select id from seen where o = any ($1)", "{job}", 2210),
    ];
    let changes = [
        "alter table job rename to x; alter table spare rename to job",
        "alter table job rename to spare; alter table x rename to job",
    ];
    stay_true(&pair, &reads, &changes)
}
