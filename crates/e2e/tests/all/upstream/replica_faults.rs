//! Reads at replicas amid faults: the change stream or the standby fails, the client is slow or leaves, the primary hides a commit.

use std::io::Read as _;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, Result, ensure};

use super::expect_value;
use super::replicas::{BALANCE, Stand};
use crate::support::{Message, PATIENCE, RawClient, Version, eventually, frames, on_both, relaying};

on_both!(
    the_stream_restarts_while_replicas_are_read,
    a_replica_that_never_answers,
    answers_of_megabytes,
    a_session_under_serializable_reads_at_the_primary,
    a_statement_that_a_conflict_cancels,
    a_session_in_debt_reads_at_replicas,
    a_session_that_reads_at_replicas_fills_the_cache,
);

/// The only value of an answer, which has no error.
fn only_value(messages: &[Message]) -> Result<String> {
    ensure!(messages.iter().all(|message| message.tag != b'E'), "{messages:?}");
    let row = messages.iter().find(|message| message.tag == b'D').context("no row")?;
    let value = row.columns().into_iter().next().flatten().context("no value")?;
    Ok(String::from_utf8(value)?)
}

fn tags(messages: &[Message]) -> String {
    messages.iter().map(|message| char::from(message.tag)).collect()
}

/// With each acknowledged write all sessions see it, wherever they read, while the stream begins anew.
fn the_stream_restarts_while_replicas_are_read(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let ends = "select count(pg_terminate_backend(active_pid)) from pg_replication_slots where slot_type = 'logical'";
    let mut writer = stand.connect()?;
    let mut readers = (0..4).map(|_| stand.connect()).collect::<Result<Vec<_>>>()?;
    let before = stand.reads()?;
    for v in 1..=60 {
        if v % 15 == 0 {
            stand.database.server.psql(ends)?;
        }
        writer.run(&format!("update account set v = {v} where id = 1"))?;
        for (number, reader) in readers.iter_mut().enumerate() {
            expect_value(reader, BALANCE, &v.to_string()).with_context(|| format!("reader {number}"))?;
        }
    }
    ensure!(stand.reads()? > before, "the standby has answered nothing");
    stand.until_read()
}

/// It accepts connections and bytes, and says nothing: reads go to the primary.
fn a_replica_that_never_answers(version: Version) -> Result<()> {
    let hole = Arc::new(RwLock::new(()));
    let within = hole.clone();
    let Some(stand) = Stand::behind(version, &[], move |standby| {
        relaying::listen(standby, move |client, server| {
            let of_server = within.clone();
            let waits = move |_: &[u8]| drop(of_server.read().unwrap_or_else(PoisonError::into_inner));
            relaying::pass_on(client, server, |_| {}, waits)
        })
    })?
    else {
        return Ok(());
    };
    let mut clients = (0..3).map(|_| stand.connect()).collect::<Result<Vec<_>>>()?;
    for v in 1..=2 {
        let stays = hole.write().unwrap_or_else(PoisonError::into_inner);
        clients[0].run(&format!("update account set v = {v} where id = 1"))?;
        for client in &mut clients {
            for _ in 0..5 {
                expect_value(client, BALANCE, &v.to_string())?;
            }
        }
        stand.answers_none(&v.to_string())?;
        drop(stays);
        stand.until_read()?;
        expect_value(&mut clients[1], BALANCE, &v.to_string())?;
    }
    Ok(())
}

/// Some 20 MB of a standby, for a client that reads nothing at first, and for one that leaves amid them.
fn answers_of_megabytes(version: Version) -> Result<()> {
    const WIDE: &str = "select repeat('x', 1000000) || v from account where id <= 20";
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let under_way = format!(
        "select count(*) from pg_stat_activity where query = '{}' and state = 'active'",
        WIDE.replace('\'', "''")
    );
    for leaves in [false, true] {
        let client = eventually(PATIENCE, || {
            let mut client = stand.connect()?;
            client.send(&frames::query(WIDE))?;
            let is_there = eventually(PATIENCE, || {
                let at_standby = stand.standby.psql(&under_way)? == "1";
                ensure!(at_standby || stand.database.server.psql(&under_way)? == "1", "at no server");
                Ok(at_standby)
            })?;
            ensure!(is_there, "at the primary");
            Ok(client)
        })?;
        // Others are served meanwhile.
        stand.until_read()?;
        if leaves {
            let mut some = vec![0; 100_000];
            client.socket()?.read_exact(&mut some)?;
            drop(client);
        } else {
            let mut client = client;
            let messages = client.until(b'Z')?;
            let rows: Vec<_> = messages.iter().filter(|message| message.tag == b'D').collect();
            ensure!(rows.len() == 20 && rows.iter().all(|row| row.body.len() > 1_000_000), "{} rows", rows.len());
            expect_value(&mut client, BALANCE, "0")?;
        }
        eventually(PATIENCE, || {
            ensure!(stand.standby.psql(&under_way)? == "0", "the standby still answers");
            Ok(())
        })?;
        stand.until_read()?;
    }
    Ok(())
}

fn a_session_under_serializable_reads_at_the_primary(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let name = &stand.database.name;
    stand.database.run(&format!("alter database {name} set default_transaction_isolation = 'serializable'"))?;
    eventually(PATIENCE, || {
        let isolation = stand.connect()?.value("show transaction_isolation")?;
        ensure!(isolation == "serializable", "{isolation}");
        Ok(())
    })?;
    stand.connect()?.run("update account set v = 5 where id = 1")?;
    stand.answers_none("5")?;
    let batch = [frames::unnamed(BALANCE, &[]), frames::sync()].concat();
    ensure!(only_value(&stand.connect()?.exchange(&batch, 1)?)? == "5");
    stand.answers_none("5")
}

/// What replay must not wait for is cancelled at the standby with 40001, and run again at the primary.
fn a_statement_that_a_conflict_cancels(version: Version) -> Result<()> {
    const COUNT: &str = "select count(*) from account a, account b, account c where c.id <= 10 and a.id + b.id > c.id";
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    stand.standby.set("max_standby_streaming_delay", "0")?;
    let under_way = format!("select count(*) from pg_stat_activity where query = '{COUNT}' and state = 'active'");
    let conflicts = "select sum(confl_lock) from pg_stat_database_conflicts";
    eventually(PATIENCE, || {
        let before = stand.standby.psql(conflicts)?;
        let mut client = stand.connect()?;
        client.send(&frames::query(COUNT))?;
        eventually(PATIENCE, || {
            let at_standby = stand.standby.psql(&under_way)? == "1";
            ensure!(at_standby || client_has_answer(&client)?, "neither at the standby nor answered");
            Ok(())
        })?;
        stand.database.run("begin; lock table account in access exclusive mode; commit")?;
        let counted = only_value(&client.until(b'Z')?)?;
        assert!(counted == "9999835", "{counted}");
        expect_value(&mut client, BALANCE, "0")?;
        ensure!(stand.standby.psql(conflicts)? != before, "nothing was cancelled");
        Ok(())
    })
}

/// Whether something of its answer has come.
fn client_has_answer(client: &RawClient) -> Result<bool> {
    let socket = client.socket()?;
    socket.set_nonblocking(true)?;
    let heard = socket.peek(&mut [0]);
    socket.set_nonblocking(false)?;
    Ok(heard.is_ok())
}

/// A commit waits for a standby that does not answer. Who has seen it at the replica sees it in each later answer, and no session is ended.
fn a_session_in_debt_reads_at_replicas(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    stand.while_a_commit_waits(|clients, v| stays_in_debt(&stand, clients, &v.to_string()))
}

/// The only value of an answer; None: the session is to try again, as it may be under load.
fn value_in_debt(messages: &[Message]) -> Result<Option<String>> {
    if messages.iter().any(|message| message.tag == b'E' && message.field(b'C').as_deref() == Some("40001")) {
        return Ok(None);
    }
    only_value(messages).map(Some)
}

fn stays_in_debt(stand: &Stand, clients: Vec<RawClient>, v: &str) -> Result<bool> {
    let mut seen_by = None;
    for mut client in clients {
        if client.value(BALANCE)? == v {
            seen_by = Some(client);
            break;
        }
    }
    let Some(mut client) = seen_by else { return Ok(false) };
    let primary = RawClient::login(stand.database.address(), stand.database.login())?.value(BALANCE)?;
    ensure!(primary != v, "the primary shows it");
    let before = stand.reads()?;
    let batch = [frames::unnamed("select v from account where id = $1", &["1"]), frames::sync()].concat();
    for _ in 0..5 {
        let query = frames::query(BALANCE);
        for sent in [&query, &batch] {
            let answer = client.exchange(sent, 1).with_context(|| format!("{:?}", client.heard.last()))?;
            let Some(value) = value_in_debt(&answer)? else { return Ok(false) };
            ensure!(value == v, "{value}");
        }
    }
    ensure!(stand.reads()? >= before + 10, "not at the standby");
    let explained = client.query("explain last statement")?;
    let address = stand.address_of_standby();
    let names = |message: &Message| message.columns().last().cloned().flatten() == Some(address.clone().into_bytes());
    ensure!(explained.iter().any(names), "{explained:?}");
    // What only the primary can answer waits, is refused, and the session goes on.
    let at_primary = "select v from account where id = 1 and pg_backend_pid() > 0";
    let refused = client.query(at_primary)?;
    ensure!(tags(&refused) == "EZ" && refused[0].field(b'C').as_deref() == Some("40001"), "{refused:?}");
    let batch = [frames::parse("s", at_primary), frames::unnamed(at_primary, &[]), frames::sync()].concat();
    let refused = client.exchange(&batch, 1)?;
    ensure!(tags(&refused) == "EZ" && refused[0].field(b'S').as_deref() == Some("ERROR"), "{refused:?}");
    // By now it may be known that the primary has read its configuration again, which the session may have to be asked for.
    let later = client.query(BALANCE)?;
    ensure!(tags(&later) == "EZ" || only_value(&later)? == v, "{later:?}");
    stand.database.server.set("synchronous_standby_names", "")?;
    eventually(PATIENCE, || expect_value(&mut client, at_primary, v))?;
    client.expect_silence()?;
    Ok(true)
}

/// Each of its reads at a replica is followed by one that the cache lacks, which waits for the primary.
fn a_session_that_reads_at_replicas_fills_the_cache(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let mut client = stand.connect()?;
    let before = stand.reads()?;
    let batch = [frames::unnamed("select title from film where id = $1", &["3"]), frames::sync()].concat();
    for sent in [frames::query("select title from film where id = 2"), batch] {
        let hits = stand.freshet.metrics()?.hits();
        for _ in 0..50 {
            expect_value(&mut client, BALANCE, "0")?;
            only_value(&client.exchange(&sent, 1)?)?;
        }
        ensure!(stand.freshet.metrics()?.hits() > hits, "no hit");
    }
    ensure!(stand.reads()? > before, "the standby has answered nothing");
    Ok(())
}
