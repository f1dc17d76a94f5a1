//! Follows a logical replication slot and turns it into committed changes; [`mysql`] does so with a binlog.
//!
//! # The problem
//!
//! A cached result is true as long as every commit that matters to it is known. So the stream must have no gap,
//! and a reader of it must know where "from here on everything is delivered" begins. Naive answers fail:
//!
//! - *Reconnect and go on* loses what was committed in between, unless a slot kept it. A connection with a temporary
//!   slot is an [`Epoch`] of its own: whatever was cached before is void. An epoch with a lasting slot may go on over
//!   several connections; `postgres/slot.rs` says when.
//! - *The slot's start position covers what was committed before* is wrong in both directions: a commit before it
//!   may not be visible yet, and its changes will never be delivered. So a stream stands only once a fresh
//!   snapshot shows everything that the slot's own snapshot shows ([`Snapshot::covers`]).
//! - *Skip what is not understood* may skip a change. Whatever is unknown ends the stream and thus the epoch.
//!
//! The order of calls on the [`Sink`] is `connected`, then `commit` and `advance` in stream order, then
//! `disconnected`, or `suspended` and later `resumed` or `disconnected`; all from one task.
//!
//! [`Snapshot::covers`]: freshet_types::Snapshot::covers

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod control;
mod error;
mod follow;
mod held;
pub mod mysql;
mod postgres;

use std::time::Duration;

use freshet_types::{Commit, Epoch, Lsn};

pub use control::Control;
pub use error::Fault;
pub use postgres::error::SetupError;
pub use postgres::{FollowerConfig, SlotConfig, SlotName, follow, publication_options, triggers};

/// Default of the silence after which a stream counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Who takes the changes. The calls must be short: while one runs, the stream stands.
pub trait Sink: Send + Sync + 'static {
    /// A new stream stands: everything cached under older epochs is void. Every commit that is not visible to
    /// statements sent from now on will be delivered. Returns the new epoch.
    fn connected(&self, identity: &Identity) -> Epoch;
    /// The next commit of the stream.
    fn commit(&self, commit: Commit);
    /// A group of a binlog that ends there was delivered, with what it committed, if anything: MySQL's GTID, or of MariaDB
    /// domain and server (32 bits each) and the sequence number. The position is passed next.
    fn group(&self, gtid: (u128, u64), end: Lsn) {
        let _ = (gtid, end);
    }
    /// The stream passed `lsn`: every commit record that ends there or before was delivered. Called after each commit
    /// with its end, and for keepalives outside a transaction. It may repeat and never goes back within an epoch.
    fn advance(&self, lsn: Lsn);
    /// The connection broke, and the slot keeps its place: fail closed at once. The epoch may go on, or end.
    ///
    /// What was read from the server beyond the last position of [`Self::advance`] must not outlive this call: after a
    /// crash of a backend that part of the log may be gone, and its positions be used again for something else.
    fn suspended(&self, why: &str);
    /// The suspended stream goes on: all commits behind the last position of [`Self::advance`] will be delivered.
    /// False: the epoch has ended meanwhile.
    fn resumed(&self, identity: &Identity, epoch: Epoch) -> bool;
    /// There is no stream: fail closed at once. Called too, without a `connected` before it, when a stream could not be
    /// set up and `why` is new.
    fn disconnected(&self, why: &str);
}

/// Which server, and which run of it, a stream comes from.
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
    /// The database the slot belongs to.
    pub database: String,
}

impl Identity {
    /// What tells one run of one server from all others. A change of the timeline is another run: a server changes it
    /// only while it is a standby, and standbys are not followed.
    fn run(&self) -> (String, String) {
        (self.system_id.clone(), self.postmaster_start.clone())
    }
}
