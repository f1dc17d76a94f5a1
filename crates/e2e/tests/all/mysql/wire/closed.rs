//! Prepared statements that are closed directly after a hit: the session has the state that the hit would have left.

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, Value};
use crate::mysql::support::{Kind, Pair, RawClient, on_both};

on_both!(behind_hits, in_transactions, numbers_that_are_closed, the_last_statement, pieces_behind_hits, few_statements);

const READ: &str = "SELECT id FROM item WHERE id < ? ORDER BY id";
const LIMITED: &str = "SELECT id FROM item WHERE id < ? ORDER BY id LIMIT 2";

/// A read as many drivers send it: prepared for this one execution.
fn read(c: &mut RawClient, sql: &str, below: i32) -> Result<()> {
    let statement = c.prepare(sql)?;
    c.execute(statement, &[Value::Int(below)])?;
    c.send(&packets::close(statement.id))
}

fn behind_hits(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    for sql in [READ, LIMITED] {
        for behind in [
            "SELECT FOUND_ROWS()",
            "SHOW WARNINGS",
            "SHOW COUNT(*) WARNINGS",
            "SELECT @@warning_count",
            "SELECT ROW_COUNT()",
            "GET DIAGNOSTICS @n = NUMBER",
            "SHOW TABLES LIKE 'item'",
        ] {
            pair.same_with_hits(1, |c| {
                for between in ["", "SET @x = 5", "UPDATE log SET line = 'a'"] {
                    c.query("SELECT id FROM item WHERE id = 1 UNION SELECT 1 FROM DUAL WHERE 1 / 0")?;
                    c.query("SELECT CAST('a' AS SIGNED) FROM item WHERE id = 1")?;
                    read(c, sql, 4)?;
                    if !between.is_empty() {
                        c.query(between)?;
                    }
                    c.query(behind)?;
                    c.query("SELECT FOUND_ROWS(), @n")?;
                    c.query("SELECT @@warning_count")?;
                }
                // Each is closed behind the one before.
                for below in [2, 3, 4, 5] {
                    read(c, sql, below)?;
                }
                c.query(behind)?;
                c.query("SELECT FOUND_ROWS()")?;
                c.expect_silence()
            })
            .with_context(|| format!("{sql}; {behind}"))?;
        }
    }
    Ok(())
}

fn in_transactions(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    for sql in [READ, LIMITED, "SELECT ? + 1"] {
        pair.same_with_hits(4, |c| {
            c.query("SET autocommit = 0")?;
            for behind in [
                "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                "SET TRANSACTION READ WRITE",
                "XA START 'x'",
                "SELECT 1",
                "DO 1",
                "SELECT FOUND_ROWS()",
                "SELECT nothing FROM item",
            ] {
                for others in [0, 1, 3] {
                    read(c, sql, 4)?;
                    for other in 0..others {
                        read(c, "SELECT ? + 2", other)?;
                    }
                    c.query(behind)?;
                    c.query("SELECT FOUND_ROWS()")?;
                    c.query("XA END 'x'")?;
                    c.query("XA ROLLBACK 'x'")?;
                    c.query("COMMIT")?;
                }
            }
            c.expect_silence()
        })
        .context(sql)?;
    }
    Ok(())
}

/// A statement that is closed is none, whatever Freshet may still want of it.
fn numbers_that_are_closed(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    for sql in [READ, LIMITED] {
        pair.same_with_hits(3, |c| {
            for then in 0..4 {
                let statement = c.prepare(sql)?;
                c.execute(statement, &[Value::Int(4)])?;
                c.execute(statement, &[Value::Int(4)])?;
                c.send(&packets::close(statement.id))?;
                match then {
                    0 => drop(c.execute(statement, &[Value::Int(4)])?),
                    1 => drop(c.command(&packets::reset_statement(statement.id))?),
                    2 => c.send(&packets::close(statement.id))?,
                    _ => drop(c.command(&packets::reset_connection())?),
                }
                c.query("SHOW COUNT(*) WARNINGS")?;
            }
            c.expect_silence()
        })
        .context(sql)?;
    }
    Ok(())
}

/// MariaDB: -1 is the number of the statement that was prepared last, at each time another one.
fn the_last_statement(kind: Kind) -> Result<()> {
    const LAST: u32 = u32::MAX;
    if kind == Kind::Mysql {
        return Ok(());
    }
    let pair = Pair::new(kind, SCHEMA)?;
    for sql in [READ, LIMITED] {
        pair.same_with_hits(2, |c| {
            c.query("TRUNCATE log")?;
            let statement = c.prepare(sql)?;
            c.command(&packets::execute(LAST, &[Value::Int(4)]))?;
            c.command(&packets::execute(LAST, &[Value::Int(4)]))?;
            let other = c.prepare("INSERT INTO log (line) VALUES (?)")?;
            c.query("SELECT FOUND_ROWS()")?;
            c.query("SELECT COUNT(*) FROM log")?;
            c.send(&packets::close(other.id))?;
            c.command(&packets::execute(LAST, &[Value::Int(4)]))?;
            c.execute(statement, &[Value::Int(4)])?;
            c.send(&packets::close(statement.id))?;
            c.command(&packets::execute(LAST, &[Value::Int(4)]))?;
            c.query("SELECT FOUND_ROWS()")?;
            let closed = c.prepare(sql)?;
            c.command(&packets::execute(LAST, &[Value::Int(4)]))?;
            c.send(&packets::close(closed.id))?;
            c.command(&packets::execute(LAST, &[Value::Int(4)]))?;
            if !pair.is_shared() {
                // Where sessions share connections, the server's last statement may be another session's: it is told another number.
                c.query("SHOW WARNINGS")?;
            }
            c.expect_silence()
        })
        .context(sql)?;
    }
    Ok(())
}

/// Pieces of a parameter are those of the client's next execution.
fn pieces_behind_hits(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        let statement = c.prepare("SELECT id FROM item WHERE name = ? ORDER BY id LIMIT 1")?;
        for behind in ["SHOW WARNINGS", "SELECT FOUND_ROWS()"] {
            c.query("SELECT CAST('a' AS SIGNED) FROM item WHERE id = 1")?;
            c.execute(statement, &[Value::Text("item 1")])?;
            c.send(&packets::send_long_data(statement.id, 0, b"no such item"))?;
            c.query(behind)?;
            c.execute(statement, &[Value::Text("item 1")])?;
            c.execute(statement, &[Value::Text("item 1")])?;
        }
        c.expect_silence()
    })
}

/// Statements that are closed are closed on the server, too, but for those of the last hits.
fn few_statements(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut c = pair.connect()?;
    let mut all = 0;
    for autocommit in [1, 0] {
        c.run(&format!("SET autocommit = {autocommit}"))?;
        for _ in 0..20 {
            for sql in [READ, LIMITED, "SELECT ? + 2"] {
                read(&mut c, sql, 3)?;
                all += 1;
            }
        }
        let closed = c.query("SHOW SESSION STATUS LIKE 'Com_stmt_close'")?.rows();
        let closed = closed.first().and_then(|row| row.get(1).cloned().flatten()).unwrap_or_default();
        let open = all - closed.parse::<i32>()?;
        // Where sessions share connections, two of each text stay prepared: one that was executed, and one that was not, since there was a hit.
        let most = if pair.is_shared() { 6 } else { 2 };
        ensure!((0..=most).contains(&open), "{open} of {all} are open");
        c.run("COMMIT")?;
    }
    Ok(())
}
