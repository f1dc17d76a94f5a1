//! Code of which the text is computed when it runs: it may make a temporary table with any name. What it has made must be known, and a session that
//! runs such code must not pass for that.

use anyhow::{Context, Result, ensure};

use super::support::{Kind, on_both, packets};
use super::temporaries::{READ, alone, hide_item, pair, until_hit};
use crate::support::rest;

on_both!(
    sessions_that_go_on,
    procedures_that_go_on,
    tables_that_hide_others,
    tables_of_procedures,
    tables_beside_others,
    tables_that_are_locked,
    settings_of_unknown_code,
    levels_of_next_transactions,
    diagnostics_that_stay,
    diagnostics_of_others,
    warnings_behind_hits
);

const MAKES: &str = "CALL runs('CREATE TEMPORARY TABLE item SELECT 1 AS id, ''mine'' AS name')";
/// A text that is too long to be asked for.
const LONG: &str = "SET @text = CONCAT('SELECT 1 /*', REPEAT('x', 70000), '*/')";
const SCRATCH: &str = "CREATE TEMPORARY TABLE scratch SELECT 1 AS id, 'mine' AS name";
const RENAMES: &str = "CALL runs('ALTER TABLE scratch RENAME TO item')";

fn prepared(text: &str) -> Vec<String> {
    [text, "PREPARE s FROM @text", "EXECUTE s", "DEALLOCATE PREPARE s"].map(str::to_owned).into()
}

fn sessions_that_go_on(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let long = format!("SET @text = CONCAT('SELECT ', 1, ' /* {} */')", "x".repeat(60_000));
    for text in [
        "SET @text = CONCAT('SELECT ', 1)",
        "SET @text = CONCAT('SELECT ', 1, ' AS ''caf\u{e9}''')",
        "SET @text = CONVERT('SELECT 1' USING latin1)",
        "SET @text = CONCAT('SELECT name FROM item WHERE id = ', 1)",
        "SET @text = CONCAT('SELECT quadrupled(', 1, ')')",
        "SET @text = CONCAT('UPDATE logged SET n = ', 7)",
        "SET @text = CONCAT('ALTER TABLE blobs ADD COLUMN c', CONNECTION_ID(), ' INT')",
        "SET @text = CONCAT('CREATE TABLE t', CONNECTION_ID(), ' (id INT)')",
        "SET @text = CONCAT('CALL ', 'scratches()')",
        "SET @text = CONCAT('CREATE TEMPORARY TABLE ', 'other SELECT 1 AS n')",
        "SET @text = CONCAT('SET @n = ', 7)",
        "SET @text = CONCAT('SELEC ', 1)",
        "SET @text = NULL",
        "SELECT GROUP_CONCAT('SELECT ', id) INTO @text FROM item",
        &long,
    ] {
        let head = text.get(..80).unwrap_or(text);
        let mut c = pair.connect()?;
        for round in 0..3 {
            for statement in prepared(text) {
                c.query(&statement)?;
            }
            until_hit(&pair, &mut c, READ).with_context(|| format!("round {round} after {head}"))?;
        }
    }
    Ok(())
}

/// Stored code with PREPARE, and texts of several statements: the server's counters show that they have made no table.
fn procedures_that_go_on(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut sequences = vec![
        &["CALL runs('SELECT 1')"][..],
        &["CALL runs('UPDATE logged SET n = 8')"],
        &["CALL runs(CONCAT('ALTER TABLE blobs ADD COLUMN d', CONNECTION_ID(), '_', ROUND(RAND() * 1e9), ' INT'))"],
        &["CALL runs('SELEC 1')"],
        &["SET @text = CONCAT('SELECT ', 1); PREPARE s FROM @text; EXECUTE s"],
        &["CREATE TEMPORARY TABLE other (id INT)", "CALL runs('SELECT 1')", "DROP TEMPORARY TABLE other"],
        &["CREATE TABLE IF NOT EXISTS permanent (id INT)", "CALL runs('SELECT 1')"],
        &["PREPARE s FROM 'CALL runs(''SELECT 1'')'", "EXECUTE s"],
        &[LONG, "PREPARE s FROM @text", "EXECUTE s", "DEALLOCATE PREPARE s"],
        &["SET @n = 1", LONG, "PREPARE s FROM @text", "SET time_zone = '+01:00'", "EXECUTE s", "SET NAMES utf8mb4"],
    ];
    if kind == Kind::Mariadb {
        sequences.push(&["EXECUTE IMMEDIATE CONCAT('SELECT ', 1)"]);
        sequences.push(&[
            "UPDATE logged SET n = 9",
            "SET @n = 1",
            "EXECUTE IMMEDIATE CONCAT('UPDATE logged SET n = ', @n)",
        ]);
        sequences.push(&["SET @text = 'SELECT 1'", "UPDATE logged SET n = 9", "EXECUTE IMMEDIATE @text"]);
        sequences.push(&["SET @text = CONCAT('SELECT ', 1)", "EXECUTE IMMEDIATE @text"]);
        sequences.push(&["CALL runs(CONCAT('CREATE OR REPLACE TABLE permanent (id INT)'))"]);
    }
    for sequence in sequences {
        let mut c = pair.connect()?;
        for round in 0..3 {
            for statement in sequence {
                c.query(statement)?;
            }
            until_hit(&pair, &mut c, READ).with_context(|| format!("round {round} after {sequence:?}"))?;
        }
    }
    // A table that was made ends with the session.
    let mut c = pair.connect()?;
    for _ in 0..2 {
        c.run(MAKES)?;
        for _ in 0..3 {
            assert_eq!(c.value(READ)?, "mine");
            rest();
        }
        drop(c.command(&packets::reset_connection())?);
        c.run("CALL runs('SELECT 1')")?;
        until_hit(&pair, &mut c, READ)?;
    }
    Ok(())
}

fn tables_that_hide_others(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let replace = ["SET @text = CONCAT('CREATE OR REPLACE TEMPORARY TABLE ', 'item SELECT 1 AS id, ''mine'' AS name')"];
    let replace = if kind == Kind::Mariadb { &replace[..] } else { &[] };
    let texts = [
        "SET @text = CONCAT('CREATE TEMPORARY TABLE ', 'item SELECT 1 AS id, ''mine'' AS name')",
        "SET @text = CONVERT('CREATE TEMPORARY TABLE item SELECT 1 AS id, ''mine'' AS name' USING utf16)",
        "SET @text = CONCAT('CALL ', 'hides()')",
        "SET @text = CONCAT('CALL hides_with_a_table(', '''item'')')",
        "SET @text = CONCAT('SELECT ', 'hiding()')",
        "SET @text = CONCAT('SELECT n FROM hiding_', 'view')",
        "SET @text = CONCAT('UPDATE fired ', 'SET n = n + 1')",
        "SELECT CONCAT('CALL ', 'hides()') INTO @text",
    ];
    for text in texts.iter().chain(replace) {
        let all = prepared(text);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        hide_item(&pair, &all)?;
    }
    for statements in [
        // The variable is another one by then, or the name.
        &[
            "SET @text = CONCAT('SELECT ', 1)",
            "PREPARE s FROM @text",
            "SET @text = CONCAT('CALL ', 'hides()')",
            "PREPARE S FROM @text",
            "EXECUTE s",
        ][..],
        &["SET @text = CONCAT('CALL ', 'hides()')", "PREPARE s FROM @text", "SET @text = 'SELECT 1'", "EXECUTE s"],
        &[
            "SET @text = 'SELECT 1'",
            "SET @other = 1",
            "SET @text = CONCAT('CALL ', 'hides()')",
            "PREPARE s FROM @text",
            "EXECUTE s",
        ],
        &[
            "SET @text = CONCAT('CREATE TEMPORARY TABLE item LIKE ', 'logged')",
            "PREPARE s FROM @text",
            "EXECUTE s",
            "ALTER TABLE item ADD name VARCHAR(20) DEFAULT 'mine'",
            "INSERT INTO item VALUES (1, 1, 'mine')",
        ],
        // Dropped, and made again by the same statement.
        &[
            "SET @text = CONCAT('CREATE TEMPORARY TABLE ', 'item SELECT 1 AS id, ''mine'' AS name')",
            "PREPARE s FROM @text",
            "EXECUTE s",
            "DROP TEMPORARY TABLE item",
            "SELECT name FROM item WHERE id = 1",
            "EXECUTE s",
        ],
        &[
            "SET sql_mode = 'ANSI_QUOTES'",
            "SET @text = CONCAT('CALL ', '\"hides\"()')",
            "PREPARE s FROM @text",
            "EXECUTE s",
            "SET sql_mode = ''",
        ],
        &["SET NAMES latin1", "SET @text = CONCAT('CALL ', 'hides()')", "PREPARE s FROM @text", "EXECUTE s"],
    ] {
        hide_item(&pair, statements)?;
    }
    Ok(())
}

fn tables_of_procedures(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let mut all = vec![
        &[MAKES][..],
        &["CALL runs('SELECT 1')", READ, READ, MAKES],
        &["CREATE TEMPORARY TABLE other (id INT)", MAKES],
        &["CREATE TABLE IF NOT EXISTS permanent (id INT)", MAKES],
        &["CREATE TEMPORARY TABLE other (id INT)", "CALL runs('SELECT 1')", READ, READ, "DROP TABLE other", MAKES],
        // The counters are 0 again.
        &["CALL hides_and_flushes()"],
        &["CALL runs('SELECT 1')", READ, READ, "CALL hides_and_flushes()"],
        &[SCRATCH, RENAMES],
        &[SCRATCH, RENAMES, "DROP TEMPORARY TABLE IF EXISTS scratch"],
        &[SCRATCH, READ, READ, RENAMES],
        // The name stands for another text since.
        &["PREPARE s FROM 'SELECT 1'", "CALL prepares()", "EXECUTE s"],
        &["PREPARE s FROM 'SELECT 1'", "CALL prepares()", READ, READ, "EXECUTE s"],
        &["SET @text = CONCAT('CALL ', 'hides()'); PREPARE s FROM @text; EXECUTE s"],
    ];
    let long = LONG.replace("SELECT 1", "CALL hides()");
    let long = [&long, "PREPARE s FROM @text", "EXECUTE s"];
    all.push(&long);
    if kind == Kind::Mariadb {
        all.push(&[SCRATCH, "CALL runs('RENAME TABLE scratch TO item')"]);
        all.push(&["SET @text = CONCAT('CALL ', 'hides()')", "EXECUTE IMMEDIATE @text"]);
        all.push(&["EXECUTE IMMEDIATE CONCAT('CALL ', 'hides()')"]);
        all.push(&[
            "EXECUTE IMMEDIATE CONCAT('SELECT ', 1)",
            READ,
            READ,
            "EXECUTE IMMEDIATE CONCAT('CALL ', 'hides()')",
        ]);
        all.push(&[
            "CREATE TEMPORARY TABLE item (id INT)",
            "CALL runs('CREATE OR REPLACE TEMPORARY TABLE item SELECT 1 AS id, ''mine'' AS name')",
        ]);
    }
    all.iter().try_for_each(|statements| hide_item(&pair, statements))
}

/// A table that the session is known to have made is counted once, however it was made.
fn tables_beside_others(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    for sql in ["CREATE TEMPORARY TABLE other (id INT)", "CREATE TABLE IF NOT EXISTS permanent (id INT)"] {
        let mut c = pair.connect()?;
        until_hit(&pair, &mut c, READ)?;
        let statement = c.prepare(sql)?;
        c.execute(statement, &[])?;
        c.run(MAKES)?;
        for _ in 0..3 {
            assert_eq!(c.value(READ)?, "mine", "after {sql}");
            rest();
        }
    }
    Ok(())
}

/// Unknown code may have set the level of the next transaction, which is the next read.
fn levels_of_next_transactions(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    let (mut c, mut writer) = (pair.connect()?, pair.connect()?);
    if pair.freshet.is_there() {
        until_hit(&pair, &mut c, READ)?;
    }
    writer.run("BEGIN")?;
    writer.run("UPDATE item SET name = 'kettle, uncommitted' WHERE id = 1")?;
    for round in 0..3 {
        c.run("CALL runs('SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED')")?;
        rest();
        assert_eq!(c.value(READ)?, "kettle, uncommitted", "round {round}");
        for _ in 0..3 {
            assert_eq!(c.value(READ)?, "kettle", "round {round}");
        }
    }
    writer.run("ROLLBACK")
}

/// Unknown code may lock tables; others cannot be read then.
fn tables_that_are_locked(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let locks = [
        "CALL runs('FLUSH TABLES logged WITH READ LOCK')",
        "CALL runs('LOCK TABLES logged READ')",
        "EXECUTE IMMEDIATE CONCAT('LOCK TABLES ', 'logged READ')",
    ];
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    for lock in if kind == Kind::Mariadb { &locks[..] } else { &locks[..1] } {
        until_hit(&pair, &mut c, READ)?;
        // Known locks are none of that code.
        for statement in ["LOCK TABLES logged READ", "UNLOCK TABLES", "CALL runs('SELECT 1')"] {
            c.query(statement)?;
        }
        until_hit(&pair, &mut c, READ)?;
        c.query(lock)?;
        // Both on one table would wait for each other.
        direct.query(&lock.replace("logged", "fired"))?;
        for _ in 0..3 {
            let (got, expected) = (c.query(READ)?, direct.query(READ)?);
            ensure!(expected.error().is_some(), "{lock} is no example");
            assert_eq!(got.error(), expected.error(), "{lock}");
            c.query("SELECT n FROM logged WHERE id = 1")?;
            rest();
        }
        for client in [&mut c, &mut direct] {
            client.run("UNLOCK TABLES")?;
        }
    }
    until_hit(&pair, &mut c, READ)
}

/// Unknown code may record the session's statements: then they reach the server, and Freshet asks no more.
fn settings_of_unknown_code(kind: Kind) -> Result<()> {
    let pair = alone(kind)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let set = "'SET profi', 'ling = 1'";
    let texts = match kind {
        Kind::Mariadb => vec![format!("EXECUTE IMMEDIATE CONCAT({set})")],
        Kind::Mysql => vec![],
    };
    let long = format!("SET @text = CONCAT({set}, ' /*', REPEAT('x', 70000), '*/')");
    let long = vec![long, "PREPARE s FROM @text".to_owned(), "EXECUTE s".to_owned()];
    for statements in [texts, long].iter().filter(|statements| !statements.is_empty()) {
        let mut c = pair.connect()?;
        until_hit(&pair, &mut c, READ)?;
        for statement in statements {
            c.run(statement)?;
        }
        for _ in 0..3 {
            c.run(READ)?;
            rest();
        }
        let profiles = c.query("SHOW PROFILES")?.rows();
        let count = |text: &str| {
            let says = |row: &&Vec<Option<String>>| {
                row.last().is_some_and(|last| last.as_deref().is_some_and(|last| last.starts_with(text)))
            };
            profiles.iter().filter(says).count()
        };
        assert_eq!((count(READ), count("SHOW SESSION STATUS")), (3, 1), "{profiles:?}");
    }
    Ok(())
}

/// The question for the text leaves no trace that a client can see.
fn diagnostics_that_stay(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let found = "SELECT SQL_CALC_FOUND_ROWS n FROM logged UNION SELECT 2 UNION SELECT 3 LIMIT 1";
    for before in [
        found,
        READ,
        "INSERT INTO blobs (body) VALUES ('x'), ('y')",
        "SELECT 1 / 0",
        "DO 1 / 0",
        "SELECT * FROM nowhere",
    ] {
        for text in ["'SELECT ', 1", "'SELEC ', 1"] {
            for after in [
                "SELECT FOUND_ROWS()",
                "SELECT ROW_COUNT()",
                "SHOW WARNINGS",
                "SELECT @@warning_count, @@error_count",
                "SELECT LAST_INSERT_ID() > 0",
            ] {
                // Sessions of their own: MariaDB's warnings outlast statements that read no table.
                let answers = [pair.connect()?, pair.database.connect()?].map(|mut c| {
                    c.query(READ)?;
                    for statement in [&format!("SET @text = CONCAT({text})"), before, "PREPARE s FROM @text"] {
                        c.query(statement)?;
                    }
                    Ok(c.query(after)?.rows())
                });
                let [through, expected]: [Result<_>; 2] = answers;
                assert_eq!(through?, expected?, "{after} after {before}, {text}");
            }
        }
    }
    Ok(())
}

/// MariaDB keeps the warnings until a statement reads a table, and a hit is one.
fn warnings_behind_hits(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let (mut c, mut direct) = (pair.connect()?, pair.database.connect()?);
    for between in ["SELECT @n", "SET @n = 1", "DO 1"] {
        for behind in ["SET @n = 2", "DO 2", "PREPARE s FROM 'SELECT 1'", "BEGIN"] {
            if pair.freshet.is_there() {
                until_hit(&pair, &mut c, READ)?;
            }
            let answers = [&mut c, &mut direct].map(|c| -> Result<_> {
                for statement in ["DO 1 / 0", between, READ, behind] {
                    c.query(statement)?;
                }
                let rows = c.query("SHOW WARNINGS")?.rows();
                c.query("COMMIT")?;
                Ok(rows)
            });
            let [through, expected] = answers;
            assert_eq!(through?, expected?, "{between}, {READ}, {behind}");
        }
    }
    Ok(())
}

/// Code that reads what the statements before it have left; and a read that fails, before which the counters were read.
fn diagnostics_of_others(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let found = "SELECT SQL_CALC_FOUND_ROWS n FROM logged UNION SELECT 2 UNION SELECT 3 LIMIT 1";
    let failing =
        ["CALL runs('DO 1')", READ, "CALL runs('DO 1')", found, "CALL runs('DO 1')", "SELECT nothing FROM item"];
    let mut sequences = vec![failing.map(str::to_owned).to_vec()];
    if kind == Kind::Mariadb {
        for text in ["SELECT FOUND_ROWS()", "SELECT ROW_COUNT()", "SHOW WARNINGS"] {
            let text = format!("SET @text = CONCAT('{text}')");
            let insert = "INSERT INTO blobs (body) VALUES ('x'), ('y')";
            for before in [&[found, &text][..], &[found, insert, &text], &["DO 1 / 0", &text], &[&text, found]] {
                sequences.push(before.iter().copied().chain(["EXECUTE IMMEDIATE @text"]).map(str::to_owned).collect());
            }
        }
    }
    for statements in sequences {
        let answers = [pair.connect()?, pair.database.connect()?].map(|mut c| -> Result<_> {
            c.query(READ)?;
            let mut last = Vec::new();
            for statement in &statements {
                last = c.query(statement)?.rows();
            }
            Ok((last, c.query("SELECT FOUND_ROWS()")?.rows()))
        });
        let [through, expected] = answers;
        assert_eq!(through?, expected?, "{statements:?}");
    }
    Ok(())
}
