//! Prepared statements in the binary protocol: parameters, results, long data, cursors.

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, Value, status};
use crate::mysql::support::{Kind, Pair, on_both};

on_both!(
    reads,
    parameters_of_many_types,
    types_are_told_once,
    text_and_binary_in_turns,
    statements_come_and_go,
    wrong_executions,
    short_commands,
    long_data,
    cursors,
    reads_while_a_cursor_is_open,
    writes,
    warnings_and_diagnostics,
    changed_tables,
    statements_of_sql,
    statements_without_parameters,
);

const READ: &str = "SELECT id, name, price, born, seen FROM item WHERE id = ?";

fn reads(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(4, |c| {
        let statement = c.prepare(READ)?;
        for id in [1, 2, 3, 4711, 1, 2, 3, 4711] {
            c.execute(statement, &[Value::Integer(id)])?;
        }
        c.send(&packets::close(statement.id))?;
        c.expect_silence()
    })
}

fn parameters_of_many_types(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let values = [
        Value::Int(1),
        Value::Integer(1),
        Value::Double(1.0),
        Value::Text("1"),
        Value::Text("1 item"),
        Value::Bytes(b"1"),
        Value::Null,
        Value::Text(""),
    ];
    pair.same_with_hits(4, |c| {
        let statement = c.prepare(READ)?;
        let text = c.prepare("SELECT id FROM item WHERE name = ? OR name = CONCAT('item ', ?) ORDER BY id")?;
        let date = c.prepare("SELECT id FROM item WHERE born >= ? ORDER BY id")?;
        for value in &values {
            c.execute(statement, std::slice::from_ref(value))?;
            c.execute(text, &[value.clone(), value.clone()])?;
        }
        c.execute(text, &[Value::Text("ITEM 2"), Value::Null])?;
        c.execute(text, &[Value::Text("ünïcode ✓"), Value::Int(1)])?;
        c.execute(date, &[Value::Date(2020, 1, 3)])?;
        c.execute(date, &[Value::Text("2020-01-05")])?;
        c.expect_silence()
    })
}

fn types_are_told_once(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(3, |c| {
        let statement = c.prepare(READ)?;
        c.execute(statement, &[Value::Text("1")])?;
        // The same bytes mean another thing under the types that were told last.
        c.command(&packets::execute_with(statement.id, 0, &[Value::Text("2")], false))?;
        c.execute(statement, &[Value::Integer(3)])?;
        for id in [1, 2, 1] {
            c.command(&packets::execute_with(statement.id, 0, &[Value::Integer(id)], false))?;
        }
        c.execute(statement, &[Value::Int(2)])?;
        c.command(&packets::execute_with(statement.id, 0, &[Value::Int(1)], false))?;
        c.command(&packets::execute_with(statement.id, 0, &[Value::Null], false))?;
        c.expect_silence()
    })
}

fn text_and_binary_in_turns(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(4, |c| {
        let statement = c.prepare("SELECT id, name, price, born, seen FROM item WHERE id = 1")?;
        for _ in 0..2 {
            c.execute(statement, &[])?;
            c.query("SELECT id, name, price, born, seen FROM item WHERE id = 1")?;
            c.execute(statement, &[])?;
            c.query("SELECT id, name, price, born, seen FROM item WHERE id = 1")?;
        }
        c.expect_silence()
    })
}

fn statements_come_and_go(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        let one = c.prepare(READ)?;
        let other = c.prepare("SELECT COUNT(*) FROM item WHERE id < ?")?;
        let again = c.prepare(READ)?;
        ensure!(one.id != again.id && one.parameters == 1 && one.columns == 5, "{one:?} {again:?}");
        for statement in [one, other, again, one] {
            c.execute(statement, &[Value::Int(3)])?;
        }
        c.send(&packets::close(one.id))?;
        c.execute(again, &[Value::Int(3)])?;
        c.execute(one, &[Value::Int(3)])?;
        c.command(&packets::reset_statement(other.id))?;
        c.execute(other, &[Value::Int(3)])?;
        c.command(&packets::reset_statement(one.id))?;
        // None of these is answered.
        c.send(&packets::close(4711))?;
        c.send(&packets::close(other.id))?;
        c.send(&packets::close(again.id))?;
        c.try_prepare("SELECT * FROM no_such_table")?;
        c.try_prepare("SELECT ? FROM")?;
        c.try_prepare("SELECT 1; SELECT 2")?;
        for _ in 0..50 {
            let statement = c.prepare(READ)?;
            c.execute(statement, &[Value::Int(2)])?;
            c.send(&packets::close(statement.id))?;
        }
        c.command(&packets::reset_connection())?;
        c.execute(again, &[Value::Int(3)])?;
        c.expect_silence()
    })
}

fn wrong_executions(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        let statement = c.prepare(READ)?;
        c.command(&packets::execute(4711, &[Value::Int(1)]))?;
        c.fetch(&packets::fetch(statement.id, 1))?;
        c.fetch(&packets::fetch(4711, 1))?;
        c.command(&packets::reset_statement(4711))?;
        c.execute(statement, &[Value::Int(1)])?;
        c.fetch(&packets::fetch(statement.id, 1))?;
        let failing = c.prepare("SELECT (SELECT id FROM item WHERE id > ?)")?;
        c.execute(failing, &[Value::Int(1)])?;
        c.execute(failing, &[Value::Int(4)])?;
        c.expect_silence()
    })
}

/// A command that ends behind the number of its statement, or before, is answered at once.
fn short_commands(kind: Kind) -> Result<()> {
    const EXECUTE: u8 = 0x17;
    const RESET: u8 = 0x1a;
    const FETCH: u8 = 0x1c;
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        let statement = c.prepare(READ)?;
        for command in [EXECUTE, RESET, FETCH] {
            for number in [4711, statement.id] {
                for bytes in [4, 3, 1, 0] {
                    let payload = [&[command][..], &number.to_le_bytes()[..bytes]].concat();
                    c.command(&payload)?;
                    c.query("SELECT 1")?;
                }
            }
        }
        c.expect_silence()
    })
}

fn long_data(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        let read = c.prepare("SELECT LENGTH(?), name FROM item WHERE name = ? OR id = 2")?;
        for _ in 0..2 {
            c.send(&packets::send_long_data(read.id, 0, &b"x".repeat(70_000)))?;
            c.send(&packets::send_long_data(read.id, 0, b"more"))?;
            c.send(&packets::send_long_data(read.id, 1, b"item "))?;
            c.send(&packets::send_long_data(read.id, 1, b"1"))?;
            c.execute(read, &[Value::Long, Value::Long])?;
            // What was sent counts for one execution.
            c.execute(read, &[Value::Bytes(b"abc"), Value::Text("item 1")])?;
            c.send(&packets::send_long_data(read.id, 0, b"forgotten"))?;
            c.command(&packets::reset_statement(read.id))?;
            c.execute(read, &[Value::Bytes(b"abc"), Value::Text("item 1")])?;
            // To what is not there: an answer comes with the next execution, if at all.
            c.send(&packets::send_long_data(read.id, 7, b"nowhere"))?;
            c.command(&packets::reset_statement(read.id))?;
            c.send(&packets::send_long_data(4711, 0, b"nowhere"))?;
        }
        let plain = c.prepare(READ)?;
        c.execute(plain, &[Value::Int(1)])?;
        c.execute(plain, &[Value::Int(1)])?;
        c.expect_silence()
    })
}

fn cursors(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        let statement = c.prepare("SELECT id, name FROM item WHERE id > ? ORDER BY id")?;
        let open = packets::execute_with(statement.id, 1, &[Value::Int(1)], true);
        let answer = c.command(&open)?;
        ensure!(answer.status & status::CURSOR_EXISTS != 0 && answer.rows.is_empty(), "{answer:?}");
        for rows in [1, 2, 0, 10, 1] {
            c.fetch(&packets::fetch(statement.id, rows))?;
        }
        // Opened again in the midst, reset in the midst, and left open.
        c.command(&open)?;
        c.fetch(&packets::fetch(statement.id, 2))?;
        c.command(&open)?;
        c.fetch(&packets::fetch(statement.id, 1))?;
        c.command(&packets::reset_statement(statement.id))?;
        c.fetch(&packets::fetch(statement.id, 1))?;
        c.command(&open)?;
        c.send(&packets::close(statement.id))?;
        // A cursor for what has no result, and a read without a cursor of the same text.
        let none = c.prepare("DO 1")?;
        c.command(&packets::execute_with(none.id, 1, &[], true))?;
        let statement = c.prepare("SELECT id, name FROM item WHERE id > ? ORDER BY id")?;
        c.execute(statement, &[Value::Int(1)])?;
        c.expect_silence()
    })
}

fn reads_while_a_cursor_is_open(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        let cursor = c.prepare("SELECT id, name FROM item ORDER BY id")?;
        c.command(&packets::execute_with(cursor.id, 1, &[], true))?;
        c.fetch(&packets::fetch(cursor.id, 1))?;
        let read = c.prepare(READ)?;
        for _ in 0..2 {
            c.query("SELECT name FROM item WHERE id = 1")?;
            c.execute(read, &[Value::Int(1)])?;
        }
        c.fetch(&packets::fetch(cursor.id, 1))?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.fetch(&packets::fetch(cursor.id, 10))?;
        c.query("SELECT name FROM item WHERE id = 1")?;
        c.expect_silence()
    })
}

fn writes(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("TRUNCATE log")?;
        let insert = c.prepare("INSERT INTO log (line, n) VALUES (?, ?)")?;
        let update = c.prepare("UPDATE log SET line = ? WHERE id = ?")?;
        let read = c.prepare("SELECT * FROM log WHERE id = ?")?;
        for n in 1..=3 {
            let answer = c.execute(insert, &[Value::Text("line"), Value::Int(n)])?;
            ensure!(answer.affected == 1 && answer.insert_id > 0, "{answer:?}");
            c.execute(read, &[Value::Int(n)])?;
            c.execute(update, &[Value::Text("changed"), Value::Int(n)])?;
            c.execute(read, &[Value::Int(n)])?;
            c.query("SELECT LAST_INSERT_ID(), ROW_COUNT()")?;
        }
        c.execute(insert, &[Value::Null, Value::Null])?;
        c.execute(update, &[Value::Text("changed"), Value::Int(1)])?;
        c.query("BEGIN")?;
        c.execute(update, &[Value::Text("again"), Value::Int(1)])?;
        c.execute(read, &[Value::Int(1)])?;
        c.query("ROLLBACK")?;
        c.execute(read, &[Value::Int(1)])?;
        c.expect_silence()
    })
}

fn warnings_and_diagnostics(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        let read = c.prepare(READ)?;
        let list = c.prepare("SELECT name FROM item WHERE id < ?")?;
        let odd = c.prepare("SELECT name = ? FROM item WHERE id = 1")?;
        for _ in 0..2 {
            c.execute(list, &[Value::Int(4)])?;
            c.query("SELECT FOUND_ROWS()")?;
            c.execute(odd, &[Value::Int(7)])?;
            c.query("SHOW WARNINGS")?;
            c.execute(odd, &[Value::Int(7)])?;
            c.execute(read, &[Value::Int(1)])?;
            c.query("SHOW WARNINGS")?;
            c.execute(list, &[Value::Int(3)])?;
            c.query("SELECT ROW_COUNT()")?;
        }
        c.expect_silence()
    })
}

fn changed_tables(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("CREATE TABLE changing (id INT PRIMARY KEY, a INT)")?;
        c.query("INSERT INTO changing VALUES (1, 10)")?;
        let all = c.prepare("SELECT * FROM changing WHERE id = ?")?;
        let one = c.prepare("SELECT a FROM changing WHERE id = ?")?;
        for sql in [
            "DO 0",
            "ALTER TABLE changing ADD b VARCHAR(5) DEFAULT 'new'",
            "ALTER TABLE changing MODIFY a BIGINT",
            "ALTER TABLE changing RENAME COLUMN a TO z",
            "DROP TABLE changing",
        ] {
            c.query(sql)?;
            for statement in [all, one, all] {
                c.execute(statement, &[Value::Int(1)])?;
            }
        }
        c.expect_silence()
    })
}

fn statements_of_sql(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("PREPARE s FROM 'SELECT name FROM item WHERE id = ?'")?;
        c.query("SET @id = 2")?;
        for _ in 0..2 {
            c.query("EXECUTE s USING @id")?;
            c.query("SELECT name FROM item WHERE id = 2")?;
        }
        c.query("EXECUTE s")?;
        c.query("DEALLOCATE PREPARE s")?;
        c.query("EXECUTE s USING @id")?;
        c.query("PREPARE s FROM 'SELECT nonsense FROM'")?;
        c.expect_silence()
    })
}

fn statements_without_parameters(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        for sql in [
            "SELECT 1",
            "SELECT NULL, 1.5, 'x', NOW() > '2000-01-01', CAST('2024-01-02 03:04:05.678' AS DATETIME(3))",
            "SHOW TABLES",
            "SHOW WARNINGS",
            "COMMIT",
            "SET @x = 5",
            "SELECT @x",
            "DO SLEEP(0)",
            "ANALYZE TABLE item",
            "SELECT * FROM item WHERE FALSE",
        ] {
            if let Some(statement) = c.try_prepare(sql)? {
                c.execute(statement, &[])?;
                c.execute(statement, &[])?;
            }
        }
        c.expect_silence()
    })
}
