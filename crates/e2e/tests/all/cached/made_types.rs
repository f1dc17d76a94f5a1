//! Types whose values run code when they are created: domains with a check that calls a function, casts by functions to user-defined types. All
//! sessions see what such code writes once the statement is acknowledged, and what it reads makes no answer stale. Types that run only built-in code
//! are served from the cache as before.

use anyhow::{Result, ensure};
use freshet_testbed::{Settings, process};

use super::until_hit;
use crate::support::frames::{bind_text, execute, parse, parse_typed, query, sync};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    what_types_write_is_seen,
    what_types_read_is_no_part_of_an_answer,
    domains_altered_beside_freshet,
    types_of_the_servers_own_code_hit,
);

const SCHEMA: &str = "
    create table t (id int primary key, v int); insert into t select i, i from generate_series(1, 20) i;
    create function writes(int) returns boolean language plpgsql as
        $$ begin update public.t set v = v + 1 where id = $1; return true; end $$;
    create domain checked as int check (writes(value)); create domain \"Deep\" as checked;
    create type pair as (a checked); create type span as range (subtype = checked);
    create table many (id int primary key, d checked[]);
    create table held (id int primary key, d checked); insert into held values (1, null);
    create function equals(text, text) returns boolean language plpgsql as
        $$ begin update public.t set v = v + 1 where id = 1; return true; end $$;
    create operator === (leftarg = text, rightarg = text, function = equals);
    create domain compared as text check (value operator(public.===) 'x');
    create type mood as enum ('a', 'b');
    create function to_mood(int) returns mood language plpgsql as
        $$ begin update public.t set v = v + 1 where id = 1; return 'a'; end $$;
    create cast (int as mood) with function to_mood(int);
    create view casting as select 1::checked as c, 5 as k;
    create function touch(t) returns int language plpgsql as
        $$ begin update public.t set v = v + 1 where id = 1; return 1; end $$;
    create domain positive as int check (value > 0);
    create table a2 (id int primary key, touch int); insert into a2 values (1, 7);
    create function touch_all(variadic t[]) returns int language plpgsql as
        $$ begin update public.t set v = v + 1 where id = 1; return 1; end $$;
    create domain age as checked; create domain \"Élan\" as checked;
    create function compares(text, text) returns int language plpgsql as
        $$ begin update public.t set v = v + 1 where id = 1; return bttextcmp($1, $2); end $$;
    create operator class compared_ops for type text using btree as operator 1 <, operator 2 <=, operator 3 =, operator 4 >=,
        operator 5 >, function 1 compares(text, text);
    create type text_range as range (subtype = text, subtype_opclass = compared_ops);";

const READ: &str = "select v from t where id = 1";

/// Each writes once.
const WRITES: [&str; 39] = [
    "select 1::checked",
    "select cast('1' as public.checked)",
    "select checked '1'",
    "select 1 + public.checked '1'",
    "select 1 + checked E'1' as x",
    "select '{1}'::checked[]",
    "select array[1]::checked[]",
    "select '(1)'::pair",
    "select row(1)::pair",
    "select '[1,1]'::span",
    "select 1::\"Deep\"",
    "values (1::checked)",
    "select x.a from json_to_record('{\"a\":1}') as x(a checked)",
    "select * from jsonb_to_recordset('[{\"a\":1}]') as x(a checked, b text)",
    "select 'x'::compared",
    "select 1::mood",
    "select array[1]::mood[]",
    "select c from casting",
    "select t.touch from t where t.id = 1",
    "select (t).touch from t where id = 1",
    "prepare p as select 1::checked; execute p; deallocate p",
    "create temp table made as select 1::checked as a; drop table made",
    "select array_agg(d) = '{1}' from held",
    "select pg_catalog.array_agg(d) = '{1}' from held",
    "select array(select d from held) = '{1}'",
    "select percentile_disc('{0.5}'::float8[]) within group (order by d) = '{1}' from held",
    "select pg_catalog.pg_notify('c', 'x'), 1::checked",
    "select a2.touch, t.touch from a2 join t using (id)",
    "select t.touch_all from t where id = 1",
    "select age('1')",
    "select '1'::\"Élan\"",
    "select '[a,b]'::text_range",
    "select coalesce(h, '(1,1)') from held h",
    "select coalesce(held.*, '(1,1)') from held",
    "select greatest(h, '(1,1)') from public.held as h",
    "select case when h.id = 1 then h else '(1,1)' end from held h",
    "select id from held h where h in ('(1,1)', '(2,1)')",
    "select h from held h union all select '(1,1)'",
    "values ((select h from held h)), ('(1,1)')",
];

fn forms(pair: &Pair, version: Version) -> Result<Vec<(String, Vec<u8>)>> {
    let oid: u32 = pair.database.connect()?.value("select 'checked'::regtype::oid")?.parse()?;
    let mut forms: Vec<_> = WRITES.iter().map(|sql| ((*sql).to_owned(), query(sql))).collect();
    let mut bound = |sql: &str, types: &[u32]| {
        let messages = [parse_typed("", sql, types), bind_text("", "", &["1"]), execute("", 0), sync()];
        forms.push((format!("{sql}, bound, {types:?}"), messages.concat()));
    };
    bound("select $1::checked", &[]);
    bound("select $1", &[oid]);
    bound("select v from t where id = $1 + 1", &[oid]);
    bound("select v from t where id = 2", &[oid]);
    for sql in [
        "select '{1}'::checked[]",
        "select array_agg(d) = '{1}' from held",
        "select * from held where array[d] = '{1}'",
        "select coalesce(h, '(1,1)') from held h",
        "insert into many values (7, '{1}')",
        "insert into public.\"many\" (\"d\", id) values ('{1}', 8) returning id",
        "update many set d = '{1}' where id = 9",
        "explain insert into many values (7, '{1}')",
        "with \"Q\" as (values ('{1}'::checked[])) select * from \"Q\"",
        "with \"Q\" (\"C\") as (values (1, '{1}'::\"public\".\"checked\"[])) table \"Q\"",
    ] {
        forms.push((format!("{sql}, at Parse"), [parse("", sql), sync()].concat()));
    }
    if version != Version::V15 {
        for sql in [
            "select * from json_table('[1]', '$[*]' columns (a checked path '$'))",
            "select json_value('1', '$' returning checked)",
        ] {
            forms.push((sql.to_owned(), query(sql)));
        }
    }
    Ok(forms)
}

fn what_types_write_is_seen(version: Version) -> Result<()> {
    let pair = Pair::over(Database::create(version.start(&Settings::default())?)?, SCHEMA, &[])?;
    let (mut writer, mut other) = (pair.connect()?, pair.connect()?);
    let mut wrong = Vec::new();
    for (what, messages) in forms(&pair, version)? {
        until_hit(&pair, &mut writer, READ)?;
        wrong.extend(seen_by_others(&pair, &what, &messages, (&mut writer, &mut other))?);
        until_hit(&pair, &mut writer, READ)?;
        writer.run("begin")?;
        writer.exchange(&messages, 1)?;
        let seen = writer.value(READ)?;
        writer.run("commit")?;
        let after = pair.database.connect()?.value(READ)?;
        if seen != after {
            wrong.push(format!("{what}, in a block: {seen}, not {after}"));
        }
    }
    // Before anything is known of a session.
    other.run(
        "create function to_code(varchar) returns int language plpgsql as
            $$ begin update public.t set v = v + 1 where id = 1; return 1; end $$;
        create cast (varchar as int) with function to_code(varchar);
        create function upper(int) returns int language plpgsql as
            $$ begin update public.t set v = v + 1 where id = 1; return 1; end $$;",
    )?;
    for sql in ["select 1::checked", "select 'a'::varchar::int", "select upper(1)"] {
        let what = format!("{sql}, first");
        wrong.extend(seen_by_others(&pair, &what, &query(sql), (&mut pair.connect()?, &mut other))?);
    }
    wrong.extend(types_that_are_new(&pair, &mut writer, &mut other)?);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Types that were made beside Freshet, which has not been told of them.
fn types_that_are_new(pair: &Pair, writer: &mut RawClient, other: &mut RawClient) -> Result<Vec<String>> {
    let mut direct = pair.database.connect()?;
    let mut wrong = Vec::new();
    for number in 0..3 {
        until_hit(pair, writer, READ)?;
        until_hit(pair, other, READ)?;
        let walsender = pair.freshet.is_there().then(|| super::walsender(pair)).transpose()?;
        walsender.map(process::pause).transpose()?;
        let made = format!("create domain new{number} as int check (public.writes(value))");
        let asked = direct.run(&made).and_then(|()| {
            let oid: u32 = direct.value(&format!("select 'new{number}'::regtype::oid"))?.parse()?;
            let messages = match number {
                0 => query("select 1::new0"),
                1 => [parse("", "select '{1}'::new1[]"), sync()].concat(),
                _ => [parse_typed("", "select $1", &[oid]), bind_text("", "", &["1"]), execute("", 0), sync()].concat(),
            };
            writer.exchange(&messages, 1)?;
            other.value(READ)
        });
        walsender.map(process::resume).transpose()?;
        let (seen, after) = (asked?, direct.value(READ)?);
        if seen != after {
            wrong.push(format!("{made}: {seen}, not {after}"));
        }
    }
    Ok(wrong)
}

/// What is wrong if another session does not see at once what these messages write.
fn seen_by_others(
    pair: &Pair,
    what: &str,
    messages: &[u8],
    (writer, other): (&mut RawClient, &mut RawClient),
) -> Result<Option<String>> {
    let mut direct = pair.database.connect()?;
    until_hit(pair, other, READ)?;
    let before = direct.value(READ)?;
    // Nobody is told of the change, unless who writes waits for it.
    let walsender = pair.freshet.is_there().then(|| super::walsender(pair)).transpose()?;
    walsender.map(process::pause).transpose()?;
    let seen = writer.exchange(messages, 1).and_then(|answer| Ok((answer, other.value(READ)?)));
    walsender.map(process::resume).transpose()?;
    let (answer, seen) = seen?;
    let after = direct.value(READ)?;
    let failed = answer.iter().find(|message| message.tag == b'E');
    ensure!(failed.is_none() && after != before, "{what} writes nothing: {answer:?}");
    Ok((seen != after).then(|| format!("{what}: {seen}, not {after}")))
}

/// A parameter is checked by what another table holds.
fn what_types_read_is_no_part_of_an_answer(version: Version) -> Result<()> {
    let allowed = "create table allowed (v int primary key); insert into allowed values (7);
        create function is_allowed(int) returns boolean language sql as
            'select exists (select from public.allowed where v = $1)';
        create domain allowed_int as int;";
    let pair = Pair::new(version, &[SCHEMA, allowed].concat())?;
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    let oid: u32 = direct.value("select 'allowed_int'::regtype::oid")?.parse()?;
    let read = [
        parse_typed("", "select v from t where v > $1 order by id", &[oid]),
        bind_text("", "", &["7"]),
        execute("", 0),
        sync(),
    ]
    .concat();
    if pair.freshet.is_there() {
        // Without a check it is answered from the cache.
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?.hits();
            c.exchange(&read, 1)?;
            ensure!(pair.freshet.metrics()?.hits() > before, "it does not hit");
            Ok(())
        })?;
    }
    let mut same = |c: &mut RawClient, what: &str| {
        let (expected, got) = (direct.exchange(&read, 1)?, c.exchange(&read, 1)?);
        ensure!(expected == got, "{what}:\n  expected {expected:?}\n  got {got:?}");
        Ok(())
    };
    c.run("alter domain allowed_int add check (is_allowed(value))")?;
    until_hit(&pair, &mut c, READ)?;
    for _ in 0..5 {
        same(&mut c, "with a check")?;
    }
    c.run("delete from allowed")?;
    same(&mut c, "not allowed any more")?;
    c.run("alter domain allowed_int drop constraint allowed_int_check")?;
    same(&mut c, "without a check")
}

/// `ALTER DOMAIN` directly at the server, with event triggers and without them: once Freshet has taken it in, what the new check writes is seen at once, and what it
/// reads is no part of a cached answer.
fn domains_altered_beside_freshet(version: Version) -> Result<()> {
    let later = "create domain later as int check (value > 0); create domain over_it as later;
        create table allowed (v int primary key); insert into allowed values (7);
        create function is_allowed(int) returns boolean language sql as
            'select exists (select from public.allowed where v = $1)';";
    let pair = Pair::new(version, &[SCHEMA, later].concat())?;
    let (mut writer, mut other) = (pair.connect()?, pair.connect()?);
    let mut direct = pair.database.connect()?;
    let oid: u32 = direct.value("select 'over_it'::regtype::oid")?.parse()?;
    let parsed = parse_typed("", "select v from t where v > $1 order by id", &[oid]);
    let read = [parsed, bind_text("", "", &["1"]), execute("", 0), sync()].concat();
    let hits = |c: &mut RawClient| {
        let before = pair.freshet.metrics()?.hits();
        c.exchange(&read, 1)?;
        Ok::<_, anyhow::Error>(pair.freshet.metrics()?.hits() > before)
    };
    let mut wrong = Vec::new();
    for triggers in ["with event triggers", "without"] {
        if triggers == "without" {
            direct.run("drop event trigger if exists freshet_ddl_end")?;
        }
        eventually(PATIENCE, || {
            ensure!(hits(&mut writer)? || !pair.freshet.is_there(), "it does not hit");
            Ok(())
        })?;
        direct.run("alter domain later add constraint code check (writes(value) and is_allowed(7))")?;
        eventually(PATIENCE, || {
            ensure!(!hits(&mut writer)?, "the check is not known");
            Ok(())
        })?;
        for (what, messages) in [("a parameter", read.clone()), ("a constant", query("select 1::later"))] {
            let what = format!("{what}, {triggers}");
            wrong.extend(seen_by_others(&pair, &what, &messages, (&mut writer, &mut other))?);
        }
        direct.run("delete from allowed")?;
        let refused = writer.exchange(&read, 1)?;
        ensure!(refused.iter().any(|message| message.tag == b'E'), "answered against the check: {refused:?}");
        direct.run("insert into allowed values (7); alter domain later drop constraint code")?;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Beside those that run code.
fn types_of_the_servers_own_code_hit(version: Version) -> Result<()> {
    let plain =
        "create domain code as text check (value ~ '^[a-z]+$'); create domain amount as numeric check (value >= 0);
        create table priced (id int primary key, c code, a amount, tags text[]);
        insert into priced values (1, 'a', 1, '{x}'), (2, 'b', 2, '{y}');
        create table status (id int primary key, status text, d checked); insert into status values (1, 'a', null);";
    let pair = Pair::new(version, &[SCHEMA, plain].concat())?;
    let mut c = pair.connect()?;
    for sql in [
        "select id, c, a from priced where c = 'a'",
        "select id from priced where a > 1::numeric and tags @> array['y']",
        "select array_agg(c), array_agg(a) from priced",
        "select d from held where id = 1",
        "select coalesce(d, '1') from held where id = 1",
        "select row_to_json(priced) from priced where id = 1",
        "select row_to_json(held), count(held), json_agg(held.*) from held group by id",
        "select json_build_object('held', h) from held h join status on status.id = h.id where status in ('a', 'b')",
        "select a2.touch, t.v from a2 join t using (id)",
    ] {
        until_hit(&pair, &mut c, sql)?;
    }
    if !pair.freshet.is_there() {
        return Ok(());
    }
    // They pass, and are taken for reads.
    let counts = |pair: &Pair| {
        let metrics = pair.freshet.metrics()?;
        Ok::<_, anyhow::Error>(
            metrics.count("freshet_commit_waits_total") + metrics.count("freshet_commit_waits_skipped_total"),
        )
    };
    until_hit(&pair, &mut c, READ)?;
    for sql in [
        "select 1::positive",
        "select 'a'::code, 2::amount",
        "select '1'::money",
        "select 't'::regclass",
        "select '{1}'::positive[]",
        "select a2.touch from a2 join t using (id) where a2.id = 1",
        "select case when status = 'a' then status else 'b' end from status",
    ] {
        let before = counts(&pair)?;
        for _ in 0..3 {
            c.run(sql)?;
        }
        ensure!(counts(&pair)? == before, "{sql} had a commit wait");
        // Roles of other tests on the server flush the cache.
        eventually(PATIENCE, || {
            c.run("begin")?;
            c.run(sql)?;
            let hits = pair.freshet.metrics()?.hits();
            c.run(READ)?;
            let after = pair.freshet.metrics()?.hits();
            c.run("commit")?;
            ensure!(after > hits, "{sql} is taken for a write in a block");
            Ok(())
        })?;
    }
    Ok(())
}
