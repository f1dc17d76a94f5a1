//! MySQL and MariaDB: logins, sessions and services, and what only they share.
//!
//! Sessions are straight-line code: the protocol is half-duplex, a command and its answer. Service connections read what an application's account may
//! not read (the log end), so a result is installed a moment after its client has it: see [`ends`].

mod admin;
mod ends;
mod kills;
pub(crate) mod login;
mod proxysql;
mod question;
mod rows;
pub mod service;
pub(crate) mod session;

use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use freshet_net::mysql::Upstream;
use freshet_types::{End, TableNames};

pub use crate::mysql::ends::Ends;
use crate::mysql::kills::Kills;
use crate::mysql::login::Access;
use crate::mysql::service::Redefinitions;
use crate::mysql::session::{PooledLogin, ServerConnection};
use crate::pool::{Logins, Pools};
use crate::server::access::{AccessError, AccessRules, AccessSettings};
use crate::server::sessions::Sessions;
use crate::shared::Shared;

/// The operator's settings for MySQL or MariaDB.
#[derive(Clone, Debug)]
pub struct MySqlSettings {
    /// The upstream, and the account of the service connections.
    pub upstream: Arc<Upstream>,
    /// Access control.
    pub access: AccessSettings,
}

/// The state that all sessions and services of an upstream share, in addition to that of any upstream.
#[derive(Debug)]
pub struct MySql {
    base: Arc<Shared>,
    /// The operator's settings.
    pub own: MySqlSettings,
    /// The ids of the tables, which the change stream uses too.
    pub names: Arc<TableNames>,
    /// Results that wait for a log end.
    pub ends: Ends,
    /// Access control.
    pub(crate) access: Access,
    pub(crate) sessions: Sessions,
    /// The connections that sessions share.
    pub(crate) pools: Arc<Pools<ServerConnection>>,
    /// Of the clients that share them.
    pub(crate) logins: Logins<PooledLogin>,
    /// MariaDB: a session that shares connections has asked for `@@last_gtid`.
    pub(crate) reads_last_gtid: AtomicBool,
    /// The numbers by which clients kill sessions that share connections.
    pub(crate) kills: Kills,
    /// When Freshet was started.
    started: SystemTime,
    /// See [`rows`].
    described_from: Mutex<Option<End>>,
    /// The relations that DDL has named since the catalogue was read.
    redefinitions: Redefinitions,
}

impl Deref for MySql {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.base
    }
}

impl MySql {
    /// Reads the files that the settings name.
    pub fn new(base: Arc<Shared>, own: MySqlSettings, rules: Arc<AccessRules>) -> Result<Self, AccessError> {
        let access = Access::new(&own.access, rules)?;
        let pools = Arc::new(Pools::new(base.settings.pool.clone(), base.pool_figures.clone()));
        Ok(Self {
            own,
            base,
            names: Arc::default(),
            ends: Ends::default(),
            access,
            sessions: Sessions::default(),
            pools,
            logins: Logins::default(),
            reads_last_gtid: AtomicBool::new(false),
            kills: Kills::default(),
            started: SystemTime::now(),
            described_from: Mutex::default(),
            redefinitions: Redefinitions::default(),
        })
    }

    /// Reads certificates and users again. Files that cannot be used are returned, and their previous contents stay in use.
    pub fn reload_access(&self) -> Vec<AccessError> {
        self.access.reload()
    }
}
