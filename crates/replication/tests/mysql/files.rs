//! The servers' own binlog files: every event is understood, every checksum is right, and no truncated or changed byte passes.

use std::fs;

use anyhow::{Context, Result, ensure};
use freshet_testbed::MysqlSettings;
use freshet_wire::mysql::binlog::{Checksum, Event, MAGIC, split};
use freshet_wire::reader::Reader;

use crate::fixture::Database;

const WRITES: &str = "
    CREATE TABLE t (id INT PRIMARY KEY, v TEXT, d DECIMAL(9, 2));
    INSERT INTO t VALUES (1, 'one', 1.5), (2, NULL, -7);
    UPDATE t SET v = 'two' WHERE id = 2;
    DELETE FROM t;
    BEGIN; INSERT INTO t VALUES (3, 'x', 0); SAVEPOINT s; UPDATE t SET v = NULL; ROLLBACK TO s; COMMIT;
    CREATE TABLE m (id INT) ENGINE = MyISAM; INSERT INTO m VALUES (1);
    SET binlog_format = STATEMENT; SET @a = 5; INSERT INTO m VALUES (LAST_INSERT_ID() + @a + RAND());
    SET GLOBAL binlog_checksum = NONE; INSERT INTO m VALUES (2); SET GLOBAL binlog_checksum = CRC32;
    FLUSH BINARY LOGS;";

fn files_are_read(server: &Database) -> Result<()> {
    server.sql(WRITES)?;
    let mut kinds = Vec::new();
    let mut checksums = Vec::new();
    for line in server.sql("SHOW BINARY LOGS")?.lines() {
        let name = line.split('\t').next().context("file")?;
        let content = fs::read(server.data_dir().join(name))?;
        let mut events = Reader::new(content.strip_prefix(&MAGIC).context("magic")?);
        let mut checksum = Checksum::Unknown;
        let mut offset = MAGIC.len();
        while let Some(bytes) = split(&mut events)? {
            let (header, event) = Event::decode(bytes, checksum).with_context(|| format!("{name} at {offset}"))?;
            offset += bytes.len();
            assert_eq!(header.end as usize, offset);
            kinds.push(header.kind);
            if let Event::Format { checksum: told, .. } = event {
                checksum = told;
                checksums.push(told);
            }
            damaged(bytes, checksum)?;
        }
    }
    for kind in [2, 4, 5, 13, 14, 15, 16, 19, if server.is_mariadb() { 162 } else { 33 }] {
        assert!(kinds.contains(&kind), "no event of type {kind} in {kinds:?}");
    }
    assert!(checksums.contains(&Checksum::None) && checksums.contains(&Checksum::Crc32), "{checksums:?}");
    Ok(())
}

fn damaged(bytes: &[u8], checksum: Checksum) -> Result<()> {
    for cut in 0..bytes.len() {
        let cut = bytes.get(..cut).unwrap_or_default();
        ensure!(Event::decode(cut, checksum).is_err(), "a cut event was understood: {cut:x?}");
    }
    // The server itself changes one bit of the flags.
    for at in (0..bytes.len()).filter(|at| checksum == Checksum::Crc32 && !(17..19).contains(at)) {
        let mut changed = bytes.to_vec();
        if let Some(byte) = changed.get_mut(at) {
            *byte ^= 0x10;
        }
        ensure!(Event::decode(&changed, checksum).is_err(), "a changed byte at {at} passed: {bytes:x?}");
    }
    Ok(())
}

#[test]
fn files_of_mariadb_are_read() -> Result<()> {
    files_are_read(&Database::mariadb(MysqlSettings::default())?)
}

#[test]
fn files_of_mysql_are_read() -> Result<()> {
    files_are_read(&Database::mysql(&MysqlSettings::default())?)
}
