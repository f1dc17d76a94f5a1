//! Asynchronous messages: notifications, notices and reports of settings, at any time.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::SCHEMA;
use crate::cached::until_hit;
use crate::support::frames::{query, sync, unnamed};
use crate::support::{Message, Pair, RawClient, Version, ensure_same, on_both, pace, rest};

on_both!(
    notifications_between_hits,
    notifications_during_a_pipeline,
    notifications_to_oneself,
    many_notifications_while_idle,
    reports_of_settings,
    notices_of_a_read,
);

const READ: &str = "select id, name from item where id = $1";

/// A notification reports a commit: a session that gets it and reads, from the cache or the database, sees this commit.
fn notifications_between_hits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select line from log where id = 3";
    let mut listener = pair.connect()?;
    listener.query("listen news")?;
    let mut writers = [pair.connect()?, pair.database.connect()?];
    for round in 0..12 {
        until_hit(&pair, &mut listener, read)?;
        listener.heard.clear();
        // Through Freshet and around it.
        let writer = &mut writers[round % 2];
        writer.run(&format!(
            "begin; update log set line = 'round {round}' where id = 3; notify news, '{round}'; commit"
        ))?;
        let told = listener.read()?;
        ensure!(told.tag == b'A' && told.body.ends_with(format!("news\0{round}\0").as_bytes()), "{told:?}");
        let line = listener.value(read)?;
        ensure!(line == format!("round {round}"), "told of round {round}, read {line}");
    }
    Ok(())
}

/// They come between two messages, and everything else is as without them.
fn notifications_during_a_pipeline(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let rounds = 600;
    let mut all = Vec::new();
    for round in 0..rounds {
        let id = (round % 7 + 1).to_string();
        all.extend(unnamed(READ, &[&id]));
        all.extend(sync());
    }
    let talk = |address| -> Result<(Vec<Message>, usize)> {
        let mut client = RawClient::login(address, pair.login())?;
        client.query("listen news")?;
        rest();
        thread::scope(|scope| {
            let notifier = scope.spawn(|| -> Result<()> {
                let mut notifier = pair.database.connect()?;
                (0..50).try_for_each(|number| {
                    pace(Duration::from_millis(5));
                    notifier.run(&format!("notify news, '{number}'"))
                })
            });
            for _ in 0..3 {
                client.exchange(&all, rounds)?;
            }
            notifier.join().expect("the notifier does not panic")
        })?;
        // The last ones come when all is done.
        client.query("select 'done'")?;
        while client.heard.iter().filter(|m| m.tag == b'A').count() < 50 {
            client.read()?;
        }
        let (told, heard): (Vec<_>, Vec<_>) = client.heard.into_iter().partition(|m| m.tag == b'A');
        let order = told.iter().enumerate().all(|(at, m)| m.body.ends_with(format!("news\0{at}\0").as_bytes()));
        ensure!(order, "notifications out of order: {told:?}");
        Ok((heard, told.len()))
    };
    let direct = talk(pair.database.address())?;
    let before = pair.freshet.metrics()?.hits();
    // Each notification keeps reads from the cache away for a moment, so how many there are is left to chance.
    for _ in 0..8 {
        let through = talk(pair.address())?;
        ensure_same(&direct.0, &through.0)?;
        ensure!(direct.1 == through.1, "{} notifications rather than {}", through.1, direct.1);
        if !pair.freshet.is_there() || pair.freshet.metrics()?.hits() > before + 100 {
            return Ok(());
        }
    }
    bail!("hardly any hits")
}

fn notifications_to_oneself(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = || [unnamed(READ, &["1"]), sync()].concat();
    let notify = |sql: &str| [unnamed(sql, &[]), sync()].concat();
    pair.same_with_hits(2, |c| {
        c.exchange(&read(), 1)?;
        c.query("listen self")?;
        c.query("notify self, 'a'")?;
        c.exchange(&read(), 1)?;
        rest();
        c.exchange(&read(), 1)?;
        c.exchange(&[notify("notify self, 'b'"), read(), notify("select pg_notify('self', 'c')"), read()].concat(), 4)?;
        c.exchange(&[notify("begin"), notify("notify self, 'd'"), read(), notify("commit"), read()].concat(), 5)?;
        c.exchange(&[notify("begin"), notify("notify self, 'never'"), notify("rollback"), read()].concat(), 4)?;
        c.exchange(
            &[notify("notify self, 'e'; select 1"), query("notify self, 'f'; notify self, 'f'; select 2")].concat(),
            2,
        )?;
        c.exchange(&[unnamed("notify self, 'g'", &[]), unnamed("select 1/0", &[]), sync(), read()].concat(), 2)?;
        c.query("unlisten self")?;
        c.query("notify self, 'nobody listens'")?;
        // Then it comes from the cache again.
        rest();
        c.exchange(&read(), 1)?;
        c.expect_silence()
    })
}

/// The idle session sends nothing; all of them arrive.
fn many_notifications_while_idle(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut listener = pair.connect()?;
    listener.query("listen news")?;
    let payload = "x".repeat(7000);
    let mut notifier = pair.connect()?;
    for number in 0..100 {
        notifier.run(&format!("select pg_notify('news', '{number} {payload}')"))?;
    }
    for number in 0..100 {
        let told = listener.read()?;
        let expected = format!("news\0{number} {payload}\0");
        ensure!(told.tag == b'A' && told.body.ends_with(expected.as_bytes()), "{number}: {told:?}");
    }
    listener.expect_silence()
}

/// ParameterStatus stands exactly where the server puts it, whatever was served from the cache before.
fn reports_of_settings(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = || [unnamed(READ, &["1"]), sync()].concat();
    let set = |sql: &str| [unnamed(sql, &[]), sync()].concat();
    pair.same_with_hits(2, |c| {
        for _ in 0..2 {
            c.exchange(&read(), 1)?;
            for sql in [
                "set application_name = 'one'",
                "set timezone = 'Asia/Tokyo'; set datestyle = 'german'; set intervalstyle = 'iso_8601'",
                "set client_encoding = 'latin1'",
                "set standard_conforming_strings = off",
                "set session_authorization to default",
                "set default_transaction_read_only = on",
                "set search_path = pg_catalog, public",
                "set role none",
                "select set_config('application_name', 'two', false)",
                "begin; set timezone = 'Asia/Kolkata'; rollback",
                "begin; set local timezone = 'Asia/Kolkata'; commit",
                "set timezone = 'UTC'; select 1/0",
                "set datestyle = 'nonsense'",
            ] {
                c.query(sql)?;
                c.exchange(&[read(), set("set application_name = 'three'"), read(), query(sql)].concat(), 4)?;
            }
            c.query("reset all")?;
            rest();
            c.exchange(&read(), 1)?;
        }
        c.expect_silence()
    })
}

/// What another session has filled without a notice is not for one that gets them: the server's own chatter, too.
fn notices_of_a_read(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select id, name from item where id = 4";
    until_hit(&pair, &mut pair.connect()?, read)?;
    for set in ["set client_min_messages = debug5", "set client_min_messages = log; set log_statement = 'all'"] {
        let talk = |address| -> Result<Vec<bool>> {
            let mut client = RawClient::login(address, pair.login())?;
            client.query(set)?;
            let mut noticed = Vec::new();
            for _ in 0..3 {
                rest();
                noticed.push(client.query(read)?.iter().any(|m| m.tag == b'N'));
            }
            Ok(noticed)
        };
        let (direct, through) = (talk(pair.database.address())?, talk(pair.address())?);
        ensure!(direct == [true; 3], "no notices: nothing is tested");
        ensure!(through == direct, "{set}: with a notice: {through:?}");
    }
    // What came without a word is served, until the server is told to say one.
    for set in ["debug1", "debug2", "debug3", "debug4", "log"] {
        let mut client = pair.connect()?;
        client.query(&format!("set client_min_messages = {set}"))?;
        until_hit(&pair, &mut client, read)?;
        client.query("set log_duration = on")?;
        for _ in 0..3 {
            ensure!(client.query(read)?.iter().any(|m| m.tag == b'N'), "{set}: without a notice");
            rest();
        }
    }
    // Each message of the extended protocol is logged to the client.
    pair.same(|c| {
        c.query("set client_min_messages = debug2")?;
        for _ in 0..3 {
            c.exchange(&[unnamed(read, &[]), sync()].concat(), 1)?;
            rest();
        }
        Ok(())
    })
}
