//! What cannot be carried over keeps its connection, until the server says that it is gone.

use anyhow::{Context, Result, ensure};

use super::{PID, is_silent, shared, shared_by_one};
use crate::support::{PATIENCE, RawClient, Version, eventually, on_both};

on_both!(what_lives_on_a_connection_keeps_it, what_cannot_be_asked_keeps_it_for_ever);

const SCHEMA: &str = "create table t (id serial primary key, v int); insert into t (v) values (10);
    create function hidden() returns void language plpgsql as $$ begin perform set_config('seq_page_cost', '3', false); end $$;
    create function lock_it() returns void language plpgsql as $$ begin perform pg_advisory_lock(7); end $$;
    create function unlock_it() returns void language plpgsql as $$ begin perform pg_advisory_unlock(7); end $$";

/// A statement that leaves something, one that shows it to its own session, its answer there, and one that takes it away.
const KEPT: [(&str, &str, &str, &str); 10] = [
    ("set seq_page_cost = 1.5", "show seq_page_cost", "1.5", "reset seq_page_cost"),
    ("select set_config('seq_page_cost', '2', false)", "show seq_page_cost", "2", "reset seq_page_cost"),
    ("select hidden()", "show seq_page_cost", "3", "reset seq_page_cost"),
    ("declare c cursor with hold for select 5", "fetch c", "5", "close c"),
    (
        "select pg_advisory_lock(7)",
        "select count(*) from pg_locks where locktype = 'advisory' and objid = 7",
        "1",
        "select pg_advisory_unlock(7)",
    ),
    (
        "select lock_it()",
        "select count(*) from pg_locks where locktype = 'advisory' and objid = 7",
        "1",
        "select unlock_it()",
    ),
    // Within the brackets of a transaction, in one text.
    (
        "begin; select pg_advisory_lock(8); commit",
        "select count(*) from pg_locks where locktype = 'advisory' and objid = 8",
        "1",
        "begin; select pg_advisory_unlock(8); commit",
    ),
    ("prepare p as select 6", "execute p", "6", "deallocate p"),
    ("set role pg_monitor", "select current_user", "pg_monitor", "reset role"),
    (
        "set session characteristics as transaction deferrable",
        "show default_transaction_deferrable",
        "on",
        "discard all",
    ),
];

/// Whether another client gets the only connection.
fn is_free(other: &mut RawClient) -> Result<bool> {
    other.send(&crate::support::frames::query("select 'free'"))?;
    Ok(!is_silent(other)?)
}

fn what_lives_on_a_connection_keeps_it(version: Version) -> Result<()> {
    let pair = shared_by_one(version, SCHEMA, 2)?;
    for (leaves, shows, answer, takes_away) in KEPT {
        let (mut a, mut b) = (pair.connect()?, pair.connect()?);
        a.run(leaves).with_context(|| leaves.to_owned())?;
        let mine = a.value(PID)?;
        for _ in 0..3 {
            let others = b.value(PID)?;
            ensure!(others != mine, "{leaves}: another session has the connection");
            ensure!(a.value(PID)? == mine, "{leaves}: the session has another connection");
        }
        ensure!(a.value(shows).with_context(|| leaves.to_owned())? == answer, "{leaves}: {shows}");
        a.run(takes_away).with_context(|| takes_away.to_owned())?;
        eventually(PATIENCE, || {
            a.run("select 1 from t")?;
            let all = [a.value(PID)?, b.value(PID)?];
            ensure!(all.iter().all(|pid| *pid == mine) || all[0] != mine, "{takes_away}: it is still kept");
            Ok(())
        })?;
    }
    Ok(())
}

fn what_cannot_be_asked_keeps_it_for_ever(version: Version) -> Result<()> {
    for (leaves, shows) in [
        ("select setseed(0.5)", "select random() is not null"),
        ("select pg_backend_pid()", "select pg_backend_pid() > 0"),
        ("load 'plpgsql'", "select true"),
        ("create temp table x as select true as one", "select one from x"),
        ("create temp table x (); drop table x", "select pg_my_temp_schema() <> 0"),
    ] {
        let pair = shared(version, SCHEMA, 1)?;
        let (mut a, mut b) = (pair.connect()?, pair.connect()?);
        a.run(leaves)?;
        ensure!(a.value(shows)? == "t", "{leaves}");
        ensure!(!is_free(&mut b)?, "{leaves}");
        drop(a);
        b.until(b'Z').context("the connection is free once the session has ended")?;
    }
    Ok(())
}
