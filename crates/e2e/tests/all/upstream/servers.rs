//! The servers of an upstream of several hosts: their roles, and those that are left out.

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings, StopMode};

use super::start::{Home, command};
use super::{READ, SCHEMA, both_hosts, expect_value, replicated, serves};
use crate::support::{Database, Freshet, PATIENCE, RawClient, Version, eventually, on_both};

on_both!(roles_and_trouble_are_shown, an_old_primary_that_lives_on, a_server_of_another_system);

/// The columns of SHOW REPLICATION.
pub(super) const ROLE: usize = 1;
const TIMELINE: usize = 2;
const POSITION: usize = 3;
const IS_STREAM_SERVER: usize = 6;
pub(super) const STATE: usize = 7;
pub(super) const REASON: usize = 9;

/// The row of a server in SHOW REPLICATION.
fn row(freshet: &Freshet, database: &Database, server: &Server) -> Result<Vec<String>> {
    let mut client = RawClient::login(freshet.address, database.login())?;
    let address = format!("127.0.0.1:{}", server.port());
    let messages = client.query("show replication")?;
    let text = |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
    let rows = messages.iter().filter(|message| message.tag == b'D');
    let mut rows = rows.map(|message| message.columns().into_iter().map(text).collect::<Vec<_>>());
    rows.find(|row| row[0] == address).with_context(|| format!("no row of {address}"))
}

/// Waits until the row has these values.
pub(super) fn shows(
    freshet: &Freshet,
    database: &Database,
    server: &Server,
    wanted: &[(usize, &str)],
) -> Result<Vec<String>> {
    eventually(PATIENCE, || {
        let row = row(freshet, database, server)?;
        ensure!(wanted.iter().all(|(column, value)| row[*column] == *value), "{row:?}, not {wanted:?}");
        Ok(row)
    })
}

/// The port of the server that a new client is led to.
pub(super) fn port(freshet: &Freshet, database: &Database) -> Result<String> {
    RawClient::login(freshet.address, database.login())?.value("select inet_server_port()")
}

fn start(upstream: &str, database: &Database, home: &Home) -> Result<Option<Freshet>> {
    let Some(command) = command(Some(upstream), &[], &home.0)? else { return Ok(None) };
    let freshet = Freshet::spawn(database.address(), Some(command))?;
    serves(&freshet, database)?;
    Ok(Some(freshet))
}

fn roles_and_trouble_are_shown(version: Version) -> Result<()> {
    let ((database, standby), home) = (replicated(version)?, Home::new()?);
    let upstream = both_hosts(&database, &standby, "primary");
    let Some(freshet) = start(&upstream, &database, &home)? else { return Ok(()) };
    let primary = [(ROLE, "primary"), (TIMELINE, "1"), (IS_STREAM_SERVER, "yes"), (STATE, "up")];
    shows(&freshet, &database, &database.server, &primary)?;
    let (_, metrics) = crate::support::get(freshet.http, "/metrics")?;
    ensure!(!metrics.contains("freshet_replica_reads"), "metrics of what is not switched on");
    let found = [(ROLE, "standby"), (TIMELINE, "1"), (IS_STREAM_SERVER, "no"), (STATE, "up")];
    let before = shows(&freshet, &database, &standby, &found)?;
    database.run("insert into film values (1000, 'new')")?;
    eventually(PATIENCE, || {
        let now = row(&freshet, &database, &standby)?;
        ensure!(now[POSITION] != before[POSITION], "the position stays: {now:?}");
        Ok(())
    })?;
    standby.stop(StopMode::Fast)?;
    let down = shows(&freshet, &database, &standby, &[(STATE, "down")])?;
    ensure!(!down[REASON].is_empty(), "no reason: {down:?}");
    standby.start()?;
    shows(&freshet, &database, &standby, &[(STATE, "up"), (REASON, "")])?;
    Ok(())
}

/// The standby is promoted, while the primary that comes first in the list lives on and takes writes.
fn an_old_primary_that_lives_on(version: Version) -> Result<()> {
    let (database, home) = (Database::create(version.start(&Settings::default())?)?, Home::new()?);
    database.run(SCHEMA)?;
    let standby = database.server.standby("second")?;
    let (first, second, name) = (database.server.port(), standby.port(), &database.name);
    let hosts = format!("127.0.0.1:{first},127.0.0.1:{second}");
    let upstream = format!("postgres://postgres@{hosts}/{name}?target_session_attrs=primary&connect_timeout=2");
    let Some(freshet) = start(&upstream, &database, &home)? else { return Ok(()) };
    ensure!(port(&freshet, &database)? == first.to_string(), "not the primary");
    shows(&freshet, &database, &standby, &[(ROLE, "standby")])?;
    ensure!(standby.psql("select pg_promote()")? == "t", "not promoted");
    eventually(PATIENCE, || {
        ensure!(port(&freshet, &database)? == second.to_string(), "still the old primary");
        Ok(())
    })?;
    let old = shows(&freshet, &database, &database.server, &[(ROLE, "primary"), (STATE, "left out")])?;
    ensure!(old[REASON].contains("promoted to timeline 2"), "{old:?}");
    shows(&freshet, &database, &standby, &[(ROLE, "primary"), (TIMELINE, "2"), (IS_STREAM_SERVER, "yes")])?;
    // What is cached comes from the new primary.
    let (mut client, before) = (RawClient::login(freshet.address, database.login())?, freshet.metrics()?.hits());
    client.run("update film set title = 'promoted' where id = 1")?;
    database.run("update film set title = 'lost' where id = 1")?;
    eventually(PATIENCE, || {
        expect_value(&mut client, READ, "promoted")?;
        ensure!(freshet.metrics()?.hits() > before, "no hits");
        Ok(())
    })?;
    // The new primary fails: the old one does not come back into use.
    standby.stop(StopMode::Fast)?;
    let messages = RawClient::open(freshet.address)?.start(database.login())?;
    ensure!(messages.last().is_some_and(|message| message.tag == b'E'), "a client at the old primary: {messages:?}");
    standby.start()?;
    eventually(PATIENCE, || {
        ensure!(port(&freshet, &database)? == second.to_string(), "not the new primary");
        Ok(())
    })
}

fn a_server_of_another_system(version: Version) -> Result<()> {
    let (database, home) = (Database::create(version.start(&Settings::default())?)?, Home::new()?);
    database.run(SCHEMA)?;
    let other = version.start(&Settings::default())?;
    let name = &database.name;
    other.psql(&format!("create database \"{name}\""))?;
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", database.server.port(), other.port());
    let upstream = format!("postgres://postgres@{hosts}/{name}?target_session_attrs=primary&connect_timeout=1");
    let Some(freshet) = start(&upstream, &database, &home)? else { return Ok(()) };
    let row = shows(&freshet, &database, &other, &[(ROLE, "primary"), (STATE, "left out")])?;
    ensure!(row[REASON].contains("another database system"), "{row:?}");
    // Nor does it serve when the right one is down.
    database.server.stop(StopMode::Fast)?;
    for _ in 0..3 {
        let messages = RawClient::open(freshet.address)?.start(database.login())?;
        ensure!(
            messages.last().is_some_and(|message| message.tag == b'E'),
            "a client at the wrong server: {messages:?}"
        );
    }
    database.server.start()?;
    eventually(PATIENCE, || RawClient::login(freshet.address, database.login()).map(drop))
}
