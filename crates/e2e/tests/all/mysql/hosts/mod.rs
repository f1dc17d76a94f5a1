//! An upstream of several hosts: a primary, a replica by GTID, and others.
//!
//! * `roles`: what is shown of them, wrong hosts, hosts that do not answer;
//! * `failover`: the primary changes.

mod failover;
mod roles;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use freshet_testbed::MysqlSettings;

use crate::mysql::support::packets::capability;
use crate::mysql::support::{Database, Kind, Login, RawClient, Server};
use crate::support::{Freshet, PATIENCE, eventually, rest};

const SCHEMA: &[&str] = &[
    "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO item VALUES (1, 'kettle'), (2, 'pan')",
    "CREATE TABLE log (id INT PRIMARY KEY AUTO_INCREMENT, n INT)",
];
/// A read that can be cached.
const READ: &str = "SELECT name FROM item WHERE id = 1";

/// The columns of SHOW REPLICATION.
const ROLE: usize = 1;
const POSITION: usize = 3;
const IS_STREAM_SERVER: usize = 6;
const STATE: usize = 7;
const REASON: usize = 9;

/// A primary and its replica, with an account that `read_only` binds.
struct Hosts {
    kind: Kind,
    database: Database,
    replica: Arc<Server>,
    user: String,
    file: PathBuf,
}

impl Hosts {
    fn start(kind: Kind) -> Result<Self> {
        let primary = kind.start(&Kind::settings().with("log-slave-updates = ON"))?;
        let database = Database::create(primary)?;
        let user = format!("{}_app", database.name);
        let identified = match kind {
            Kind::Mariadb => "IDENTIFIED BY 'secret'",
            Kind::Mysql => "IDENTIFIED WITH mysql_native_password BY 'secret'",
        };
        for statement in SCHEMA {
            database.run(statement)?;
        }
        database.run(&format!("CREATE USER {user}@'%' {identified}"))?;
        database.run(&format!("GRANT ALL ON {}.* TO {user}@'%'", database.name))?;
        let own = MysqlSettings::default().with_binlog().with("server-id = 2").with("log-slave-updates = ON");
        let replica = kind.start(&own.with("read-only = ON"))?;
        let file = std::env::temp_dir().join(format!("freshet-hosts-{}-{user}-{kind:?}", std::process::id()));
        let root = database.login();
        std::fs::write(&file, format!("\"{user}\" \"secret\"\n\"{}\" \"{}\"\n", root.user, root.password))?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        let hosts = Self { kind, database, replica, user, file };
        hosts.replicate()?;
        hosts.catch_up()?;
        Ok(hosts)
    }

    fn replicate(&self) -> Result<()> {
        let start = match self.kind {
            Kind::Mariadb => "MASTER_USE_GTID = slave_pos",
            Kind::Mysql => "MASTER_AUTO_POSITION = 1",
        };
        let (user, password) = (self.database.server.superuser(), self.database.server.password());
        self.replica.sql(&format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = '{user}',
             MASTER_PASSWORD = '{password}', MASTER_CONNECT_RETRY = 1, {start}; START SLAVE;",
            self.database.server.port()
        ))?;
        Ok(())
    }

    /// Waits until the replica has all that the primary has.
    fn catch_up(&self) -> Result<()> {
        let (of_primary, wait) = match self.kind {
            Kind::Mariadb => ("SELECT @@GLOBAL.gtid_binlog_pos", "MASTER_GTID_WAIT"),
            Kind::Mysql => ("SELECT @@GLOBAL.gtid_executed", "WAIT_FOR_EXECUTED_GTID_SET"),
        };
        let position = self.database.server.sql(of_primary)?.replace("\\n", "");
        eventually(PATIENCE, || {
            let told = self.replica.sql(&format!("SELECT {wait}('{position}', 1)"))?;
            let status = || self.replica.sql("SHOW SLAVE STATUS").unwrap_or_default();
            ensure!(told == "0", "{position} is not there: {told}; {}", status());
            Ok(())
        })
    }

    fn promote(&self) -> Result<()> {
        self.replica.sql("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = OFF").map(drop)
    }

    /// The primary takes no more writes.
    fn demote(&self) -> Result<()> {
        let setting = if self.kind == Kind::Mysql { "super_read_only" } else { "read_only" };
        self.database.server.sql(&format!("SET GLOBAL {setting} = ON")).map(drop)
    }

    /// The upstream of these servers.
    fn url(&self, servers: &[&str]) -> String {
        let (user, password) = (self.database.server.superuser(), self.database.server.password());
        format!("mysql://{user}:{password}@{}/{}?connect-timeout=5", servers.join(","), self.database.name)
    }

    fn primary_address(&self) -> String {
        self.database.address().to_string()
    }

    fn replica_address(&self) -> String {
        self.replica.address().to_string()
    }

    /// They, and a Freshet over them; None: there is no Freshet to test.
    fn with_freshet(kind: Kind) -> Result<Option<(Self, Freshet)>> {
        let hosts = Self::start(kind)?;
        let freshet = hosts.freshet()?;
        Ok(freshet.is_there().then_some((hosts, freshet)))
    }

    /// A Freshet over the primary and the replica, whose sessions share connections.
    fn freshet(&self) -> Result<Freshet> {
        self.freshet_over(&[&self.primary_address(), &self.replica_address()], &["--failover-timeout", "2m"])
    }

    fn freshet_over(&self, servers: &[&str], options: &[&str]) -> Result<Freshet> {
        let users = self.file.display().to_string();
        let more = ["--users", &users, "--pool", "transaction", "--default-pool-size", "6"];
        let freshet = Freshet::start_unready(self.database.address(), &self.url(servers), &[&more, options].concat())?;
        freshet.wait_ready()?;
        Ok(freshet)
    }

    /// A client of the account that `read_only` binds.
    fn connect(&self, freshet: &Freshet) -> Result<RawClient> {
        let (user, password) = (self.user.as_str(), "secret");
        let login = Login { user, password, capabilities: capability::MODERN, ..self.database.login() };
        RawClient::login(freshet.address, login)
    }

    /// The row of a server in SHOW REPLICATION.
    fn row(&self, freshet: &Freshet, address: &str) -> Result<Vec<String>> {
        let mut client = RawClient::login(freshet.address, self.database.login())?;
        let rows = client.query("SHOW REPLICATION")?.rows();
        let mut rows = rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>());
        rows.find(|row| row[0] == address).with_context(|| format!("no row of {address}"))
    }

    /// Waits until the row has these values.
    fn shows(&self, freshet: &Freshet, address: &str, wanted: &[(usize, &str)]) -> Result<Vec<String>> {
        eventually(PATIENCE, || {
            let row = self.row(freshet, address)?;
            ensure!(wanted.iter().all(|(column, value)| row[*column] == *value), "{row:?}, not {wanted:?}");
            Ok(row)
        })
    }

    /// A write is done, and reads hit with its result.
    fn hits_again(&self, freshet: &Freshet, names: &[&str]) -> Result<()> {
        let (mut writer, mut reader) = (self.connect(freshet)?, self.connect(freshet)?);
        for name in names {
            writer.run(&format!("UPDATE item SET name = '{name}' WHERE id = 1"))?;
            let before = freshet.metrics()?.hits();
            eventually(PATIENCE, || {
                let found = reader.value(READ)?;
                assert_eq!(found, *name, "a stale read");
                ensure!(freshet.metrics()?.hits() > before, "no hit");
                rest();
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The port of the server that a client is led to.
    fn port(&self, freshet: &Freshet) -> Result<String> {
        self.connect(freshet)?.value("SELECT @@GLOBAL.port")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}
