//! The lease, the applied position and the watermark of a session: the state that decides whether a hit is fresh
//! enough.
//!
//! The textbook lease ("the connection is alive") says nothing about what the stream has delivered. Here the lease is
//! a proof: the log end was read at time t, and the stream has passed that position. So the cache reflects everything
//! that was visible at t. This one rule detects lag, broken links, asynchronous commits and a stalled decoder.
//!
//! Reading list: Gray & Cheriton, "Leases" (1989); `docs/internals/protocol.md`, sections 2 and 7.

use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use freshet_types::{CatalogVersion, End, Epoch, Lsn, Nanos, Reason};

use crate::faults::Faults;
use crate::{Cache, Payload};

/// Log-end probes that the stream has not yet passed, oldest first.
pub(crate) type LogEndProbes = VecDeque<(Lsn, Nanos)>;

/// What a session has read: no later answer may be older.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// The log end after the last read, if it is known.
    pub end: Option<End>,
    /// When the last answer from the database arrived; 0 if there was none.
    pub since: Nanos,
    /// When the last statement that may have changed the catalogue was answered; 0 if there was none.
    pub catalog_since: Nanos,
    /// The snapshot of the open REPEATABLE READ transaction, once it has one. It replaces all other fields but
    /// `catalog_since`.
    pub snapshot: Option<SnapshotBounds>,
}

/// What a later query is certain to see.
///
/// A commit that wrote to a table before the table was published is delivered without its rows, and may stay
/// invisible long after the stream has passed its position. So a position proves nothing about tables that were
/// published after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proven {
    /// Everything that was delivered up to this position.
    pub(crate) end: End,
    /// How often tables had been published.
    pub(crate) publications: u64,
    /// The catalogue at that time.
    pub(crate) catalog: Option<CatalogVersion>,
}

/// The bounds of a snapshot that a client's transaction took: it lies between two positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotBounds {
    /// What was proven visible before the snapshot was taken: see [`crate::Cache::proven`].
    pub lo: Proven,
    /// When the first answer that used the snapshot arrived. A log end that is requested later is an upper bound.
    pub since: Nanos,
}

/// The freshness that one look-up works with.
pub(crate) struct Seen {
    pub(crate) epoch: Epoch,
    pub(crate) applied: Lsn,
    pub(crate) catalog_as_of: Nanos,
    /// The stream and the catalogue's lease have passed the watermark.
    pub(crate) watermark_passed: bool,
    /// The catalogue's lease has passed the watermark.
    pub(crate) catalog_passed: bool,
    /// The stream has passed an upper bound of the watermark's snapshot. False without a snapshot.
    pub(crate) snapshot_passed: bool,
}

/// Zero in any of these but D means "none".
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    epoch: AtomicU64,
    applied: AtomicU64,
    stream_as_of: AtomicU64,
    catalog_as_of: AtomicU64,
    /// The latest end of an acknowledged write: no hit before the stream has passed it.
    fence: AtomicU64,
    /// The same for a write of unknown position that was visible at this time.
    fence_since: AtomicU64,
    /// The same for a redefinition that was visible at this time: no hit before a later check of the catalogue.
    catalog_fence: AtomicU64,
    /// D.
    staleness_max: AtomicU64,
}

impl Freshness {
    pub(crate) fn new(staleness_max: Nanos) -> Self {
        Self { staleness_max: staleness_max.into(), ..Self::default() }
    }

    pub(crate) fn staleness_max(&self) -> Nanos {
        self.staleness_max.load(Relaxed)
    }

    pub(crate) fn set_staleness_max(&self, nanos: Nanos) {
        self.staleness_max.store(nanos, Relaxed);
    }

    /// What a look-up may rely on, or why it must bypass. Called before the key is looked up.
    ///
    /// The order of the loads matters. A new epoch first revokes the lease and grants a new one only after the old
    /// entries are removed. So an old epoch that is read here with a new lease finds no entry of that epoch.
    pub(crate) fn read(&self, watermark: &Watermark, now: Nanos, faults: Faults) -> Result<Seen, Reason> {
        let epoch = Epoch(self.epoch.load(SeqCst));
        let applied = Lsn(self.applied.load(SeqCst));
        let stream_as_of = self.stream_as_of.load(SeqCst);
        let catalog_as_of = self.catalog_as_of.load(SeqCst);
        if stream_as_of == 0 || catalog_as_of == 0 {
            return Err(Reason::NoStream);
        }
        if now.saturating_sub(stream_as_of.min(catalog_as_of)) > self.staleness_max() && !faults.ignore_lease {
            return Err(Reason::LeaseExpired);
        }
        if self.is_fenced(applied, stream_as_of, catalog_as_of) && !faults.ignore_fence {
            return Err(Reason::Fence);
        }
        let end_passed = watermark.end.is_some_and(|end| end.epoch == epoch && applied >= end.lsn);
        let catalog_passed = catalog_as_of >= watermark.catalog_since;
        let watermark_passed = catalog_passed && (end_passed || stream_as_of >= watermark.since);
        let snapshot_passed = watermark.snapshot.is_some_and(|snapshot| stream_as_of >= snapshot.since);
        Ok(Seen { epoch, applied, catalog_as_of, watermark_passed, catalog_passed, snapshot_passed })
    }

    fn is_fenced(&self, applied: Lsn, stream_as_of: Nanos, catalog_as_of: Nanos) -> bool {
        applied.0 < self.fence.load(SeqCst)
            || stream_as_of < self.fence_since.load(SeqCst)
            || catalog_as_of < self.catalog_fence.load(SeqCst)
    }

    /// The stream has not passed an acknowledged write, or the catalogue's lease has not passed a redefinition.
    pub(crate) fn has_fence(&self) -> bool {
        self.is_fenced(self.applied(), self.stream_as_of.load(SeqCst), self.catalog_as_of())
    }

    pub(crate) fn catalog_as_of(&self) -> Nanos {
        self.catalog_as_of.load(SeqCst)
    }

    pub(crate) fn fence_catalog(&self, since: Nanos) {
        self.catalog_fence.fetch_max(since, SeqCst);
    }

    pub(crate) fn is_current_as_of(&self, since: Nanos) -> bool {
        self.stream_as_of.load(SeqCst) >= since
    }

    pub(crate) fn current_as_of(&self) -> Nanos {
        self.stream_as_of.load(SeqCst)
    }

    pub(crate) fn applied(&self) -> Lsn {
        Lsn(self.applied.load(SeqCst))
    }

    /// Publishes a position, and renews the lease from the log-end probes that it passes.
    pub(crate) fn advance(&self, lsn: Lsn, probes: &mut LogEndProbes) {
        self.applied.fetch_max(lsn.0, SeqCst);
        let applied = self.applied();
        while let Some((end, asked_at)) = probes.front() {
            if *end > applied {
                break;
            }
            self.stream_as_of.fetch_max((*asked_at).max(1), SeqCst);
            probes.pop_front();
        }
    }

    pub(crate) fn renew_catalog(&self, asked_at: Nanos) {
        self.catalog_as_of.fetch_max(asked_at.max(1), SeqCst);
    }

    pub(crate) fn revoke_catalog(&self) {
        self.catalog_as_of.store(0, SeqCst);
    }

    pub(crate) fn revoke(&self) {
        self.stream_as_of.store(0, SeqCst);
    }

    pub(crate) fn fence(&self, lsn: Lsn) {
        self.fence.fetch_max(lsn.0, SeqCst);
    }

    pub(crate) fn fence_since(&self, since: Nanos) {
        self.fence_since.fetch_max(since, SeqCst);
    }

    pub(crate) fn begin_epoch(&self, epoch: Epoch) {
        self.applied.store(0, SeqCst);
        self.fence.store(0, SeqCst);
        self.epoch.store(epoch.0, SeqCst);
    }

    /// The ages of the two leases: the stream's and the catalogue's.
    pub(crate) fn ages(&self, now: Nanos) -> (Option<Nanos>, Option<Nanos>) {
        let age = |as_of: u64| (as_of != 0).then(|| now.saturating_sub(as_of));
        (age(self.stream_as_of.load(SeqCst)), age(self.catalog_as_of.load(SeqCst)))
    }
}

impl<P: Payload> Cache<P> {
    /// Whether a catalogue of this version shows every redefinition before the last answer of the watermark's
    /// session.
    pub fn reflects(&self, watermark: &Watermark, version: CatalogVersion) -> bool {
        let core = self.core();
        let passed = |end: End| core.epoch() != Some(end.epoch) || self.freshness.applied() >= end.lsn;
        let current = core.catalog() == Some(version) && !core.wants_catalog();
        current && (watermark.end.is_some_and(passed) || self.freshness.is_current_as_of(watermark.since))
    }

    /// A redefinition that was visible at `now` is about to be acknowledged: no result is served before a later check
    /// of the catalogue.
    pub fn fence_catalog(&self, now: Nanos) {
        self.freshness.fence_catalog(now);
    }

    /// When the catalogue was last checked; 0 if never.
    pub fn catalog_as_of(&self) -> Nanos {
        self.freshness.catalog_as_of()
    }
}
