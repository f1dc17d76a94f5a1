//! Hard cases of transactions: several statements in one message, blocks that begin or end in unusual ways, snapshots that are taken before the first
//! read, and incomplete messages.

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Settings, process};

use super::{SCHEMA, until_hit};
use crate::support::frames::{bind_text, copy_data, execute, flush, parse, query, sync, unnamed};
use crate::support::{Database, Login, PATIENCE, Pair, RawClient, Version, eventually, on_both, rest};

on_both!(
    several_statements_that_commit_are_held,
    a_function_in_a_view_writes_in_a_block_with_other_settings,
    a_commit_that_is_told_before_ready_for_query,
    several_statements_that_begin_another_block,
    several_statements_that_begin_a_serializable_block,
    a_snapshot_taken_behind_begin_in_its_batch,
    a_snapshot_taken_by_what_is_pipelined_behind_begin,
    a_snapshot_taken_before_begin_in_its_batch,
    a_commit_that_is_bound_and_not_executed,
    a_copy_that_fails_within_a_message,
    writes_of_a_replication_connection,
    a_chain_that_a_portal_begins,
    a_chain_that_execute_begins,
    either_side_ends_while_an_acknowledgement_is_held,
    settings_that_a_prepared_statement_changes,
    a_snapshot_imported_or_taken_by_a_cursor,
    hits_of_a_block_take_no_part_in_an_abort,
);

const READ: &str = "select votes from film where id = 80";
const OTHER: &str = "select votes from film where id = 81";

fn write(votes: i32) -> String {
    format!("update film set votes = {votes} where id in (80, 81)")
}

/// Other sessions see the writes of `writer`, though the change stream does not advance.
fn seen_while_stalled(
    version: Version,
    schema: &str,
    prepare: impl Fn(&mut RawClient) -> Result<()>,
    writer: impl Fn(&Pair, &mut RawClient) -> Result<()>,
) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let pair = Pair::over(Database::create(server)?, &format!("{SCHEMA} {schema}"), &["--max-staleness", "30s"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut w, mut reader) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut w, READ)?;
    until_hit(&pair, &mut reader, READ)?;
    prepare(&mut w)?;
    let walsender = super::walsender(&pair)?;
    process::pause(walsender)?;
    let seen = writer(&pair, &mut w).and_then(|()| reader.value(READ));
    process::resume(walsender)?;
    let seen = seen?;
    ensure!(seen == "1000", "1000 was acknowledged, {seen} is read");
    Ok(())
}

fn several_statements_that_commit_are_held(version: Version) -> Result<()> {
    seen_while_stalled(
        version,
        "",
        |_| Ok(()),
        |_, w| {
            w.run("begin")?;
            w.run(&write(1000))?;
            w.run("commit; begin")
        },
    )
}

fn a_function_in_a_view_writes_in_a_block_with_other_settings(version: Version) -> Result<()> {
    let schema = "
        create function vote() returns int language sql volatile as
            $$ update film set votes = 1000 where id in (80, 81); select 1 $$;
        create view voting as select vote();";
    seen_while_stalled(
        version,
        schema,
        |_| Ok(()),
        |_, w| {
            w.run("begin")?;
            w.run("set local work_mem = '5MB'")?;
            w.run("select * from voting")?;
            w.run("commit")
        },
    )
}

/// `Flush` shows the answer to COMMIT before `Sync` has been sent.
fn a_commit_that_is_told_before_ready_for_query(version: Version) -> Result<()> {
    seen_while_stalled(
        version,
        "",
        |_| Ok(()),
        |_, w| {
            w.run("begin")?;
            w.run(&write(1000))?;
            w.send(&[unnamed("commit", &[]), flush()].concat())?;
            w.until(b'C').map(drop)
        },
    )
}

fn several_statements_that_begin_another_block(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    for round in 1..=10 {
        other.run(&write(round))?;
        until_hit(&pair, &mut other, READ)?;
        until_hit(&pair, &mut other, OTHER)?;
        for begin in ["begin", "begin isolation level repeatable read"] {
            c.run(begin)?;
            c.value(READ)?;
            rest();
            c.run("commit; begin isolation level repeatable read")?;
            let first = c.value(READ)?;
            let next = format!("{round}{}", begin.len());
            other.run(&format!("update film set votes = {next} where id in (80, 81)"))?;
            until_hit(&pair, &mut other, OTHER)?;
            let second = c.value(OTHER)?;
            ensure!(first == second, "{begin}, round {round}: one snapshot shows {first} and {second}");
            c.run("commit")?;
        }
    }
    Ok(())
}

fn several_statements_that_begin_a_serializable_block(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    c.run("begin")?;
    c.run("commit; begin isolation level serializable")?;
    let before = pair.freshet.metrics()?.hits();
    for _ in 0..3 {
        ensure!(c.value(READ)? == "80", "the read");
    }
    let hits = pair.freshet.metrics()?.hits() - before;
    ensure!(hits == 0, "{hits} serializable reads hit");
    Ok(())
}

/// `begin` opens a REPEATABLE READ block and has its snapshot taken by something that reads no table. Nothing read in
/// it is kept as if it were of a later moment.
fn keeps_nothing_old(version: Version, begin: impl Fn(&mut RawClient) -> Result<()>) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut c, READ)?;
    c.run("prepare nothing as select 1")?;
    for round in 1..=10 {
        let before = other.value(READ)?;
        rest();
        begin(&mut c)?;
        other.run(&write(7000 + round))?;
        rest();
        let value = c.value(READ)?;
        ensure!(value == before, "round {round}: a snapshot of {before} shows {value}");
        c.run("commit")?;
        rest();
        for client in [&mut c, &mut other] {
            let value = client.value(READ)?;
            ensure!(value == (7000 + round).to_string(), "round {round}: {value} is served");
        }
    }
    Ok(())
}

const BEGIN: &str = "begin isolation level repeatable read";

fn a_snapshot_taken_behind_begin_in_its_batch(version: Version) -> Result<()> {
    keeps_nothing_old(version, |c| {
        let begin = [parse("", BEGIN), bind_text("", "", &[]), execute("", 0)].concat();
        c.exchange(&[begin, unnamed("select 1", &[]), sync()].concat(), 1).map(drop)
    })?;
    keeps_nothing_old(version, |c| {
        let begin = [parse("", BEGIN), bind_text("", "", &[]), execute("", 0)].concat();
        c.exchange(&[begin, parse("", READ), sync()].concat(), 1).map(drop)
    })
}

fn a_snapshot_taken_by_what_is_pipelined_behind_begin(version: Version) -> Result<()> {
    keeps_nothing_old(version, |c| c.exchange(&[query(BEGIN), query("select 1")].concat(), 2).map(drop))?;
    keeps_nothing_old(version, |c| c.exchange(&[query(BEGIN), parse("", READ), sync()].concat(), 2).map(drop))
}

fn a_snapshot_taken_before_begin_in_its_batch(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    c.run("set default_transaction_isolation = 'repeatable read'")?;
    until_hit(&pair, &mut c, READ)?;
    for round in 1..=10 {
        let before = other.value(OTHER)?;
        c.send(&[unnamed("select votes from film where id = 82", &[]), flush()].concat())?;
        c.until(b'C')?;
        other.run(&write(round))?;
        until_hit(&pair, &mut other, OTHER)?;
        rest();
        c.exchange(&[unnamed("begin", &[]), sync()].concat(), 1)?;
        rest();
        let value = c.value(OTHER)?;
        ensure!(value == before, "round {round}: a snapshot of {before} shows {value}");
        c.run("commit")?;
        rest();
        for client in [&mut c, &mut other] {
            ensure!(client.value(OTHER)? == round.to_string(), "round {round}: after the snapshot");
        }
    }
    Ok(())
}

/// A portal outlives its `Sync` in a block: COMMIT that is only bound ends nothing, and takes no snapshot.
fn a_commit_that_is_bound_and_not_executed(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut c, READ)?;
    for round in 1..=5 {
        c.run(BEGIN)?;
        c.run("listen news")?;
        c.exchange(&[parse("", "commit"), bind_text("p", "", &[]), sync()].concat(), 1)?;
        other.run(&write(round))?;
        let value = c.value(READ)?;
        ensure!(value == round.to_string(), "the snapshot was taken before the first read: {value}");
        c.exchange(&[execute("p", 0), sync()].concat(), 1)?;
    }
    Ok(())
}

/// The server refuses the data while the client still sends it.
fn a_copy_that_fails_within_a_message(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    for _ in 0..3 {
        c.send(&query("copy film (id, title, votes) from stdin"))?;
        c.until(b'G')?;
        let late = copy_data(&vec![b'x'; 50_000]);
        let (first, second) = late.split_at_checked(20_000).context("a long message")?;
        c.send(&[copy_data(b"no number\n").as_slice(), first].concat())?;
        let refused = c.until(b'Z')?;
        ensure!(refused.iter().any(|m| m.tag == b'E'), "{refused:?}");
        rest();
        c.send(second)?;
        c.expect_silence()?;
        ensure!(c.value(READ)? == "80", "the session goes on");
    }
    Ok(())
}

/// Commands of a replication connection may be SQL.
fn writes_of_a_replication_connection(version: Version) -> Result<()> {
    seen_while_stalled(
        version,
        "",
        |_| Ok(()),
        |pair, _| {
            let more = [("replication", "database")];
            let mut w = RawClient::login(pair.address(), Login { more: &more, ..pair.login() })?;
            w.run(&write(1000))
        },
    )
}

/// A portal bound to COMMIT AND CHAIN and executed behind another `Sync`.
fn a_chain_that_a_portal_begins(version: Version) -> Result<()> {
    seen_while_stalled(
        version,
        "",
        |w| {
            w.run("begin")?;
            w.run(&write(1000))?;
            w.exchange(&[parse("", "commit and chain"), bind_text("p", "", &[]), sync()].concat(), 1)?;
            rest();
            Ok(())
        },
        |_, w| w.exchange(&[execute("p", 0), sync()].concat(), 1).map(drop),
    )
}

/// EXECUTE runs what the protocol has prepared, COMMIT too.
fn a_chain_that_execute_begins(version: Version) -> Result<()> {
    seen_while_stalled(
        version,
        "",
        |w| w.exchange(&[parse("s", "commit and chain"), sync()].concat(), 1).map(drop),
        |_, w| {
            w.run("begin")?;
            w.run(&write(1000))?;
            w.run("execute s")
        },
    )
}

/// Either side ends while an acknowledgement is held: it comes all the same, and nothing hits what is older.
fn either_side_ends_while_an_acknowledgement_is_held(version: Version) -> Result<()> {
    let server = version.start(&Settings::default())?;
    let options = ["--max-staleness", "30s", "--commit-wait", "3s"];
    let pair = Pair::over(Database::create(server)?, SCHEMA, &options)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut d, mut reader) = (pair.connect()?, pair.connect()?, pair.connect()?);
    let pid = d.value("select pg_backend_pid()")?;
    let mut direct = RawClient::login(pair.database.address(), pair.login())?;
    until_hit(&pair, &mut c, READ)?;
    until_hit(&pair, &mut d, READ)?;
    until_hit(&pair, &mut reader, READ)?;
    let walsender = super::walsender(&pair)?;
    process::pause(walsender)?;
    let ended = (|| {
        c.send(&query(&write(1)))?;
        c.socket()?.shutdown(std::net::Shutdown::Write)?;
        c.until(b'Z')?;
        ensure!(c.read_or_end()?.is_none(), "the session goes on");
        ensure!(reader.value(READ)? == "1", "the first write");
        d.send(&query(&write(2)))?;
        d.until(b'C')?;
        direct.run(&format!("select pg_terminate_backend({pid})"))?;
        d.until(b'Z')?;
        ensure!(reader.value(READ)? == "2", "the second write");
        while d.read_or_end()?.is_some() {}
        Ok(())
    })();
    process::resume(walsender)?;
    ended
}

/// The protocol prepares what PREPARE does not, and EXECUTE runs it.
fn settings_that_a_prepared_statement_changes(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    until_hit(&pair, &mut c, READ)?;
    c.exchange(&[parse("s", "set default_transaction_isolation = 'repeatable read'"), sync()].concat(), 1)?;
    c.exchange(&[parse("b", "begin"), sync()].concat(), 1)?;
    c.run("execute s")?;
    for round in 1..=5 {
        until_hit(&pair, &mut other, READ)?;
        if round % 2 == 0 {
            c.run("begin")?;
        } else {
            c.run("execute b")?;
        }
        let first = c.value(READ)?;
        rest();
        other.run(&write(round))?;
        until_hit(&pair, &mut other, OTHER)?;
        let second = c.value(READ)?;
        ensure!(first == second, "round {round}: one snapshot shows {first} and {second}");
        let third = c.value(OTHER)?;
        let expected = if round == 1 { "81".to_owned() } else { (round - 1).to_string() };
        ensure!(third == expected, "round {round}: {third}, not {expected}");
        c.run("commit")?;
    }
    Ok(())
}

fn a_snapshot_imported_or_taken_by_a_cursor(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let (mut c, mut other, mut holder) = (pair.connect()?, pair.connect()?, pair.connect()?);
    for round in 1..=5 {
        let before = other.value(READ)?;
        until_hit(&pair, &mut c, OTHER)?;
        holder.run(BEGIN)?;
        let snapshot = holder.value("select pg_export_snapshot()")?;
        other.run(&write(round))?;
        rest();
        until_hit(&pair, &mut other, OTHER)?;
        c.run(BEGIN)?;
        c.run(&format!("set transaction snapshot '{snapshot}'"))?;
        for read in [READ, OTHER, READ] {
            let value = c.value(read)?;
            ensure!(round == 1 || value == before, "round {round}: {read} shows {value} in a snapshot of {before}");
        }
        c.run("commit")?;
        holder.run("commit")?;
        c.run(BEGIN)?;
        c.run("declare c cursor for select 1")?;
        other.run(&write(round + 100))?;
        until_hit(&pair, &mut other, OTHER)?;
        for read in [READ, OTHER, READ] {
            let value = c.value(read)?;
            ensure!(value == round.to_string(), "round {round}: {read} shows {value} behind a cursor's snapshot");
        }
        c.run("commit")?;
        other.run(&write(round))?;
        ensure!(c.value(READ)? == round.to_string(), "after the snapshot");
    }
    Ok(())
}

/// What was parsed here only is not parsed upstream within a block, where it could fail and take the block with it.
fn hits_of_a_block_take_no_part_in_an_abort(version: Version) -> Result<()> {
    let pair =
        Pair::new(version, &format!("{SCHEMA} create table gone (id int primary key); insert into gone values (1);"))?;
    if !pair.freshet.is_there() {
        return Ok(()); // the table could not be dropped
    }
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    let gone = "select id from gone where id = 1";
    let hit = [unnamed(gone, &[]), sync()].concat();
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?.hits();
        c.exchange(&hit, 1)?;
        ensure!(pair.freshet.metrics()?.hits() > before, "no hit");
        Ok(())
    })?;
    rest();
    c.run("begin")?;
    c.exchange(&hit, 1)?;
    other.run("drop table gone")?;
    let next = c.exchange(&[unnamed("insert into role values (1, 'x')", &[]), sync()].concat(), 1)?;
    let failed = next.iter().find(|m| m.tag == b'E');
    ensure!(failed.is_none(), "a statement that has nothing to do with it fails: {failed:?}");
    Ok(())
}
