//! Bind messages and results larger than any buffer stream through in bounded memory, and Freshet waits for a slow reader.

use anyhow::{Context, Result, ensure};

use crate::cached::until_hit;
use crate::support::frames::{Bound, bind, copy_data, copy_done, execute, frame, parse, query, sync, unnamed};
use crate::support::{Message, PATIENCE, Pair, RawClient, Version, eventually, on_both_at_length};

on_both_at_length!(
    a_result_of_many_rows,
    a_result_of_one_value,
    a_large_table,
    a_large_parameter,
    a_slow_reader,
    copy_of_much,
    sizes_around_the_buffers
);

const MEGABYTE: usize = 1_000_000;
const LARGE: usize = 50 * MEGABYTE;
/// By how much the process may grow while 50 MB pass through it.
const GROWTH_MAX: u64 = 24 * 1024 * 1024;

/// Rows that can be cached, but for their size: 50 MB, not compressible by the server's own means.
const SCHEMA: &str = "
    create table large (id int primary key, content text not null);
    alter table large alter content set storage external;
    insert into large select i, repeat(md5(i::text), 31250) from generate_series(1, 50) i;
    create table small (id int primary key, name text);
    insert into small values (1, 'one');";

/// Reads up to ReadyForQuery without keeping anything: how many bytes of rows, and the last message.
fn drain(client: &mut RawClient) -> Result<(usize, Option<Message>)> {
    let mut bytes = 0;
    let mut last = None;
    loop {
        let message = client.read_unheard()?.context("closed")?;
        match message.tag {
            b'Z' => return Ok((bytes, last)),
            b'D' | b'd' => bytes += message.body.len(),
            _ => last = Some(message),
        }
    }
}

/// Runs something twice; the memory that Freshet holds must not grow with what passes.
fn in_bounded_memory(pair: &Pair, pass: impl Fn(&mut RawClient) -> Result<usize>) -> Result<()> {
    let mut client = pair.connect()?;
    client.expect_silence()?;
    let before = pair.freshet.peak_memory()?;
    for _ in 0..2 {
        let bytes = pass(&mut client)?;
        ensure!(bytes >= LARGE, "only {bytes} bytes arrived");
    }
    client.expect_silence()?;
    let growth = pair.freshet.peak_memory()? - before;
    ensure!(growth < GROWTH_MAX, "the process grew by {growth} bytes");
    Ok(())
}

fn a_result_of_many_rows(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    in_bounded_memory(&pair, |c| {
        c.send(&query("select repeat('x', 1000), i from generate_series(1, 50000) i"))?;
        Ok(drain(c)?.0)
    })
}

fn a_result_of_one_value(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    in_bounded_memory(&pair, |c| {
        c.send(&[unnamed("select repeat($1, 50000000)", &["x"]), sync()].concat())?;
        Ok(drain(c)?.0)
    })
}

/// Looks like a result to keep until it turns out to be too large.
fn a_large_table(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    in_bounded_memory(&pair, |c| {
        c.send(&query("select id, content from large"))?;
        let simple = drain(c)?.0;
        c.send(&[unnamed("select id, content from large where id > $1", &["0"]), sync()].concat())?;
        Ok(simple.min(drain(c)?.0))
    })
}

fn a_large_parameter(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let value = vec![b'x'; LARGE];
    let values = Bound { values: &[Some(&value)], ..Bound::default() };
    let statement = |sql| [parse("", sql), bind("", "", values), execute("", 0), sync()].concat();
    let uncached = statement("select length($1::text), random() < 2");
    let cached = statement("select id, name from small where name = $1");
    in_bounded_memory(&pair, |c| {
        for all in [&uncached, &cached] {
            c.send(all)?;
            let (_, last) = drain(c)?;
            ensure!(last.as_ref().is_some_and(|m| m.tag == b'C'), "{last:?}");
        }
        let literal = [b"select length('".as_slice(), &value, b"')\0"].concat();
        c.send(&frame(b'Q', &literal))?;
        let (_, last) = drain(c)?;
        ensure!(last.as_ref().is_some_and(|m| m.tag == b'C'), "{last:?}");
        Ok(LARGE)
    })
}

fn a_slow_reader(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    in_bounded_memory(&pair, |c| {
        // The sockets' buffers are full before an answer that is cached begins.
        let mut stalled = pair.connect()?;
        until_hit(&pair, &mut stalled, "select id from large where id = 1")?;
        let read = ["select content, random() from large", "select content from large where id < 3"];
        stalled.send(&read.map(query).concat())?;
        c.send(&query("select id, content from large"))?;
        // While it does not read, the result waits in the server, and others are served.
        eventually(PATIENCE, || {
            let waits = pair.database.connect()?.value(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'ClientWrite'",
            )?;
            ensure!(waits != "0", "no backend waits for its client");
            Ok(())
        })?;
        let mut other = pair.connect()?;
        other.query("select name from small where id = 1")?;
        other.expect_silence()?;
        // An answer that it does not read is not kept in memory without limit, so that results of others can be cached.
        eventually(PATIENCE, || {
            let left =
                if pair.freshet.is_there() { pair.freshet.metrics()?.count("freshet_fills_in_flight") } else { 0 };
            ensure!(left == 0, "{left} fills have not ended");
            Ok(())
        })?;
        Ok(drain(c)?.0)
    })
}

fn copy_of_much(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let line = [&vec![b'x'; MEGABYTE], b"\n".as_slice()].concat();
    in_bounded_memory(&pair, |c| {
        c.query("create temporary table if not exists copied (content text)")?;
        c.send(&query("copy copied from stdin"))?;
        for _ in 0..50 {
            c.send(&copy_data(&line))?;
        }
        c.send(&copy_done())?;
        drain(c)?;
        c.send(&query("copy copied to stdout"))?;
        let bytes = drain(c)?.0;
        c.query("truncate copied")?;
        Ok(bytes)
    })
}

/// Messages that just fit into a buffer, and just do not, with others before and after them.
fn sizes_around_the_buffers(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    let read = [unnamed("select id, name from small where id = $1", &["1"]), sync()].concat();
    pair.same(|c| {
        for power in [12, 13, 14, 16, 17, 18] {
            for size in [(1_usize << power) - 60, (1 << power) - 8, (1 << power) - 1, 1 << power, (1 << power) + 1] {
                let text = "x".repeat(size);
                let literal = query(&format!("select '{text}', id from small where id = 1"));
                let comment = query(&format!("/* {text} */ select name from small where id = 1"));
                let value = [unnamed("select id, name from small where name <> $1", &[&text]), sync()].concat();
                let statement = [unnamed(&format!("select $1 || '{text}'"), &["x"]), sync()].concat();
                c.exchange(
                    &[read.clone(), literal, read.clone(), comment, value, statement, read.clone()].concat(),
                    7,
                )?;
            }
        }
        c.expect_silence()
    })
}
