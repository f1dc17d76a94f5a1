//! SIGTERM and SIGINT.

use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, ensure};

use super::{SCHEMA, ends_by_command, tags};
use crate::cached::until_hit;
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, frames, on_both_at_length};

on_both_at_length!(
    sessions_at_rest_end_and_others_go_on,
    a_running_statement_ends_first,
    an_unfinished_batch_ends_first,
    the_time_is_bounded,
    a_second_signal_ends_at_once,
    the_words_are_the_servers,
);

/// Longer than any test waits.
const LONG: [&str; 2] = ["--drain-timeout", "3600s"];

fn pair(version: Version, options: &[&str]) -> Result<Option<Pair>> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, options)?;
    Ok(pair.freshet.is_there().then_some(pair))
}

fn signal(pair: &Pair, name: &str) -> Result<()> {
    let pid = pair.freshet.pid().context("no process")?.to_string();
    let status = Command::new("kill").args([&format!("-{name}"), &pid]).status()?;
    ensure!(status.success(), "kill -{name}: {status}");
    Ok(())
}

fn is_draining(pair: &Pair) -> Result<()> {
    eventually(PATIENCE, || {
        let health = pair.freshet.health()?;
        ensure!(health == (503, "draining\n".to_owned()), "{health:?}");
        let probes = pair.freshet.probes()?;
        ensure!(probes == [200, 503, 503], "/livez, /readyz, /cachez: {probes:?}");
        Ok(())
    })
}

fn exits_well(pair: &mut Pair) -> Result<()> {
    let status: ExitStatus = eventually(PATIENCE, || pair.freshet.ended()?.context("it still runs"))?;
    ensure!(status.code() == Some(0), "{status}");
    Ok(())
}

fn sessions_at_rest_end_and_others_go_on(version: Version) -> Result<()> {
    let Some(mut pair) = pair(version, &LONG)? else { return Ok(()) };
    let (mut idle, mut hitting, mut busy, mut failed) =
        (pair.connect()?, pair.connect()?, pair.connect()?, pair.connect()?);
    idle.query("select 1")?;
    until_hit(&pair, &mut hitting, "select title from film where id = 1")?;
    busy.run("begin; insert into film values (1001, 'new')")?;
    failed.query("begin; select 1/0")?;
    let fresh = pair.connect()?;
    signal(&pair, "TERM")?;
    is_draining(&pair)?;
    for mut client in [idle, hitting, fresh] {
        ends_by_command(&mut client)?;
    }
    ensure!(RawClient::open(pair.address()).is_err(), "connections are still accepted");
    // The transaction goes on as if nothing were.
    busy.run("insert into film values (1002, 'newer')")?;
    ensure!(busy.value("select count(*) from film")? == "102", "the transaction does not see its own rows");
    ensure!(pair.freshet.is_alive(), "the program has ended under a transaction");
    busy.run("commit")?;
    ends_by_command(&mut busy)?;
    is_draining(&pair)?;
    failed.run("rollback")?;
    ends_by_command(&mut failed)?;
    exits_well(&mut pair)?;
    ensure!(pair.database.connect()?.value("select count(*) from film")? == "102", "the commit is not there");
    Ok(())
}

fn a_running_statement_ends_first(version: Version) -> Result<()> {
    let Some(mut pair) = pair(version, &LONG)? else { return Ok(()) };
    let (mut c, mut holder) = (pair.connect()?, pair.database.connect()?);
    holder.run("begin; lock table film")?;
    c.send(&frames::query("update film set title = title || ' seen' where id = 1 returning title"))?;
    let waits = "select count(*) from pg_locks where not granted and relation = 'film'::regclass";
    eventually(PATIENCE, || {
        ensure!(pair.database.connect()?.value(waits)? == "1", "the statement does not wait");
        Ok(())
    })?;
    signal(&pair, "TERM")?;
    is_draining(&pair)?;
    holder.run("commit")?;
    ensure!(tags(&c.until(b'Z')?) == "TDCZ", "the statement was cut off: {:?}", c.heard);
    ends_by_command(&mut c)?;
    exits_well(&mut pair)
}

/// Messages of a batch have been sent, and its `Sync` has not.
fn an_unfinished_batch_ends_first(version: Version) -> Result<()> {
    let Some(mut pair) = pair(version, &LONG)? else { return Ok(()) };
    let (mut c, mut half) = (pair.connect()?, pair.connect()?);
    c.send(&[frames::unnamed("select title from film where id = 1", &[]), frames::flush()].concat())?;
    c.until(b'C')?;
    // Half a message, which is under way for all that one can know.
    let message = frames::query("select 1");
    half.send(&message[..7])?;
    signal(&pair, "TERM")?;
    is_draining(&pair)?;
    c.send(&[frames::unnamed("select title from film where id = 2", &[]), frames::sync()].concat())?;
    ensure!(tags(&c.until(b'Z')?) == "12TDCZ", "the batch was cut off: {:?}", c.heard);
    ends_by_command(&mut c)?;
    half.send(&message[7..])?;
    ensure!(tags(&half.until(b'Z')?) == "TDCZ", "the statement was cut off: {:?}", half.heard);
    ends_by_command(&mut half)?;
    exits_well(&mut pair)
}

fn the_time_is_bounded(version: Version) -> Result<()> {
    let Some(mut pair) = pair(version, &["--drain-timeout", "300ms"])? else { return Ok(()) };
    let mut c = pair.connect()?;
    c.run("begin; insert into film values (1001, 'new')")?;
    signal(&pair, "TERM")?;
    exits_well(&mut pair)?;
    ensure!(c.read_or_end()?.is_none(), "the connection goes on");
    // Its last lines are still being read, perhaps.
    eventually(PATIENCE, || {
        let log = pair.freshet.log();
        ensure!(log.contains("--drain-timeout"), "no word of it in the log:\n{log}");
        Ok(())
    })?;
    ensure!(pair.database.connect()?.value("select count(*) from film")? == "100", "what was not committed is there");
    Ok(())
}

fn a_second_signal_ends_at_once(version: Version) -> Result<()> {
    for signals in [&["TERM", "TERM"][..], &["TERM", "INT"], &["INT"]] {
        let Some(mut pair) = pair(version, &LONG)? else { return Ok(()) };
        let mut c = pair.connect()?;
        c.run("begin; insert into film values (1001, 'new')")?;
        if let [first, _] = signals {
            signal(&pair, first)?;
            is_draining(&pair)?;
            ensure!(c.value("select count(*) from film")? == "101", "the transaction does not go on");
        }
        signal(&pair, signals.last().context("no signal")?)?;
        exits_well(&mut pair).with_context(|| format!("{signals:?}"))?;
    }
    Ok(())
}

/// The fields that a client can tell apart are those of PostgreSQL's own end.
fn the_words_are_the_servers(version: Version) -> Result<()> {
    let database = Database::shared(version)?;
    let mut c = database.connect()?;
    let pid = c.value("select pg_backend_pid()")?;
    database.run(&format!("select pg_terminate_backend({pid})"))?;
    ends_by_command(&mut c)
}
