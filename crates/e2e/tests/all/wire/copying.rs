//! COPY, with everything that a client may send around and in it. (COPY in both directions is replication: `replicating`.)

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::support::frames::{
    bind_text, copy_data, copy_done, copy_fail, execute, flush, parse, query, sync, terminate, unnamed,
};
use crate::support::{Pair, RawClient, Version, eventually, on_both, rest};

on_both!(
    sync_and_flush_within_the_data,
    by_the_extended_protocol,
    failures_of_the_extended_protocol,
    out_in_a_pipeline_with_hits,
    several_in_one_query,
    other_messages_within_the_data,
    formats,
    ended_by_the_client,
    what_was_copied_is_read,
);

const READ: &str = "select id, name from item where id = 1";
const COPY: &str = "copy log from stdin";

fn hit() -> Vec<u8> {
    [unnamed("select id, name from item where id = $1", &["1"]), sync()].concat()
}

/// The server ignores both there; no answer may be counted for them, or all later ones are taken for others.
fn sync_and_flush_within_the_data(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let conversation = |inside: &[u8]| {
        let inside = inside.to_vec();
        move |c: &mut RawClient| {
            c.query("truncate log")?;
            c.query(READ)?;
            c.send(&query(COPY))?;
            c.until(b'G')?;
            let data = [copy_data(b"101\tone\n"), inside.clone(), copy_data(b"102\ttwo\n"), copy_done()];
            c.exchange(&data.concat(), 1)?;
            for _ in 0..2 {
                c.query(READ)?;
                c.exchange(&hit(), 1)?;
                rest();
            }
            c.query("select count(*) from log")?;
            c.expect_silence()
        }
    };
    // The server ignores a Sync there; Freshet cannot know how many more it will, and only forwards from then on.
    for inside in [sync(), [flush(), sync(), sync(), flush()].concat()] {
        pair.same(conversation(&inside))?;
    }
    pair.same_with_hits(1, conversation(&flush()))
}

fn by_the_extended_protocol(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let data = || [copy_data(b"101\tone\n"), copy_data(b"102\ttwo\n"), copy_done()].concat();
    pair.same_with_hits(1, |c| {
        c.query("truncate log")?;
        c.exchange(&hit(), 1)?;
        // Flush rather than Sync before the data, as careful drivers do.
        c.send(&[unnamed(COPY, &[]), flush()].concat())?;
        c.until(b'G')?;
        c.exchange(&[data(), sync()].concat(), 1)?;
        c.query("truncate log")?;
        // Other executions before and after it in the same batch.
        c.send(&[unnamed("select 1", &[]), unnamed(COPY, &[]), flush()].concat())?;
        c.until(b'G')?;
        c.exchange(&[data(), unnamed("select 2", &[]), sync(), hit()].concat(), 2)?;
        c.query("truncate log")?;
        // A named statement, in one write, with hits behind.
        let copy = [parse("c", COPY), bind_text("", "c", &[]), execute("", 0), sync()].concat();
        c.exchange(&[copy, data(), sync(), hit(), hit()].concat(), 3)?;
        rest();
        c.exchange(&hit(), 1)?;
        c.exchange(&[unnamed("copy (select 1) to stdout", &[]), unnamed("select 3", &[]), sync(), hit()].concat(), 2)?;
        c.expect_silence()
    })
}

fn failures_of_the_extended_protocol(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.exchange(&hit(), 1)?;
        for data in [
            [copy_data(b"no number\tone\n"), copy_data(b"102\ttwo\n"), copy_done()].concat(),
            [copy_data(b"101\tbad\n"), copy_done()].concat(),
            [copy_data(b"101\tone\n"), copy_fail("no more")].concat(),
            copy_fail("nothing"),
            [copy_data(b"1\ttwice\n"), copy_done()].concat(),
        ] {
            // Waiting for the answer, in one write with both Syncs, and behind a copy that cannot begin.
            c.send(&[unnamed(COPY, &[]), sync()].concat())?;
            c.until(b'G')?;
            c.exchange(&[data.clone(), sync()].concat(), 1)?;
            c.exchange(&[unnamed(COPY, &[]), sync(), data.clone(), sync(), hit()].concat(), 2)?;
            c.exchange(&[unnamed("copy nowhere from stdin", &[]), sync(), data, sync(), hit()].concat(), 3)?;
            rest();
            c.exchange(&hit(), 1)?;
        }
        c.query("select count(*) from log")?;
        c.expect_silence()
    })
}

fn out_in_a_pipeline_with_hits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let out = || query("copy item (id, name) to stdout");
    let extended = || [unnamed("copy (select id from item) to stdout", &[]), sync()].concat();
    pair.same_with_hits(2, |c| {
        c.exchange(&hit(), 1)?;
        c.query(READ)?;
        rest();
        c.exchange(&[hit(), query(READ), out(), hit(), extended(), hit(), out(), query(READ)].concat(), 8)?;
        let fails = query("copy (select 1 / (id - 50) from item) to stdout");
        c.exchange(&[fails, hit(), query("copy nowhere to stdout"), hit()].concat(), 4)?;
        c.expect_silence()
    })
}

/// One Query may hold several, in both directions, with results between.
fn several_in_one_query(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query("truncate log")?;
        c.query(READ)?;
        c.send(&query(&format!("select 1; {COPY}; select 2; {COPY}; copy log to stdout; {READ}")))?;
        c.until(b'G')?;
        c.send(&[copy_data(b"101\tone\n"), copy_done()].concat())?;
        c.until(b'G')?;
        c.send(&[copy_data(b"102\ttwo\n"), copy_done()].concat())?;
        c.until(b'Z')?;
        // The second fails, which undoes the first as well.
        let twice = [copy_data(b"103\tx\n"), copy_done(), copy_data(b"103\ty\n"), copy_done()];
        c.exchange(&[query(&format!("{COPY}; {COPY}; select 3")), twice.concat()].concat(), 1)?;
        c.query("select count(*) from log ")?;
        rest();
        c.query(READ)?;
        c.expect_silence()
    })
}

/// Against the protocol: the server ends the session, and says so.
fn other_messages_within_the_data(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for inside in [query("select 'within'"), unnamed("select 'within'", &[]), parse("", "select 1")] {
        pair.same(|c| {
            c.query(READ)?;
            rest();
            c.query(READ)?;
            c.send(&query(COPY))?;
            c.until(b'G')?;
            c.send(&[copy_data(b"101\tone\n"), inside.clone()].concat())?;
            while c.read_or_end()?.is_some() {}
            Ok(())
        })?;
    }
    pair.connect()?.expect_silence()
}

fn formats(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let binary = |id: u8| {
        let row = [&[0, 2, 0, 0, 0, 4, 0, 0, 0, id, 0, 0, 0, 3][..], b"bin"].concat();
        [b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".as_slice(), &row, &[0xff, 0xff]].concat()
    };
    pair.same(|c| {
        c.query("truncate log")?;
        c.exchange(&[query("copy log from stdin (format binary)"), copy_data(&binary(101)), copy_done()].concat(), 1)?;
        let csv = [copy_data(b"id,line\n102,\"quo"), copy_data(b"ted, \"\"line\"\"\"\n"), copy_done()].concat();
        c.exchange(&[query("copy log from stdin (format csv, header)"), csv].concat(), 1)?;
        // The end within the data.
        c.exchange(&[query(COPY), copy_data(b"103\tone\n\\.\n"), copy_done()].concat(), 1)?;
        for format in ["binary", "csv", "text"] {
            c.query(&format!("copy (select * from log where id > 100 order by id) to stdout (format {format})"))?;
        }
        c.query("copy item to stdout (format csv, header, force_quote *)")?;
        c.query("copy log to '/nonexistent/file'")?;
        c.query("copy (select 1) to program 'cat'")?;
        c.query("copy log from stdin (format nonsense)")?;
        c.expect_silence()
    })
}

fn ended_by_the_client(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    for goodbye in [vec![], terminate(), copy_data(b"102\tha")[..9].to_vec()] {
        let mut client = pair.connect()?;
        client.query("set application_name = 'copier'")?;
        client.send(&query(COPY))?;
        client.until(b'G')?;
        client.send(&[copy_data(b"101\tone\n"), goodbye].concat())?;
        drop(client);
        let mut watcher = pair.connect()?;
        eventually(crate::support::PATIENCE, || {
            let left = watcher.value("select count(*) from pg_stat_activity where application_name = 'copier'")?;
            ensure!(left == "0", "{left} sessions are left");
            Ok(())
        })?;
        ensure!(watcher.value("select count(*) from log where id > 100")? == "0", "half a copy was committed");
    }
    Ok(())
}

/// COPY is a write: the session that copied reads its rows at once, and others within D.
fn what_was_copied_is_read(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = "select count(*) from log";
    let (mut client, mut other) = (pair.connect()?, pair.connect()?);
    for round in 0..5 {
        crate::cached::until_hit(&pair, &mut client, read)?;
        crate::cached::until_hit(&pair, &mut other, read)?;
        let id = 200 + round;
        client.exchange(&[query(COPY), copy_data(format!("{id}\tx\n").as_bytes()), copy_done()].concat(), 1)?;
        let expected = (11 + round).to_string();
        ensure!(client.value(read)? == expected, "the session does not see what it copied");
        eventually(crate::support::PATIENCE, || {
            ensure!(other.value(read)? == expected, "others do not see it");
            Ok(())
        })?;
    }
    Ok(())
}
