//! Follows a logical replication slot and turns it into committed changes; [`mysql`] does so with a binlog.
//!
//! # The problem
//!
//! A cached result is valid as long as every commit that affects it is known. So the stream must have no gap, and its reader must know from which
//! point on everything is delivered. Simple answers fail:
//!
//! - *Reconnect and continue* loses commits in between, unless a slot kept them. A connection with a temporary slot is an [`Epoch`] of its own:
//!   everything cached before is invalid. An epoch with a lasting slot may continue over several connections; `postgres/slot.rs` says when.
//! - *The slot's start position covers all earlier commits* is wrong in both directions: a commit before it may not be visible yet, and its changes
//!   will never be delivered. So a stream is established only once a new snapshot shows everything that the slot's own snapshot shows
//!   ([`Snapshot::covers`]).
//! - *Skip what is not understood* may skip a change. Anything unknown ends the stream and thus the epoch.
//!
//! The calls on the [`Sink`] come in this order, all from one task: `connected`, then `commit` and `advance` in stream order, then `disconnected`, or
//! `suspended` and later `resumed` or `disconnected`.
//!
//! [`Snapshot::covers`]: freshet_types::Snapshot::covers

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod control;
mod error;
mod follow;
pub mod mysql;
mod postgres;
mod transaction_changes;

use std::time::Duration;

use freshet_types::{Commit, Epoch, Lsn};

pub use control::Control;
pub use error::Fault;
pub use postgres::error::SetupError;
pub use postgres::{FollowerConfig, SlotConfig, SlotName, follow, publication_options, triggers};

/// Default time without a message after which a stream counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Receives the changes. The calls must be short: the stream waits for each.
pub trait Sink: Send + Sync + 'static {
    /// A new stream is established: everything cached under older epochs is invalid. Every commit that is not visible to statements sent from now on
    /// will be delivered. Returns the new epoch.
    fn connected(&self, identity: &Identity) -> Epoch;
    /// The next commit of the stream.
    fn commit(&self, commit: Commit);
    /// A transaction of a binlog that ends at `end` was delivered, with its commit, if any. `gtid` is MySQL's GTID, or MariaDB's domain and server
    /// (32 bits each) with the sequence number. The position is passed next.
    fn group(&self, gtid: (u128, u64), end: Lsn) {
        let _ = (gtid, end);
    }
    /// PostgreSQL: the stream's slot makes the server keep this many bytes of its log.
    fn retained(&self, bytes: u64) {
        let _ = bytes;
    }
    /// The stream passed `lsn`: every commit record that ends there or before was delivered. Called after each commit
    /// with its end, and for keepalives outside a transaction. It may repeat and never goes back within an epoch.
    fn advance(&self, lsn: Lsn);
    /// The connection broke, and the slot keeps the position: serve nothing from the cache from now on. The epoch may continue or end.
    ///
    /// A position read from the server beyond the last one of [`Self::advance`] must not be used after this call: after a crash of a backend that
    /// part of the log may be lost, and its positions may be used again.
    fn suspended(&self, why: &str);
    /// The suspended stream continues: all commits behind the last position of [`Self::advance`] will be delivered. False: the epoch has ended
    /// meanwhile.
    fn resumed(&self, identity: &Identity, epoch: Epoch) -> bool;
    /// There is no stream: serve nothing from the cache from now on. Also called, without a `connected` before it, when a stream could not be
    /// established and `why` is new.
    fn disconnected(&self, why: &str);
}

/// The server, and its run, that a stream comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `system_identifier` of `pg_control_system()`.
    pub system_id: String,
    /// The timeline, which changes with a failover.
    pub timeline: u32,
    /// The text of `extract(epoch from pg_postmaster_start_time())`.
    pub postmaster_start: String,
    /// `server_version_num`.
    pub server_version_num: u32,
    /// `wal_segment_size` in bytes, for [`Lsn::without_page_header`].
    pub wal_segment_bytes: u64,
    /// The database of the slot.
    pub database: String,
}

impl Identity {
    /// Identifies one run of one server. A change of the timeline counts as another run. A server changes it only while it is a standby, and standbys
    /// are not followed.
    fn run(&self) -> (String, String) {
        (self.system_id.clone(), self.postmaster_start.clone())
    }
}
