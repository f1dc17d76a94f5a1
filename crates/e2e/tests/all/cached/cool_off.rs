//! A table whose changes cost more than its hits save leaves the publication, which Freshet reports, and returns; answers stay right.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{SCHEMA, until_hit};
use crate::support::{PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(a_table_that_does_not_pay_leaves_and_comes_back, a_table_that_pays_stays);

const READ: &str = "select votes from film where id = 70";

fn published(pair: &Pair) -> Result<bool> {
    let mut direct = RawClient::login(pair.database.address(), pair.login())?;
    Ok(direct.value("select count(*) from pg_publication_tables where tablename = 'film'")? == "1")
}

/// Many small commits at once.
fn write_much(writer: &mut RawClient, round: usize) -> Result<()> {
    let one = |n: usize| format!("update film set votes = {round} where id = {};", 1 + n % 60);
    let script: String = (0..200).map(one).collect();
    writer.run(&format!("do $$ begin {} end $$", script.replace(';', "; commit;")))
}

/// Writes until the table has left the publication, and reads now and then.
fn write_until_it_leaves(pair: &Pair, writer: &mut RawClient, reader: &mut RawClient) -> Result<()> {
    let start = Instant::now();
    for round in 0.. {
        write_much(writer, round)?;
        let votes = reader.value("select votes from film where id = 7")?;
        ensure!(votes == round.to_string(), "{round} was acknowledged, {votes} is read");
        if round % 10 == 0 && !published(pair)? {
            return Ok(());
        }
        ensure!(start.elapsed() < PATIENCE, "the table has not left after {round} rounds");
    }
    Ok(())
}

fn a_table_that_does_not_pay_leaves_and_comes_back(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut reader, READ)?;
    write_until_it_leaves(&pair, &mut writer, &mut reader)?;
    // None of it is cached, which is reported; what is written is seen at once.
    let before = pair.freshet.metrics()?;
    ensure!(before.count("freshet_tables_in_cool_off") == 1, "it is not counted");
    let explained = reader.query(&format!("explain cache {READ}"))?;
    ensure!(format!("{explained:?}").contains("in cool-off"), "{explained:?}");
    // Some may pass for what is so at the moment, such as a catalogue that is being read again.
    let (start, mut votes) = (Instant::now(), 1000);
    while votes < 1020 || pair.freshet.metrics()?.passed("in_cool_off") == before.passed("in_cool_off") {
        writer.run(&format!("update film set votes = {votes} where id = 70"))?;
        ensure!(reader.value(READ)? == votes.to_string(), "{votes} was acknowledged");
        ensure!(start.elapsed() < PATIENCE, "the reason is not counted");
        votes += 1;
    }
    // Others are as they were.
    until_hit(&pair, &mut reader, "select count(*) from role where film_id = 7")?;
    // After a pause it comes back, and what was written meanwhile, and is written now, is seen.
    until_hit(&pair, &mut reader, READ)?;
    ensure!(published(&pair)?, "it hits and is not published");
    for votes in 2000..2020 {
        writer.run(&format!("update film set votes = {votes} where id = 70"))?;
        ensure!(reader.value(READ)? == votes.to_string(), "{votes} was acknowledged");
        until_hit(&pair, &mut reader, READ)?;
    }
    // Around Freshet, too.
    RawClient::login(pair.database.address(), pair.login())?.run("update film set votes = 1 where id = 70")?;
    eventually(PATIENCE, || {
        ensure!(reader.value(READ)? == "1", "a write around Freshet is not seen");
        Ok(())
    })?;
    // And it leaves again.
    write_until_it_leaves(&pair, &mut writer, &mut reader)
}

fn a_table_that_pays_stays(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut reader, READ)?;
    let start = Instant::now();
    for votes in 0.. {
        if start.elapsed() > Duration::from_secs(5) {
            break;
        }
        writer.run(&format!("update film set votes = {votes} where id = 70"))?;
        for _ in 0..20 {
            ensure!(reader.value(READ)? == votes.to_string(), "{votes} was acknowledged");
        }
    }
    ensure!(published(&pair)?, "it is not published any more");
    Ok(())
}
