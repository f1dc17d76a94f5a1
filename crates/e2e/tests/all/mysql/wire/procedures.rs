//! Stored procedures: several results in one answer, output parameters, errors in between.

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, Value, status};
use crate::mysql::support::{Kind, Pair, on_both};

on_both!(
    results,
    parameters_that_come_back,
    prepared_calls,
    cursors_of_their_own,
    functions_and_triggers,
    procedures_that_change_the_session,
    procedures_that_set_the_next_transaction
);

fn pair(kind: Kind) -> Result<Pair> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut client = pair.database.connect()?;
    for sql in [
        "CREATE PROCEDURE two() BEGIN SELECT name FROM item WHERE id = 1; SELECT id FROM item ORDER BY id; END",
        "CREATE PROCEDURE none() BEGIN DO 1; END",
        "CREATE PROCEDURE failing() BEGIN SELECT 1; SELECT * FROM no_such_table; SELECT 2; END",
        "CREATE PROCEDURE handled() BEGIN DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SELECT 'handled';
            SELECT * FROM no_such_table; INSERT INTO log (line) VALUES ('in a procedure'); DELETE FROM log; END",
        "CREATE PROCEDURE back(IN a INT, OUT b INT, INOUT c VARCHAR(20))
            BEGIN SELECT name FROM item WHERE id = a; SET b = a * 2, c = CONCAT(c, '!'); END",
        "CREATE PROCEDURE setting() BEGIN SET @touched = 1; SET SESSION sql_mode = 'ANSI_QUOTES'; END",
        "CREATE PROCEDURE hiding() BEGIN CREATE TEMPORARY TABLE item (id INT, name VARCHAR(40));
            INSERT INTO item VALUES (1, 'temporary'); END",
        "CREATE PROCEDURE fetching() BEGIN DECLARE c CURSOR FOR SELECT 1; OPEN c; SELECT 5; SELECT id FROM item; CLOSE c; END",
        "CREATE PROCEDURE fetching_back(OUT a INT) BEGIN DECLARE c CURSOR FOR SELECT 1; OPEN c; SELECT 5; SET a = 6; CLOSE c; END",
        "CREATE FUNCTION twice(n INT) RETURNS INT DETERMINISTIC RETURN n * 2",
        "CREATE FUNCTION counted() RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM log)",
        "CREATE FUNCTION noted() RETURNS INT MODIFIES SQL DATA
            BEGIN INSERT INTO log (line) VALUES ('noted'); RETURN 1; END",
        "CREATE TRIGGER after_log AFTER INSERT ON log FOR EACH ROW SET @last = NEW.line",
    ] {
        // MySQL takes functions that write only if told so, with a binary log.
        client.run("SET GLOBAL log_bin_trust_function_creators = 1")?;
        client.run(sql)?;
    }
    Ok(pair)
}

fn results(kind: Kind) -> Result<()> {
    // A procedure may have made a temporary table: what comes after a CALL is not from the cache.
    pair(kind)?.same_with_hits(1, |c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        for sql in [
            "CALL two()",
            "CALL two(); SELECT name FROM item WHERE id = 2; CALL two()",
            "CALL none()",
            "CALL failing()",
            "CALL failing(); SELECT 3",
            "CALL handled()",
            "SHOW WARNINGS",
            "CALL no_such_procedure()",
            "CALL two(1)",
        ] {
            c.query(sql)?;
            c.query("SELECT name FROM item WHERE id = 1")?;
        }
        c.expect_silence()
    })
}

fn parameters_that_come_back(kind: Kind) -> Result<()> {
    pair(kind)?.same(|c| {
        c.query("SET @c = 'hello'")?;
        c.query("CALL back(1, @b, @c)")?;
        c.query("SELECT @b, @c")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("CALL back(2, @b, @c)")?;
        c.query("SELECT FOUND_ROWS(), ROW_COUNT()")?;
        c.expect_silence()
    })
}

fn prepared_calls(kind: Kind) -> Result<()> {
    pair(kind)?.same(|c| {
        let two = c.prepare("CALL two()")?;
        for _ in 0..2 {
            c.command(&packets::execute(two.id, &[]))?;
        }
        let back = c.prepare("CALL back(?, ?, ?)")?;
        for id in [1, 2, 1] {
            c.command(&packets::execute(back.id, &[Value::Int(id), Value::Null, Value::Text("x")]))?;
        }
        let failing = c.prepare("CALL failing()")?;
        c.command(&packets::execute(failing.id, &[]))?;
        c.command(&packets::execute_with(two.id, 1, &[], true))?;
        c.expect_silence()
    })
}

/// The flag of an open cursor is in their answers, although the client has none, or has asked for one in vain.
fn cursors_of_their_own(kind: Kind) -> Result<()> {
    pair(kind)?.same(|c| {
        let calls = [c.prepare("CALL fetching()")?, c.prepare("CALL fetching_back(?)")?];
        for (call, values) in calls.into_iter().zip([&[][..], &[Value::Int(1)]]) {
            for flags in [0, 1, 0] {
                c.command(&packets::execute_with(call.id, flags, values, true))?;
                c.query("SELECT name FROM item WHERE id = 1")?;
            }
        }
        c.query("CALL fetching()")?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.expect_silence()
    })
}

fn functions_and_triggers(kind: Kind) -> Result<()> {
    pair(kind)?.same(|c| {
        c.query("TRUNCATE log")?;
        for _ in 0..2 {
            c.query("SELECT twice(id) FROM item ORDER BY id")?;
            c.query("SELECT counted(), name FROM item WHERE id = 1")?;
            c.query("SELECT noted() FROM item WHERE id = 1")?;
            c.query("SELECT counted(), name FROM item WHERE id = 1")?;
            c.query("SELECT @last")?;
            c.query("SELECT COUNT(*) FROM log")?;
        }
        c.expect_silence()
    })
}

fn procedures_that_change_the_session(kind: Kind) -> Result<()> {
    pair(kind)?.same(|c| {
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.query("CALL setting()")?;
        c.query("SELECT @touched, @@sql_mode")?;
        c.query("SELECT \"name\" FROM item WHERE id = 1")?;
        c.query("SET SESSION sql_mode = DEFAULT")?;
        c.query("SELECT \"name\" FROM item WHERE id = 1")?;
        let answer = c.query("CALL hiding()")?;
        ensure!(answer.status & status::AUTOCOMMIT != 0, "{answer:?}");
        let hidden = c.value("SELECT name FROM item WHERE id = 1").context("the temporary table")?;
        ensure!(hidden == "temporary", "{hidden}");
        c.command(&packets::reset_connection())?;
        let seen = c.value("SELECT name FROM item WHERE id = 1")?;
        ensure!(seen == "item 1", "{seen}");
        c.expect_silence()
    })
}

/// The next transaction has another level than the session's, and reads one snapshot.
fn procedures_that_set_the_next_transaction(kind: Kind) -> Result<()> {
    let pair = pair(kind)?;
    let variable = if kind == Kind::Mariadb { "tx_isolation" } else { "transaction_isolation" };
    let mut other = pair.database.connect()?;
    other.run("CREATE PROCEDURE level() BEGIN SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; END")?;
    other.run("CREATE PROCEDURE calling() BEGIN DO 1; CALL level(); END")?;
    other.run(&format!("CREATE PROCEDURE by_variable() BEGIN SET @@{variable} = 'REPEATABLE-READ'; END"))?;
    let read = "SELECT price FROM item WHERE id = 1";
    let (mut reader, mut writer) = (pair.connect()?, pair.connect()?);
    reader.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
    for call in ["CALL level()", "CALL calling()", "CALL by_variable()"] {
        writer.run("UPDATE item SET price = 1 WHERE id = 1")?;
        pair.until_hit(&mut reader, read).context("before")?;
        reader.run(call)?;
        reader.run("BEGIN")?;
        let first = reader.value(read)?;
        writer.run("UPDATE item SET price = 2 WHERE id = 1")?;
        pair.until_hit(&mut writer, read)?;
        let second = reader.value(read)?;
        reader.run("COMMIT")?;
        let behind = reader.value(read)?;
        ensure!([&*first, &*second, &*behind] == ["1.00", "1.00", "2.00"], "{call}: {first}, {second}, {behind}");
        // The level is the session's again, and it has its hits.
        pair.until_hit(&mut reader, read).context("behind")?;
        // A read of its own is the next transaction.
        reader.run(call)?;
        pair.until_hit(&mut reader, read).context("without a transaction")?;
    }
    Ok(())
}
