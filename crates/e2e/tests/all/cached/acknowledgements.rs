//! Promise 3: once a write through Freshet is acknowledged, no later read through it misses that write, in any session; and the behaviour while the
//! change stream does not advance.

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Settings, process};

use super::{SCHEMA, until_hit};
use crate::support::frames::{bind_text, copy_data, copy_done, execute, parse, query, sync, unnamed};
use crate::support::{Database, Pair, RawClient, Version, on_both};

on_both!(
    every_kind_of_write_is_seen_by_others_at_once,
    pipelined_writes_are_acknowledged_in_order,
    asynchronous_commits_are_seen_by_others_at_once,
    writes_without_a_stream_wait_for_nothing,
    a_stalled_stream_holds_nobody_for_long,
    copies_to_the_client_are_not_held,
    transactions_are_seen_by_others_at_once,
);

const READ: &str = "select votes from film where id = 70";

fn others_see(pair: &Pair, reader: &mut RawClient, votes: i32, how: &str) -> Result<()> {
    for client in [reader, &mut pair.connect()?] {
        let value = client.value(READ)?;
        ensure!(value == votes.to_string(), "{how}: {votes} was acknowledged, {value} is read");
    }
    Ok(())
}

fn every_kind_of_write_is_seen_by_others_at_once(version: Version) -> Result<()> {
    let schema = format!(
        "{SCHEMA} create function vote(v int) returns int language sql as
            $$ update film set votes = v where id = 70 returning votes $$;
        create procedure set_votes(v int) language plpgsql as
            $$ begin update film set votes = v where id = 70; commit; end $$;"
    );
    let pair = Pair::new(version, &schema)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    writer.exchange(&[parse("w", "update film set votes = $1::int where id = 70"), sync()].concat(), 1)?;
    for votes in 1000..1060 {
        until_hit(&pair, &mut reader, READ)?;
        let update = format!("update film set votes = {votes} where id = 70");
        let how = match votes % 10 {
            0 => writer.query(&update).map(|_| "Query"),
            1 => writer.exchange(&[unnamed(&update, &[]), sync()].concat(), 1).map(|_| "unnamed"),
            2 => {
                let run = [bind_text("", "w", &[&votes.to_string()]), execute("", 0), sync()].concat();
                writer.exchange(&run, 1).map(|_| "named")
            }
            3 => writer.query(&format!("begin; {update}; commit")).map(|_| "several statements"),
            4 => writer.query(&format!("select vote({votes})")).map(|_| "a function"),
            5 => writer.query(&format!("call set_votes({votes})")).map(|_| "a procedure that commits"),
            6 => writer.query(&format!("do $$ begin {update}; end $$")).map(|_| "DO"),
            7 => writer.query(&format!("with w as ({update} returning 1) select * from w")).map(|_| "WITH"),
            8 => {
                let merge = format!(
                    "insert into film values (70, 'x', null, {votes}) on conflict (id) do update set votes = {votes}"
                );
                writer.query(&merge).map(|_| "upsert")
            }
            _ => {
                writer.query("delete from role where film_id = 70; delete from film where id = 70")?;
                writer.send(&query("copy film (id, title, votes) from stdin"))?;
                writer.until(b'G')?;
                let row = format!("70\tcopied\t{votes}\n");
                writer.exchange(&[copy_data(row.as_bytes()), copy_done()].concat(), 1).map(|_| "COPY")
            }
        }?;
        others_see(&pair, &mut reader, votes, how)?;
    }
    Ok(())
}

fn pipelined_writes_are_acknowledged_in_order(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    for round in 0..20 {
        until_hit(&pair, &mut reader, READ)?;
        let update = |votes: i32| format!("update film set votes = {votes} where id = 70");
        let first = round * 10;
        let mut messages = Vec::new();
        for votes in first..first + 10 {
            messages.extend(match (round + votes) % 3 {
                0 => query(&update(votes)),
                1 => [unnamed(&update(votes), &[]), sync()].concat(),
                _ => [query("begin"), query(&update(votes)), query(READ), query("commit")].concat(),
            });
        }
        messages.extend(query(READ));
        let expected = messages_expected(round, first);
        let answers = writer.exchange(&messages, expected)?;
        let row = answers.iter().rev().find(|m| m.tag == b'D').context("no row")?;
        ensure!(row.body.ends_with((first + 9).to_string().as_bytes()), "the last read of the pipeline: {row:?}");
        others_see(&pair, &mut reader, first + 9, "pipelined")?;
    }
    Ok(())
}

/// ReadyForQuery messages of one round.
fn messages_expected(round: i32, first: i32) -> usize {
    (first..first + 10).map(|votes| if (round + votes) % 3 == 2 { 4 } else { 1 }).sum::<usize>() + 1
}

fn asynchronous_commits_are_seen_by_others_at_once(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    for votes in 0..60 {
        until_hit(&pair, &mut reader, READ)?;
        let write = format!("update film set votes = {votes} where id = 70");
        if votes % 2 == 0 {
            writer.query("set synchronous_commit = off")?;
            writer.query(&write)?;
        } else {
            writer.query("set synchronous_commit = on")?;
            writer.query("begin")?;
            writer.query("set local synchronous_commit = off")?;
            writer.query(&write)?;
            writer.query("commit")?;
        }
        others_see(&pair, &mut reader, votes, "synchronous_commit = off")?;
    }
    Ok(())
}

/// Freshet that cannot have a stream is out of the way.
fn writes_without_a_stream_wait_for_nothing(version: Version) -> Result<()> {
    let settings = Settings::default().with("wal_level = replica");
    let database = Database::create(version.start(&settings)?)?;
    database.run(SCHEMA)?;
    let freshet =
        crate::support::Freshet::start_unready(database.address(), &database.url(), &["--commit-wait", "60s"])?;
    if !freshet.is_there() {
        return Ok(());
    }
    let mut writer = RawClient::login(freshet.address, database.login())?;
    for votes in 0..20 {
        writer.query(&format!("update film set votes = {votes} where id = 70"))?;
        ensure!(writer.value(READ)? == votes.to_string(), "the own write");
    }
    Ok(())
}

fn a_stalled_stream_holds_nobody_for_long(version: Version) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let pair = Pair::over(Database::create(server)?, SCHEMA, &["--max-staleness", "30s"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut reader, READ)?;
    let walsender = super::walsender(&pair)?;
    process::pause(walsender)?;
    let stalled = (|| {
        let before = pair.freshet.metrics()?;
        for votes in 500..520 {
            writer.query(&format!("update film set votes = {votes} where id = 70"))?;
            others_see(&pair, &mut reader, votes, "stalled")?;
        }
        let after = pair.freshet.metrics()?;
        let fences = after.count("freshet_fences_total") - before.count("freshet_fences_total");
        ensure!(fences >= 20, "{fences} fences for 20 writes that the stream did not deliver");
        ensure!(after.hits() == before.hits(), "hits behind a fence");
        Ok(())
    })();
    process::resume(walsender)?;
    stalled?;
    until_hit(&pair, &mut reader, READ)?;
    others_see(&pair, &mut reader, 519, "after the stall")?;
    Ok(())
}

/// There are clients that wait for ever if ReadyForQuery does not come together with the end of the data.
fn copies_to_the_client_are_not_held(version: Version) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let pair = Pair::over(Database::create(server)?, SCHEMA, &["--max-staleness", "30s"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    let copy = |votes: i32| format!("copy (update film set votes = {votes} where id = 70 returning id) to stdout");
    for (votes, messages) in [(700, query(&copy(700))), (701, [unnamed(&copy(701), &[]), sync()].concat())] {
        until_hit(&pair, &mut reader, READ)?;
        let walsender = super::walsender(&pair)?;
        process::pause(walsender)?;
        let seen = (|| {
            let before = pair.freshet.metrics()?.count("freshet_commit_waits_total");
            let answers = writer.exchange(&messages, 1)?;
            ensure!(answers.iter().any(|m| m.tag == b'd'), "nothing is copied: {answers:?}");
            let held = pair.freshet.metrics()?.count("freshet_commit_waits_total") - before;
            ensure!(held == 0, "the end of a COPY had a commit wait");
            others_see(&pair, &mut reader, votes, "copied to the client")
        })();
        process::resume(walsender)?;
        seen?;
    }
    Ok(())
}

fn transactions_are_seen_by_others_at_once(version: Version) -> Result<()> {
    let settings = Settings::default().with("max_prepared_transactions = 5");
    let pair = Pair::over(Database::create(version.start(&settings)?)?, SCHEMA, &[])?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    for votes in 1000..1040 {
        until_hit(&pair, &mut reader, READ)?;
        let update = format!("update film set votes = {votes} where id = 70");
        let how: &[&str] = match votes % 4 {
            0 => &["begin", &update, "commit"],
            1 => &["begin", "savepoint a", &update, "rollback to a", &update, "commit"],
            2 => &["begin", &update, "commit and chain", "select 1", "rollback"],
            _ => &["begin", &update, "prepare transaction 'p'", "commit prepared 'p'"],
        };
        for sql in how {
            writer.run(sql)?;
        }
        others_see(&pair, &mut reader, votes, &how.join("; "))?;
    }
    Ok(())
}
