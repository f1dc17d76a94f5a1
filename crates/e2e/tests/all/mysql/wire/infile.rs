//! LOAD DATA LOCAL INFILE: during a statement the server requests a file from the client.

use anyhow::{Result, ensure};

use super::SCHEMA;
use crate::mysql::support::packets::{self, capability};
use crate::mysql::support::{Kind, Login, Pair, on_both};

on_both!(files, refused, large_files, among_other_statements);

const LOAD: &str = "LOAD DATA LOCAL INFILE 'a file' INTO TABLE log FIELDS TERMINATED BY ',' (line, n)";

fn files(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("TRUNCATE log")?;
        for file in ["a,1\nb,2\n", "", "c,not a number\n", "d,4"] {
            c.file = file.into();
            c.query(LOAD)?;
            c.query("SHOW WARNINGS")?;
            c.query("SELECT * FROM log ORDER BY id")?;
        }
        c.expect_silence()
    })
}

/// By a client that cannot, by the server's setting, for lack of a table.
fn refused(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let login = pair.login();
    pair.same_as(Login { capabilities: capability::MODERN & !capability::LOCAL_FILES, ..login }, |c| {
        c.query(LOAD)?;
        c.expect_silence()
    })?;
    pair.same(|c| {
        c.file = b"a,1\n".to_vec();
        c.query(&LOAD.replace("log", "no_such_table"))?;
        c.query(&LOAD.replace("LOCAL ", ""))?;
        // MariaDB can prepare it, MySQL cannot.
        if let Some(statement) = c.try_prepare(LOAD)? {
            c.execute(statement, &[])?;
        }
        c.expect_silence()
    })
}

fn large_files(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    let line = format!("{},7\n", "x".repeat(90));
    pair.same_as(pair.login(), |c| {
        c.query("TRUNCATE log")?;
        c.file = line.repeat(50_000).into_bytes();
        let answer = c.query(LOAD)?;
        ensure!(answer.affected == 50_000, "{answer:?}");
        c.query("SELECT COUNT(*), SUM(n), MIN(LENGTH(line)) FROM log")?;
        c.expect_silence()
    })
}

fn among_other_statements(kind: Kind) -> Result<()> {
    let pair = Pair::new(kind, SCHEMA)?;
    pair.same(|c| {
        c.query("TRUNCATE log")?;
        c.file = b"a,1\n".to_vec();
        c.query(&format!("SELECT name FROM item WHERE id = 1; {LOAD}; SELECT line FROM log; {LOAD}"))?;
        c.query("BEGIN")?;
        c.query(LOAD)?;
        c.query("SELECT COUNT(*) FROM log")?;
        c.query("ROLLBACK")?;
        c.query("SELECT COUNT(*) FROM log")?;
        c.command(&packets::ping())?;
        c.expect_silence()
    })
}
