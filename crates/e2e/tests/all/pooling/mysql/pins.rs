//! What holds a session on its connection, and what ends that.

use anyhow::{Context, Result, ensure};

use super::stage::{READ, Stage};
use crate::mysql::support::packets;
use crate::mysql::support::{Kind, on_both};

on_both!(what_holds_a_connection, what_holds_none, after_a_reset, after_a_change_of_user);

/// The name of what holds a session; statements behind which it does; statements that end that.
const HOLDING: &[(&str, &str, &str)] = &[
    ("transaction", "BEGIN", "ROLLBACK"),
    ("transaction", "SET autocommit = 0; SELECT COUNT(*) FROM line", "COMMIT"),
    ("transaction", "SET TRANSACTION READ ONLY", "SELECT n FROM line WHERE id = 1"),
    ("temporary_table", "CREATE TEMPORARY TABLE scratch (n INT)", "DROP TEMPORARY TABLE scratch"),
    ("locked_tables", "LOCK TABLES line READ", "UNLOCK TABLES"),
    ("warnings", "SELECT CAST('x' AS SIGNED)", "SELECT COUNT(*) FROM line"),
    ("row_count", "UPDATE line SET n = n + 1", "SELECT COUNT(*) FROM line"),
    ("xa", "XA START 'x'; XA END 'x'; XA PREPARE 'x'", "XA ROLLBACK 'x'"),
    ("named_lock", "SELECT GET_LOCK('{}', 0)", "DO RELEASE_ALL_LOCKS()"),
    ("user_variable", "SET @a = 1 + 1", ""),
    ("setting", "SET @a = 'x'; SET NAMES latin1", ""),
    ("user_variable", "SELECT id INTO @a FROM item WHERE id = 1", ""),
    ("user_variable", "SELECT @a := 1", ""),
    ("handler", "HANDLER line OPEN", ""),
    ("named_statement", "PREPARE s FROM 'SELECT 1'", ""),
    ("connection_number", "SELECT CONNECTION_ID()", ""),
    ("setting", "SET time_zone = @@global.time_zone", ""),
    ("setting", "SET sql_auto_is_null = 1", ""),
    ("stored_code", "CALL remember()", ""),
    ("stored_code", "INSERT INTO logged (n) VALUES (1); SELECT COUNT(*) FROM line", ""),
    ("stored_code", "INSERT INTO logged (n) VALUES {long}; SELECT COUNT(*) FROM line", ""),
    ("unknown", "INSERT INTO line (n) VALUES {long}, (@a := 1); SELECT COUNT(*) FROM line", ""),
];

/// Statements behind which it has none.
const FREE: &[&str] = &[
    READ,
    "SELECT COUNT(*) FROM line",
    "SELECT SQL_CALC_FOUND_ROWS id FROM line LIMIT 1",
    "BEGIN; INSERT INTO line (n) VALUES (1); COMMIT",
    "BEGIN; UPDATE line SET n = 5; ROLLBACK",
    "SET time_zone = '+01:00'",
    "SET NAMES utf8mb4,  @@SESSION.sql_mode = CONCAT(CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), ',NO_AUTO_VALUE_ON_ZERO'),  @@SESSION.sql_auto_is_null = 0, @@SESSION.wait_timeout = 2147483",
    "SET time_zone = @@time_zone",
    "SET @a = 1, @b := 'x@y'; SET @a = NULL",
    "UPDATE noted SET n = n + 1; SELECT COUNT(*) FROM line",
    "SELECT twice(id) FROM item",
    "CALL nothing(3)",
    "INSERT INTO line (n) VALUES {long}; SELECT COUNT(*) FROM line",
    "SET NAMES latin1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SHOW TABLES",
    "SELECT @never",
    "DO 1",
    "CREATE TABLE made (n INT); DROP TABLE made",
    "SELECT id FROM item WHERE id = 1 FOR UPDATE",
];

/// With many rows, so that the text is too long to be analysed.
fn long(statement: &str) -> String {
    statement.replace("{long}", &vec!["(1)"; 40_000].join(","))
}

fn what_holds_a_connection(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    for (pin, holding, ending) in HOLDING {
        let kept = || {
            Ok::<_, anyhow::Error>(
                stage.pair.freshet.metrics()?.value(&format!("freshet_pins_total{{reason=\"{pin}\"}}")),
            )
        };
        // Until the catalogue shows the routines, stored code has another name.
        crate::support::eventually(crate::support::PATIENCE, || {
            let before = kept()?;
            let mut client = stage.connect()?;
            for statement in holding.split("; ") {
                client.query(&long(statement).replace("{}", &stage.user))?;
            }
            let (is_free, is_counted) = (stage.is_free()?, kept()? > before);
            // In any case: a prepared transaction would stay.
            if !ending.is_empty() {
                client.run(ending)?;
                ensure!(stage.is_free()?, "{holding}; {ending}: the connection is not free");
            }
            // Diagnostics make way for who waits.
            let makes_way = ["warnings", "row_count"].contains(pin);
            ensure!(is_free == makes_way, "{holding}: whether the connection is free: {is_free}");
            ensure!(is_counted, "{holding}: not for its {pin}");
            Ok(())
        })?;
        crate::support::eventually(crate::support::PATIENCE, || {
            ensure!(stage.is_free()?, "{holding}: the connection is not free when the session has ended");
            Ok(())
        })?;
    }
    Ok(())
}

fn what_holds_none(kind: Kind) -> Result<()> {
    // The catalogue may have to show the code first.
    let stage = Stage::with(kind, &["--default-pool-size", "1", "--query-wait-timeout", "30s"])?;
    for statements in FREE {
        let mut client = stage.connect()?;
        for statement in statements.split("; ") {
            client.run(&long(statement)).with_context(|| (*statements).to_owned())?;
        }
        ensure!(stage.is_free()?, "{statements}: the connection is not free");
        ensure!(client.value("SELECT COUNT(*) FROM item")? == "3", "{statements}");
    }
    Ok(())
}

/// COM_RESET_CONNECTION ends what holds a session, and its settings.
fn after_a_reset(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let ask = "SELECT CONCAT_WS(' ', @a, @@time_zone, @@character_set_client)";
    a.run("SET @a = 1")?;
    a.run("SET time_zone = '+03:00'")?;
    a.command(&packets::reset_connection())?;
    let reset = a.value(ask)?;
    let plain = b.value(ask)?;
    ensure!(!reset.contains("+03:00") && !plain.contains("+03:00"), "{reset}, {plain}");
    ensure!(a.value(ask)? == reset && b.value(ask)? == plain);
    ensure!(stage.is_free()?);
    Ok(())
}

/// The connection of a session that has become another user's is nobody else's, whatever resets it.
fn after_a_change_of_user(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 2)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let changed = a.change_user(stage.pair.login())?;
    ensure!(changed.payload.first() == Some(&0), "{changed:?}");
    for _ in 0..2 {
        ensure!(a.value("SELECT CURRENT_USER()")?.starts_with("root@"));
        a.command(&packets::reset_connection())?;
        ensure!(b.value("SELECT CURRENT_USER()")?.starts_with(&stage.user));
    }
    Ok(())
}
