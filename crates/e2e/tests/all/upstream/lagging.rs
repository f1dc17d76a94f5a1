//! A replica that lags answers statements that nothing behind its position touches, and no others.

use anyhow::{Context, Result, ensure};

use super::expect_value;
use super::replicas::{BALANCE, Stand};
use crate::support::{Message, PATIENCE, RawClient, Version, eventually, frames, on_both};

on_both!(
    a_replica_whose_replay_is_paused,
    a_replica_whose_replay_is_delayed,
    a_replica_that_lacks_a_definition,
    a_replica_that_lacks_what_the_stream_lacks,
);

/// How a replica is made to lag.
#[derive(Clone, Copy)]
enum Lag {
    Paused,
    Delayed,
}

impl Lag {
    fn begin(self, stand: &Stand) -> Result<()> {
        match self {
            Self::Paused => stand.standby.psql("select pg_wal_replay_pause()").map(drop),
            Self::Delayed => stand.standby.set("recovery_min_apply_delay", "5min"),
        }
    }

    fn end(self, stand: &Stand) -> Result<()> {
        match self {
            Self::Paused => stand.standby.psql("select pg_wal_replay_resume()").map(drop),
            Self::Delayed => stand.standby.set("recovery_min_apply_delay", "0"),
        }
    }
}

fn a_replica_whose_replay_is_paused(version: Version) -> Result<()> {
    answers_what_it_has(version, Lag::Paused)
}

fn a_replica_whose_replay_is_delayed(version: Version) -> Result<()> {
    answers_what_it_has(version, Lag::Delayed)
}

fn of_row(id: i32) -> String {
    format!("select v from account where id = {id}")
}

/// Writes until the replica lacks a commit, and answers a read that this does not touch. Returns what was written to row 2.
fn lags(stand: &Stand, lag: Lag, client: &mut RawClient) -> Result<i32> {
    let mut v = 0;
    eventually(PATIENCE, || {
        // What it must have for any such read may have come after it began to lag.
        lag.end(stand)?;
        stand.until_read()?;
        lag.begin(stand)?;
        let before = stand.lagging_reads()?;
        v += 1;
        client.run(&format!("update account set v = {v} where id = 2"))?;
        for _ in 0..50 {
            expect_value(client, BALANCE, "0")?;
        }
        ensure!(stand.lagging_reads()? > before, "the lagging replica has answered nothing");
        // A delay may take effect only behind it.
        let there = stand.standby.psql(&format!("\\c {}\n{}", stand.database.name, of_row(2)))?;
        ensure!(there.trim() != v.to_string(), "the replica has the last write");
        Ok(v)
    })
}

fn answers_what_it_has(version: Version, lag: Lag) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    let (mut client, mut other) = (stand.connect()?, stand.connect()?);
    let v = lags(&stand, lag, &mut client)?;
    // What it lacks is read at the primary: by the key, by a range, as a sum, by parameters, by others.
    let before = stand.reads()?;
    for _ in 0..20 {
        for reader in [&mut client, &mut other] {
            expect_value(reader, &of_row(2), &v.to_string())?;
            expect_value(reader, "select max(v) from account where id between 2 and 5", &v.to_string())?;
            expect_value(reader, "select sum(v) from account", &v.to_string())?;
            let batch = [frames::unnamed("select v from account where id = $1", &["2"]), frames::sync()].concat();
            let messages = reader.exchange(&batch, 1)?;
            let row = messages.iter().find(|message| message.tag == b'D').map(Message::columns);
            ensure!(row == Some(vec![Some(v.to_string().into_bytes())]), "{messages:?}");
        }
    }
    ensure!(stand.reads()? == before, "the replica has answered what it lacks");
    // Others too read there what it has, by parameters and by ranges.
    let batch = [frames::unnamed("select v from account where id = $1", &["3"]), frames::sync()].concat();
    for range in [frames::query("select max(v) from account where id between 3 and 9"), batch] {
        let before = stand.lagging_reads()?;
        eventually(PATIENCE, || {
            let messages = other.exchange(&range, 1)?;
            let row = messages.iter().find(|message| message.tag == b'D').map(Message::columns);
            ensure!(row == Some(vec![Some(b"0".to_vec())]), "{messages:?}");
            ensure!(stand.lagging_reads()? > before, "not at the replica");
            Ok(())
        })?;
    }
    // Each further row that is written is read at the primary at once, and the last one as well once it is there again.
    for id in [1, 3, 4] {
        client.run(&format!("update account set v = 7 where id = {id}"))?;
        let before = stand.reads()?;
        for _ in 0..20 {
            expect_value(&mut other, &of_row(id), "7")?;
            expect_value(&mut client, &of_row(id), "7")?;
        }
        ensure!(stand.reads()? == before, "the replica has answered what it lacks");
    }
    lag.end(&stand)?;
    stand.until_read()?;
    expect_value(&mut other, BALANCE, "7")
}

/// The replica has the rows, but not the view's new definition.
fn a_replica_that_lacks_a_definition(version: Version) -> Result<()> {
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    stand.database.run("create view balance as select v from account where id = 1")?;
    let (mut client, mut other) = (stand.connect()?, stand.connect()?);
    lags(&stand, Lag::Paused, &mut client)?;
    let before = stand.lagging_reads()?;
    eventually(PATIENCE, || {
        expect_value(&mut other, "select v from balance", "0")?;
        ensure!(stand.lagging_reads()? > before, "not at the replica");
        Ok(())
    })?;
    let before = stand.reads()?;
    client.run("create or replace view balance as select v + 100 as v from account where id = 1")?;
    for _ in 0..20 {
        expect_value(&mut client, "select v from balance", "100")?;
        expect_value(&mut other, "select v from balance", "100")?;
    }
    ensure!(stand.reads()? == before, "the replica has answered under the old definition");
    Lag::Paused.end(&stand)?;
    let before = stand.reads()?;
    eventually(PATIENCE, || {
        expect_value(&mut other, "select v from balance", "100")?;
        ensure!(stand.reads()? > before, "the standby answers no read");
        Ok(())
    })
}

/// A table is written before it is published: the change stream knows nothing of it.
fn a_replica_that_lacks_what_the_stream_lacks(version: Version) -> Result<()> {
    const LATE: &str = "select v from late where id = 1";
    let Some(stand) = Stand::new(version)? else { return Ok(()) };
    stand.database.run("create table late (id int primary key, v int not null); insert into late values (1, 0)")?;
    let (mut client, mut other) = (stand.connect()?, stand.connect()?);
    lags(&stand, Lag::Paused, &mut client)?;
    client.run("update late set v = 5 where id = 1")?;
    let (before, published) = (stand.reads()?, tables_published(&mut client)?);
    eventually(PATIENCE, || {
        expect_value(&mut client, LATE, "5")?;
        expect_value(&mut other, LATE, "5")?;
        ensure!(tables_published(&mut client)? > published, "it is not published");
        Ok(())
    })?;
    for _ in 0..50 {
        expect_value(&mut client, LATE, "5")?;
        expect_value(&mut other, LATE, "5")?;
    }
    ensure!(stand.reads()? == before, "the replica has answered what it lacks");
    Lag::Paused.end(&stand)?;
    eventually(PATIENCE, || {
        expect_value(&mut other, LATE, "5")?;
        ensure!(stand.reads()? > before, "the standby answers no read");
        Ok(())
    })
}

fn tables_published(client: &mut RawClient) -> Result<u64> {
    let messages = client.query("show freshet status")?;
    let rows = messages.iter().filter(|message| message.tag == b'D').map(Message::columns);
    let mut rows = rows.filter(|row| row.first() == Some(&Some(b"tables_published".to_vec())));
    let value = rows.next().and_then(|row| row.into_iter().nth(1).flatten()).context("no such row")?;
    Ok(String::from_utf8(value)?.parse()?)
}
