//! Warnings, counts of rows and errors behind statements that Freshet answers, in any order with others.

use anyhow::{Context, Result};

use super::SCHEMA;
use crate::mysql::support::{Kind, Pair, RawClient, Statement, on_both, packets};

on_both!(any_order, commands_between);

const READ: &str = "SELECT id FROM item WHERE id < 4";

/// What a step does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Query(&'static str),
    /// COM_INIT_DB: the database of the session, or none that is there.
    Use(bool),
    Prepare(&'static str),
    Ping,
}

const STEPS: [Step; 22] = [
    Step::Query(READ),
    Step::Query(READ),
    Step::Query("SELECT 1"),
    Step::Query("SELECT id FROM item WHERE id < 100 ORDER BY id LIMIT 2"),
    Step::Query("SELECT SQL_CALC_FOUND_ROWS id FROM item ORDER BY id LIMIT 1"),
    Step::Query("SELECT 1 / 0"),
    Step::Query("SELECT CAST('a' AS SIGNED) FROM item WHERE id = 1"),
    Step::Query("SELECT no_such_column FROM item"),
    Step::Query("SELEC"),
    Step::Query("USE no_such_database"),
    Step::Query("UPDATE item SET name = name WHERE id < 3"),
    Step::Query("DROP TABLE IF EXISTS no_such_table"),
    Step::Query("SET NAMES utf8mb4"),
    Step::Use(false),
    Step::Use(true),
    Step::Prepare("SELECT id FROM item WHERE id = ?"),
    Step::Prepare("SELECT id FROM no_such_table"),
    Step::Ping,
    Step::Query("SHOW WARNINGS"),
    Step::Query("SELECT @@warning_count, @@error_count"),
    Step::Query("SELECT FOUND_ROWS(), ROW_COUNT()"),
    Step::Query("SHOW COUNT(*) WARNINGS"),
];
const ROUNDS: u64 = 40;

fn any_order(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    if pair.freshet.is_there() {
        pair.until_hit(&mut pair.connect()?, READ)?;
    }
    for round in 0..ROUNDS {
        let mut state = round;
        let steps: Vec<Step> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            STEPS[(state >> 33) as usize % STEPS.len()]
        })
        .take(10)
        .collect();
        pair.same(|c| {
            c.query("SELECT COUNT(*) FROM log")?; // in a new session of MariaDB the number found is an earlier session's
            steps.iter().try_for_each(|step| run(&pair, c, *step))?;
            c.expect_silence()
        })
        .with_context(|| format!("{round}: {steps:?}"))?;
    }
    Ok(())
}

/// Commands that are no statements keep some of what a statement has left, which may be a hit.
fn commands_between(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.database.run("INSERT INTO log (line) VALUES ('a'), ('b')")?;
    let before = pair.freshet.is_there().then(|| pair.freshet.metrics()).transpose()?;
    if before.is_some() {
        pair.until_hit(&mut pair.connect()?, READ)?;
    }
    for (first, read) in [
        ("UPDATE log SET line = CONCAT(line, 'x')", READ),
        ("UPDATE log SET line = CONCAT(line, 'x')", "SET NAMES utf8mb4"),
        ("SELECT 1 / 0", READ),
        ("SELECT 1 / 0", "SELECT 1"),
        (READ, "UPDATE log SET line = CONCAT(line, 'x')"),
        (READ, "SELECT 1 / 0"),
    ] {
        for command in [
            packets::ping(),
            packets::prepare("SELECT id FROM item WHERE name = 'a\\'' OR id = ?"),
            packets::prepare("SELECT id FROM no_such_table"),
            packets::init_db(&pair.database.name),
            packets::init_db("no_such_database"),
            packets::set_option(1),
            packets::field_list("item", ""),
            packets::statistics(),
            packets::reset_statement(1),
            packets::reset_statement(0),
        ] {
            for ask in ["SELECT ROW_COUNT(), FOUND_ROWS()", "SHOW WARNINGS", "SELECT @@warning_count"] {
                pair.same(|c| {
                    let statement = c.prepare("SELECT 2 FROM item")?;
                    for sql in ["SELECT COUNT(*) FROM log", first, read] {
                        c.query(sql)?;
                    }
                    between(c, statement, &command)?;
                    c.query(ask)?;
                    c.expect_silence()
                })
                .with_context(|| format!("{first}; {read}; command {command:?}; {ask}"))?;
            }
        }
    }
    let after = pair.freshet.is_there().then(|| pair.freshet.metrics()).transpose()?;
    anyhow::ensure!(before.zip(after).is_none_or(|(before, after)| after.hits() > before.hits() + 100), "no hits");
    Ok(())
}

fn between(c: &mut RawClient, statement: Statement, command: &[u8]) -> Result<()> {
    match command.first() {
        Some(0x04) => drop(c.fetch(command)?),
        Some(0x09) => {
            // Its figures change.
            c.send(command)?;
            c.read()?;
            c.heard.pop();
        }
        Some(0x16) => drop(c.try_prepare(std::str::from_utf8(&command[1..])?)?),
        Some(0x1a) if command[1] == 1 => drop(c.command(&packets::reset_statement(statement.id))?),
        _ => drop(c.command(command)?),
    }
    Ok(())
}

fn run(pair: &Pair, c: &mut RawClient, step: Step) -> Result<()> {
    match step {
        Step::Query(sql) => drop(c.query(sql)?),
        Step::Use(true) => drop(c.command(&packets::init_db(&pair.database.name))?),
        Step::Use(false) => drop(c.command(&packets::init_db("no_such_database"))?),
        Step::Prepare(sql) => drop(c.prepare(sql)),
        Step::Ping => drop(c.command(&[14])?),
    }
    Ok(())
}
