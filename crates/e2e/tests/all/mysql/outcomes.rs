//! An answer that cannot be cached: the statement's next EXPLAIN CACHE, SHOW PROXIED QUERIES and the metrics give the reason.

use anyhow::{Result, ensure};

use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, undisturbed};

on_both!(too_large, with_warnings);

/// One result of 40 kB: more than an entry may be where the limit is 1 MiB.
const SCHEMA: &str = "CREATE TABLE page (id INT PRIMARY KEY, body VARCHAR(200) NOT NULL); \
     INSERT INTO page WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 400) \
     SELECT i, REPEAT('x', 100) FROM n";
const READ: &str = "SELECT * FROM page WHERE id > 0";
const OPTIONS: [&str; 4] = ["--memory", "1MiB", "--admission", "always"];

/// The column of the first row that holds a text, of an answer of Freshet's own.
fn told(c: &mut RawClient, sql: &str, part: &str, column: usize) -> Result<String> {
    let rows = c.query(sql)?.rows();
    let is_meant = |row: &&Vec<Option<String>>| row.iter().take(2).flatten().any(|cell| cell.contains(part));
    let found = rows.iter().find(is_meant).and_then(|row| row.get(column)?.clone());
    Ok(found.unwrap_or_default())
}

fn cached(c: &mut RawClient, sql: &str) -> Result<String> {
    told(c, &format!("EXPLAIN CACHE {sql}"), "cached", 1)
}

fn too_large(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::shared(kind)?, SCHEMA, &OPTIONS)?;
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
        let reason = told(&mut c, "SHOW PROXIED QUERIES", "page", 3)?;
        ensure!(reason == "too_large", "{reason}");
        Ok(())
    })?;
    pair.database.run("DELETE FROM page WHERE id > 10")?;
    undisturbed(&pair.freshet, || {
        pair.until_hit(&mut c, READ)?;
        ensure!(cached(&mut c, READ)? == "yes", "{}", cached(&mut c, READ)?);
        Ok(())
    })?;
    c.expect_silence()
}

fn with_warnings(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::shared(kind)?, SCHEMA, &OPTIONS)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    let read = "SELECT id FROM page WHERE body + 0 = 7";
    eventually(PATIENCE, || {
        c.query(read)?;
        let said = cached(&mut c, read)?;
        ensure!(said == "not the last result: an answer with warnings is never cached", "{said}");
        Ok(())
    })
}
