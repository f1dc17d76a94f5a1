//! Sessions that share server connections: what belongs to a connection while no session has it, and how a session gets one.
//!
//! A connection is shared in the state of its login only: the same settings, no object of a session. [`rest_question`] asks the server whether that
//! holds. What the session does with its connection is in [`crate::postgres::session`], in `sharing` and `traces`.

pub(crate) mod cancel;
mod connection;
pub(crate) mod entries;
mod obtain;
pub(crate) mod prepared;
pub(crate) mod rest_question;

pub(crate) use connection::{Facts, Origin, PooledConnection};
pub(crate) use obtain::{Login, NotObtained, Obtained, obtain, obtain_at_once, open_ahead, parameters};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::pool::{Logins, Pools};
use crate::postgres::pooling::cancel::CancelKeys;
use crate::postgres::pooling::entries::Entries;

/// What all sessions of one database that share connections have in common.
#[derive(Debug)]
pub(crate) struct Pooling {
    pub(crate) pools: Arc<Pools<PooledConnection>>,
    pub(crate) logins: Logins<Login>,
    pub(crate) cancel_keys: Arc<CancelKeys>,
    /// The prepared statements of their sessions.
    pub(crate) entries: Arc<Entries>,
    /// A statement has read the state of sequences (`currval`, `lastval`), which is the session's own.
    pub(crate) reads_sequences: AtomicBool,
}

impl Pooling {
    pub(crate) fn new(pools: Arc<Pools<PooledConnection>>) -> Self {
        Self {
            pools,
            logins: Logins::default(),
            cancel_keys: Arc::default(),
            entries: Arc::default(),
            reads_sequences: AtomicBool::new(false),
        }
    }
}
