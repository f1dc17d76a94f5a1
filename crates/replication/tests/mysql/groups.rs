//! The commits from transactions and statements, and their positions.

use anyhow::{Context, Result, bail};
use freshet_testbed::MysqlSettings;
use freshet_types::{CommitId, Lsn};

use crate::fixture::{Database, Event, Fixture, shorts};

const SCHEMA: &str = "
    CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20));
    CREATE TABLE m (id INT) ENGINE = MyISAM;
    CREATE TABLE other (id INT PRIMARY KEY);";

fn follow(server: Database) -> Result<Fixture> {
    server.sql(SCHEMA)?;
    let fixture = Fixture::follow(server)?;
    fixture.catalogue.learn("t", &["id", "v"]);
    fixture.catalogue.learn("m", &["id"]);
    fixture.catalogue.learn("other", &["id"]);
    fixture.recorder.connected()?;
    Ok(fixture)
}

fn groups_become_commits(server: Database) -> Result<()> {
    let fixture = follow(server)?;
    fixture.check(&[
        // The log does not contain changes that a savepoint rolled back.
        (
            "BEGIN; INSERT INTO t VALUES (1, 'a'); SAVEPOINT s; INSERT INTO t VALUES (2, 'b'); ROLLBACK TO s; \
             INSERT INTO t VALUES (3, 'c'); COMMIT",
            "+1,a +3,c",
        ),
        // A rolled-back transaction has no changes; a non-transactional table has groups of its own.
        ("BEGIN; INSERT INTO t VALUES (4, 'd'); ROLLBACK; INSERT INTO m VALUES (1)", "+1"),
        ("DELETE FROM m", "-1"),
    ])?;
    if fixture.server.is_mariadb() {
        fixture.check(&[("BEGIN; INSERT INTO t VALUES (5, 'e'); INSERT INTO m VALUES (2); ROLLBACK", "+2")])?;
    }
    // More rows than are stored one by one.
    fixture.server.sql("SET GLOBAL max_allowed_packet = 1 << 30")?;
    let many: Vec<String> = (100..10_101).map(|id| format!("({id}, NULL)")).collect();
    fixture.check(&[(&format!("INSERT INTO t VALUES {}", many.join(",")), "any"), ("DELETE FROM t", "any")])?;
    definitions(&fixture)?;
    distributed(&fixture)?;
    positions(&fixture)?;
    fixture.finish()
}

fn definitions(fixture: &Fixture) -> Result<()> {
    fixture.check(&[
        ("TRUNCATE t", "any"),
        ("CREATE TABLE d (a INT)", "redefined:d"),
        ("ALTER TABLE d ADD b INT", "redefined:d"),
        ("CREATE INDEX i ON d (a)", "redefined:d"),
        ("RENAME TABLE d TO e", "redefined:d redefined:e"),
        ("CREATE VIEW w AS SELECT * FROM e", "redefined:w"),
        ("CREATE OR REPLACE VIEW w AS SELECT a FROM e", "redefined:w"),
        ("ALTER VIEW w AS SELECT b FROM e", "redefined:w"),
        ("DROP VIEW w", "redefined:w"),
        ("DROP TABLE IF EXISTS e, missing", "redefined:e redefined:missing"),
        // Temporary tables and statistics change nothing.
        (
            "CREATE TEMPORARY TABLE tt (a INT); INSERT INTO tt VALUES (1); DROP TABLE tt; ANALYZE TABLE t; \
          INSERT INTO t VALUES (1, 'x')",
            "+1,x",
        ),
        ("ALTER TABLE t RENAME u; ", "everything"),
        ("ALTER TABLE u RENAME t; ", "everything"),
        ("CREATE USER someone@localhost", "everything"),
        ("GRANT SELECT ON freshet.t TO someone@localhost", "everything"),
        ("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET @a = 1", "everything"),
        ("CREATE DATABASE elsewhere", "everything"),
        ("CREATE TABLE elsewhere.x (a INT)", "redefined:x"),
        ("DROP DATABASE elsewhere", "everything"),
        ("SET binlog_format = STATEMENT; UPDATE t SET v = 'stmt'", "everything"),
        ("SET binlog_format = MIXED; INSERT INTO t VALUES (6, 'm')", "everything"),
        ("USE mysql; TRUNCATE freshet.t", "any"),
    ])?;
    if fixture.server.is_mariadb() {
        fixture.check(&[
            ("CREATE TABLE copied (a INT) SELECT 7 AS a", "any redefined:copied"),
            ("SET gtid_domain_id = 5; INSERT INTO t VALUES (7, 'domain')", "+7,domain"),
            ("SET GLOBAL log_bin_compress = 1, log_bin_compress_min_len = 10; INSERT INTO t VALUES (8, REPEAT('c', 20))",
             "+8,cccccccccccccccccccc"),
            ("UPDATE t SET v = REPEAT('d', 20) WHERE id = 8", "8,cccccccccccccccccccc>8,dddddddddddddddddddd"),
            ("DELETE FROM t WHERE id = 8", "-8,dddddddddddddddddddd"),
            ("ALTER TABLE t COMMENT 'a statement that is long enough to be compressed, long enough, long enough'",
             "redefined:t"),
            ("SET GLOBAL log_bin_compress = 0; CREATE OR REPLACE TABLE copied (a INT)", "redefined:copied"),
        ])?;
    } else {
        fixture.check(&[
            // Parts of JSON values.
            ("CREATE TABLE j (id INT PRIMARY KEY, doc JSON); INSERT INTO j VALUES (1, '{\"a\": \"0123456789\", \"b\": 2}')",
             "redefined:j"),
        ])?;
        assert_eq!(shorts(&fixture.recorder.commit()?.changes), ["any"]);
        fixture.catalogue.learn("j", &["id", "doc"]);
        fixture.check(&[
            ("UPDATE j SET doc = JSON_SET(doc, '$.a', 'x')", "1,?>1,?"),
            ("SET binlog_row_value_options = PARTIAL_JSON; UPDATE j SET doc = JSON_SET(doc, '$.a', 'y')", "any"),
        ])?;
    }
    Ok(())
}

fn distributed(fixture: &Fixture) -> Result<()> {
    fixture.check(&[
        ("TRUNCATE t", "any"),
        ("XA START 'a'; INSERT INTO t VALUES (1, 'one'); XA END 'a'; XA COMMIT 'a' ONE PHASE", "+1,one"),
        ("XA START 'b'; INSERT INTO t VALUES (2, 'two'); XA END 'b'; XA PREPARE 'b'; XA COMMIT 'b'", "+2,two"),
    ])?;
    // A prepared transaction is reported when it is committed.
    fixture.server.sql(
        "XA START 'c', 'branch', 7; INSERT INTO t VALUES (3, 'three'); XA END 'c', 'branch', 7; XA PREPARE 'c', 'branch', 7",
    )?;
    fixture.check(&[
        ("INSERT INTO t VALUES (4, 'four')", "+4,four"),
        ("XA COMMIT 'c', 'branch', 7", "+3,three"),
        (
            "XA START 'd'; INSERT INTO t VALUES (5, 'five'); XA END 'd'; XA PREPARE 'd'; XA ROLLBACK 'd'; \
          INSERT INTO t VALUES (6, 'six')",
            "+6,six",
        ),
    ])?;
    // Prepared before the stream began.
    fixture.server.sql("XA START 'e'; INSERT INTO t VALUES (7, 'seven'); XA END 'e'; XA PREPARE 'e'")?;
    fixture.recorder.passes(fixture.end()?)?;
    fixture.control.restart();
    assert!(matches!(fixture.recorder.next_state()?, Event::Disconnected(_)));
    if fixture.server.is_mariadb() {
        // It might be committed already, and not visible yet.
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(fixture.recorder.take().is_none());
        fixture.server.sql("XA COMMIT 'e'")?;
        fixture.recorder.connected()?;
        return Ok(());
    }
    fixture.recorder.connected()?;
    fixture.check(&[("XA COMMIT 'e'", "everything")])
}

/// The stream reaches the log end that other connections read, and commits have the names of visibility proofs.
fn positions(fixture: &Fixture) -> Result<()> {
    for sql in [
        "INSERT INTO t VALUES (20, 'x')",
        "INSERT INTO m VALUES (20)",
        "FLUSH BINARY LOGS",
        "SET GLOBAL binlog_checksum = NONE",
        "DELETE FROM t",
        "SET GLOBAL binlog_checksum = CRC32",
        "BEGIN; ROLLBACK",
        "CREATE TEMPORARY TABLE tt (a INT)",
    ] {
        fixture.server.sql(sql)?;
        fixture.recorder.passes(fixture.end()?)?;
    }
    while fixture.recorder.take().is_some() {}
    fixture.server.sql("INSERT INTO t VALUES (21, 'x')")?;
    let commit = fixture.recorder.commit()?;
    // MariaDB may have written a checkpoint after it.
    assert!(commit.end <= fixture.end()?);
    match commit.id {
        CommitId::Position(end) => {
            let snapshot = fixture.server.sql("SHOW STATUS LIKE 'binlog_snapshot_position'")?;
            let snapshot: u64 = snapshot.split('\t').nth(1).context("position")?.parse()?;
            assert!(end.binlog_parts().1 <= snapshot);
            assert!(fixture.server.is_mariadb() && end == commit.end);
        }
        CommitId::Gtid { source, number } => {
            let inside = format!("{source:032x}");
            let uuid = fixture.server.sql("SELECT REPLACE(@@server_uuid, '-', '')")?;
            let set = format!(
                "SELECT GTID_SUBSET('{}:{number}', @@gtid_executed)",
                fixture.server.sql("SELECT @@server_uuid")?
            );
            assert_eq!((inside, fixture.server.sql(&set)?.as_str()), (uuid, "1"));
            assert!(!fixture.server.is_mariadb());
        }
        CommitId::Xid(_) => bail!("{commit:?}"),
    }
    assert!(commit.end > Lsn::default());
    Ok(())
}

#[test]
fn groups_become_commits_on_mariadb() -> Result<()> {
    groups_become_commits(Database::mariadb(MysqlSettings::default())?)
}

#[test]
fn groups_become_commits_on_mysql() -> Result<()> {
    groups_become_commits(Database::mysql(&MysqlSettings::default())?)
}
