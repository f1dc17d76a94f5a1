//! Sessions that share server connections: what belongs to a connection while no session has it, and how a session gets one.
//!
//! A connection is shared without any object of a session. Beside the state of its login it has its label, the settings that sessions have set there
//! ([`labels`]), and names of settings of applications ([`application_settings`]). [`rest_question`] asks the server what lives there. What the session
//! does with its connection is in [`crate::postgres::session`], in `sharing` and `traces`.

pub(crate) mod application_settings;
pub(crate) mod cancel;
mod connection;
pub(crate) mod entries;
pub(crate) mod labels;
pub(crate) mod notifications;
mod obtain;
pub(crate) mod prepared;
pub(crate) mod remembered;
pub(crate) mod replica_choice;
pub(crate) mod replica_read;
pub(crate) mod rest_question;
pub(crate) mod shown;

pub(crate) use connection::{Facts, Origin, PooledConnection, UnderLabels};
pub(crate) use obtain::{Login, NotObtained, Obtained, obtain, obtain_at_once, open_ahead, parameters};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::pool::{Logins, PoolFigures, PoolSettings, Pools};
use crate::postgres::pooling::cancel::CancelKeys;
use crate::postgres::pooling::entries::Entries;
use crate::postgres::pooling::notifications::Listener;
use crate::postgres::pooling::remembered::RememberedLogins;

/// What all sessions of one database that share connections have in common.
#[derive(Debug)]
pub(crate) struct Pooling {
    pub(crate) pools: Arc<Pools<Box<PooledConnection>>>,
    /// Those to each server of the upstream, for reads at replicas; empty if there are none.
    pub(crate) replicas: Vec<Arc<Pools<Box<PooledConnection>>>>,
    pub(crate) logins: Logins<Login>,
    pub(crate) remembered: RememberedLogins,
    pub(crate) cancel_keys: Arc<CancelKeys>,
    /// The prepared statements of their sessions.
    pub(crate) entries: Arc<Entries>,
    /// A statement has read the state of sequences (`currval`, `lastval`), which is the session's own.
    pub(crate) reads_sequences: AtomicBool,
    /// Listens for its sessions.
    pub(crate) listener: Arc<Listener>,
}

impl Pooling {
    /// `servers`: how many servers the upstream has.
    pub(crate) fn new(settings: &PoolSettings, figures: &Arc<PoolFigures>, servers: usize) -> Self {
        let pools = || Arc::new(Pools::new(settings.clone(), figures.clone()));
        let replicas = if settings.may_read_replicas(servers) { servers } else { 0 };
        Self {
            pools: pools(),
            replicas: std::iter::repeat_with(pools).take(replicas).collect(),
            logins: Logins::default(),
            remembered: RememberedLogins::default(),
            cancel_keys: Arc::default(),
            entries: Arc::default(),
            reads_sequences: AtomicBool::new(false),
            listener: Arc::default(),
        }
    }

    /// Whether reads may go to replicas.
    pub(crate) fn reads_replicas(&self) -> bool {
        !self.replicas.is_empty()
    }

    /// Closes the connections to this database, or all: see [`Pools::reconnect`].
    pub(crate) fn reconnect(&self, database: Option<&str>) {
        self.pools.reconnect(database);
        self.replicas.iter().for_each(|pools| pools.reconnect(database));
    }

    /// Closes those to all databases but this one: a session drops one of them, renames it or copies it, for which nobody may be connected there.
    pub(crate) fn leave_others(&self, own: &str) {
        let leave = |pools: &Arc<Pools<Box<PooledConnection>>>| pools.replace(|key| key.database != own);
        leave(&self.pools);
        self.replicas.iter().for_each(leave);
    }

    /// Closes those to this replica.
    pub(crate) fn reconnect_at(&self, server: usize) {
        if let Some(pools) = self.replicas.get(server) {
            pools.reconnect(None);
        }
    }

    /// Whether sessions still have connections from before the last [`Self::reconnect`].
    pub(crate) fn has_earlier(&self, database: Option<&str>) -> bool {
        self.pools.has_earlier(database) || self.replicas.iter().any(|pools| pools.has_earlier(database))
    }
}
