//! A replica as the upstream: it caches if its binlog has what it receives.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use freshet_testbed::MysqlSettings;

use super::support::{Database, Kind, RawClient, Server, on_both};
use crate::support::{Freshet, PATIENCE, eventually, program, rest};

on_both!(a_replica_that_logs_what_it_receives, a_replica_that_does_not, a_replica_that_has_lost_its_primary);

const SCHEMA: &str = "CREATE TABLE item (id INT PRIMARY KEY, n INT NOT NULL);
    INSERT INTO item VALUES (1, 0), (2, 0)";
const READ: &str = "SELECT n FROM item WHERE id = 1";
/// The reason in the log, and the remedy.
const NOT_LOGGED: [&str; 2] = ["receives changes of other servers and does not log them", "log_slave_updates = ON"];

/// A primary with a database, and a replica that only reads.
struct Replicated {
    database: Database,
    replica: Arc<Server>,
}

impl Replicated {
    fn start(kind: Kind, logs: bool) -> Result<Self> {
        let option = |settings: MysqlSettings, lines: &[&str]| lines.iter().fold(settings, |all, line| all.with(*line));
        let logs = if logs { "log-slave-updates = ON" } else { "log-slave-updates = OFF" };
        let replica = kind.start(&option(Kind::settings(), &["server-id = 2", "read-only = ON", logs]))?;
        let primary = kind.start(&Kind::settings())?;
        let rows = primary.sql("SHOW MASTER STATUS")?;
        let mut cells = rows.split('\t');
        let (file, offset) = (cells.next().context("a file")?, cells.next().context("an offset")?);
        replica.sql(&format!(
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = '{}', master_password = '{}', \
             master_log_file = '{file}', master_log_pos = {offset}, master_connect_retry = 1; START SLAVE",
            primary.port(),
            primary.superuser(),
            primary.password()
        ))?;
        let database = Database::create(primary)?;
        database.run(SCHEMA)?;
        // With what the guide asks for, which shows no masters on MariaDB.
        database.run("CREATE USER freshet@'%' IDENTIFIED BY 'p'")?;
        if kind == Kind::Mysql {
            database.run("ALTER USER freshet@'%' IDENTIFIED WITH mysql_native_password BY 'p'")?;
        }
        database
            .run("GRANT SELECT, SHOW VIEW, TRIGGER, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO freshet@'%'")?;
        let replicated = Self { database, replica };
        eventually(PATIENCE, || {
            let grants = replicated.replica.sql("SHOW GRANTS FOR freshet@'%'")?;
            ensure!(grants.contains("TRIGGER"), "{grants}");
            Ok(())
        })?;
        Ok(replicated)
    }

    fn url(&self) -> String {
        format!("mysql://freshet:p@{}/{}?ssl-mode=disabled", self.replica.address(), self.database.name)
    }

    fn freshet(&self) -> Result<Freshet> {
        Freshet::start_unready(self.replica.address(), &self.url(), &[])
    }

    fn client(&self, freshet: &Freshet) -> Result<RawClient> {
        RawClient::login(freshet.address, self.database.login())
    }

    /// Reads pass, and show what the primary commits.
    fn passes(&self, freshet: &Freshet, n: u32) -> Result<()> {
        let mut client = self.client(freshet)?;
        eventually(PATIENCE, || {
            ensure!(NOT_LOGGED.iter().all(|text| freshet.log().contains(text)), "{}", freshet.log());
            Ok(())
        })?;
        self.database.run(&format!("UPDATE item SET n = {n} WHERE id = 1"))?;
        eventually(PATIENCE, || expect(&mut client, n))?;
        let shown = format!("{:?}", client.query("EXPLAIN LAST STATEMENT")?.rows());
        ensure!(NOT_LOGGED.iter().all(|text| shown.contains(text)), "{shown}");
        ensure!(freshet.metrics()?.hits() == 0, "hits without a change stream");
        Ok(())
    }
}

fn expect(client: &mut RawClient, n: u32) -> Result<()> {
    let value = client.value(READ)?;
    ensure!(value == n.to_string(), "{value}, not {n}");
    Ok(())
}

/// A write at the primary invalidates at the replica.
fn a_replica_that_logs_what_it_receives(kind: Kind) -> Result<()> {
    if program()?.is_none() {
        return Ok(());
    }
    let pair = Replicated::start(kind, true)?;
    let freshet = pair.freshet()?;
    freshet.wait_ready()?;
    let mut client = pair.client(&freshet)?;
    let mut direct = RawClient::login(pair.replica.address(), pair.database.login())?;
    for n in 1..30 {
        pair.database.run(&format!("UPDATE item SET n = {n} WHERE id = 1"))?;
        eventually(PATIENCE, || expect(&mut direct, n))?;
        // What the replica shows is shown by the cache, too.
        rest();
        expect(&mut client, n)?;
        let before = freshet.metrics()?;
        eventually(PATIENCE, || {
            expect(&mut client, n)?;
            ensure!(
                freshet.metrics()?.hits() > before.hits(),
                "no hit: {:?}",
                freshet.metrics()?.passed_since(&before)
            );
            Ok(())
        })?;
    }
    // DDL at the primary, too.
    pair.database.run("ALTER TABLE item ADD COLUMN more INT NOT NULL DEFAULT 7")?;
    eventually(PATIENCE, || {
        rest();
        let value = client.value("SELECT more FROM item WHERE id = 1")?;
        ensure!(value == "7", "{value}");
        Ok(())
    })
}

fn a_replica_that_does_not(kind: Kind) -> Result<()> {
    if program()?.is_none() {
        return Ok(());
    }
    let pair = Replicated::start(kind, false)?;
    let freshet = pair.freshet()?;
    pair.passes(&freshet, 1)?;
    // The server's option, by which it caches.
    let path = pair.replica.config_path();
    let options = std::fs::read_to_string(&path)?.replace("log-slave-updates = OFF", "log-slave-updates = ON");
    std::fs::write(&path, options)?;
    pair.replica.restart()?;
    let mut client = pair.client(&freshet)?;
    freshet.wait_ready()?;
    for n in 2..5 {
        pair.database.run(&format!("UPDATE item SET n = {n} WHERE id = 1"))?;
        eventually(PATIENCE, || {
            expect(&mut client, n)?;
            ensure!(freshet.metrics()?.hits() > 0, "no hits");
            Ok(())
        })?;
    }
    Ok(())
}

/// It receives nothing at the moment, but will.
fn a_replica_that_has_lost_its_primary(kind: Kind) -> Result<()> {
    if program()?.is_none() {
        return Ok(());
    }
    let pair = Replicated::start(kind, false)?;
    pair.replica.sql("STOP SLAVE")?;
    let freshet = pair.freshet()?;
    let mut client = pair.client(&freshet)?;
    eventually(PATIENCE, || {
        expect(&mut client, 0)?;
        let is_decided = freshet.log().contains(NOT_LOGGED[0]) || freshet.metrics()?.hits() > 0;
        ensure!(is_decided, "neither a change stream nor a reason: {}", freshet.log());
        Ok(())
    })?;
    pair.replica.sql("START SLAVE")?;
    pair.passes(&freshet, 1)
}
