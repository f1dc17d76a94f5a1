//! MySQL and MariaDB: logins, sessions and services, and what only they share.
//!
//! Sessions are straight-line code: the protocol is half-duplex, a command and its answer. What an application's account
//! may not read (the end of the binlog) is read on service connections, so a result is installed a moment after its client
//! has it: see [`ends`].

mod admin;
mod ends;
pub(crate) mod login;
mod question;
mod rows;
pub mod service;
pub(crate) mod session;

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use freshet_net::mysql::Upstream;
use freshet_types::{End, TableNames};

pub use crate::mysql::ends::Ends;
use crate::mysql::login::Access;
use crate::mysql::service::Redefinitions;
use crate::server::access::{AccessError, AccessSettings};
use crate::shared::Shared;

/// What the operator chose for MySQL or MariaDB.
#[derive(Clone, Debug)]
pub struct MySqlSettings {
    /// The upstream, and the account of the service connections.
    pub upstream: Arc<Upstream>,
    /// Who is let in.
    pub access: AccessSettings,
}

/// What all sessions and services of an upstream share, on top of what any upstream's do.
#[derive(Debug)]
pub struct MySql {
    base: Arc<Shared>,
    /// What the operator chose.
    pub own: MySqlSettings,
    /// The numbers of the tables, which the change stream uses too.
    pub names: Arc<TableNames>,
    /// What waits for a log end.
    pub ends: Ends,
    /// Who is let in.
    pub(crate) access: Access,
    /// See [`rows`].
    described_from: Mutex<Option<End>>,
    /// What DDL has named since the catalogue was read.
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
    pub fn new(base: Arc<Shared>, own: MySqlSettings) -> Result<Self, AccessError> {
        let access = Access::new(&own.access)?;
        Ok(Self {
            own,
            base,
            names: Arc::default(),
            ends: Ends::default(),
            access,
            described_from: Mutex::default(),
            redefinitions: Redefinitions::default(),
        })
    }

    /// Reads certificates and users again. What cannot be used is returned, and stays as it was.
    pub fn reload_access(&self) -> Vec<AccessError> {
        self.access.reload()
    }
}
