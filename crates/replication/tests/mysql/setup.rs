//! Missing requirements are reported, with the remedy.

use anyhow::{Result, bail};
use freshet_testbed::{Mariadb, MysqlSettings};

use crate::fixture::{Database, Event, Fixture};

fn refusal(server: Database, url: Option<&str>) -> Result<(Database, String)> {
    let own = format!("{}?ssl-mode=disabled", server.url());
    let fixture = Fixture::follow_as(server, url.unwrap_or(&own))?;
    let Event::Disconnected(why) = fixture.recorder.next()? else { bail!("no refusal") };
    Ok((fixture.stop()?, why))
}

fn refused(server: Database, url: Option<&str>, expected: &[&str]) -> Result<Database> {
    let (server, why) = refusal(server, url)?;
    assert!(expected.iter().all(|part| why.contains(part)), "{why}");
    Ok(server)
}

fn privileges(server: Database) -> Result<Database> {
    server.sql("CREATE USER 'poor''one'@'%' IDENTIFIED BY 'p'")?;
    if !server.is_mariadb() {
        server.sql("ALTER USER 'poor''one'@'%' IDENTIFIED WITH mysql_native_password BY 'p'")?;
    }
    let url = format!("mysql://poor%27one:p@{}/?ssl-mode=disabled", server.address());
    let grant = "run GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'poor''one'@'%';";
    let server = refused(server, Some(&url), &[grant])?;
    server.sql("GRANT REPLICATION CLIENT ON *.* TO 'poor''one'@'%'")?;
    let server = refused(server, Some(&url), &[grant])?;
    server.sql("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'poor''one'@'%';")?;
    let fixture = Fixture::follow_as(server, &url)?;
    fixture.recorder.connected()?;
    fixture.stop()
}

#[test]
fn what_mariadb_lacks_is_said() -> Result<()> {
    let server = Database::MariaDb(Mariadb::start(&MysqlSettings::default())?);
    drop(refused(server, None, &["log_bin = OFF", "restart"])?);
    let server = Database::mariadb(MysqlSettings::default().with("binlog-ignore-db = ignored"))?;
    let server = refused(server, None, &["binlog_ignore_db = ignored", "remove"])?;
    server.sql("SET GLOBAL binlog_format = MIXED")?;
    let server = refused(server, None, &["binlog_format is MIXED", "SET GLOBAL binlog_format = 'ROW'"])?;
    drop(server);
    let server = privileges(Database::mariadb(MysqlSettings::default())?)?;
    // A server that receives changes and does not log them.
    server.sql(&format!(
        "CHANGE MASTER TO master_host='127.0.0.1', master_port={}, master_user='root', master_password='freshet'; \
         SET GLOBAL server_id = 2; START SLAVE",
        server.port()
    ))?;
    refused(server, None, &["does not log them", "log_slave_updates"])?;
    Ok(())
}

#[test]
fn what_mysql_lacks_is_said() -> Result<()> {
    let server = privileges(Database::mysql(&MysqlSettings::default())?)?;
    server.sql("SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = OFF_PERMISSIVE")?;
    let server = refused(server, None, &["gtid_mode is OFF_PERMISSIVE", "SET GLOBAL gtid_mode = ON;"])?;
    server.sql("SET GLOBAL binlog_format = STATEMENT")?;
    refused(server, None, &["binlog_format is STATEMENT"])?;
    Ok(())
}
