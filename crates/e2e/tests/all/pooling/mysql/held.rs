//! What Freshet sends ahead of a client's command for the sake of prepared statements: its answers, its errors, its bounds.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::prepared::{prepared_there, rows, until_free, until_hit};
use super::stage::Stage;
use crate::mysql::support::packets::{self, Value};
use crate::mysql::support::{Kind, RawClient, Statement, on_both};
use crate::support::{PATIENCE, eventually};

on_both!(
    a_piece_alone,
    another_user,
    an_error_of_a_prepare_ahead,
    many_statements_before_a_setting,
    many_statements_before_stored_code,
    user_variables_change_no_meaning,
    long_texts_behind_warnings,
    types_of_an_execution_that_failed,
    prepared_anew_under_other_settings,
    a_closed_statement_that_stays,
);

/// With two connections to share, of which a session takes the one that was used last.
fn of_two(kind: Kind) -> Result<Stage> {
    Stage::with(kind, &["--default-pool-size", "2", "--query-wait-timeout", "500ms", "--workers", "1"])
}

/// Two sessions whose LAST_INSERT_ID() differ. None of them has the connection.
fn with_own_ids(stage: &Stage) -> Result<(RawClient, RawClient, String)> {
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let own = |client: &mut RawClient| {
        client.run("INSERT INTO line (n) VALUES (1)")?;
        client.value("SELECT LAST_INSERT_ID()")
    };
    let of_a = own(&mut a)?;
    ensure!(of_a != own(&mut b)?);
    Ok((a, b, of_a))
}

/// A piece of a parameter has no answer: that of what was sent ahead of it is nobody's.
fn a_piece_alone(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b, _) = with_own_ids(&stage)?;
    let text = a.prepare("SELECT CONCAT(?, name) FROM item WHERE id = 1")?;
    for round in 0..3 {
        b.run("INSERT INTO line (n) VALUES (2)")?;
        ensure!(b.value("SELECT LAST_INSERT_ID()")? != "0");
        let pins =
            || Ok::<_, anyhow::Error>(stage.pair.freshet.metrics()?.value("freshet_pins_total{reason=\"long_data\"}"));
        let before = pins()?;
        a.send(&packets::send_long_data(text.id, 0, b"x"))?;
        eventually(PATIENCE, || {
            ensure!(pins()? > before);
            Ok(())
        })?;
        ensure!(!stage.is_free()?);
        ensure!(rows(&mut a, text, &[Value::Long])? == ["xkettle"], "round {round}");
    }
    Ok(())
}

/// COM_CHANGE_USER, and commands of which only the client knows the answer, of sessions without a connection.
fn another_user(kind: Kind) -> Result<()> {
    let stage = Stage::with(kind, &["--default-pool-size", "1"])?;
    let (mut a, b, _) = with_own_ids(&stage)?;
    let refused = a.command(&packets::binlog_dump(4, 77, ""))?.error();
    ensure!(refused.is_some(), "the account has no right to it");
    drop((a, b));
    let (mut a, _b, _) = with_own_ids(&stage)?;
    let changed = a.change_user(stage.pair.login())?;
    ensure!(changed.payload.first() == Some(&0), "{changed:?}");
    for _ in 0..3 {
        ensure!(a.value("SELECT CURRENT_USER()")?.starts_with("root@"));
    }
    Ok(())
}

/// Another session takes the connection that this one has had.
fn take(other: &mut RawClient) -> Result<()> {
    other.run("BEGIN")?;
    other.run("UPDATE item SET name = 'kettle' WHERE id = 1")
}

/// A prepare ahead of a SET fails, and not since the table is gone: it may have ended the transaction, so the client hears of it.
fn an_error_of_a_prepare_ahead(kind: Kind) -> Result<()> {
    let stage = of_two(kind)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    for client in [&mut a, &mut b] {
        client.run("SET lock_wait_timeout = 1")?;
    }
    let read = a.prepare("SELECT CAST(n AS CHAR) FROM line WHERE id = ?")?;
    take(&mut b)?;
    a.run("BEGIN")?;
    a.run("UPDATE item SET name = 'pot' WHERE id = 2")?;
    ensure!(a.value("SELECT COUNT(*) FROM item")? == "3");
    ensure!(prepared_there(&mut a)? == 0, "it is prepared on the other connection");
    // A definition waits for a transaction, and all others wait behind it.
    let database = &stage.pair.database;
    let (mut reading, mut altering, mut watching) = (database.connect()?, database.connect()?, database.connect()?);
    reading.run("BEGIN; SELECT COUNT(*) FROM line")?;
    altering.send(&packets::query("ALTER TABLE line ADD COLUMN more INT"))?;
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist \
                   WHERE db = DATABASE() AND info LIKE 'ALTER TABLE line%' AND state LIKE 'Waiting for table metadata lock%'";
    eventually(PATIENCE, || {
        ensure!(watching.value(waiting)? == "1");
        Ok(())
    })?;
    let refused = a.query("SET NAMES latin1")?.error();
    ensure!(refused.as_ref().is_some_and(|(code, ..)| *code == 1205), "{refused:?}");
    ensure!(a.value("SELECT @@character_set_client")? != "latin1", "it was not sent");
    reading.run("COMMIT")?;
    ensure!(altering.answer()?.error().is_none());
    a.run("SET NAMES latin1")?;
    ensure!(a.value("SELECT @@character_set_client")? == "latin1");
    ensure!(rows(&mut a, read, &[Value::Int(2)])? == ["2"]);
    a.run("COMMIT")?;
    b.run("COMMIT")?;
    ensure!(b.value("SELECT name FROM item WHERE id = 2")? == "pot");
    Ok(())
}

/// A session with so many statements, none of which is prepared on the connection that it has.
fn with_statements(stage: &Stage, count: i32) -> Result<(RawClient, RawClient, Vec<Statement>)> {
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    for client in [&mut a, &mut b] {
        client.run("SET NAMES utf8mb4")?;
    }
    let text = |n: i32| format!("SELECT CAST(n + {n} AS CHAR) FROM line WHERE id = ?");
    let statements = (0..count).map(|n| a.prepare(&text(n))).collect::<Result<Vec<_>>>()?;
    take(&mut b)?;
    a.run("BEGIN")?;
    ensure!(a.value("SELECT COUNT(*) FROM item")? == "3");
    ensure!(prepared_there(&mut a)? == 0, "they are prepared on the other connection");
    Ok((a, b, statements))
}

/// The numbers of those that are refused with 1615; the others are executed.
fn refused(client: &mut RawClient, statements: &[Statement]) -> Result<BTreeSet<usize>> {
    let mut refused = BTreeSet::new();
    for (at, statement) in statements.iter().enumerate() {
        match client.execute(*statement, &[Value::Int(1)])?.error() {
            None => {}
            Some((1615, ..)) => {
                refused.insert(at);
            }
            error => anyhow::bail!("{error:?}"),
        }
    }
    Ok(refused)
}

/// Before settings that will be known, no more than sixteen statements are prepared.
fn many_statements_before_a_setting(kind: Kind) -> Result<()> {
    let stage = of_two(kind)?;
    let (mut a, mut b, statements) = with_statements(&stage, 20)?;
    a.run("SET NAMES utf8mb4").context("that it is so already changes nothing")?;
    a.run("SET NAMES latin1")?;
    ensure!(refused(&mut a, &statements)?.len() == 4);
    a.run("SET NAMES utf8mb4")?;
    ensure!(refused(&mut a, &statements)?.is_empty());
    a.run("COMMIT")?;
    b.run("COMMIT")?;
    ensure!(refused(&mut a, &statements)?.is_empty());
    Ok(())
}

/// Behind stored code nobody knows the settings: all statements are prepared before it.
fn many_statements_before_stored_code(kind: Kind) -> Result<()> {
    for sql in [
        "INSERT INTO logged (n) VALUES (4)",
        "CALL remember()",
        "SET sql_mode = CONCAT(@@global.sql_mode, ',ANSI_QUOTES')",
    ] {
        let stage = of_two(kind)?;
        let (mut a, mut b, statements) = with_statements(&stage, 20)?;
        a.run(sql)?;
        ensure!(refused(&mut a, &statements)?.is_empty(), "{sql}");
        a.run("COMMIT")?;
        b.run("COMMIT")?;
    }
    Ok(())
}

fn user_variables_change_no_meaning(kind: Kind) -> Result<()> {
    let stage = of_two(kind)?;
    let (mut a, mut b, statements) = with_statements(&stage, 20)?;
    a.run("SET @a = 1, @b = COALESCE(NULL, 2)")?;
    a.run("SELECT 7 INTO @c")?;
    ensure!(prepared_there(&mut a)? == 0, "nothing was prepared ahead");
    ensure!(refused(&mut a, &statements)?.is_empty());
    ensure!(a.value("SELECT CONCAT_WS(' ', @a, @b, @c)")? == "1 2 7");
    a.run("COMMIT")?;
    b.run("COMMIT")?;
    Ok(())
}

/// A text that is too long to be understood, right behind a warning.
fn long_texts_behind_warnings(kind: Kind) -> Result<()> {
    let stage = of_two(kind)?;
    let (mut a, mut b, statements) = with_statements(&stage, 2)?;
    ensure!(a.value("SELECT CAST('7x' AS SIGNED)")? == "7");
    a.run(&format!("INSERT INTO line (n) VALUES (LENGTH('{}'))", "x".repeat(70_000)))?;
    ensure!(refused(&mut a, &statements)?.is_empty());
    a.run("ROLLBACK")?;
    b.run("COMMIT")?;
    Ok(())
}

/// Both servers report the error of a piece before they read the types of the parameters: the next execution has to have them.
fn types_of_an_execution_that_failed(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    let sql = "SELECT CONCAT(?, name) FROM item WHERE id = 1";
    let own = b.prepare(sql)?;
    ensure!(rows(&mut b, own, &[Value::Int(7)])? == ["7kettle"]);
    for round in 0..2 {
        let failing = a.prepare(sql)?;
        a.send(&packets::send_long_data(failing.id, 9, b"x"))?;
        ensure!(a.execute(failing, &[Value::Int(1)])?.error().is_some(), "there is no such parameter");
        ensure!(a.command(&packets::reset_statement(failing.id))?.error().is_none());
        if round == 1 {
            a.send(&packets::close(failing.id))?;
        }
        ensure!(a.value("SELECT COUNT(*) FROM item")? == "3");
        // It leaves the types out.
        let again = b.command(&packets::execute_with(own.id, 0, &[Value::Int(8)], false))?;
        ensure!(again.error().is_none(), "round {round}: {:?}", again.error());
        ensure!(again.rows().pop().and_then(|mut row| row.pop().flatten()).as_deref() == Some("8kettle"), "{again:?}");
        ensure!(rows(&mut b, own, &[Value::Int(7)])? == ["7kettle"]);
    }
    Ok(())
}

/// A server prepares a statement anew once its table has changed, perhaps under the settings of that time: it is for nobody else then.
fn prepared_anew_under_other_settings(kind: Kind) -> Result<()> {
    let stage = Stage::start(kind, 1)?;
    let (mut a, mut b) = (stage.connect()?, stage.connect()?);
    for client in [&mut a, &mut b] {
        client.run("SET sql_mode = ''")?;
    }
    let sql = "SELECT \"name\" FROM item WHERE id = ?";
    let (of_a, of_b) = (a.prepare(sql)?, b.prepare(sql)?);
    for step in ["ADD COLUMN more INT", "DROP COLUMN more"] {
        ensure!(rows(&mut b, of_b, &[Value::Int(1)])? == ["name"]);
        ensure!(rows(&mut a, of_a, &[Value::Int(1)])? == ["name"]);
        a.run("SET sql_mode = 'ANSI_QUOTES'")?;
        stage.pair.database.run(&format!("ALTER TABLE item {step}"))?;
        rows(&mut a, of_a, &[Value::Int(1)])?;
        a.run("SET sql_mode = ''")?;
        until_free(&stage, &mut a)?;
        ensure!(rows(&mut b, of_b, &[Value::Int(1)])? == ["name"], "{step}");
        ensure!(rows(&mut a, of_a, &[Value::Int(1)])? == ["name"], "{step}");
    }
    Ok(())
}

/// One of very many statements of a session has a hit and is closed at once: FOUND_ROWS() is that of the hit, whatever others find.
fn a_closed_statement_that_stays(kind: Kind) -> Result<()> {
    const CARRIED_MAX: usize = 1_024;
    let stage = of_two(kind)?;
    let (mut reader, mut other) = (stage.connect()?, stage.connect()?);
    for _ in 0..CARRIED_MAX / 256 {
        for _ in 0..256 {
            reader.send(&packets::prepare("DO 1"))?;
        }
        for _ in 0..256 {
            ensure!(reader.read()?.payload.first() == Some(&0));
        }
    }
    let sql = "SELECT name FROM item WHERE id <= ? LIMIT 1";
    let first = reader.prepare(sql)?;
    until_hit(&stage, &mut reader, first, &[Value::Int(2)])?;
    reader.send(&packets::close(first.id))?;
    for _ in 0..3 {
        let statement = reader.prepare(sql)?;
        let before = stage.pair.freshet.metrics()?.hits();
        ensure!(rows(&mut reader, statement, &[Value::Int(2)])? == ["kettle"]);
        let is_hit = stage.pair.freshet.metrics()?.hits() > before;
        reader.send(&packets::close(statement.id))?;
        let found = other.query("SELECT id FROM item")?;
        ensure!(found.rows().len() == 3);
        ensure!(reader.value("SELECT FOUND_ROWS()")? == "1", "hit: {is_hit}");
    }
    Ok(())
}
