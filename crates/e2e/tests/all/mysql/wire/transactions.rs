//! Transactions, and their status flags in each OK and EOF.

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, Value, status};
use crate::mysql::support::{Kind, Pair, on_both};

on_both!(
    blocks,
    without_autocommit,
    hits_open_transactions,
    savepoints,
    kinds_of_transactions,
    ended_by_the_way,
    of_two_phases,
    repeatable_reads
);

const READ: &str = "SELECT name FROM item WHERE id = 1";

fn blocks(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query("TRUNCATE log")?;
        for end in ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "COMMIT"] {
            let answer = c.query("BEGIN")?;
            ensure!(answer.status & status::IN_TRANS != 0, "{answer:?}");
            c.query(READ)?;
            c.query(READ)?;
            c.query("INSERT INTO log (line) VALUES ('in a block')")?;
            c.query("SELECT COUNT(*) FROM log")?;
            c.query(READ)?;
            c.query(end)?;
            c.query(READ)?;
            c.query(READ)?;
        }
        c.query("SELECT COUNT(*) FROM log")?;
        c.expect_silence()
    })
}

fn without_autocommit(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        c.query("TRUNCATE log")?;
        c.query("SET autocommit = 0")?;
        let statement = c.prepare("SELECT name FROM item WHERE id = ?")?;
        for end in ["COMMIT", "ROLLBACK", "SET autocommit = 1"] {
            c.query(READ)?;
            c.execute(statement, &[Value::Int(2)])?;
            c.query(READ)?;
            c.command(&packets::ping())?;
            c.query("INSERT INTO log (line) VALUES ('a line')")?;
            c.execute(statement, &[Value::Int(2)])?;
            c.query("SELECT COUNT(*) FROM log")?;
            c.query(end)?;
        }
        c.query(READ)?;
        c.query("SELECT COUNT(*) FROM log")?;
        c.expect_silence()
    })
}

/// What cannot be done in a transaction is refused behind a read, which was answered from the cache, and flags tell of it.
fn hits_open_transactions(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let levels = ["READ COMMITTED", "REPEATABLE READ"];
    let behind = [
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET TRANSACTION READ ONLY",
        "SET TRANSACTION READ WRITE",
        "XA START 'x'",
        "SELECT 1",
        "SET @a = 1",
        "DO 1",
    ];
    pair.same_with_hits(2 * behind.len() as u64, |c| {
        for (level, begin) in levels.into_iter().flat_map(|level| ["BEGIN", "SET autocommit = 0"].map(|b| (level, b))) {
            c.query("SET autocommit = 1")?;
            c.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))?;
            let statement = c.prepare("SELECT name FROM item WHERE id = ?")?;
            let prepared = c.prepare("SET @b = 1")?;
            for sql in behind {
                for bound in [false, true] {
                    c.query(begin)?;
                    if bound {
                        c.execute(statement, &[Value::Int(2)])?;
                    } else {
                        c.query(READ)?;
                    }
                    c.query(sql)?;
                    c.query(READ)?;
                    c.query("COMMIT")?;
                }
            }
            // What reads no table opens none, and hides none that is open.
            for behind in behind.into_iter().chain(["SELECT 1 FROM DUAL", "SELECT nothing FROM no_such_table"]) {
                for sql in [begin, READ, "SELECT 1", behind, "SELECT 1", behind, "COMMIT"] {
                    c.query(sql)?;
                }
            }
            // What is refused opens none.
            for between in ["SELECT 1 FROM DUAL", "SELECT nothing FROM item", "DELETE FROM item WHERE nothing = 1"] {
                for sql in [begin, READ, between, "SET TRANSACTION READ ONLY", "COMMIT"] {
                    c.query(sql)?;
                }
            }
            for command in [packets::ping(), packets::reset_statement(statement.id)] {
                c.query(begin)?;
                c.query("SELECT name FROM item WHERE id = 1")?;
                c.command(&command)?;
                c.query("ROLLBACK")?;
            }
            c.query(begin)?;
            c.execute(statement, &[Value::Int(2)])?;
            c.execute(prepared, &[])?;
            c.query("ROLLBACK")?;
        }
        c.expect_silence()
    })
}

fn savepoints(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("TRUNCATE log")?;
        for sql in [
            "BEGIN",
            "INSERT INTO log (line) VALUES ('one')",
            "SAVEPOINT a",
            "INSERT INTO log (line) VALUES ('two')",
            "SELECT COUNT(*) FROM log",
            "ROLLBACK TO a",
            "SELECT COUNT(*) FROM log",
            "RELEASE SAVEPOINT a",
            "ROLLBACK TO a",
            READ,
            "COMMIT",
            "SELECT COUNT(*) FROM log",
        ] {
            c.query(sql)?;
        }
        c.expect_silence()
    })
}

fn kinds_of_transactions(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same_with_hits(1, |c| {
        for begin in [
            "START TRANSACTION READ ONLY",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
            "START TRANSACTION READ WRITE, WITH CONSISTENT SNAPSHOT",
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN WORK",
            "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY; START TRANSACTION",
        ] {
            c.query(begin)?;
            c.query(READ)?;
            c.query(READ)?;
            c.query("UPDATE item SET price = price WHERE id = 1")?;
            c.query(READ)?;
            c.query("ROLLBACK")?;
            c.query(READ)?;
        }
        c.query("SET completion_type = 1")?;
        c.query("BEGIN")?;
        c.query("COMMIT")?;
        c.query(READ)?;
        c.query("SET completion_type = 0")?;
        c.query("COMMIT")?;
        c.query("SET TRANSACTION ISOLATION LEVEL NONSENSE")?;
        c.expect_silence()
    })
}

/// By DDL, by another beginning, by an error that rolls all back.
fn ended_by_the_way(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("TRUNCATE log")?;
        for end in ["BEGIN", "CREATE TABLE made (n INT)", "DROP TABLE made", "LOCK TABLES log WRITE", "UNLOCK TABLES"] {
            c.query("BEGIN")?;
            c.query("INSERT INTO log (line) VALUES ('a line')")?;
            c.query(end)?;
            c.query("ROLLBACK")?;
            c.query("SELECT COUNT(*) FROM log")?;
            c.query(READ)?;
        }
        c.query("BEGIN")?;
        c.query("INSERT INTO item VALUES (1, 'twice', 0, NULL, NULL)")?;
        c.query("INSERT INTO log (line) VALUES ('after an error')")?;
        c.query("COMMIT")?;
        c.query("SELECT COUNT(*) FROM log")?;
        c.expect_silence()
    })
}

fn of_two_phases(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("TRUNCATE log")?;
        let name = format!("'{}'", pair.database.name);
        for end in ["XA COMMIT", "XA ROLLBACK"] {
            c.query(&format!("XA START {name}"))?;
            c.query("INSERT INTO log (line) VALUES ('prepared')")?;
            c.query(READ)?;
            c.query("COMMIT")?;
            c.query(&format!("XA END {name}"))?;
            c.query(READ)?;
            c.query(&format!("XA PREPARE {name}"))?;
            c.query(READ)?;
            c.query(&format!("{end} {name}"))?;
            c.query(READ)?;
            c.query("SELECT COUNT(*) FROM log")?;
        }
        c.query("XA COMMIT 'nothing'")?;
        c.query(&format!("XA START {name}"))?;
        c.query("INSERT INTO log (line) VALUES ('in one phase')")?;
        c.query(&format!("XA END {name}"))?;
        c.query(&format!("XA COMMIT {name} ONE PHASE"))?;
        c.query("SELECT COUNT(*) FROM log")?;
        c.expect_silence()
    })
}

/// A block sees the rows as they were at its first read, whoever writes and wherever its reads come from.
fn repeatable_reads(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let mut writer = pair.connect()?;
    for round in 0..10 {
        let mut reader = pair.connect()?;
        reader.run("DO 1")?;
        for _ in 0..2 {
            reader.value("SELECT COUNT(*) FROM log WHERE n = 1")?;
            reader.value("SELECT COUNT(*) FROM log WHERE n = 2")?;
        }
        reader.run("START TRANSACTION")?;
        let before = reader.value("SELECT COUNT(*) FROM log WHERE n = 1")?;
        writer.run("INSERT INTO log (line, n) VALUES ('x', 1), ('y', 2)")?;
        let after = reader.value("SELECT COUNT(*) FROM log WHERE n = 2")?;
        let again = reader.value("SELECT COUNT(*) FROM log WHERE n = 1")?;
        ensure!(before == round.to_string() && again == before, "round {round}: {before}, then {again}");
        // The first read may not have taken the snapshot, if it came from the cache; but both are of one.
        ensure!(after == before, "round {round}: {before} of the one, {after} of the other");
        reader.run("COMMIT")?;
        let last = reader.value("SELECT COUNT(*) FROM log WHERE n = 2")?;
        ensure!(last == (round + 1).to_string(), "round {round}: {last} after the end");
    }
    Ok(())
}
