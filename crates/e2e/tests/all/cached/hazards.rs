//! Sequences that once stored a wrong answer under a right key; each test describes one.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{SCHEMA, SEEN_WITHIN, until_hit};
use crate::support::frames::{bind_text, execute, parse, sync};
use crate::support::{Pair, RawClient, Version, eventually, on_both, rest};

on_both!(a_failed_parse, a_schema_created_later, a_row_filter_put_on_by_others, constants_read_under_other_settings);

/// A statement executed in the shape that `Bind` and `Execute` of a named one have, so that their keys are the same.
fn at_once(sql: &str) -> Vec<u8> {
    [parse("", sql), bind_text("", "", &[]), execute("", 0), sync()].concat()
}

/// The first column of the first row.
fn value(client: &mut RawClient, messages: &[u8], ready: usize) -> Result<String> {
    let answer = client.exchange(messages, ready)?;
    let row = answer.iter().find(|message| message.tag == b'D').map(crate::support::Message::columns);
    let first = row.and_then(|columns| columns.into_iter().next()).flatten().unwrap_or_default();
    Ok(String::from_utf8_lossy(&first).into_owned())
}

/// From within D on, and for a while after that, a read has this value.
fn settles_at(pair: &Pair, sql: &str, expected: &str) -> Result<()> {
    let mut client = pair.connect()?;
    eventually(SEEN_WITHIN, || {
        let found = client.value(sql)?;
        ensure!(found == expected, "{sql}: {found}");
        Ok(())
    })?;
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        let found = client.value(sql)?;
        ensure!(found == expected, "{sql} went back to {found}");
        rest();
    }
    Ok(())
}

/// A `Parse` that fails because the name is taken: the `Bind` behind it runs the older statement, whose rows must not
/// be kept under the newer one's text.
fn a_failed_parse(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, "select count(*) from film")?;
    let (older, newer) = ("select title from film where id = 1", "select title from film where id = 2");
    client.exchange(&[parse("s", older), sync()].concat(), 1)?;
    let run = [bind_text("", "s", &[]), execute("", 0), sync()].concat();
    client.exchange(&[parse("s", newer), sync(), run].concat(), 2)?;
    let mut fresh = pair.connect()?;
    for _ in 0..5 {
        let found = value(&mut fresh, &at_once(newer), 1)?;
        ensure!(found == "film 2", "{newer}: {found}");
        rest();
    }
    Ok(())
}

/// The text of `search_path` stays, and what it means does not.
fn a_schema_created_later(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select title from film where id = 3";
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, read)?;
    let own = "create schema authorization current_user;
        do $$ begin execute format('create table %I.film (id int primary key, title text)', current_user); end $$;
        insert into film values (3, 'own 3')";
    pair.database.run(own)?;
    settles_at(&pair, read, "own 3")?;
    until_hit(&pair, &mut client, read)?;
    pair.database.run("update film set title = 'own again' where id = 3")?;
    settles_at(&pair, read, "own again")?;
    ensure!(client.value(read)? == "own again", "the session that was there before");
    Ok(())
}

/// Under a row filter, changes are missing from the stream: the table must not be published.
fn a_row_filter_put_on_by_others(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let read = "select title from film where id = 1";
    until_hit(&pair, &mut pair.connect()?, read)?;
    pair.database.run("alter publication freshet set table film where (id > 100)")?;
    rest();
    pair.connect()?.value(read)?;
    pair.database.run("update film set title = 'unseen by the stream' where id = 1")?;
    settles_at(&pair, read, "unseen by the stream")
}

/// Constants of a prepared statement are read under the settings at its `Parse`.
fn constants_read_under_other_settings(version: Version) -> Result<()> {
    let days = "create table day (d date primary key, v text);
        insert into day values ('2020-01-02', 'january'), ('2020-02-01', 'february')";
    let pair = Pair::new(version, days)?;
    let read = "select v from day where d = '01/02/2020'";
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, "select count(*) from day")?;
    client.exchange(&[parse("s", read), sync()].concat(), 1)?;
    client.run("set datestyle = 'ISO, DMY'")?;
    let mut fresh = pair.connect()?;
    fresh.run("set datestyle = 'ISO, DMY'")?;
    for _ in 0..6 {
        let then = value(&mut client, &[bind_text("", "s", &[]), execute("", 0), sync()].concat(), 1)?;
        ensure!(then == "january", "parsed before: {then}");
        let now = value(&mut fresh, &at_once(read), 1)?;
        ensure!(now == "february", "parsed now: {now}");
        rest();
    }
    Ok(())
}
