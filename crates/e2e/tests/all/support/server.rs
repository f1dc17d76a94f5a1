//! PostgreSQL for the tests: one server of each version for all tests without special needs, and a database for each of these tests.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use freshet_testbed::{Installation, Postgres, Server, Settings};

use super::raw::{Login, RawClient};

/// The versions that everything is tested on: the oldest and the newest that are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V15,
    V18,
}

impl Version {
    fn major(self) -> u32 {
        match self {
            Self::V15 => 15,
            Self::V18 => 18,
        }
    }

    /// A server of its own.
    pub(crate) fn start(self, settings: &Settings) -> Result<Arc<Server>> {
        Ok(Arc::new(self.installation()?.start(settings)?))
    }

    /// The programs.
    pub(crate) fn installation(self) -> Result<Installation> {
        Postgres::find(Some(self.major()))
    }

    /// The server that the tests share. It ends with this process: the testbed watches over it.
    pub(crate) fn shared(self) -> Arc<Server> {
        static SHARED: [OnceLock<Arc<Server>>; 2] = [const { OnceLock::new() }; 2];
        let start = || self.start(&Settings::default()).expect("the shared server starts");
        SHARED[self as usize].get_or_init(start).clone()
    }
}

/// Makes a test of each named function for each version.
macro_rules! on_both {
    (@module $module:ident $version:ident $attribute:tt $($name:ident)*) => {
        mod $module {
            $($crate::support::on_both!(@test $version $attribute $name);)*
        }
    };
    (@test $version:ident [$($attribute:meta)?] $name:ident) => {
        #[test]
        $(#[$attribute])?
        fn $name() -> anyhow::Result<()> {
            super::$name($crate::support::Version::$version)
        }
    };
    ($($name:ident),* $(,)?) => {
        $crate::support::on_both!(@module pg15 V15 [] $($name)*);
        $crate::support::on_both!(@module pg18 V18 [] $($name)*);
    };
}
pub(crate) use on_both;

/// The same for tests that take long and differ little: on the older version only `make test-long` runs them.
macro_rules! on_both_at_length {
    ($($name:ident),* $(,)?) => {
        $crate::support::on_both!(@module pg15 V15 [ignore = "as on pg18; make test-long runs it"] $($name)*);
        $crate::support::on_both!(@module pg18 V18 [] $($name)*);
    };
}
pub(crate) use on_both_at_length;

/// A database on a server, dropped at the end.
pub(crate) struct Database {
    pub(crate) server: Arc<Server>,
    /// Can also be the prefix of names that all databases of a server share, such as those of roles.
    pub(crate) name: String,
}

impl Database {
    /// An empty database.
    pub(crate) fn create(server: Arc<Server>) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let database = Self { server, name };
        database.maintain(&format!("create database {}", database.name))?;
        Ok(database)
    }

    /// An empty database on the shared server.
    pub(crate) fn shared(version: Version) -> Result<Self> {
        Self::create(version.shared())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.server.host()), self.server.port())
    }

    pub(crate) fn url(&self) -> String {
        self.server.url_of(&self.name)
    }

    /// The superuser's login.
    pub(crate) fn login(&self) -> Login<'_> {
        let password = Some(self.server.password());
        Login { user: self.server.superuser(), database: &self.name, password, more: &[] }
    }

    /// Another user's login.
    pub(crate) fn login_as<'a>(&'a self, user: &'a str) -> Login<'a> {
        Login { user, ..self.login() }
    }

    /// A direct connection of the superuser.
    pub(crate) fn connect(&self) -> Result<RawClient> {
        RawClient::login(self.address(), self.login())
    }

    /// Runs statements directly; the first error is returned.
    pub(crate) fn run(&self, sql: &str) -> Result<()> {
        self.connect()?.run(sql)
    }

    fn maintain(&self, sql: &str) -> Result<()> {
        RawClient::login(self.address(), Login { database: "postgres", ..self.login() })?.run(sql)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server may be down, or a replication slot may live a moment longer than its owner: then it stays.
        let _ = self.maintain(&format!("drop database {} with (force)", self.name));
    }
}

/// A connection of a real driver, and the task that drives it.
pub(crate) async fn connect(address: SocketAddr, login: Login<'_>) -> Result<tokio_postgres::Client> {
    let mut config = tokio_postgres::Config::new();
    config.host(address.ip().to_string()).port(address.port()).user(login.user).dbname(login.database);
    if let Some(password) = login.password {
        config.password(password);
    }
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
