//! CancelRequest: in any state of the session, what is cancelled directly is cancelled through Freshet.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::support::frames::{cancel, copy_data, copy_done, query, ssl_request, startup_of, sync, unnamed};
use crate::support::{Login, PATIENCE, Pair, RawClient, Version, eventually, on_both, time_passes};

on_both!(long_keys, a_session_that_only_hits, a_fill, a_pipeline, copies, after_a_refused_encryption, a_transaction,);

const READ: &str = "select id, name from item where id = 1";
/// Could be cached, but takes minutes.
const SLOW_READ: &str =
    "select count(*) from item a, item b, item c, item d, item e where a.id + b.id + c.id < d.id + e.id";

/// Sends the request and waits until it has been taken.
fn request(address: SocketAddr, key_data: &[u8]) -> Result<()> {
    let mut canceller = RawClient::open(address)?;
    canceller.send(&cancel(key_data))?;
    ensure!(canceller.read_unheard()?.is_none(), "a CancelRequest is answered by closing the connection");
    Ok(())
}

/// The session of that application is at that, as the server sees it.
fn wait_until(pair: &Pair, application: &str, what: &str) -> Result<()> {
    let mut watcher = pair.database.connect()?;
    let sql = format!(
        "select count(*) from pg_stat_activity where datname = current_database() and {what}
        and application_name = '{application}'"
    );
    eventually(PATIENCE, || {
        ensure!(watcher.value(&sql)? == "1", "no session {what}");
        Ok(())
    })
}

fn cancelled(client: &mut RawClient) -> Result<()> {
    let messages = client.until(b'Z')?;
    let code = messages.iter().find(|m| m.tag == b'E').and_then(|m| m.field(b'C'));
    ensure!(code.as_deref() == Some("57014"), "{messages:?}");
    Ok(())
}

/// A session that other sessions know by its application name.
fn named<'a>(login: Login<'a>, more: &'a [(&'a str, &'a str)]) -> Login<'a> {
    Login { more, ..login }
}

const VICTIM: &[(&str, &str)] = &[("application_name", "victim")];

/// Protocol 3.2 has keys of up to 256 bytes; version 18 sends 32, older ones speak 3.0.
fn long_keys(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let login = pair.login();
    let mut client = RawClient::open(pair.address())?;
    let parameters = [("user", login.user), ("database", login.database), ("application_name", "victim")];
    client.send(&startup_of(196_610, &parameters))?;
    let key = client.until(b'Z')?.into_iter().find(|m| m.tag == b'K').context("no BackendKeyData")?.body;
    ensure!(key.len() == if version == Version::V18 { 36 } else { 8 }, "a key of {} bytes", key.len());
    client.send(&query("select pg_sleep(60)"))?;
    wait_until(&pair, "victim", "wait_event = 'PgSleep'")?;
    // A key that is wrong in its last byte, or cut, is nobody's.
    let mut wrong = key.clone();
    *wrong.last_mut().context("an empty key")? ^= 1;
    for nobody in [&wrong, &key[..key.len() - 1]] {
        let mut canceller = RawClient::open(pair.address())?;
        canceller.send(&cancel(nobody))?;
        canceller.bytes_to_end()?;
    }
    time_passes("nothing is cancelled", Duration::from_millis(200));
    wait_until(&pair, "victim", "wait_event = 'PgSleep'")?;
    request(pair.address(), &key)?;
    cancelled(&mut client)?;
    client.expect_silence()
}

/// Nothing runs in the server, so there is nothing to cancel, however often it is asked.
fn a_session_that_only_hits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    let mut client = pair.connect()?;
    let expected = pair.database.connect()?.query(READ)?;
    for _ in 0..20 {
        let key = client.key_data.clone();
        request(pair.address(), &key)?;
        for _ in 0..5 {
            // It may be late and meet what Freshet asks for itself, or the read where that passes.
            let answer = client.query(READ)?;
            let late = answer.iter().any(|m| m.field(b'C').as_deref() == Some("57014"));
            ensure!(answer == expected || late, "{answer:?}");
        }
    }
    eventually(PATIENCE, || client.expect_silence())?;
    ensure!(client.query(READ)? == expected, "another answer");
    crate::cached::until_hit(&pair, &mut client, READ)
}

/// The answer that was to be cached does not come, and nothing is cached.
fn a_fill(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| c.query(READ).map(drop))?;
    let login = pair.login();
    let mut client = RawClient::login(pair.address(), named(login, VICTIM))?;
    let ways = [query(SLOW_READ), [unnamed(SLOW_READ, &[]), sync()].concat()];
    for all in ways.iter().chain(&ways) {
        let before = pair.freshet.metrics()?;
        client.send(all)?;
        wait_until(&pair, "victim", "state = 'active' and query like '%item e%'")?;
        request(pair.address(), &client.key_data.clone())?;
        cancelled(&mut client)?;
        crate::support::rest();
        let after = pair.freshet.metrics()?;
        let fills = after.count("freshet_fills_total") - before.count("freshet_fills_total");
        ensure!(
            fills == 1 || !pair.freshet.is_there(),
            "{fills} fills of {}; {:?}",
            all.escape_ascii(),
            after.passed_since(&before)
        );
        client.expect_silence()?;
    }
    crate::cached::until_hit(&pair, &mut client, READ)
}

/// One statement of several in flight is cancelled; the others are answered, each by its own ReadyForQuery.
fn a_pipeline(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = || [unnamed("select id, name from item where id = $1", &["2"]), sync()].concat();
    let talk = |address| -> Result<_> {
        let mut client = RawClient::login(address, named(pair.login(), VICTIM))?;
        client.exchange(&read(), 1)?;
        crate::support::rest();
        let sleep = [unnamed("select pg_sleep(60)", &[]), unnamed("select 'skipped'", &[]), sync()].concat();
        client.send(&[read(), sleep, read(), query(READ), read()].concat())?;
        client.until(b'Z')?;
        wait_until(&pair, "victim", "wait_event = 'PgSleep'")?;
        request(address, &client.key_data.clone())?;
        for _ in 0..4 {
            client.until(b'Z')?;
        }
        client.expect_silence()?;
        Ok(client.heard)
    };
    for _ in 0..2 {
        // The server signals the process and its group, so that the second signal can meet a later statement.
        eventually(PATIENCE, || crate::support::ensure_same(&talk(pair.database.address())?, &talk(pair.address())?))?;
    }
    Ok(())
}

fn copies(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let talk = |address| -> Result<_> {
        let mut client = RawClient::login(address, named(pair.login(), VICTIM))?;
        client.query(READ)?;
        // In: the server looks at the request when the next data comes.
        client.send(&query("copy log from stdin"))?;
        client.until(b'G')?;
        client.send(&copy_data(b"101\tone\n"))?;
        request(address, &client.key_data.clone())?;
        // No view of the server shows a signal that has not been looked at.
        time_passes("the signal arrives", Duration::from_millis(100));
        client.send(&[copy_data(b"102\ttwo\n"), copy_done()].concat())?;
        cancelled(&mut client)?;
        client.query(READ)?;
        client.query("select count(*) from log where id > 100")?;
        let mut heard = std::mem::take(&mut client.heard);
        // How far the copy had come is left to chance.
        heard.iter_mut().filter(|m| m.tag == b'E').for_each(|m| m.body = m.field(b'C').unwrap_or_default().into());
        // Out: some rows have come, how many is left to chance.
        client.send(&query("copy (select i, pg_sleep(0.001) from generate_series(1, 1000000) i) to stdout"))?;
        client.until(b'd')?;
        request(address, &client.key_data.clone())?;
        cancelled(&mut client)?;
        client.expect_silence()?;
        Ok(heard)
    };
    let direct = talk(pair.database.address())?;
    for _ in 0..2 {
        crate::support::ensure_same(&direct, &talk(pair.address())?)?;
    }
    Ok(())
}

/// libpq asks for encryption on the connection of the request, too.
fn after_a_refused_encryption(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut client = RawClient::login(pair.address(), named(pair.login(), VICTIM))?;
    client.send(&query("select pg_sleep(60)"))?;
    wait_until(&pair, "victim", "wait_event = 'PgSleep'")?;
    let mut canceller = RawClient::open(pair.address())?;
    canceller.send(&ssl_request())?;
    ensure!(canceller.read_byte()? == b'N', "not refused by N");
    canceller.send(&cancel(&client.key_data))?;
    ensure!(canceller.read_unheard()?.is_none(), "answered");
    cancelled(&mut client)?;
    client.expect_silence()
}

fn a_transaction(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let talk = |address| -> Result<_> {
        let mut client = RawClient::login(address, named(pair.login(), VICTIM))?;
        client.query("begin")?;
        client.query("savepoint s")?;
        client.send(&query("select pg_sleep(60)"))?;
        wait_until(&pair, "victim", "wait_event = 'PgSleep'")?;
        request(address, &client.key_data.clone())?;
        cancelled(&mut client)?;
        for sql in [READ, "rollback to s", READ, "commit", READ] {
            client.query(sql)?;
        }
        Ok(client.heard)
    };
    let direct = talk(pair.database.address())?;
    for _ in 0..2 {
        crate::support::ensure_same(&direct, &talk(pair.address())?)?;
    }
    Ok(())
}
