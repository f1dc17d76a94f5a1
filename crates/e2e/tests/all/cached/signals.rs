//! Statements whose commit is not in the change stream: those that change no row are acknowledged at once, and for the others the log is flushed at
//! once. Other sessions' commits that they reveal count all the same.

use anyhow::{Result, ensure};
use freshet_testbed::{Settings, process};

use super::{SCHEMA, until_hit};
use crate::support::frames::{query, sync, unnamed};
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both};

on_both!(
    what_changes_no_row_is_not_held,
    a_block_that_only_signals_may_hit,
    what_wrote_no_log_is_flushed_at_once,
    locks_and_channels_tell_of_commits,
);

/// A Freshet that flushes no log by time, and reads its end only where somebody asks for it, before a server that does not either, and that holds acknowledgements for as long as it takes.
fn pair(version: Version) -> Result<Pair> {
    let settings = Settings::default().with("wal_writer_delay = 10s");
    let schema = format!(
        "{SCHEMA} create sequence counter; create unlogged table unlogged (n int); create table unread (n int);
         create function notes() returns void language plpgsql as $$ begin perform pg_notify('channel', 'x'); end $$;
         create function notes_row() returns trigger language plpgsql as
            $$ begin perform pg_notify('channel', 'x'); return new; end $$;
         create trigger notes after insert on unread for each row execute function notes_row();"
    );
    let options = ["--commit-wait", "60s", "--max-staleness", "600s", "--test-fault", "no-timed-flushes"];
    Pair::over(Database::create(version.start(&settings)?)?, &schema, &options)
}

/// Runs it by the simple or the extended protocol.
fn run(client: &mut RawClient, sql: &str, extended: bool) -> Result<()> {
    let messages = if extended { [unnamed(sql, &[]), sync()].concat() } else { query(sql) };
    let answers = client.exchange(&messages, 1)?;
    ensure!(answers.iter().all(|message| message.tag != b'E'), "{sql}: {answers:?}");
    Ok(())
}

fn what_changes_no_row_is_not_held(version: Version) -> Result<()> {
    let pair = pair(version)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, "select votes from film where id = 1")?;
    let before = pair.freshet.metrics()?;
    for extended in [false, true] {
        for sql in [
            "listen channel",
            "notify channel",
            "notify channel, 'x'",
            "select pg_notify('channel', 'x')",
            "select pg_catalog.pg_notify('channel', title) from film where id = 1",
            "select txid_current()",
            "select pg_current_xact_id()",
            "select nextval('counter')",
            "select setval('counter', 7)",
            "select pg_advisory_lock(1)",
            "select pg_advisory_unlock(1)",
            "unlisten *",
        ] {
            run(&mut client, sql, extended)?;
            for sql in ["begin", sql, "savepoint a", "notify channel", "commit"] {
                run(&mut client, sql, extended)?;
            }
        }
    }
    let after = pair.freshet.metrics()?;
    let held = after.count("freshet_commit_waits_total") - before.count("freshet_commit_waits_total");
    ensure!(held == 0, "{held} had a commit wait, none was expected");
    // What writes beside it is looked at.
    for sql in ["begin", "notify channel", "update film set votes = 7 where id = 1", "commit"] {
        client.run(sql)?;
    }
    let now = pair.freshet.metrics()?;
    let more = |name| now.count(name) - after.count(name);
    let counted = more("freshet_commit_waits_total") + more("freshet_commit_waits_skipped_total");
    ensure!(counted == 1, "{counted} writes were looked at");
    Ok(())
}

fn a_block_that_only_signals_may_hit(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut client = pair.connect()?;
    let read = "select votes from film where id = 1";
    until_hit(&pair, &mut client, read)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?.hits();
        for sql in ["begin", "notify channel", "select pg_notify('channel', 'x')", read, "commit"] {
            client.run(sql)?;
        }
        ensure!(pair.freshet.metrics()?.hits() > before, "it passes");
        Ok(())
    })
}

fn what_wrote_no_log_is_flushed_at_once(version: Version) -> Result<()> {
    let pair = pair(version)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    until_hit(&pair, &mut client, "select votes from film where id = 1")?;
    client.run("create temporary table own (n int)")?;
    let fences = pair.freshet.metrics()?.count("freshet_fences_total");
    for extended in [false, true] {
        for sql in [
            "select notes()",
            "do $$ begin perform pg_notify('channel', 'x'); end $$",
            "insert into own values (1)",
            "with written as (insert into unlogged values (1) returning n) select * from written",
        ] {
            for statements in [&[sql][..], &["begin", sql, "commit"][..]] {
                let before = pair.freshet.metrics()?.count("freshet_log_flushes_total");
                for sql in statements {
                    run(&mut client, sql, extended)?;
                }
                let flushes = pair.freshet.metrics()?.count("freshet_log_flushes_total") - before;
                ensure!(flushes > 0, "{sql}: nothing flushed the log");
            }
        }
        // The server has flushed it for a row.
        run(&mut client, "insert into unread values (1)", extended)?;
    }
    client.query("notify channel; select notes()")?; // no end of the log is asked for behind it
    let fenced = pair.freshet.metrics()?.count("freshet_fences_total") - fences;
    ensure!(fenced == 0, "{fenced} fences");
    Ok(())
}

/// A commit is not acknowledged while the stream does not advance. A session that gets its lock, or listens from now on, sees it.
fn locks_and_channels_tell_of_commits(version: Version) -> Result<()> {
    let pair = pair(version)?;
    let (mut writer, mut reader) = (pair.connect()?, pair.connect()?);
    let read = "select votes from film where id = 70";
    for (n, asked) in
        ["select pg_advisory_lock(1)", "listen channel", "select pg_try_advisory_lock(1)"].iter().enumerate()
    {
        until_hit(&pair, &mut reader, read)?;
        reader.run("select pg_advisory_unlock_all()")?;
        until_hit(&pair, &mut reader, read)?;
        for sql in ["begin", "select pg_advisory_xact_lock(1)", &format!("update film set votes = {n} where id = 70")] {
            writer.run(sql)?;
        }
        let walsender = if pair.freshet.is_there() { Some(super::walsender(&pair)?) } else { None };
        walsender.map(process::pause).transpose()?;
        let seen = (|| {
            writer.send(&query("commit"))?;
            let mut direct = pair.database.connect()?;
            eventually(PATIENCE, || {
                let now = direct.value(read)?;
                ensure!(now == n.to_string(), "not committed: {now}");
                Ok(())
            })?;
            reader.run(asked)?;
            reader.value(read)
        })();
        walsender.map(process::resume).transpose()?;
        writer.until(b'Z')?;
        ensure!(seen? == n.to_string(), "{asked} came behind a commit that is not seen");
    }
    Ok(())
}
