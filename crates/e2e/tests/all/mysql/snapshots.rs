//! Snapshots of transactions whose first reads find nothing: they are taken all the same, and later reads hit within them.

use anyhow::{Context, Result, ensure};

use super::support::packets::Value;
use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, rest};

on_both!(
    the_server_takes_them,
    reads_hit_behind_one_that_finds_nothing,
    prepared_reads_hit_behind_one_that_finds_nothing,
    what_may_not_have_read_is_no_snapshot,
    hits_are_those_of_the_snapshot,
    a_table_that_is_hidden_takes_none,
    what_was_just_defined_otherwise_takes_none
);

const SCHEMA: &str = "CREATE TABLE page (id INT AUTO_INCREMENT PRIMARY KEY, space TINYINT NOT NULL, title VARBINARY(20) NOT NULL, \
     name VARCHAR(20) CHARACTER SET utf8mb4, size BIGINT UNSIGNED, UNIQUE KEY (space, title), KEY (name)); \
     CREATE TABLE parts (id INT PRIMARY KEY, n INT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (100)); \
     CREATE TABLE nothing (ip VARBINARY(40) PRIMARY KEY); \
     INSERT INTO page (space, title, name, size) VALUES (0, 'Main', 'main', 1), (0, 'Other', 'other', 2)";
/// Those of which the snapshot is expected, without a row.
const EMPTY: &[&str] = &[
    "SELECT id FROM page WHERE space = 8 AND title = 'None' LIMIT 1",
    "SELECT id FROM page WHERE title = 'none' AND space = 127",
    "SELECT id FROM page WHERE (space = 1 AND title = 'Main') OR (space = 3 AND title = 'Main')",
    "SELECT id FROM page WHERE space = 8 AND title IN ('a', 'b', 'c')",
    "SELECT id FROM page WHERE id = 2147483647",
    "SELECT id FROM page WHERE id IN (77, 78)",
    "SELECT 1 FROM page WHERE name = 'absent' ORDER BY size LIMIT 5 OFFSET 2",
    "SELECT DISTINCT space FROM page WHERE name = 'twenty characters--' AND size = 9223372036854775807",
    "SELECT ip FROM nothing WHERE ip = '127.0.0.1' LIMIT 1",
    "SELECT ip FROM nothing",
];
const READ: &str = "SELECT name FROM page WHERE id = 1";
const COUNT: &str = "SELECT COUNT(*) FROM page WHERE space = 0";

/// On a server of its own: what other tests define flushes the cache.
fn pair(kind: Kind) -> Result<Pair> {
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, "", &["--admission", "always"])?;
    SCHEMA.split("; ").try_for_each(|statement| pair.database.run(statement))?;
    Ok(pair)
}

fn rows(c: &mut RawClient, sql: &str) -> Result<usize> {
    let answer = c.query(sql)?;
    ensure!(answer.error().is_none(), "{sql}: {answer:?}");
    Ok(answer.rows().len())
}

/// The server's behaviour that the rule depends on: a read of each kind takes the snapshot.
fn the_server_takes_them(kind: Kind) -> Result<()> {
    let database = Database::create(kind.start(&Kind::settings())?)?;
    SCHEMA.split("; ").try_for_each(|statement| database.run(statement))?;
    let (mut reader, mut writer) = (database.connect()?, database.connect()?);
    let rounds = EMPTY.iter().enumerate().flat_map(|(at, sql)| [(at, *sql, false), (at, *sql, true)]);
    for (at, sql, with_statistics) in rounds {
        if with_statistics {
            writer.query("ANALYZE TABLE page, nothing")?;
        }
        reader.run("BEGIN")?;
        ensure!(rows(&mut reader, sql)? == 0, "{sql} finds something");
        writer.run(&format!("INSERT INTO page (space, title) VALUES (100, 'n{at} {with_statistics}')"))?;
        let seen = rows(&mut reader, &format!("SELECT id FROM page WHERE title = 'n{at} {with_statistics}'"))?;
        ensure!(seen == 0, "{sql} took no snapshot");
        reader.run("COMMIT")?;
    }
    Ok(())
}

/// In a transaction that begins with a read of no row, the reads behind it hit, sooner or later.
fn until_hits_behind(pair: &Pair, c: &mut RawClient, first: impl Fn(&mut RawClient) -> Result<usize>) -> Result<()> {
    eventually(PATIENCE, || {
        c.run("BEGIN")?;
        let found = first(c)?;
        let hits = pair.freshet.metrics()?.hits();
        for _ in 0..4 {
            ensure!(c.value(READ)? == "main");
        }
        let hit = pair.freshet.metrics()?.hits() - hits;
        c.run("COMMIT")?;
        rest();
        ensure!((found, hit) == (0, 4), "{found} rows, {hit} hits");
        Ok(())
    })
}

fn reads_hit_behind_one_that_finds_nothing(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    pair.until_hit(&mut c, READ)?;
    for sql in EMPTY {
        until_hits_behind(&pair, &mut c, |c| rows(c, sql)).context(*sql)?;
    }
    Ok(())
}

fn prepared_reads_hit_behind_one_that_finds_nothing(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    let by_title = c.prepare("SELECT id FROM page WHERE space = ? AND title = ? LIMIT 1")?;
    pair.until_hit(&mut c, READ)?;
    until_hits_behind(&pair, &mut c, |c| Ok(c.execute(by_title, &[Value::Int(8), Value::Text("None")])?.rows().len()))
}

/// A read that the server may answer without reading takes no snapshot for sure: nothing hits behind it.
fn what_may_not_have_read_is_no_snapshot(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut c = pair.connect()?;
    let mut writer = pair.database.connect()?;
    for (at, sql) in [
        "SELECT id FROM page WHERE space = 128",
        "SELECT id FROM page WHERE title = 'more than twenty bytes'",
        "SELECT id FROM page WHERE id = 1 AND id = 77",
        "SELECT id FROM page LIMIT 0",
        "SELECT id FROM page WHERE id IS NULL AND space = 8",
        "SELECT id FROM parts WHERE id = 100",
    ]
    .iter()
    .enumerate()
    {
        pair.until_hit(&mut c, COUNT)?;
        c.run("BEGIN")?;
        ensure!(rows(&mut c, sql)? == 0, "{sql} finds something");
        let before = c.value(COUNT)?;
        writer.run(&format!("INSERT INTO page (space, title) VALUES (0, 'w{at}')"))?;
        let (other, again) = (c.value("SELECT COUNT(id) FROM page WHERE space = 0")?, c.value(COUNT)?);
        c.run("COMMIT")?;
        ensure!((&other, &again) == (&before, &before), "behind {sql}: {before}, then {other}, then {again}");
    }
    Ok(())
}

/// What is committed behind the first read is not seen, whether it is in the cache or not.
fn hits_are_those_of_the_snapshot(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    for (round, sql) in EMPTY.iter().enumerate() {
        if pair.freshet.is_there() {
            pair.until_hit(&mut other, COUNT)?;
        }
        c.run("BEGIN")?;
        ensure!(rows(&mut c, sql)? == 0, "{sql} finds something");
        other.run(&format!("INSERT INTO page (space, title, name) VALUES (0, 'new {round}', 'new')"))?;
        // The cache has the later state by now.
        let later = other.value(COUNT)?;
        ensure!(later == (round + 3).to_string(), "{later} in round {round}");
        other.value(COUNT)?;
        for _ in 0..3 {
            let seen = c.value(COUNT)?;
            ensure!(seen == (round + 2).to_string(), "behind {sql}: {seen} in round {round}");
        }
        c.run("COMMIT")?;
        ensure!(c.value(COUNT)? == later, "after the end of round {round}");
    }
    Ok(())
}

/// A read of a temporary table takes no snapshot, and says nothing of the long statement behind it, which reads no table.
fn a_table_that_is_hidden_takes_none(kind: Kind) -> Result<()> {
    const PASSES: &str = "SELECT COUNT(*) + 0 * SLEEP(0) FROM page WHERE space = 0";
    let pair = pair(kind)?;
    pair.database.run("CREATE TABLE hidden (id INT PRIMARY KEY)")?;
    let (mut c, mut other) = (pair.connect()?, pair.connect()?);
    c.run("CREATE TEMPORARY TABLE hidden (id INT PRIMARY KEY) ENGINE = MEMORY")?;
    let long = c.prepare("SELECT id FROM parts WHERE id = 100 AND 'a' <> ?")?;
    for round in 0..3 {
        if pair.freshet.is_there() {
            pair.until_hit(&mut c, COUNT)?;
        }
        c.run("BEGIN")?;
        ensure!(rows(&mut c, "SELECT id FROM hidden WHERE id = 1")? == 0);
        let nothing = c.execute(long, &[Value::Text(&"x".repeat(70_000))])?;
        ensure!(nothing.rows().is_empty(), "{nothing:?}");
        let first = c.value(COUNT)?;
        other.run(&format!("INSERT INTO page (space, title, name) VALUES (0, 'more {round}', 'new')"))?;
        let seen = [c.value(PASSES)?, c.value(COUNT)?];
        ensure!(seen == [first.clone(), first.clone()], "{first}, then {seen:?}");
        c.run("COMMIT")?;
    }
    Ok(())
}

/// Another session has just made the column narrower, which the catalogue does not show yet: the server answers without reading.
fn what_was_just_defined_otherwise_takes_none(kind: Kind) -> Result<()> {
    const PASSES: &str = "SELECT COUNT(*) + 0 * SLEEP(0) FROM page WHERE space = 0";
    let pair = pair(kind)?;
    pair.database.run("CREATE TABLE narrow (id INT PRIMARY KEY, n TINYINT NOT NULL, KEY (n))")?;
    let (mut c, mut other) = (pair.connect()?, pair.database.connect()?);
    for round in 0..5 {
        other.run("ALTER TABLE narrow MODIFY n SMALLINT NOT NULL")?;
        if pair.freshet.is_there() {
            pair.until_hit(&mut c, "SELECT COUNT(*) FROM narrow")?;
            pair.until_hit(&mut c, COUNT)?;
        }
        c.run("BEGIN")?;
        other.run("ALTER TABLE narrow MODIFY n TINYINT NOT NULL")?;
        ensure!(rows(&mut c, "SELECT id FROM narrow WHERE n = 200")? == 0);
        let first = c.value(COUNT)?;
        other.run(&format!("INSERT INTO page (space, title, name) VALUES (0, 'late {round}', 'new')"))?;
        let seen = [c.value(PASSES)?, c.value(COUNT)?];
        ensure!(seen == [first.clone(), first.clone()], "{first}, then {seen:?} in round {round}");
        c.run("COMMIT")?;
    }
    Ok(())
}
