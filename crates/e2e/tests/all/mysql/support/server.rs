//! MariaDB and MySQL for the tests: one server of each kind for all tests without special needs, and a database for each of these tests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use freshet_testbed::{Mariadb, Mysql, MysqlSettings, Mysqld};

use super::handshake::UTF8MB4;
use super::packets::capability;
use super::{Login, RawClient};

/// The servers that everything is tested on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mariadb,
    Mysql,
}

/// A server of either kind.
#[derive(Debug)]
pub(crate) enum Server {
    Mariadb(Mariadb),
    Mysql(Mysql),
}

impl Deref for Server {
    type Target = Mysqld;

    fn deref(&self) -> &Mysqld {
        match self {
            Self::Mariadb(server) => server,
            Self::Mysql(server) => server,
        }
    }
}

impl Kind {
    /// Settings with which Freshet can follow the server, and packets of 64 MiB.
    pub(crate) fn settings() -> MysqlSettings {
        MysqlSettings::default().with_binlog().with("max-allowed-packet = 64M")
    }

    /// A server of its own.
    pub(crate) fn start(self, settings: &MysqlSettings) -> Result<Arc<Server>> {
        Ok(Arc::new(match self {
            Self::Mariadb => Server::Mariadb(Mariadb::start(settings)?),
            Self::Mysql => Server::Mysql(Mysql::start(settings)?),
        }))
    }

    /// The server that the tests share. It ends with this process: the testbed watches over it.
    pub(crate) fn shared(self) -> Arc<Server> {
        static SHARED: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];
        let start = || self.start(&Self::settings()).expect("the shared server starts");
        SHARED[self as usize].get_or_init(start).clone()
    }
}

/// Makes a test of each named function for each kind of server.
macro_rules! on_both {
    (@module $module:ident $kind:ident $attribute:tt $($name:ident)*) => {
        mod $module {
            $($crate::mysql::support::on_both!(@test $kind $attribute $name);)*
        }
    };
    (@test $kind:ident [$($attribute:meta)?] $name:ident) => {
        #[test]
        $(#[$attribute])?
        fn $name() -> anyhow::Result<()> {
            super::$name($crate::mysql::support::Kind::$kind)
        }
    };
    ($($name:ident),* $(,)?) => {
        $crate::mysql::support::on_both!(@module mariadb Mariadb [] $($name)*);
        $crate::mysql::support::on_both!(@module mysql Mysql [] $($name)*);
    };
}
pub(crate) use on_both;

/// The same for tests that take long and differ little: on MariaDB only `make test-long` runs them.
macro_rules! on_both_at_length {
    ($($name:ident),* $(,)?) => {
        $crate::mysql::support::on_both!(@module mariadb Mariadb [ignore = "as on mysql; make test-long runs it"] $($name)*);
        $crate::mysql::support::on_both!(@module mysql Mysql [] $($name)*);
    };
}
pub(crate) use on_both_at_length;

/// A database on a server, dropped at the end.
pub(crate) struct Database {
    pub(crate) server: Arc<Server>,
    /// Can also be the prefix of names that all databases of a server share, such as those of accounts.
    pub(crate) name: String,
}

impl Database {
    /// An empty database.
    pub(crate) fn create(server: Arc<Server>) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let database = Self { server, name };
        database.maintain(&format!("CREATE DATABASE {}", database.name))?;
        Ok(database)
    }

    /// An empty database on the shared server.
    pub(crate) fn shared(kind: Kind) -> Result<Self> {
        Self::create(kind.shared())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn url(&self) -> String {
        self.server.url_of(&self.name)
    }

    /// The login of the account with all privileges, with the capabilities of current drivers.
    pub(crate) fn login(&self) -> Login<'_> {
        Login {
            user: self.server.superuser(),
            password: self.server.password(),
            database: Some(&self.name),
            capabilities: capability::MODERN,
            plugin: "mysql_native_password",
            collation: UTF8MB4,
            attributes: &[("_client_name", "raw")],
        }
    }

    /// A direct connection.
    pub(crate) fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.address(), self.login())
    }

    /// Runs statements directly; the first error is returned.
    pub(crate) fn run(&self, sql: &str) -> Result<()> {
        self.connect()?.run(sql)
    }

    fn maintain(&self, sql: &str) -> Result<()> {
        RawClient::login(self.address(), Login { database: None, ..self.login() })?.run(sql)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server may be down: then it stays.
        let _ = self.maintain(&format!("DROP DATABASE {}", self.name));
    }
}
