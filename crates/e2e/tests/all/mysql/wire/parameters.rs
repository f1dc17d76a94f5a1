//! Executions with unusual parameters: types that were not declared, long data for no parameter, and messages that would exceed a packet if anything
//! was added to them.

use anyhow::{Context, Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, Value};
use crate::mysql::support::{Database, Kind, Pair, on_both};

on_both!(types_that_nobody_told, types_that_a_hit_took, pieces_for_no_parameter);

const PIECE: usize = 0xff_ffff;
/// ER_WRONG_ARGUMENTS
const WRONG_ARGUMENTS: u16 = 1210;

fn types_that_nobody_told(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        for sql in ["UPDATE item SET price = price + 100 WHERE id >= ?", "SELECT name FROM item WHERE id = ?"] {
            let statement = c.prepare(sql)?;
            for _ in 0..2 {
                let untyped = packets::execute_with(statement.id, 0, &[Value::Int(1)], false);
                let (code, ..) = c.command(&untyped)?.error().with_context(|| format!("no error: {sql}"))?;
                ensure!(code == WRONG_ARGUMENTS, "{code}: {sql}");
            }
        }
        let sum = c.value("SELECT SUM(price) FROM item")?;
        ensure!(sum == "7.50", "it has written: {sum}");
        c.expect_silence()
    })
}

/// Just below, at and above the length at which another packet begins, also with the types.
fn types_that_a_hit_took(kind: Kind) -> Result<()> {
    // Statements of 16 MB take a busy machine longer than a lease lasts by default.
    let pair = Pair::over(Database::shared(kind)?, SCHEMA, &["--max-staleness", "1m"])?;
    // One after the other: on a busy machine each takes long, and what other tests define meanwhile empties the cache.
    for whole in [70_000, PIECE - 2, PIECE - 1, PIECE] {
        let value = "x".repeat(whole - 16);
        pair.same_with_hits(1, |c| {
            let statement = c.prepare("SELECT name FROM item WHERE name = ? OR id = 2")?;
            c.execute(statement, &[Value::Text("item 1")])?;
            let untyped = packets::execute_with(statement.id, 0, &[Value::Text(&value)], false);
            ensure!(untyped.len() == whole, "{} bytes", untyped.len());
            let answer = c.command(&untyped)?;
            ensure!(answer.rows.len() == 1, "{whole}: {answer:?}");
            c.send(&packets::close(statement.id))?;
            c.expect_silence()
        })?;
    }
    Ok(())
}

/// The statement fails until the pieces are forgotten.
fn pieces_for_no_parameter(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(2, |c| {
        let read = c.prepare("SELECT name FROM item WHERE id = ?")?;
        c.execute(read, &[Value::Int(1)])?;
        c.send(&packets::send_long_data(read.id, 7, b"nowhere"))?;
        for _ in 0..3 {
            let (code, ..) = c.execute(read, &[Value::Int(1)])?.error().context("no error")?;
            ensure!(code == WRONG_ARGUMENTS, "{code}");
        }
        c.command(&packets::reset_statement(read.id))?;
        for _ in 0..2 {
            let answer = c.execute(read, &[Value::Int(1)])?;
            ensure!(answer.rows.len() == 1, "{answer:?}");
        }
        c.expect_silence()
    })
}
