//! Two clients and one server connection.

use anyhow::{Context, Result, ensure};

use super::{PID, is_silent, shared, shared_with};
use crate::support::frames::{bind_text, describe_portal, execute, parse, sync, unnamed};
use crate::support::{PATIENCE, RawClient, Version, eventually, on_both};

on_both!(
    two_clients_use_one_connection,
    hits_need_no_connection,
    a_transaction_keeps_the_connection,
    who_waits_too_long_is_told,
    a_client_that_vanishes_gives_way,
    a_lost_connection_is_not_noticed,
    a_cancel_request_meets_its_own_statement,
    the_unnamed_statement_moves,
);

const SCHEMA: &str = "create table t (id int primary key, v int); insert into t values (1, 10), (2, 20)";

/// The number of the client's server connections to this database.
fn connections(client: &mut RawClient, database: &str) -> Result<String> {
    client.value(&format!(
        "select count(*) from pg_stat_activity where datname = '{database}' and application_name = '' \
         and backend_type = 'client backend' and pid <> pg_backend_pid()"
    ))
}

fn two_clients_use_one_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    let first = a.value(PID)?;
    for round in 0..3 {
        ensure!(b.value(PID)? == first && a.value(PID)? == first, "another process in round {round}");
        a.run(&format!("update t set v = v + 1 where id = 1; select {round}"))?;
        b.run("update t set v = v + 1 where id = 1")?;
    }
    ensure!(a.value("select v from t where id = 1")? == "16");
    let mut direct = pair.database.connect()?;
    ensure!(connections(&mut direct, &pair.database.name)? == "1");
    Ok(())
}

fn hits_need_no_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    let read = "select v from t where id = 2";
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?.hits();
        ensure!(a.value(read)? == "20" && b.value(read)? == "20");
        ensure!(pair.freshet.metrics()?.hits() == before + 2, "not both are hits");
        Ok(())
    })?;
    // The only connection is taken: hits go on.
    b.run("begin")?;
    b.run("select 1 from t for update")?;
    let before = pair.freshet.metrics()?.hits();
    for _ in 0..10 {
        ensure!(a.value(read)? == "20");
    }
    ensure!(pair.freshet.metrics()?.hits() == before + 10);
    b.run("rollback")
}

fn a_transaction_keeps_the_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.run("begin")?;
    a.run("update t set v = 11 where id = 1")?;
    b.send(&crate::support::frames::query("update t set v = v * 2 where id = 1"))?;
    ensure!(is_silent(&b)?);
    a.run("set local work_mem = '1MB'")?;
    ensure!(a.value("select v from t where id = 1")? == "11");
    a.run("commit")?;
    b.until(b'Z')?;
    ensure!(a.value("select v from t where id = 1")? == "22");
    ensure!(b.value("show work_mem")? != "1MB");
    Ok(())
}

fn who_waits_too_long_is_told(version: Version) -> Result<()> {
    let pair = shared_with(version, SCHEMA, 1, &["--query-wait-timeout", "200ms"])?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.run("begin; select 1 from t for update")?;
    b.send(&crate::support::frames::query("update t set v = 0"))?;
    let error = b.until(b'E')?.pop();
    let error = error.ok_or_else(|| anyhow::anyhow!("no error"))?;
    ensure!(error.field(b'C').as_deref() == Some("08P01"), "{error:?}");
    ensure!(error.field(b'M').as_deref() == Some("query_wait_timeout"), "{error:?}");
    ensure!(b.bytes_to_end()?.is_empty(), "the session has ended");
    a.run("commit")?;
    ensure!(a.value("select v from t where id = 1")? == "10");
    Ok(())
}

fn a_client_that_vanishes_gives_way(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut a = pair.connect()?;
    // Within a transaction, within a message, within a batch, with an answer to come.
    let mut query = crate::support::frames::query("update t set v = 99 where id = 1");
    query.truncate(7);
    for (what, bytes) in [
        ("a transaction", crate::support::frames::query("begin; update t set v = 99 where id = 1")),
        ("a message", query),
        ("a batch", [parse("", "update t set v = 98 where id = 1"), bind_text("", "", &[])].concat()),
        ("COPY", crate::support::frames::query("copy t from stdin")),
    ] {
        let mut b = pair.connect()?;
        b.send(&bytes)?;
        if what == "a transaction" {
            b.until(b'Z')?;
        }
        drop(b);
        ensure!(a.value("select v from t where id = 1 and v < 90")? == "10", "{what}");
        a.run("update t set v = 10 where id = 1")?;
    }
    Ok(())
}

fn a_lost_connection_is_not_noticed(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 2)?;
    let mut a = pair.connect()?;
    let mut direct = pair.database.connect()?;
    for round in 0..3 {
        let pid = a.value(PID)?;
        direct.run(&format!("select pg_terminate_backend({pid}, 10000)"))?;
        ensure!(a.value(PID)? != pid, "round {round}");
    }
    Ok(())
}

fn a_cancel_request_meets_its_own_statement(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    let cancel = |client: &RawClient| -> Result<()> {
        let mut request = RawClient::open(pair.address())?;
        request.send(&crate::support::frames::cancel(&client.key_data))?;
        request.bytes_to_end()?;
        Ok(())
    };
    a.send(&crate::support::frames::query("select pg_sleep(60)"))?;
    let mut direct = pair.database.connect()?;
    eventually(PATIENCE, || {
        let running = direct.value("select count(*) from pg_stat_activity where query = 'select pg_sleep(60)'")?;
        ensure!(running == "1");
        Ok(())
    })?;
    cancel(&b)?; // it has no connection: nothing happens
    ensure!(is_silent(&a)?);
    cancel(&a)?;
    let error = a.until(b'Z')?;
    ensure!(error.iter().any(|message| message.field(b'C').as_deref() == Some("57014")), "{error:?}");
    // Requests of a session at rest never meet the next user of the connection.
    for _ in 0..50 {
        a.run("update t set v = v")?;
        cancel(&a)?;
        b.run("update t set v = v")?;
    }
    Ok(())
}

fn the_unnamed_statement_moves(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    let again = [bind_text("", "", &["1"]), describe_portal(""), execute("", 0), sync()].concat();
    let first = unnamed("update t set v = v + $1::int where id = 1 returning v", &["1"]);
    a.exchange(&[first, sync()].concat(), 1).context("prepared")?;
    let refused = b.exchange(&again, 1).context("by another session")?;
    ensure!(refused.iter().any(|message| message.field(b'C').as_deref() == Some("26000")), "{refused:?}");
    b.run("update t set v = v * 2 where id = 2")?;
    let answer = a.exchange(&again, 1).context("again")?;
    ensure!(answer.iter().any(|message| message.tag == b'D'), "{answer:?}");
    ensure!(b.value("select v from t where id = 1")? == "12");
    Ok(())
}
