//! An answer that cannot be cached: the statement's next EXPLAIN CACHE, SHOW PROXIED QUERIES and the metrics give the reason.

use anyhow::{Result, ensure};
use freshet_testbed::Settings;

use super::rows;
use crate::cached::until_hit;
use crate::support::frames::query;
use crate::support::{Database, PATIENCE, Pair, RawClient, Version, eventually, on_both, undisturbed};

on_both!(too_large, with_a_notice);

/// One result of 40 kB: more than an entry may be where the limit is 1 MiB.
const SCHEMA: &str = "
    create table page (id int primary key, body text not null);
    insert into page select i, repeat('x', 100) from generate_series(1, 400) i;";
const READ: &str = "select * from page where id > 0";
const OPTIONS: [&str; 4] = ["--memory", "1MiB", "--admission", "always"];

/// What EXPLAIN CACHE says of whether it is cached.
fn cached(c: &mut RawClient, sql: &str) -> Result<String> {
    let rows = rows(&c.query(&format!("EXPLAIN CACHE {sql}"))?);
    Ok(rows.into_iter().find(|row| row[0] == "cached").map(|mut row| row.remove(1)).unwrap_or_default())
}

/// The last reason, in the list of what passes.
fn last_reason(c: &mut RawClient, part: &str) -> Result<String> {
    let rows = rows(&c.query("SHOW PROXIED QUERIES")?);
    let found = rows.into_iter().find(|row| row[1].contains(part) && !row[1].contains("EXPLAIN"));
    Ok(found.map(|mut row| row.remove(3)).unwrap_or_default())
}

fn too_large(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &OPTIONS)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    undisturbed(&pair.freshet, || {
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?.count("freshet_too_large_total");
            c.query(READ)?;
            ensure!(pair.freshet.metrics()?.count("freshet_too_large_total") > before, "not counted");
            Ok(())
        })?;
        let said = cached(&mut c, READ)?;
        ensure!(said.starts_with("not the last result: the result is larger than one cache entry"), "{said}");
        ensure!(last_reason(&mut c, "page")? == "too_large", "{:?}", c.query("SHOW PROXIED QUERIES")?);
        Ok(())
    })?;
    // As soon as it fits again, it is cached, and nothing is said any more.
    pair.database.run("delete from page where id > 10")?;
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut c, READ)?;
        ensure!(cached(&mut c, READ)? == "yes", "{}", cached(&mut c, READ)?);
        Ok(())
    })?;
    c.expect_silence()
}

fn with_a_notice(version: Version) -> Result<()> {
    let pair = Pair::over(Database::shared(version)?, SCHEMA, &OPTIONS)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    // It consists of a stop word, which the server tells each time.
    let read = "select id from page where to_tsvector('english', body) @@ plainto_tsquery('english', 'the')";
    eventually(PATIENCE, || {
        let answer = c.query(read)?;
        ensure!(answer.iter().any(|message| message.tag == b'N'), "{answer:?}");
        let said = cached(&mut c, read)?;
        ensure!(said == "not the last result: an answer with a notice is never cached", "{said}");
        ensure!(last_reason(&mut c, "plainto")? == "construct", "{:?}", c.query("SHOW PROXIED QUERIES")?);
        Ok(())
    })
}

/// A commit waits for a standby: it is delivered, and no snapshot shows it. Reads of the table in a block are counted under this reason until it is visible.
#[test]
fn a_commit_that_is_not_visible() -> Result<()> {
    let database = Database::create(Version::V18.start(&Settings::default())?)?;
    let pair = Pair::over(database, SCHEMA, &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let read = "select body from page where id = 1";
    let (mut reader, mut writer) = (pair.connect()?, pair.database.connect()?);
    until_hit(&pair, &mut reader, read)?;
    pair.database.server.set("synchronous_standby_names", "nobody")?;
    // Commits wait only once the server's processes have noticed.
    eventually(PATIENCE, || {
        pair.database.connect()?.send(&query("update page set body = body where id = 2"))?;
        let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
        ensure!(pair.database.connect()?.value(waiting)? != "0", "no commit waits");
        Ok(())
    })?;
    writer.send(&query("update page set body = 'new' where id = 1"))?;
    eventually(PATIENCE, || {
        ensure!(pair.freshet.metrics()?.value("freshet_commits_unproven") > 0.0, "not delivered");
        Ok(())
    })?;
    eventually(PATIENCE, || {
        for (sql, old) in [("begin", false), (read, true), ("commit", false)] {
            let answer = reader.query(sql)?;
            let shows = answer.iter().any(|message| message.body.ends_with(b"xxx"));
            ensure!(!old || shows, "not the old row: {answer:?}");
        }
        let metrics = pair.freshet.metrics()?;
        ensure!(metrics.passed("unproven") > 0, "another reason: {metrics:?}");
        let reason = last_reason(&mut reader, "from page where id")?;
        ensure!(reason == "unproven", "SHOW PROXIED QUERIES says {reason}");
        Ok(())
    })?;
    pair.database.server.set("synchronous_standby_names", "")?;
    writer.until(b'Z')?;
    until_hit(&pair, &mut reader, read)?;
    ensure!(reader.value(read)? == "new", "an old row");
    Ok(())
}
