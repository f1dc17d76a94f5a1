//! Messages that are never finished keep no connection from others.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{is_silent, is_silent_for, shared};
use crate::support::frames::{bind_text, copy_data, copy_done, execute, lying, parse, query, sync};
use crate::support::{PATIENCE, RawClient, Version, eventually, on_both};

on_both!(
    beginnings_take_no_connection,
    unknown_kinds_are_refused_at_once,
    long_beginnings_give_way,
    long_messages_arrive,
    copy_keeps_the_connection,
);

const SCHEMA: &str = "create table t (v text)";
/// More than is read ahead of a message's end.
const LONG_BYTES: usize = 256 << 10;

/// The beginning of a message of a gigabyte.
fn beginning(tag: u8, bytes: usize) -> Vec<u8> {
    lying(tag, 0x3fff_fff0, &vec![b' '; bytes])
}

fn beginnings_take_no_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut other = pair.connect()?;
    let mut begun = Vec::new();
    for tag in *b"QPBDECFdcf" {
        for bytes in [0, 10, 100 << 10] {
            let mut client = pair.connect()?;
            client.send(&beginning(tag, bytes))?;
            begun.push(client);
        }
        other.run("insert into t values ('x')").with_context(|| format!("beside {}", char::from(tag)))?;
    }
    let mut split = pair.connect()?;
    let message = query("insert into t values ('split')");
    split.send(&message[..9])?;
    other.run("insert into t values ('x')")?;
    ensure!(is_silent(&split)?);
    split.send(&message[9..])?;
    split.until(b'Z')?;
    ensure!(other.value("select count(*) from t where v = 'split'")? == "1");
    Ok(())
}

fn unknown_kinds_are_refused_at_once(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    for bytes in [beginning(b'p', 0), beginning(b'A', 100 << 10), vec![b'~'], vec![0, 0, 0]] {
        let [direct, through] = [pair.database.address(), pair.address()].map(|address| -> Result<_> {
            let mut client = RawClient::login(address, pair.login())?;
            client.run("select 1")?;
            client.send(&bytes)?;
            let told = client.until(b'E')?;
            let field = |field| told.iter().find_map(|message| message.field(field));
            Ok((field(b'S'), field(b'C'), field(b'M')))
        });
        let (direct, through) = (direct?, through?);
        ensure!(direct == through, "{direct:?}, {through:?}");
    }
    Ok(())
}

fn long_beginnings_give_way(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut other = pair.connect()?;
    for tag in *b"QB" {
        let mut begun = pair.connect()?;
        begun.send(&beginning(tag, LONG_BYTES))?;
        // Who makes others wait is told, and ended. At first the message may not have taken the connection yet.
        eventually(PATIENCE, || {
            other.run("insert into t values ('x')")?;
            ensure!(!is_silent(&begun)?, "nobody had to wait");
            Ok(())
        })?;
        let told = begun.until(b'E')?;
        ensure!(told.iter().any(|message| message.field(b'C').as_deref() == Some("08P01")), "{told:?}");
    }
    Ok(())
}

fn long_messages_arrive(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    let long = "x".repeat(3 * LONG_BYTES);
    let bound = [parse("", "insert into t values ($1)"), bind_text("", "", &[&long]), execute("", 0), sync()].concat();
    for message in [query(&format!("insert into t values ('{long}')")), bound] {
        let (first, rest) = message.split_at(2 * LONG_BYTES);
        a.send(first)?;
        ensure!(is_silent(&a)?);
        a.send(rest)?;
        a.until(b'Z')?;
        let sql = format!(
            "with gone as (delete from t returning v) select count(*) from gone where length(v) = {}",
            long.len()
        );
        ensure!(b.value(&sql)? == "1");
    }
    Ok(())
}

/// A client that copies data may take its time within a row.
fn copy_keeps_the_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut a, mut b) = (pair.connect()?, pair.connect()?);
    a.send(&query("copy t from stdin"))?;
    a.until(b'G')?;
    let row = copy_data(&[&vec![b'y'; LONG_BYTES][..], b"\n"].concat());
    let (first, rest) = row.split_at(100);
    a.send(first)?;
    b.send(&query("select count(*) from t where length(v) > 1"))?;
    ensure!(is_silent_for(&b, Duration::from_secs(12))? && is_silent(&a)?);
    a.send(&[rest, &copy_done()].concat())?;
    a.until(b'Z')?;
    let answer = b.until(b'Z')?;
    ensure!(answer.iter().any(|message| message.columns() == [Some(b"1".to_vec())]), "{answer:?}");
    Ok(())
}
