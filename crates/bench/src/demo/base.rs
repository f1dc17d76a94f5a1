//! The throw-away server of the demo, and the demo's queries in each family's dialect.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::driver::Protocol;
use crate::statement::Statement;
use anyhow::{Context, Result, ensure};
use freshet_testbed::{Mariadb, Mysql, MysqlSettings, Mysqld, Postgres, Server, Settings, process};

use super::DATABASE;
use super::session::{Session, text};

/// The account of Freshet's own connections to MariaDB and MySQL.
const ACCOUNT: &str = "freshet";

/// The server to start.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    /// PostgreSQL of this major version, or the newest installed.
    Postgres(Option<u32>),
    Mariadb,
    Mysql,
}

impl Which {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Postgres(_) => "PostgreSQL",
            Self::Mariadb => "MariaDB",
            Self::Mysql => "MySQL",
        }
    }
}

/// A running server with an empty database for the movies.
pub(super) enum Base {
    Postgres(Box<Server>),
    Mariadb(Mariadb),
    Mysql(Mysql),
}

impl Base {
    /// Starts the server for this many connections. Blocks.
    pub(super) fn start(which: Which, connections: usize) -> Result<Self> {
        let settings = MysqlSettings::default()
            .with_binlog()
            .with(format!("max-connections = {connections}"))
            .with("innodb-buffer-pool-size = 512M");
        let base = match which {
            Which::Postgres(version) => {
                let settings = Settings::default()
                    .with(format!("max_connections = {connections}\ntimezone = 'UTC'"))
                    // All data fit in memory, and no checkpoint runs during a round.
                    .with("shared_buffers = 512MB\nmax_wal_size = 8GB\ncheckpoint_timeout = 1h\nautovacuum = off");
                let server = Postgres::find(version)?.start(&settings)?;
                server.psql(&format!("CREATE DATABASE {DATABASE}"))?;
                return Ok(Self::Postgres(Box::new(server)));
            }
            Which::Mariadb => Self::Mariadb(Mariadb::start(&settings)?),
            Which::Mysql => Self::Mysql(Mysql::start(&settings)?),
        };
        if let Some(server) = base.mysqld() {
            // Freshet has an account of its own, so that its right to the change stream can be revoked.
            server.sql(&format!(
                "CREATE DATABASE {DATABASE}; CREATE USER {ACCOUNT}@'%' IDENTIFIED BY '{}';
                 GRANT ALL ON *.* TO {ACCOUNT}@'%'",
                server.password()
            ))?;
        }
        Ok(base)
    }

    fn mysqld(&self) -> Option<&Mysqld> {
        match self {
            Self::Postgres(_) => None,
            Self::Mariadb(server) => Some(server),
            Self::Mysql(server) => Some(server),
        }
    }

    /// The URL of the database with the movies.
    pub(super) fn url(&self) -> String {
        match (self, self.mysqld()) {
            (Self::Postgres(server), _) => server.url_of(DATABASE),
            (_, Some(server)) => server.url_of(DATABASE),
            (_, None) => String::new(),
        }
    }

    /// The URL of the same database for Freshet's own connections.
    pub(super) fn upstream(&self) -> String {
        match self.mysqld() {
            Some(server) => self.url().replacen(server.superuser(), ACCOUNT, 1),
            None => self.url(),
        }
    }

    /// The URL of the same database through another address.
    pub(super) fn url_at(&self, address: SocketAddr) -> String {
        let url = self.url();
        match url.split_once('@') {
            Some((account, _)) => format!("{account}@{address}/{DATABASE}"),
            None => url,
        }
    }

    /// Name and version of the server.
    pub(super) fn version(&self) -> Result<String> {
        Ok(match (self, self.mysqld()) {
            (Self::Postgres(server), _) => format!("PostgreSQL {}", server.installation().version()),
            (Self::Mysql(_), Some(server)) => format!("MySQL {}", server.sql("SELECT VERSION()")?),
            (_, Some(server)) => server.sql("SELECT VERSION()")?,
            (_, None) => String::new(),
        })
    }

    /// Processor time of the server in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        match self {
            Self::Postgres(server) => server.cpu_seconds(),
            Self::Mariadb(server) => server.cpu_seconds(),
            Self::Mysql(server) => server.cpu_seconds(),
        }
    }

    /// The file with the server's log.
    pub(super) fn log_path(&self) -> PathBuf {
        match self {
            Self::Postgres(server) => server.log_path(),
            Self::Mariadb(server) => server.log_path(),
            Self::Mysql(server) => server.log_path(),
        }
    }

    /// The command with which a person connects to a database.
    pub(super) fn client(&self, url: &str) -> String {
        let address = url.split_once('@').map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
        match (self.mysqld(), address.split_once(':')) {
            (Some(server), Some((host, port))) => format!(
                "mariadb --host={host} --port={port} --user={} --password={} {DATABASE}",
                server.superuser(),
                server.password()
            ),
            _ => format!("psql {url}"),
        }
    }

    /// Stops the change stream until the returned value is dropped.
    ///
    /// A walsender of PostgreSQL is a process, which is suspended. MySQL and MariaDB send from a thread. Its connection is closed, and Freshet's
    /// account may not open another.
    pub(super) fn stop_stream(&self) -> Result<StoppedStream<'_>> {
        if let Some(server) = self.mysqld() {
            // The statement is kept out of the binary log: otherwise the stream would deliver it later and flush the cache.
            server.sql(&format!("SET sql_log_bin = 0; REVOKE REPLICATION SLAVE ON *.* FROM {ACCOUNT}@'%'"))?;
            let stopped = StoppedStream::Refused(server);
            let senders =
                server.sql("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")?;
            ensure!(
                !senders.is_empty(),
                "no connection reads the binary log: Freshet does not follow the change stream"
            );
            for id in senders.lines() {
                server.sql(&format!("KILL {id}"))?;
            }
            return Ok(stopped);
        }
        let Self::Postgres(server) = self else { return Ok(StoppedStream::Paused(Vec::new())) };
        let mut paused = Vec::new();
        for walsender in server.children()?.iter().filter(|child| child.title().contains("walsender")) {
            process::pause(walsender.pid)?;
            paused.push(walsender.pid);
        }
        ensure!(!paused.is_empty(), "the database has no walsender: Freshet does not follow its change stream");
        Ok(StoppedStream::Paused(paused))
    }
}

/// A stopped change stream. It continues when this value is dropped.
pub(super) enum StoppedStream<'a> {
    /// The suspended processes.
    Paused(Vec<u32>),
    /// The server on which Freshet's account lacks the right.
    Refused(&'a Mysqld),
}

impl Drop for StoppedStream<'_> {
    fn drop(&mut self) {
        match self {
            Self::Paused(pids) => {
                for pid in pids {
                    // The process may have ended meanwhile.
                    let _ = process::resume(*pid);
                }
            }
            Self::Refused(server) => {
                let back = format!("SET sql_log_bin = 0; GRANT REPLICATION SLAVE ON *.* TO {ACCOUNT}@'%'");
                if let Err(error) = server.sql(&back) {
                    eprintln!("warning: the change stream could not be continued: {error:#}");
                }
            }
        }
    }
}

/// A session that reads the server's statistics.
pub(super) struct Control(Session);

impl Control {
    pub(super) async fn open(base: &Base) -> Result<Self> {
        let [statements, sessions] = match base {
            Base::Postgres(_) => [
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()",
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
            ],
            Base::Mariadb(_) | Base::Mysql(_) => {
                ["SHOW GLOBAL STATUS LIKE 'Questions'", "SHOW GLOBAL STATUS LIKE 'Threads_connected'"]
            }
        };
        let queries: Arc<[Statement]> = [statements, sessions].map(|sql| Statement::read(sql, sql)).into();
        Ok(Self(Session::with(&base.url(), Protocol::Text, &queries).await?))
    }

    /// Number of statements that have reached the server. PostgreSQL shows the counts of a session at the latest when the session ends.
    pub(super) async fn statements(&mut self) -> Result<f64> {
        self.number(0).await
    }

    /// Number of open sessions.
    pub(super) async fn sessions(&mut self) -> Result<f64> {
        self.number(1).await
    }

    async fn number(&mut self, query: usize) -> Result<f64> {
        let rows = self.0.rows(query, &[]).await?;
        let row = rows.first().context("no statistics")?;
        Ok(text(row, row.len().saturating_sub(1))?.parse()?)
    }
}
