//! Health checks and queries of frameworks: statements that read no table. They are served from the cache, for each session by its own settings.

use anyhow::{Result, ensure};

use super::{SEEN_WITHIN, until_hit};
use crate::support::frames::{query, sync, unnamed};
use crate::support::{Pair, RawClient, Version, eventually, on_both};

on_both!(questions_hit, answers_follow_the_session, answers_follow_the_schemas, answers_in_blocks, settings_are_shown);

const QUESTIONS: [&str; 8] = [
    "select 1",
    "values (1), (2)",
    "select version()",
    "select pg_catalog.version()",
    "select current_schema()",
    "select current_schema, current_catalog, current_user, session_user, user, current_role",
    "select current_database() as name",
    "select 'a' || lower('B') where 1 = 1",
];

fn questions_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, "")?;
    let (mut direct, mut c) = (pair.database.connect()?, pair.connect()?);
    for sql in QUESTIONS {
        until_hit(&pair, &mut c, sql)?;
        ensure!(c.query(sql)? == direct.query(sql)?, "{sql}");
    }
    // What is not the same for all sessions of these settings is asked of the database.
    let before = pair.freshet.metrics()?.hits();
    for sql in ["select pg_backend_pid()", "select now()", "select current_schemas(true)", "select pg_is_in_recovery()"]
    {
        for _ in 0..3 {
            c.query(sql)?;
        }
    }
    ensure!(pair.freshet.metrics()?.hits() == before, "what was to pass hit");
    Ok(())
}

fn answers_follow_the_session(version: Version) -> Result<()> {
    let pair = Pair::new(version, "create schema other; create table film (id int primary key)")?;
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    let role = format!("{}_asker", pair.database.name);
    pair.database.run(&format!("create role {role}"))?;
    let role = &format!("set role {role}");
    let settings =
        ["set search_path = other, public", "set search_path = ''", role, "reset role", "set search_path = public"];
    let questions = [QUESTIONS[4], QUESTIONS[5]];
    for sql in questions {
        until_hit(&pair, &mut c, sql)?;
    }
    for setting in settings {
        c.run(setting)?;
        direct.run(setting)?;
        for sql in questions {
            until_hit(&pair, &mut c, sql)?;
            ensure!(c.query(sql)? == direct.query(sql)?, "{sql} after {setting}");
        }
    }
    // The temporary schema of each session has a name of its own.
    let mut clients = [pair.connect()?, pair.connect()?];
    for client in &mut clients {
        client.run("create temp table gone (id int); drop table gone; set search_path = pg_temp, public")?;
    }
    for _ in 0..5 {
        let mut names = Vec::new();
        for client in &mut clients {
            names.push(client.value("select current_schema()")?);
        }
        ensure!(names[0].starts_with("pg_temp_") && names[0] != names[1], "{names:?}");
    }
    pair.database.run(&format!("drop role {}_asker", pair.database.name))
}

fn answers_follow_the_schemas(version: Version) -> Result<()> {
    let pair = Pair::new(version, "")?;
    let mut c = pair.connect()?;
    c.run("set search_path = later, public")?;
    until_hit(&pair, &mut c, "select current_schema()")?;
    ensure!(c.value("select current_schema()")? == "public", "before");
    pair.database.run("create schema later")?;
    let current = |c: &mut RawClient, expected: &str| {
        eventually(SEEN_WITHIN, || {
            let value = c.value("select current_schema()")?;
            ensure!(value == expected, "{value} rather than {expected}");
            Ok(())
        })
    };
    current(&mut c, "later")?;
    until_hit(&pair, &mut c, "select current_schema()")?;
    pair.database.run("drop schema later")?;
    current(&mut c, "public")
}

/// A snapshot that a question takes is as old as the question.
fn answers_in_blocks(version: Version) -> Result<()> {
    let pair = Pair::new(version, "create table film (id int primary key, votes int); insert into film values (1, 0)")?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    let read = "select votes from film where id = 1";
    for sql in [read, QUESTIONS[0], QUESTIONS[2]] {
        until_hit(&pair, &mut c, sql)?;
    }
    let bound = [unnamed("select 1", &[]), sync()].concat();
    for (round, question) in [query("select 1"), query("select version()"), bound.clone(), bound].iter().enumerate() {
        c.run("begin isolation level repeatable read")?;
        c.exchange(question, 1)?;
        other.run(&format!("update film set votes = {} where id = 1", round + 1))?;
        until_hit(&pair, &mut other, read)?;
        for _ in 0..3 {
            let votes = c.value(read)?;
            ensure!(votes == round.to_string(), "round {round}: {votes} within the block");
            c.exchange(question, 1)?;
        }
        c.run("commit")?;
        let votes = c.value(read)?;
        ensure!(votes == (round + 1).to_string(), "round {round}: {votes} behind the block");
    }
    Ok(())
}

/// SHOW follows the session, and is no query that takes a snapshot.
fn settings_are_shown(version: Version) -> Result<()> {
    let pair = Pair::new(version, "create table film (id int primary key); insert into film values (1)")?;
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    let shown = [
        "show timezone",
        "SHOW TIME ZONE",
        "show search_path",
        "SHOW standard_conforming_strings",
        "show server_version",
    ];
    let bound = |sql: &str| [unnamed(sql, &[]), sync()].concat();
    let changes = [
        "set timezone = 'Asia/Tokyo'",
        "set search_path = pg_catalog",
        "set standard_conforming_strings = off",
        "begin; set local timezone = 'UTC'; rollback",
        "reset all",
    ];
    for change in ["select 1"].into_iter().chain(changes) {
        c.run(change)?;
        direct.run(change)?;
        for sql in shown {
            until_hit(&pair, &mut c, sql)?;
            ensure!(c.query(sql)? == direct.query(sql)?, "{sql} after {change}");
            for _ in 0..3 {
                let (expected, got) = (direct.exchange(&bound(sql), 1)?, c.exchange(&bound(sql), 1)?);
                ensure!(expected == got, "{sql}, bound, after {change}: {expected:?}, {got:?}");
            }
        }
    }
    // Behind it the level may still be set, and the snapshot is taken by the first query.
    let levels = ["set transaction isolation level repeatable read", "set transaction isolation level serializable"];
    for level in levels {
        for begin in ["begin", "begin isolation level repeatable read"] {
            for sql in [begin, "show timezone", level, "show timezone"] {
                let (expected, got) = (direct.query(sql)?, c.query(sql)?);
                ensure!(expected == got, "{sql} in {begin}: {expected:?}, {got:?}");
            }
            pair.database.run("update film set id = id + 1")?;
            for sql in ["select id from film", "show timezone", "commit"] {
                let (expected, got) = (direct.query(sql)?, c.query(sql)?);
                ensure!(expected == got, "{sql} in {begin}: {expected:?}, {got:?}");
            }
        }
    }
    super::never_hits(&pair, &mut c, "show work_mem", "not_select")?;
    super::never_hits(&pair, &mut c, "show transaction isolation level", "not_select")
}
