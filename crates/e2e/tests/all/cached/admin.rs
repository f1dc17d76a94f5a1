//! Freshet's answers about itself over a client's connection.

use anyhow::{Context, Result, ensure};

use super::{SCHEMA, never_hits, until_hit};
use crate::support::frames::{bind_text, close_statement, describe_statement, execute, parse, sync, unnamed};
use crate::support::{Message, PATIENCE, Pair, RawClient, Version, eventually, on_both, undisturbed};

on_both!(
    show_caches,
    show_late_hits,
    show_proxied_queries,
    show_status,
    explain_cache,
    asked_by_the_extended_protocol,
    prepared_first
);

const READ: &str = "select title from film where id = 1";

/// A result as text: the columns' names, and the rows.
fn table(messages: &[Message]) -> Result<(Vec<String>, Vec<Vec<String>>)> {
    let head = messages.iter().find(|m| m.tag == b'T').with_context(|| format!("no result: {messages:?}"))?;
    let mut names = Vec::new();
    let mut rest = head.body.get(2..).unwrap_or_default();
    while let Some(end) = rest.iter().position(|b| *b == 0) {
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = rest.get(end + 1 + 18..).unwrap_or_default();
    }
    let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
    let rows = messages.iter().filter(|m| m.tag == b'D').map(|m| m.columns().into_iter().map(text).collect());
    let rows: Vec<Vec<String>> = rows.collect();
    ensure!(rows.iter().all(|row| row.len() == names.len()), "rows of another width than {names:?}: {rows:?}");
    let tags: String = messages.iter().map(|m| char::from(m.tag)).collect();
    ensure!(tags.trim_end_matches("CZ").ends_with(['T', 'D']) && tags.ends_with("CZ"), "{tags}");
    Ok((names, rows))
}

fn column(names: &[String], name: &str) -> Result<usize> {
    names.iter().position(|n| n == name).with_context(|| format!("no column {name} in {names:?}"))
}

fn show_caches(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    for sql in ["SHOW CACHES", "show caches;", "  Show  Caches ; "] {
        undisturbed(&pair.freshet, || {
            until_hit(&pair, &mut c, READ)?;
            let (names, rows) = table(&c.query(sql)?)?;
            let (query, hits) = (column(&names, "query")?, column(&names, "hits")?);
            let row = rows.iter().find(|row| row[query].contains("film")).with_context(|| format!("{rows:?}"))?;
            ensure!(row[hits].parse::<u64>()? > 0, "no hits: {row:?}");
            Ok(())
        })?;
    }
    c.expect_silence()
}

/// Hits right behind a write of their own session are told apart.
fn show_late_hits(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    let late = |c: &mut RawClient| -> Result<u64> {
        let (names, rows) = table(&c.query("SHOW CACHES")?)?;
        let (query, late) = (column(&names, "query")?, column(&names, "hits_after_own_write")?);
        let row = rows.iter().find(|row| row[query].contains("film")).with_context(|| format!("{rows:?}"))?;
        Ok(row[late].parse()?)
    };
    until_hit(&pair, &mut c, READ)?;
    let before = late(&mut c)?;
    for _ in 0..3 {
        until_hit(&pair, &mut c, READ)?;
    }
    other.query("update film set votes = votes + 1 where id = 2")?;
    until_hit(&pair, &mut c, READ)?;
    ensure!(late(&mut c)? == before, "late, though its session did not write");
    eventually(PATIENCE, || {
        c.query("update film set votes = votes + 1 where id = 2")?;
        c.query(READ)?;
        ensure!(late(&mut c)? > before, "a hit behind its session's write is not counted");
        Ok(())
    })?;
    let behind = late(&mut c)?;
    until_hit(&pair, &mut c, READ)?;
    ensure!(late(&mut c)? == behind, "late, though a hit came behind the write");
    c.expect_silence()
}

fn show_proxied_queries(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    undisturbed(&pair.freshet, || {
        never_hits(&pair, &mut c, "select title, now() from film where id = 1", "function")?;
        let (names, rows) = table(&c.query("SHOW PROXIED QUERIES")?)?;
        let (query, reason) = (column(&names, "query")?, column(&names, "reason")?);
        let row = rows.iter().find(|row| row[query].contains("now()")).with_context(|| format!("{rows:?}"))?;
        ensure!(row[reason].contains("function"), "{row:?}");
        Ok(())
    })?;
    c.expect_silence()
}

fn show_status(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    let (names, rows) = table(&c.query("SHOW FRESHET STATUS")?)?;
    ensure!(names.len() == 2 && rows.len() > 3, "{names:?} {rows:?}");
    ensure!(rows.iter().any(|row| row[0].contains("hits") && row[1] != "0"), "no hits: {rows:?}");
    c.expect_silence()
}

fn explain_cache(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    let text = |rows: Vec<Vec<String>>| rows.concat().join("\n");
    let cached = text(table(&c.query(&format!("EXPLAIN CACHE {READ}"))?)?.1);
    ensure!(cached.contains("film"), "the table is not named: {cached}");
    let passed = text(table(&c.query("EXPLAIN CACHE select title from film where id = 1 for update")?)?.1);
    ensure!(passed.contains("locks rows"), "the reason is not named: {passed}");
    let now = text(table(&c.query("explain cache select now(), title from film")?)?.1);
    ensure!(now.contains("now"), "the function is not named: {now}");
    ensure!(cached != passed, "cached or not, the same is said: {cached}");
    // It explains; it does not run.
    c.query("EXPLAIN CACHE delete from film")?;
    ensure!(c.value("select count(*) from role")? == "500", "EXPLAIN CACHE ran the statement");
    c.expect_silence()
}

const STATEMENTS: &[&str] = &[
    "SHOW CACHES",
    "SHOW PROXIED QUERIES",
    "SHOW FRESHET QUERIES",
    "SHOW ADVICE",
    "SHOW FRESHET STATUS",
    "EXPLAIN CACHE select * from film",
];

fn tags(messages: &[Message]) -> String {
    messages.iter().map(|m| char::from(m.tag)).collect()
}

fn asked_by_the_extended_protocol(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    for sql in STATEMENTS {
        let messages = c.exchange(&[unnamed(sql, &[]), sync()].concat(), 1)?;
        let tags = tags(&messages);
        ensure!(tags.starts_with("12T") && tags.ends_with("CZ"), "{sql}: {tags} {messages:?}");
        c.expect_silence()?;
    }
    Ok(())
}

/// As drivers ask that first learn the types.
fn prepared_first(version: Version) -> Result<()> {
    let pair = Pair::new(version, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    for sql in STATEMENTS {
        for name in ["", "admin"] {
            let messages = c.exchange(&[parse(name, sql), describe_statement(name), sync()].concat(), 1)?;
            ensure!(tags(&messages) == "1tTZ", "{sql}: {messages:?}");
            let messages = c.exchange(&[bind_text("", name, &[]), execute("", 0), sync()].concat(), 1)?;
            let tags = tags(&messages);
            ensure!(tags.starts_with('2') && tags.ends_with("CZ"), "{sql}: {tags} {messages:?}");
            c.exchange(&[close_statement(name), sync()].concat(), 1)?;
            c.expect_silence()?;
        }
    }
    Ok(())
}
