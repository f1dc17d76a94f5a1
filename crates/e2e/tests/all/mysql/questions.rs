//! Health checks and queries of frameworks: statements that read no table. They are served from the cache, for each session by its own settings.

use anyhow::{Result, ensure};

use super::support::{Database, Kind, Pair, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(
    questions_hit,
    answers_follow_the_session,
    questions_without_autocommit,
    rows_found,
    global_variables_that_change,
    global_variables_that_change_back
);

const SCHEMA: &str =
    "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20)); INSERT INTO item VALUES (1, 'kettle'), (2, 'cup')";

const QUESTIONS: [&str; 12] = [
    "SELECT 1",
    "SELECT @@SESSION.sql_mode",
    "SELECT VERSION()",
    "select @@version_comment limit 1",
    "SELECT @@version, @@session.time_zone AS zone, @@max_allowed_packet, @@lower_case_table_names",
    "SELECT @@GLOBAL.version, @@hostname, @@global.datadir, @@port, @@lower_case_file_system",
    "SELECT DATABASE()",
    "SELECT CURRENT_USER(), CURRENT_USER, CURRENT_ROLE()",
    "SELECT @@character_set_client, @@collation_connection",
    "SELECT CONCAT('a', LOWER('B'))",
    "SELECT @@GLOBAL.read_only AS Value",
    "SELECT @@server_id AS id",
];

fn questions_hit(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut c = pair.connect()?;
    for sql in QUESTIONS {
        pair.until_hit(&mut c, sql)?;
    }
    pair.same_with_hits(QUESTIONS.len() as u64, |c| {
        for sql in QUESTIONS.iter().chain(&QUESTIONS) {
            c.query(sql)?;
        }
        c.expect_silence()
    })?;
    // What is not the same for all sessions of these settings, or may change unseen, is asked of the database.
    let before = pair.freshet.metrics()?.hits();
    for sql in [
        "SELECT CONNECTION_ID()",
        "SELECT @@global.sql_mode",
        "SELECT @@GLOBAL.max_connections",
        "SELECT @a",
        "SELECT @@autocommit",
        "SELECT NOW()",
    ] {
        for _ in 0..3 {
            c.query(sql)?;
        }
    }
    ensure!(pair.freshet.metrics()?.hits() == before, "what was to pass hit");
    Ok(())
}

fn answers_follow_the_session(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut c = pair.connect()?;
    for sql in QUESTIONS {
        pair.until_hit(&mut c, sql)?;
    }
    pair.same_with_hits(QUESTIONS.len() as u64, |c| {
        let settings = [
            "SET sql_mode = ''",
            "SET SESSION time_zone = '+03:00'",
            "SET NAMES latin1",
            "USE information_schema",
            "SET @@session.sql_mode = 'STRICT_TRANS_TABLES'",
        ];
        for setting in settings {
            c.query(setting)?;
            for sql in QUESTIONS.iter().chain(&QUESTIONS) {
                c.query(sql)?;
            }
        }
        c.expect_silence()
    })
}

/// A question opens no transaction, and takes no snapshot.
fn questions_without_autocommit(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut c = pair.connect()?;
    for sql in [QUESTIONS[0], QUESTIONS[1], "SELECT name FROM item WHERE id = 1"] {
        pair.until_hit(&mut c, sql)?;
    }
    pair.same_with_hits(2, |c| {
        c.query("SET autocommit = 0")?;
        for sql in [QUESTIONS[0], QUESTIONS[0], QUESTIONS[1], QUESTIONS[1], QUESTIONS[0]] {
            c.query(sql)?;
        }
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query(QUESTIONS[0])?;
        c.query("COMMIT")?;
        c.query(QUESTIONS[0])?;
        c.expect_silence()
    })?;
    let mut other = pair.connect()?;
    c.run("START TRANSACTION")?;
    c.query(QUESTIONS[0])?;
    other.run("UPDATE item SET name = 'pot' WHERE id = 1")?;
    ensure!(c.value("SELECT name FROM item WHERE id = 1")? == "pot", "the snapshot was taken by a question");
    c.run("COMMIT")
}

/// The number of rows found is that of the statement before it, hit or miss; and what follows goes on hitting.
fn rows_found(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut c = pair.connect()?;
    let found = "SELECT FOUND_ROWS()";
    for _ in 0..3 {
        ensure!(c.value("SELECT SQL_CALC_FOUND_ROWS id FROM item ORDER BY id LIMIT 1")? == "1", "a page");
        ensure!(c.value(found)? == "2", "behind a page");
        c.query(QUESTIONS[0])?;
        ensure!(c.value(found)? == "1", "behind a question");
        c.query("SELECT id FROM item")?;
        ensure!(c.value(found)? == "2", "behind all rows");
        c.run("UPDATE item SET name = 'pan' WHERE id = 2")?;
    }
    pair.until_hit(&mut c, "SELECT name FROM item WHERE id = 1")?;
    pair.until_hit(&mut c, QUESTIONS[0])
}

const IS_READ_ONLY: &str = "SELECT @@GLOBAL.read_only AS Value";

/// A server of its own, whose variables may be changed.
fn alone(kind: Kind) -> Result<Pair> {
    Pair::over(Database::create(kind.start(&Kind::settings())?)?, SCHEMA, &["--admission", "always"])
}

/// No log tells of a changed variable. Through Freshet the new value is there when the change is acknowledged; otherwise a moment later.
fn global_variables_that_change(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    let mut c = pair.connect()?;
    let mut owner = pair.connect()?;
    let others: &[(&str, &str)] =
        if kind == Kind::Mysql { &[("super_read_only", "1"), ("read_only", "0")] } else { &[] };
    for (name, value) in [("read_only", "1"), ("read_only", "0")].iter().chain(others).cycle().take(12) {
        pair.until_hit(&mut c, IS_READ_ONLY)?;
        owner.run(&format!("SET GLOBAL {name} = {value}"))?;
        if pair.freshet.is_there() {
            ensure!(c.value(IS_READ_ONLY)? == *value, "{name} = {value}: the old value");
        }
    }
    for value in ["1", "0"] {
        pair.database.connect()?.run(&format!("SET GLOBAL read_only = {value}"))?;
        eventually(PATIENCE, || {
            ensure!(c.value(IS_READ_ONLY)? == value, "{value}: the old value");
            Ok(())
        })?;
        pair.until_hit(&mut c, IS_READ_ONLY)?;
        pair.same(|c| {
            let statement = c.prepare(IS_READ_ONLY)?;
            for _ in 0..4 {
                c.execute(statement, &[])?;
                c.query(IS_READ_ONLY)?;
            }
            c.expect_silence()
        })?;
    }
    Ok(())
}

/// What is set and reset between two looks of Freshet at the variables is not cached.
fn global_variables_that_change_back(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    let (mut c, mut owner) = (pair.connect()?, pair.database.connect()?);
    for round in 0..20 {
        // Each text is a key of its own, and a miss.
        let sql = format!("SELECT @@GLOBAL.read_only AS v{round}");
        owner.run("SET GLOBAL read_only = 1")?;
        c.value(&sql)?;
        owner.run("SET GLOBAL read_only = 0")?;
        eventually(PATIENCE, || {
            ensure!(c.value(&sql)? == "0", "round {round}: the value of another time stays");
            Ok(())
        })?;
        pair.until_hit(&mut c, &sql)?;
        ensure!(c.value(&sql)? == "0", "round {round}: the value of another time");
    }
    Ok(())
}
