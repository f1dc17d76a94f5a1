//! Broken connections, restarts and purged files.

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::MysqlSettings;

use crate::fixture::{Database, Event, Fixture, shorts};

/// An account that can be locked.
const ACCOUNT: &str = "
    CREATE USER follower@'%' IDENTIFIED BY 'f';
    GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO follower@'%';
    CREATE TABLE t (id INT PRIMARY KEY);";

fn follow(server: Database) -> Result<Fixture> {
    server.sql(ACCOUNT)?;
    if !server.is_mariadb() {
        server.sql("ALTER USER follower@'%' IDENTIFIED WITH mysql_native_password BY 'f'")?;
    }
    let url = format!("mysql://follower:f@{}/?ssl-mode=disabled", server.address());
    let fixture = Fixture::follow_as(server, &url)?;
    fixture.catalogue.learn("t", &["id"]);
    fixture.recorder.connected()?;
    Ok(fixture)
}

/// Ends the server's side of the stream.
fn kill_dump(fixture: &Fixture) -> Result<()> {
    let dump = fixture.server.sql("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")?;
    ensure!(!dump.is_empty() && !dump.contains('\n'), "dumps: {dump}");
    fixture.server.sql(&format!("KILL {dump}"))?;
    Ok(())
}

fn lock_out(fixture: &Fixture, lock: &str) -> Result<()> {
    fixture.server.sql(&format!("SET sql_log_bin = 0; ALTER USER follower@'%' ACCOUNT {lock}"))?;
    Ok(())
}

fn survives(server: Database) -> Result<()> {
    let fixture = follow(server)?;
    fixture.check(&[("INSERT INTO t VALUES (1)", "+1")])?;
    // Everything that was committed meanwhile is delivered, once.
    lock_out(&fixture, "LOCK")?;
    kill_dump(&fixture)?;
    match fixture.recorder.next()? {
        Event::Suspended(_) => {}
        other => bail!("{other:?}"),
    }
    for id in 2..5 {
        fixture.server.sql(&format!("INSERT INTO t VALUES ({id}); FLUSH BINARY LOGS"))?;
    }
    lock_out(&fixture, "UNLOCK")?;
    resumed(&fixture)?;
    for id in 2..5 {
        assert_eq!(shorts(&fixture.recorder.commit()?.changes), [format!("+{id}")]);
    }
    fixture.recorder.passes(fixture.end()?)?;

    // A purged file cannot be delivered: a new epoch.
    lock_out(&fixture, "LOCK")?;
    kill_dump(&fixture)?;
    match fixture.recorder.next_state()? {
        Event::Suspended(_) => {}
        other => bail!("{other:?}"),
    }
    fixture.server.sql("INSERT INTO t VALUES (5); FLUSH BINARY LOGS; INSERT INTO t VALUES (6); FLUSH BINARY LOGS")?;
    let last = fixture.server.sql("SHOW MASTER STATUS")?;
    let last = last.split('\t').next().context("file")?;
    fixture.server.sql(&format!("PURGE BINARY LOGS TO '{last}'"))?;
    lock_out(&fixture, "UNLOCK")?;
    renewed(&fixture)?;
    fixture.check(&[("INSERT INTO t VALUES (7)", "+7")])?;

    // So does another run of the server, even if its state is the same.
    fixture.server.restart()?;
    match fixture.recorder.next_state()? {
        Event::Suspended(_) => {}
        other => bail!("{other:?}"),
    }
    renewed(&fixture)?;
    fixture.check(&[("INSERT INTO t VALUES (8)", "+8")])?;

    // Without packets the stream counts as dead; heartbeats keep it alive.
    fixture.server.pause()?;
    match fixture.recorder.next_state()? {
        Event::Suspended(why) => assert!(why.contains("silent"), "{why}"),
        other => bail!("{other:?}"),
    }
    fixture.server.resume()?;
    resumed(&fixture)?;
    fixture.check(&[("INSERT INTO t VALUES (9)", "+9")])?;
    fixture.finish()
}

/// The epoch continues; failed attempts in between were reported.
fn resumed(fixture: &Fixture) -> Result<()> {
    loop {
        match fixture.recorder.next_state()? {
            Event::Suspended(_) => {}
            Event::Resumed => return Ok(()),
            other => bail!("{other:?}"),
        }
    }
}

/// The epoch ends, and another one begins.
fn renewed(fixture: &Fixture) -> Result<()> {
    let mut ended = false;
    loop {
        match fixture.recorder.next_state()? {
            Event::Suspended(_) => {}
            Event::Disconnected(_) => ended = true,
            Event::Connected(_) if ended => return Ok(()),
            // The server sends what it has before it reports what is missing.
            Event::Resumed if !ended => {}
            other => bail!("{other:?}"),
        }
    }
}

#[test]
fn broken_connections_on_mariadb() -> Result<()> {
    survives(Database::mariadb(MysqlSettings::default())?)
}

#[test]
fn broken_connections_on_mysql() -> Result<()> {
    survives(Database::mysql(&MysqlSettings::default())?)
}
