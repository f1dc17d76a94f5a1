//! Transactions: the status byte of every ReadyForQuery, savepoints, two-phase commit, isolation, locks.

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use super::SCHEMA;
use crate::support::frames::{query, sync, unnamed};
use crate::support::{Database, Message, Pair, RawClient, Version, on_both, rest};

on_both!(
    status_of_every_answer,
    savepoints,
    two_phase_commit,
    isolation_levels,
    advisory_locks,
    reads_of_ones_own_writes
);

const READ: &str = "select id, name from item where id = 1";

/// The status bytes heard.
fn statuses(messages: &[Message]) -> String {
    messages
        .iter()
        .filter(|m| m.tag == b'Z')
        .map(|m| m.body.iter().map(|b| char::from(*b)).collect::<String>())
        .collect()
}

fn status_of_every_answer(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let script = [
        (READ, 'I'),
        ("begin", 'T'),
        (READ, 'T'),
        ("begin", 'T'),
        ("selec", 'E'),
        (READ, 'E'),
        ("", 'E'),
        ("rollback", 'I'),
        (READ, 'I'),
        ("commit", 'I'),
        ("start transaction isolation level repeatable read read only", 'T'),
        (READ, 'T'),
        ("commit and chain", 'T'),
        ("insert into log values (99, 'x')", 'E'),
        ("rollback and chain", 'T'),
        ("end", 'I'),
        ("select 1/0", 'I'),
        ("begin; select 1/0", 'E'),
        ("commit", 'I'),
        ("commit; begin", 'T'),
        ("commit; select 1; begin; savepoint s; select 1/0", 'E'),
        ("rollback to s", 'T'),
        ("abort", 'I'),
        (READ, 'I'),
    ];
    let expected: String = script.iter().map(|(_, status)| *status).collect();
    pair.same_with_hits(1, |c| {
        // Read to the end of each, then all in flight; simple and extended.
        for (sql, _) in script {
            c.query(sql)?;
        }
        ensure!(statuses(&c.heard) == expected, "{} rather than {expected}", statuses(&c.heard));
        let all: Vec<u8> = script.iter().flat_map(|(sql, _)| query(sql)).collect();
        c.exchange(&all, script.len())?;
        let simple = || script.iter().filter(|(sql, _)| !sql.contains(';'));
        c.exchange(
            &simple().flat_map(|(sql, _)| [unnamed(sql, &[]), sync()].concat()).collect::<Vec<_>>(),
            simple().count(),
        )?;
        rest();
        c.query(READ)?;
        c.expect_silence()
    })
}

fn savepoints(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select line from log where id = 4";
    pair.same_with_hits(1, |c| {
        for sql in [
            read,
            "begin",
            "update log set line = 'outer' where id = 4",
            "savepoint a",
            "update log set line = 'inner' where id = 4",
            read,
            "savepoint b",
            "update log set line = 'bad' where id = 4",
            read,
            "rollback to b",
            read,
            "rollback to savepoint a",
            read,
            "savepoint a",
            "release a",
            "release a",
            "release a",
            "rollback",
            read,
            "savepoint outside",
        ] {
            c.query(sql)?;
        }
        rest();
        c.query(read)?;
        // What was released is committed with the rest.
        c.query("begin; savepoint a; update log set line = 'kept' where id = 4; release a; commit")?;
        c.query(read)?;
        c.query("update log set line = 'line 4' where id = 4")?;
        rest();
        c.query(read)?;
        c.expect_silence()
    })
}

fn two_phase_commit(version: Version) -> Result<()> {
    let settings = Settings::default().with("max_prepared_transactions = 5");
    let pair = Pair::over(Database::create(version.start(&settings)?)?, SCHEMA, &[])?;
    let read = "select line from log where id = 6";
    pair.same_with_hits(2, |c| {
        c.query(read)?;
        for (end, line) in [("commit prepared 'x'", "committed"), ("rollback prepared 'x'", "undone")] {
            rest();
            c.query(read)?;
            for sql in [
                "begin",
                &format!("update log set line = '{line}' where id = 6"),
                "prepare transaction 'x'",
                read,
                "select gid from pg_prepared_xacts",
                end,
                read,
                end,
            ] {
                c.query(sql)?;
            }
        }
        c.query("begin; select 1/0")?;
        c.query("prepare transaction 'y'")?;
        c.query("begin")?;
        c.query("update log set line = 'line 6' where id = 6")?;
        c.query("prepare transaction 'z'")?;
        c.exchange(&[unnamed("commit prepared 'z'", &[]), sync(), unnamed(read, &[]), sync()].concat(), 2)?;
        rest();
        c.query(read)?;
        c.expect_silence()
    })?;
    // Committed by another session, and around Freshet.
    let mut reader = pair.connect()?;
    for (number, mut committer) in [pair.connect()?, pair.database.connect()?].into_iter().enumerate() {
        let mut writer = pair.connect()?;
        writer.run(&format!("begin; update log set line = 'two {number}' where id = 6; prepare transaction 'two'"))?;
        drop(writer);
        crate::cached::until_hit(&pair, &mut reader, read)?;
        committer.run("commit prepared 'two'")?;
        crate::support::eventually(crate::support::PATIENCE, || {
            ensure!(reader.value(read)? == format!("two {number}"), "not seen");
            Ok(())
        })?;
    }
    Ok(())
}

/// What a transaction has read it reads again, as its level says, whatever others commit and Freshet knows.
fn isolation_levels(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select line from log where id = 7";
    for level in ["read committed", "repeatable read", "serializable"] {
        let talk = |address| -> Result<_> {
            pair.database.run("update log set line = 'line 7' where id = 7")?;
            crate::support::rest();
            let mut client = RawClient::login(address, pair.login())?;
            client.query(read)?;
            client.query(&format!("begin isolation level {level}"))?;
            client.query(read)?;
            // Others read what is new, through Freshet, until it comes from the cache.
            pair.database.run("update log set line = 'new' where id = 7")?;
            let mut other = pair.connect()?;
            crate::support::eventually(crate::support::PATIENCE, || {
                ensure!(other.value(read)? == "new", "not seen by others");
                Ok(())
            })?;
            crate::cached::until_hit(&pair, &mut other, read)?;
            client.query(read)?;
            client.query("select line from log where id in (7, 8) order by id")?;
            client.query("commit")?;
            client.query(read)?;
            Ok(client.heard)
        };
        let direct = talk(pair.database.address())?;
        crate::support::ensure_same(&direct, &talk(pair.address())?)?;
    }
    Ok(())
}

fn advisory_locks(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        c.query(READ)?;
        for sql in [
            "select pg_advisory_lock(42)",
            "select pg_try_advisory_lock(42)",
            READ,
            "select pg_advisory_unlock(42)",
            "select pg_advisory_unlock(42)",
            "select pg_advisory_unlock(42)",
            "begin",
            "select pg_advisory_xact_lock_shared(1, 2)",
            READ,
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
            "commit",
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
            "select pg_advisory_lock(43)",
            "select pg_advisory_unlock_all()",
        ] {
            c.query(sql)?;
        }
        rest();
        c.query(READ)?;
        c.expect_silence()
    })
}

/// At once, in every way to write: no read after it may come from before it.
fn reads_of_ones_own_writes(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = || [unnamed("select line from log where id = $1", &["8"]), sync()].concat();
    pair.same(|c| {
        for round in 0..3 {
            for write in [
                format!("update log set line = 'a {round}' where id = 8"),
                format!("with w as (update log set line = 'b {round}' where id = 8 returning 1) select count(*) from w"),
                format!("do $$ begin update log set line = 'c {round}' where id = 8; end $$"),
                format!("begin; update log set line = 'd {round}' where id = 8; commit"),
                format!("delete from log where id = 8; insert into log values (8, 'e {round}')"),
                format!("insert into log values (8, 'x') on conflict (id) do update set line = 'f {round}'"),
                format!("explain (analyze, costs off, timing off, summary off, buffers off) update log set line = 'g {round}' where id = 8"),
                format!("merge into log using (select 8 as i) s on id = i when matched then update set line = 'h {round}'"),
                format!("prepare w as update log set line = 'i {round}' where id = 8"),
                "execute w".to_owned(),
                "deallocate w".to_owned(),
                "update log set line = 'line 8' where id = 8".to_owned(),
            ] {
                c.exchange(&read(), 1)?;
                c.exchange(&[query(&write), read()].concat(), 2)?;
            }
        }
        c.expect_silence()
    })
}
