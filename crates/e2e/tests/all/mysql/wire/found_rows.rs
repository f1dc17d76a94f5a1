//! FOUND_ROWS() after a hit and another statement: some statements keep the number that the hit would have counted, others count rows themselves.

use anyhow::{Context, Result};

use super::SCHEMA;
use crate::mysql::support::{Kind, Pair, on_both};

on_both!(behind_others, behind_questions, with_limits, behind_values, behind_prepared_values, behind_resets);

const READ: &str = "SELECT id FROM item WHERE id < 100";
const VALUES: &str = "VALUES (1), (2)";
const COUNT: &str = "SELECT FOUND_ROWS()";
const OTHERS: [&str; 52] = [
    "INSERT INTO log (line) SELECT 'a' FROM DUAL WHERE FALSE",
    "INSERT INTO log (line) SELECT name FROM item WHERE id = 1",
    "REPLACE INTO log (line) SELECT 'a' FROM DUAL WHERE FALSE",
    "INSERT INTO item (id, name) VALUES (60, 'sixty')",
    "INSERT INTO item (id, name) VALUES (1, 'is there')",
    "INSERT INTO log SET line = (SELECT 'b')",
    "UPDATE item SET name = name WHERE id = 1",
    "UPDATE item SET name = name WHERE id IN (SELECT 1)",
    "UPDATE item JOIN item other ON item.id = other.id SET item.name = item.name WHERE other.id > 90",
    "DELETE FROM item WHERE id = 60",
    "DELETE item FROM item WHERE id > 90",
    "DELETE FROM log",
    "CREATE TEMPORARY TABLE copy SELECT 1 AS a FROM DUAL WHERE FALSE",
    "SET @x = (SELECT 5)",
    "SET @x = 5",
    "DO (SELECT 5)",
    "DO 1",
    "SELECT id INTO @z FROM item WHERE id = 1",
    "SELECT * FROM no_such_table",
    "SELECT no_such_column FROM item",
    "SELECT no_such_function(1)",
    "SELECT (SELECT id FROM item other WHERE other.id <= item.id) FROM item",
    "SELECT id FROM item WHERE id <= (SELECT id FROM item)",
    "VALUES (1), (2)",
    "WITH one AS (SELECT 1) VALUES (1), (2)",
    "WITH one AS (SELECT 1) (VALUES (1), (2))",
    "WITH one AS (VALUES (1), (2)) SELECT * FROM one LIMIT 1",
    "VALUES (1) UNION VALUES (2)",
    "SELECT 5 UNION VALUES (6), (7)",
    "VALUES (1), (2) UNION SELECT 3",
    "(VALUES (1), (2))",
    "SELECT",
    "UPDATE item SET name = name WHERE id > 99",
    "WITH one AS (SELECT 1) SELECT * FROM one",
    "SHOW TABLES LIKE 'item'",
    "SHOW STATUS LIKE 'Uptime_since_flush'",
    "SHOW WARNINGS",
    "SHOW COUNT(*) WARNINGS",
    "SHOW CREATE TABLE log",
    "EXPLAIN SELECT 1",
    "ANALYZE TABLE log",
    "CHECK TABLE log",
    "PREPARE s FROM 'SELECT 1 UNION SELECT 2'",
    "EXECUTE s",
    "CALL no_such_procedure()",
    "SET NAMES utf8mb4",
    "HANDLER log OPEN",
    "HANDLER log CLOSE",
    "BEGIN",
    "COMMIT",
    "SIGNAL SQLSTATE '01000'",
    "TRUNCATE log",
];

fn behind_others(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    for other in OTHERS {
        pair.same_with_hits(1, |c| {
            if other.starts_with("EXECUTE") || other.ends_with("CLOSE") {
                c.query("PREPARE s FROM 'SELECT 1 UNION SELECT 2'")?;
                c.query("HANDLER log OPEN")?;
            }
            c.query(READ)?;
            c.query(READ)?;
            // What the statement itself says may be of the moment.
            let at = c.heard.len();
            c.query(other)?;
            c.heard.truncate(at);
            c.query(COUNT)?;
            c.query(COUNT)?;
            c.query("DELETE FROM item WHERE id = 60")?;
            c.expect_silence()
        })
        .with_context(|| other)?;
    }
    Ok(())
}

/// A statement that leaves the number as it was, behind a question of Freshet's own: the catalogue is another one since the session's last.
fn behind_questions(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let failing = ["SELECT * FROM no_such_table", "SELECT no_such_column FROM item", "SELECT id FROM item WHERE id ="];
    let mut direct = pair.database.connect()?;
    for (at, other) in failing.into_iter().enumerate() {
        for first in ["", "SELECT SQL_NO_CACHE id FROM item", "SELECT SQL_CALC_FOUND_ROWS id FROM item LIMIT 1"] {
            let mut said = Vec::new();
            let table = format!("defined_{at}_{}", first.len());
            for mut c in [pair.database.connect()?, pair.connect()?] {
                if pair.freshet.is_there() && said.len() == 1 && !first.is_empty() {
                    pair.until_hit(&mut c, READ)?;
                }
                if !first.is_empty() {
                    c.run(first)?;
                }
                direct.run(&format!("CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY)"))?;
                if pair.freshet.is_there() {
                    pair.until_hit(&mut pair.connect()?, &format!("SELECT id FROM {table}"))?;
                }
                c.query(other)?;
                said.push((c.value(COUNT)?, c.value(COUNT)?));
            }
            // In a new session of MariaDB it is whatever an earlier one has left.
            if kind == Kind::Mysql || !first.is_empty() {
                assert_eq!(said[0], said[1], "{first:?}, {other}");
            }
        }
    }
    Ok(())
}

fn with_limits(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    for read in ["SELECT id FROM item ORDER BY id LIMIT 1", "SELECT id FROM item WHERE id > 1000"] {
        pair.same_with_hits(1, |c| {
            for sql in ["TRUNCATE log", read, read, "INSERT INTO log (line) VALUES ('a')", COUNT] {
                c.query(sql)?;
            }
            c.expect_silence()
        })?;
    }
    Ok(())
}

/// MariaDB: a VALUES that was answered from the cache.
fn behind_values(kind: Kind) -> Result<()> {
    if kind == Kind::Mysql {
        return Ok(());
    }
    let pair = Pair::new(kind, SCHEMA)?;
    let doubt = "SET SESSION group_concat_max_len = 2000";
    for between in ["SELECT 1", "SET @x = 5", "INSERT INTO log (line) VALUES ('a')", "SHOW TABLES LIKE 'item'", doubt] {
        pair.same_with_hits(2, |c| {
            for first in [READ, VALUES] {
                for sql in [first, VALUES, VALUES, COUNT, first, VALUES, between, COUNT, first, between, VALUES, COUNT]
                {
                    let at = c.heard.len();
                    c.query(sql)?;
                    if sql.starts_with("INSERT") {
                        c.heard.truncate(at);
                    }
                }
            }
            c.query("TRUNCATE log")?;
            c.expect_silence()
        })
        .with_context(|| between)?;
    }
    Ok(())
}

/// The same of one that was prepared.
fn behind_prepared_values(kind: Kind) -> Result<()> {
    if kind == Kind::Mysql {
        return Ok(());
    }
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        let values = c.prepare(VALUES)?;
        for first in [READ, "SELECT id FROM item WHERE id > 1000"] {
            c.query(first)?;
            c.execute(values, &[])?;
            c.execute(values, &[])?;
            c.query(COUNT)?;
        }
        c.expect_silence()
    })
}

/// COM_RESET_CONNECTION behind a hit.
fn behind_resets(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if pair.freshet.is_there() {
        pair.until_hit(&mut pair.connect()?, READ)?;
    }
    pair.same_with_hits(1, |c| {
        c.query(READ)?;
        c.command(&[31])?;
        c.query(COUNT)?;
        c.query(COUNT)?;
        c.expect_silence()
    })
}
