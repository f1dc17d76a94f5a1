//! A replica that connects through Freshet, and the binary log that it receives.

use anyhow::{Context, Result, ensure};
use freshet_testbed::MysqlSettings;

use super::SCHEMA;
use crate::mysql::support::{Database, Kind, Pair, on_both, packets};
use crate::support::{PATIENCE, eventually};

on_both!(the_log_packet_by_packet, a_replica);

/// With this flag of COM_BINLOG_DUMP the server says EOF at the end of the log instead of waiting.
const NON_BLOCKING: [u8; 2] = [1, 0];

fn the_log_packet_by_packet(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, SCHEMA, &[])?;
    pair.database.run("INSERT INTO log (line) VALUES ('one'), ('two'); UPDATE log SET n = id; FLUSH BINARY LOGS")?;
    pair.database.run("DELETE FROM log WHERE id = 1")?;
    // MariaDB writes this event behind the change to a new file, in its own time.
    if kind == Kind::Mariadb {
        eventually(PATIENCE, || {
            let events = pair.database.server.sql("SHOW BINLOG EVENTS IN 'binlog.000002'")?;
            let checkpoints = events.lines().filter(|line| line.ends_with("\tbinlog.000002")).count();
            ensure!(checkpoints == 1, "{events}");
            Ok(())
        })?;
    }
    pair.same_as(pair.login(), |c| {
        c.query("SHOW BINARY LOGS")?;
        c.query("SHOW BINLOG EVENTS IN 'binlog.000001' LIMIT 3")?;
        c.run("SET @master_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4")?;
        c.command(&packets::register_replica(77))?;
        let mut dump = packets::binlog_dump(4, 77, "binlog.000001");
        dump[5..7].copy_from_slice(&NON_BLOCKING);
        c.send(&dump)?;
        let mut events = 0;
        while c.read()?.payload.first() == Some(&0) {
            events += 1;
        }
        ensure!(events > 10, "{events} events");
        Ok(())
    })?;
    // From where there is nothing.
    pair.same_as(pair.login(), |c| {
        c.send(&packets::binlog_dump(4, 78, "binlog.999999"))?;
        while c.read_or_end()?.is_some_and(|packet| packet.payload.first() == Some(&0)) {}
        Ok(())
    })
}

/// A server that takes Freshet for its primary.
fn a_replica(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, SCHEMA, &[])?;
    let own = MysqlSettings::default().with_binlog().with("server-id = 2");
    let replica = kind.start(&own)?;
    let primary = pair.address();
    let start = match kind {
        Kind::Mariadb => "MASTER_USE_GTID = slave_pos",
        Kind::Mysql => "MASTER_AUTO_POSITION = 1",
    };
    replica.sql(&format!(
        "CHANGE MASTER TO MASTER_HOST = '{}', MASTER_PORT = {}, MASTER_USER = 'root', MASTER_PASSWORD = 'freshet',
         MASTER_CONNECT_RETRY = 1, {start}; START SLAVE;",
        primary.ip(),
        primary.port()
    ))?;
    let arrived = |lines: &str| {
        eventually(PATIENCE, || {
            let seen = replica.sql_in(&pair.database.name, "SELECT COUNT(*) FROM log");
            let status = || replica.sql("SHOW SLAVE STATUS").unwrap_or_default();
            ensure!(seen.as_deref().is_ok_and(|seen| seen == lines), "{seen:?}; {}", status());
            Ok(())
        })
    };
    arrived("0").context("what was there before")?;
    let mut writer = pair.connect()?;
    writer.run("INSERT INTO log (line) VALUES ('one')")?;
    writer.run("BEGIN; INSERT INTO log (line) SELECT name FROM item WHERE name <> ''; COMMIT")?;
    arrived("4")?;
    writer.run("DELETE FROM log WHERE id = 1; FLUSH BINARY LOGS; INSERT INTO log (line) VALUES ('x'), ('y')")?;
    arrived("5")?;
    replica.sql("STOP SLAVE")?;
    Ok(())
}
