//! The movies on any of the four servers, Freshet in front of them, and sessions of either protocol.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::{Result, ensure};
use freshet_testbed::{Server, Settings};

use super::movies::{TOUCHES, schema};
use super::relay::Relay;
use crate::mysql::support as mysql;
use crate::support::{self, Freshet, Metrics, PATIENCE, Version, eventually};

/// Which server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Postgres(Version),
    Mysql(mysql::Kind),
}

/// Makes a test of each named function for each server.
macro_rules! on_all {
    ($($name:ident),* $(,)?) => {
        $crate::join_keys::stage::on_all!(@ pg15 Postgres($crate::support::Version::V15): $($name),*);
        $crate::join_keys::stage::on_all!(@ pg18 Postgres($crate::support::Version::V18): $($name),*);
        $crate::join_keys::stage::on_all!(@ mariadb Mysql($crate::mysql::support::Kind::Mariadb): $($name),*);
        $crate::join_keys::stage::on_all!(@ mysql Mysql($crate::mysql::support::Kind::Mysql): $($name),*);
    };
    (@ $module:ident $family:ident($server:expr): $($name:ident),*) => {
        mod $module {
            $(#[test]
            fn $name() -> anyhow::Result<()> {
                super::$name($crate::join_keys::stage::Which::$family($server))
            })*
        }
    };
}
pub(crate) use on_all;

enum Base {
    Postgres(support::Database),
    Mysql(mysql::Database),
}

/// A session, direct or through Freshet.
pub(crate) enum Session {
    Postgres(support::RawClient),
    Mysql(mysql::RawClient),
}

pub(crate) type Rows = Vec<Vec<Option<String>>>;

impl Session {
    pub(crate) fn run(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Postgres(client) => client.run(sql),
            Self::Mysql(client) => client.run(sql),
        }
    }

    /// The rows, sorted.
    pub(crate) fn rows(&mut self, sql: &str) -> Result<Rows> {
        let mut rows = match self {
            Self::Postgres(client) => {
                let messages = client.query(sql)?;
                ensure!(messages.iter().all(|message| message.tag != b'E'), "{sql}: {messages:?}");
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                let row = |columns: Vec<Option<Vec<u8>>>| columns.into_iter().map(|cell| cell.map(text)).collect();
                messages.iter().filter(|m| m.tag == b'D').map(|message| row(message.columns())).collect()
            }
            Self::Mysql(client) => {
                let answer = client.query(sql)?;
                ensure!(answer.error().is_none(), "{sql}: {:?}", answer.error());
                answer.rows()
            }
        };
        rows.sort();
        Ok(rows)
    }
}

/// Freshet in front of the movies.
pub(crate) struct Stage {
    // Dropped first: a database cannot go while its slot is in use.
    pub(crate) freshet: Freshet,
    /// Between the two, if there is one.
    pub(crate) relay: Option<Relay>,
    base: Base,
}

impl Stage {
    /// None where there is no Freshet.
    pub(crate) fn new(which: Which) -> Result<Option<Self>> {
        Self::with(which, false, &[])
    }

    /// On a server of its own: on MariaDB and MySQL other tests' tables have the cache flushed. Results that a change
    /// invalidates stay away.
    pub(crate) fn alone(which: Which) -> Result<Option<Self>> {
        Self::alone_with(which, &["--refresh-share", "0"])
    }

    /// On a server of its own, with options for `freshet serve`.
    pub(crate) fn alone_with(which: Which, options: &[&str]) -> Result<Option<Self>> {
        Self::over(of_its_own(which)?, "", false, options)
    }

    /// On a server of its own that logs of old rows the primary key alone; perhaps with a relay.
    pub(crate) fn logging_keys(which: Which, relayed: bool) -> Result<Option<Self>> {
        let logs_keys = match which {
            Which::Postgres(_) => "ALTER TABLE title REPLICA IDENTITY DEFAULT",
            Which::Mysql(_) => "SET GLOBAL binlog_row_image = MINIMAL",
        };
        Self::over(of_its_own(which)?, logs_keys, relayed, &["--refresh-share", "0"])
    }

    /// Perhaps with a relay between Freshet and the server; with options for `freshet serve`.
    pub(crate) fn with(which: Which, relayed: bool, options: &[&str]) -> Result<Option<Self>> {
        let base = match which {
            Which::Postgres(version) => Base::Postgres(support::Database::create(postgres(version))?),
            Which::Mysql(kind) => Base::Mysql(mysql::Database::create(mysqld(kind))?),
        };
        Self::over(base, "", relayed, options)
    }

    fn over(base: Base, setting: &str, relayed: bool, options: &[&str]) -> Result<Option<Self>> {
        let (direct, url) = match &base {
            Base::Postgres(database) => (database.address(), database.url() + "?sslmode=disable"),
            Base::Mysql(database) => (database.address(), database.url() + "?ssl-mode=disabled"),
        };
        let relay = relayed.then(|| Relay::to(direct)).transpose()?;
        let address = relay.as_ref().map_or(direct, |relay| relay.address);
        let mut own = session(&base, direct)?;
        own.run(&schema(matches!(base, Base::Mysql(_))))?;
        if !setting.is_empty() {
            own.run(setting)?;
        }
        let url = url.replace(&direct.to_string(), &address.to_string());
        let freshet = Freshet::start_unready(direct, &url, options)?;
        freshet.wait_ready()?;
        if !freshet.is_there() {
            return Ok(None);
        }
        let stage = Self { freshet, relay, base };
        stage.touch_all()?;
        Ok(Some(stage))
    }

    /// Changes every table once it is published: key queries are not made for tables that were never written.
    fn touch_all(&self) -> Result<()> {
        let mut session = self.connect()?;
        self.until_hits(&mut session, &TOUCHES.map(|(table, ..)| format!("SELECT count(*) FROM {table}")))?;
        TOUCHES.iter().try_for_each(|(table, row, condition)| {
            session.run(&format!("INSERT INTO {table} VALUES {row}"))?;
            session.run(&format!("DELETE FROM {table} WHERE {condition}"))
        })
    }

    /// A session through Freshet.
    pub(crate) fn connect(&self) -> Result<Session> {
        session(&self.base, self.freshet.address)
    }

    /// A session with the database itself.
    pub(crate) fn direct(&self) -> Result<Session> {
        match &self.base {
            Base::Postgres(database) => session(&self.base, database.address()),
            Base::Mysql(database) => session(&self.base, database.address()),
        }
    }

    pub(crate) fn metrics(&self) -> Result<Metrics> {
        self.freshet.metrics()
    }

    /// Reads until each of these comes from the cache, and is what the database says.
    pub(crate) fn until_hits(&self, session: &mut Session, reads: &[String]) -> Result<()> {
        let mut direct = self.direct()?;
        for read in reads {
            let expected = direct.rows(read)?;
            eventually(PATIENCE, || {
                let before = self.metrics()?;
                let rows = session.rows(read)?;
                assert_eq!(rows, expected, "{read}");
                let after = self.metrics()?;
                ensure!(after.hits() > before.hits(), "{read} does not hit: {:?}", after.passed_since(&before));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// What all these sessions read is what the database says.
    pub(crate) fn ensure_fresh(&self, sessions: &mut [&mut Session], reads: &[String], after: &str) -> Result<()> {
        let mut direct = self.direct()?;
        for read in reads {
            let expected = direct.rows(read)?;
            for (number, session) in sessions.iter_mut().enumerate() {
                let rows = session.rows(read)?;
                ensure!(rows == expected, "session {number} reads {rows:?}, not {expected:?}, after {after}: {read}");
            }
        }
        Ok(())
    }
}

fn session(base: &Base, address: SocketAddr) -> Result<Session> {
    Ok(match base {
        Base::Postgres(database) => Session::Postgres(support::RawClient::login(address, database.login())?),
        Base::Mysql(database) => Session::Mysql(mysql::RawClient::login(address, database.login())?),
    })
}

/// A server for these tests alone: others make roles, which has the cache flushed.
fn postgres(version: Version) -> Arc<Server> {
    static SERVERS: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];
    SERVERS[version as usize].get_or_init(|| start_postgres(version)).clone()
}

fn of_its_own(which: Which) -> Result<Base> {
    Ok(match which {
        Which::Postgres(version) => Base::Postgres(support::Database::create(start_postgres(version))?),
        Which::Mysql(kind) => Base::Mysql(mysql::Database::create(start_mysqld(kind))?),
    })
}

fn start_postgres(version: Version) -> Arc<Server> {
    version.start(&Settings::default()).expect("the server starts")
}

/// Likewise.
fn mysqld(kind: mysql::Kind) -> Arc<mysql::Server> {
    static SERVERS: [OnceLock<Arc<mysql::Server>>; 2] = [const { OnceLock::new() }; 2];
    SERVERS[kind as usize].get_or_init(|| start_mysqld(kind)).clone()
}

fn start_mysqld(kind: mysql::Kind) -> Arc<mysql::Server> {
    kind.start(&mysql::Kind::settings()).expect("the server starts")
}
