//! Standbys as the only upstream: everything passes to them, and nothing is cached.

use std::time::Duration;

use anyhow::{Result, ensure};
use freshet_testbed::StopMode;

use super::start::{Home, command};
use super::{READ, both_hosts, expect_value, replicated, serves, wait_logged};
use crate::pooling::postgres::operator::all_at_rest;
use crate::support::frames::query;
use crate::support::{Database, Freshet, Message, PATIENCE, RawClient, Version, eventually, get, on_both, time_passes};

on_both!(
    a_standby_serves_reads_until_it_is_promoted,
    a_standby_that_is_started_again,
    connection_strings_that_ask_for_a_standby,
);

/// Its log has this line once for each reason.
const NO_STREAM: &str = "the upstream is a standby, which sends no change stream";
/// Sessions that share server connections.
const SHARED: [&str; 6] = ["--auth", "trust", "--pool", "transaction", "--failover-timeout", "2m"];

fn start(upstream: &str, database: &Database, home: &Home, more: &[&str]) -> Result<Option<Freshet>> {
    let Some(mut command) = command(Some(upstream), &[], &home.0)? else { return Ok(None) };
    command.args(more);
    Ok(Some(Freshet::spawn(database.address(), Some(command))?))
}

/// Reads pass; EXPLAIN and SHOW say why, and what to do.
fn passes(freshet: &Freshet, client: &mut RawClient) -> Result<()> {
    wait_logged(freshet, NO_STREAM)?;
    for _ in 0..10 {
        client.value(READ)?;
    }
    expect_value(client, "select pg_is_in_recovery()", "t")?;
    ensure!(freshet.metrics()?.hits() == 0, "hits without a change stream");
    for sql in ["explain last statement", "show freshet status", "explain cache select title from film where id = 1"] {
        client.value(READ)?;
        let said = text_of(client, sql)?;
        ensure!(said.contains(NO_STREAM) && said.contains("target_session_attrs=primary"), "{sql}: {said}");
    }
    Ok(())
}

/// All that the answer's rows say.
fn text_of(client: &mut RawClient, sql: &str) -> Result<String> {
    let rows = client.query(sql)?;
    let cells = rows.iter().filter(|message| message.tag == b'D').flat_map(Message::columns).flatten();
    Ok(cells.map(|cell| String::from_utf8_lossy(&cell).into_owned()).collect::<Vec<_>>().join("\n"))
}

fn a_standby_serves_reads_until_it_is_promoted(version: Version) -> Result<()> {
    for more in [&[][..], &SHARED] {
        let ((database, standby), home) = (replicated(version)?, Home::new()?);
        let Some(freshet) = start(&standby.url_of(&database.name), &database, &home, more)? else { return Ok(()) };
        let mut client = RawClient::login(freshet.address, database.login())?;
        passes(&freshet, &mut client)?;
        ensure!(freshet.probes()? == [200, 200, 503], "{:?}", freshet.probes()?);
        let refused = client.query("update film set title = 'new' where id = 1")?;
        let code = refused.iter().find(|message| message.tag == b'E').and_then(|message| message.field(b'C'));
        ensure!(code.as_deref() == Some("25006"), "{refused:?}");
        // What the primary commits is read once the standby has it.
        database.run("update film set title = 'of the primary' where id = 1")?;
        eventually(PATIENCE, || expect_value(&mut client, READ, "of the primary"))?;
        time_passes("the stream is tried again each second", Duration::from_secs(3));
        let times = freshet.log().matches(NO_STREAM).count();
        ensure!(times == 1, "said {times} times");
        // The same session hits once there is a stream.
        ensure!(standby.psql("select pg_promote()")? == "t", "not promoted");
        eventually(PATIENCE, || {
            expect_value(&mut client, READ, "of the primary")?;
            ensure!(freshet.metrics()?.hits() > 0, "no hits");
            Ok(())
        })?;
        client.run("update film set title = 'promoted' where id = 1")?;
        expect_value(&mut client, READ, "promoted")?;
        serves(&freshet, &database)?;
    }
    Ok(())
}

/// Sessions that share connections go on.
fn a_standby_that_is_started_again(version: Version) -> Result<()> {
    let ((database, standby), home) = (replicated(version)?, Home::new()?);
    let Some(freshet) = start(&standby.url_of(&database.name), &database, &home, &SHARED)? else { return Ok(()) };
    let mut client = RawClient::login(freshet.address, database.login())?;
    passes(&freshet, &mut client)?;
    for mode in [StopMode::Fast, StopMode::Immediate] {
        all_at_rest(freshet.address, database.login())?;
        standby.stop(mode)?;
        client.send(&query(READ))?;
        standby.start()?;
        let answer = client.until(b'Z').map_err(|error| error.context(format!("{mode:?}: {:?}", client.heard)))?;
        ensure!(answer.iter().any(|message| message.tag == b'C'), "{mode:?}: {answer:?}");
    }
    passes(&freshet, &mut client)
}

fn connection_strings_that_ask_for_a_standby(version: Version) -> Result<()> {
    let ((database, standby), home) = (replicated(version)?, Home::new()?);
    for attribute in ["standby", "read-only", "prefer-standby"] {
        for more in [&[][..], &SHARED] {
            let upstream = both_hosts(&database, &standby, attribute);
            let Some(freshet) = start(&upstream, &database, &home, more)? else { return Ok(()) };
            let mut client = RawClient::login(freshet.address, database.login())?;
            passes(&freshet, &mut client)?;
            let asked_for = freshet.log().contains("(target_session_attrs asks for one)");
            ensure!(asked_for == (attribute != "prefer-standby"), "{attribute}: {}", freshet.log());
            ensure!(get(freshet.http, "/health")?.1.contains("target_session_attrs=primary"), "no remedy in /health");
        }
    }
    Ok(())
}
