//! The deterministic cache engine: it keeps results true, or does not keep them.
//!
//! It knows no sockets, no SQL text and has no clock of its own (time is a parameter), so that a simulator can
//! drive it through every race. The protocol is `docs/PROTOCOL.md`; the model check in `model/` explores it.
//!
//! # The problem
//!
//! A result is read from the database at one moment and installed at another, while commits arrive on the
//! change stream in their own time, some of them *before* any new snapshot of the database shows them. So
//! "evict what a delivered commit touches" is not enough: a query that was sent after the delivery may still
//! have seen the old state. Hence:
//!
//! 1. A fill is registered with its tags *before* its query is sent ([`Cache::begin_fill`]). It takes a copy of
//!    the matching commits that are PENDING (delivered, not yet proven visible), and each matching commit
//!    delivered afterwards is added. All these are its *candidates*.
//! 2. It is installed only if a snapshot read on the same connection before the query proves every candidate
//!    visible ([`FillPermit::commit`]). Otherwise the client has its answer, and nothing is kept.
//! 3. PENDING shrinks by proof only ([`Cache::prove`]), never by time. Since all tags are known before the query
//!    is sent, candidates are collected as they come; no ring of past commits is searched afterwards.
//! 4. An entry remembers `read_end`, an upper bound on what its query saw, and is served only once the stream
//!    has passed it.
//! 5. A hit is served only under the *lease*: the stream has passed a position that was the end of the log less
//!    than D ago, and the catalogue was found unchanged less than D ago.
//!
//! # Access rules
//!
//! 1. Hits touch the atomics of [`Freshness`] and one shard of the store; they never take the `core` lock.
//! 2. A hit reads epoch, applied position and lease **before** it looks the key up, in this order.
//! 3. All else happens under the `core` lock: what a commit does to entries and flights is complete before
//!    its position is published as applied.
//! 4. An entry is in the store only while its node is in `core`; the node owns the entry's tags.
//! 5. A new epoch voids everything: first the lease is taken away, then the entries go, then the epoch is published.

mod core;
mod freshness;
mod index;
mod store;

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use freshet_model::{CatalogVersion, Commit, End, Epoch, Lsn, Nanos, Reason, TableId, Tag, Visible};

use crate::core::{Core, Id};
use crate::freshness::Freshness;
use crate::store::Store;

pub use freshness::Floor;
pub use store::{Entry, Keyed, Payload};

/// How large and how old things may become.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of all entries with their keys and tags.
    pub memory_bytes: u64,
    /// Bytes of one entry.
    pub entry_bytes_max: u64,
    /// D: a hit is served only while the stream is proven younger than this.
    pub staleness_max: Nanos,
    /// Fills in flight at once.
    pub flights_max: usize,
}

impl Limits {
    /// The defaults for a memory bound.
    pub fn with_memory(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            entry_bytes_max: (memory_bytes / 256).clamp(16 << 10, 4 << 20),
            staleness_max: 1_000_000_000,
            flights_max: 128,
        }
    }
}

/// Switches that break the protocol, so that tests can show that they would notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Fills take no copy of PENDING.
    pub ignore_pending: bool,
    /// Entries are served before the stream has passed the position they were read at.
    pub ignore_read_end: bool,
}

/// What a look-up found.
#[derive(Debug)]
pub enum Lookup<P> {
    /// Serve this.
    Hit(Arc<Entry<P>>),
    /// Nothing there: a fill may be begun.
    Miss,
    /// Go to the database and keep nothing.
    Bypass(Reason),
}

/// What became of a fill's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is kept.
    Stored,
    /// A commit that matters is not proven to be in it, or the ground under it changed.
    Stale,
    /// It is larger than an entry may be, or the store refused it.
    TooLarge,
}

/// Counters since the start; all monotonic.
#[derive(Debug, Default)]
pub struct Counters {
    /// Results kept.
    pub installed: AtomicU64,
    /// Results not kept because a commit raced with them.
    pub stale_fills: AtomicU64,
    /// Entries removed because a commit touched them.
    pub evicted_by_change: AtomicU64,
    /// Entries removed to make room.
    pub evicted_by_size: AtomicU64,
    /// Entries removed with a new epoch, a changed catalogue or a changed publication.
    pub flushed: AtomicU64,
    /// Commits delivered by the stream.
    pub commits: AtomicU64,
}

/// What is held now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Entries.
    pub entries: u64,
    /// Their bytes, keys and tags included.
    pub bytes: u64,
    /// Commits delivered and not yet proven visible.
    pub pending: usize,
    /// Fills in flight.
    pub flights: usize,
    /// The position the stream has passed, if there is a stream.
    pub applied: Option<End>,
    /// Age of the proof that the stream is current; None without one.
    pub stream_age: Option<Nanos>,
    /// Age of the last look at the catalogue; None without one.
    pub catalog_age: Option<Nanos>,
    /// Tables whose changes are known to be delivered.
    pub covered: usize,
}

/// The cache. `P` is what an entry holds for its reader.
#[derive(Debug)]
pub struct Cache<P: Payload> {
    limits: Limits,
    faults: Faults,
    freshness: Freshness,
    store: Store<P>,
    core: Mutex<Core>,
    counters: Counters,
}

impl<P: Payload> Cache<P> {
    /// An empty cache without a stream: everything bypasses until [`Self::connected`].
    pub fn new(limits: Limits, faults: Faults) -> Self {
        Self {
            store: Store::new(limits.memory_bytes),
            freshness: Freshness::default(),
            core: Mutex::new(Core::default()),
            counters: Counters::default(),
            limits,
            faults,
        }
    }

    /// Looks a key up under the rules of section 3 and the floor of the session.
    pub fn lookup(&self, key: &[u8], floor: &Floor, now: Nanos) -> Lookup<P> {
        let seen = match self.freshness.read(floor, now, self.limits.staleness_max) {
            Ok(seen) => seen,
            Err(reason) => return Lookup::Bypass(reason),
        };
        match self.store.get(key) {
            None => Lookup::Miss,
            Some(entry) if entry.servable(seen.epoch, seen.applied) || self.faults.ignore_read_end => {
                // An entry whose query was sent after the session's last answer is at least as new as that answer.
                let newer = entry.started() > floor.since;
                if seen.floor_passed || (newer && seen.catalog_passed) {
                    Lookup::Hit(entry)
                } else {
                    Lookup::Bypass(Reason::Floor)
                }
            }
            Some(_) => Lookup::Bypass(Reason::NotYetApplied),
        }
    }

    /// Registers a fill, before its query is sent. Only one fill of a key is in flight at a time.
    ///
    /// `catalog` is the version that the tags were derived from. The query is sent at `now` or later: sessions whose
    /// last answer is older may hit the entry at once.
    pub fn begin_fill(
        self: &Arc<Self>,
        key: &[u8],
        tags: Vec<Tag>,
        catalog: CatalogVersion,
        now: Nanos,
    ) -> Result<FillPermit<P>, Reason> {
        let mut core = self.core();
        if core.flight_count() >= self.limits.flights_max {
            return Err(Reason::TooBusy);
        }
        let (id, epoch) = core.begin_flight(key, tags, catalog, !self.faults.ignore_pending)?;
        Ok(FillPermit { cache: self.clone(), id, epoch, started: now, ended: false })
    }

    // --- the stream's side, in stream order, one caller ----------------------------------------------------

    /// A new stream stands: voids everything and returns the new epoch.
    pub fn connected(&self) -> Epoch {
        let mut core = self.core();
        self.freshness.revoke();
        self.flush(&mut core);
        let epoch = core.begin_epoch();
        self.freshness.begin_epoch(epoch);
        epoch
    }

    /// The stream is gone or said something unknown: fails closed at once.
    pub fn disconnected(&self) {
        self.fail_closed(&mut self.core());
    }

    /// A commit was delivered: evicts what it touches, taints the fills that it races with, and publishes its position.
    ///
    /// If so many commits wait for proof that memory is at stake, the epoch ends as if the stream were gone.
    pub fn apply(&self, commit: Commit) {
        let mut core = self.core();
        if core.epoch().is_none() {
            return;
        }
        self.counters.commits.fetch_add(1, Relaxed);
        let end = commit.end;
        for id in core.touched(&commit) {
            if let Some(key) = core.evict_or_taint(id, commit.xid) {
                self.store.remove(&key);
                self.counters.evicted_by_change.fetch_add(1, Relaxed);
            }
        }
        core.remember_pending(commit);
        if core.pending_is_hopeless() {
            self.fail_closed(&mut core);
            return;
        }
        self.freshness.advance(end, core.readings());
    }

    /// The stream passed `lsn` without a commit that matters.
    pub fn advance(&self, lsn: Lsn) {
        let mut core = self.core();
        self.freshness.advance(lsn, core.readings());
    }

    // --- proofs --------------------------------------------------------------------------------------------

    /// A snapshot of the primary: what it shows is pending no longer.
    pub fn prove(&self, epoch: Epoch, visible: &Visible) {
        let mut core = self.core();
        if core.epoch() == Some(epoch) {
            core.prove(visible);
        }
    }

    /// Whether a commit waits for proof.
    pub fn has_pending(&self) -> bool {
        self.core().pending_count() > 0
    }

    /// The lease: `end` was read from the primary by a request sent at `asked_at`. The lease is renewed to that
    /// moment once the stream has passed the position.
    pub fn offer_reading(&self, end: End, asked_at: Nanos) {
        let mut core = self.core();
        if core.epoch() == Some(end.epoch) {
            core.push_reading(end.lsn, asked_at);
            let applied = self.freshness.applied();
            self.freshness.advance(applied, core.readings());
        }
    }

    /// When the oldest reading that the stream has not yet passed was asked for.
    pub fn oldest_reading(&self) -> Option<Nanos> {
        self.core().readings().front().map(|(_, asked_at)| *asked_at)
    }

    /// The current epoch; None without a stream.
    pub fn epoch(&self) -> Option<Epoch> {
        self.core().epoch()
    }

    // --- the catalogue and coverage ------------------------------------------------------------------------

    /// The catalogue was found unchanged by a request sent at `asked_at`.
    pub fn catalog_unchanged(&self, version: CatalogVersion, asked_at: Nanos) {
        let core = self.core();
        if core.catalog() == Some(version) {
            self.freshness.renew_catalog(asked_at);
        }
    }

    /// The catalogue changed in an unknown way: a commit that matches everything. No fill starts until
    /// [`Self::catalog_loaded`].
    pub fn catalog_changed(&self) {
        let mut core = self.core();
        self.freshness.revoke_catalog();
        core.set_catalog(None);
        self.flush(&mut core);
    }

    /// A catalogue was loaded by a request sent at `asked_at`.
    pub fn catalog_loaded(&self, version: CatalogVersion, asked_at: Nanos) {
        let mut core = self.core();
        self.flush(&mut core);
        core.set_catalog(Some(version));
        self.freshness.renew_catalog(asked_at);
    }

    /// Every later snapshot's changes of these tables are known to be delivered.
    pub fn cover(&self, epoch: Epoch, tables: &[TableId]) {
        let mut core = self.core();
        if core.epoch() == Some(epoch) {
            core.cover(tables);
        }
    }

    /// The publication no longer holds these tables.
    pub fn uncover(&self, tables: &[TableId]) {
        let mut core = self.core();
        for key in core.uncover(tables) {
            self.store.remove(&key);
            self.counters.flushed.fetch_add(1, Relaxed);
        }
    }

    /// Whether the table is covered.
    pub fn is_covered(&self, table: TableId) -> bool {
        self.core().is_covered(table)
    }

    // --- figures -------------------------------------------------------------------------------------------

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is held now.
    pub fn levels(&self, now: Nanos) -> Levels {
        let core = self.core();
        let (stream_age, catalog_age) = self.freshness.ages(now);
        Levels {
            entries: self.store.len(),
            bytes: self.store.bytes(),
            pending: core.pending_count(),
            flights: core.flight_count(),
            applied: core.epoch().map(|epoch| End { epoch, lsn: self.freshness.applied() }),
            stream_age,
            catalog_age,
            covered: core.covered_count(),
        }
    }

    /// The limits it was made with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// All entries, for tests: key and entry.
    pub fn entries(&self) -> Vec<Keyed<P>> {
        let _core = self.core();
        self.store.entries()
    }

    /// Panics unless every access rule that can be checked holds; for tests.
    ///
    /// # Panics
    /// If a structure contradicts another.
    pub fn validate(&self) {
        let core = self.core();
        core.validate();
        let entries = self.store.entries();
        assert_eq!(entries.len(), core.entry_count(), "every entry has its node, every node its entry");
        for (key, entry) in entries {
            core.validate_entry(entry.id(), &key);
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail_closed(&self, core: &mut Core) {
        self.freshness.revoke();
        self.flush(core);
        core.end_epoch();
    }

    fn flush(&self, core: &mut Core) {
        for key in core.flush() {
            self.store.remove(&key);
            self.counters.flushed.fetch_add(1, Relaxed);
        }
    }
}

/// The right to install one result. Dropping it abandons the fill.
#[derive(Debug)]
pub struct FillPermit<P: Payload> {
    cache: Arc<Cache<P>>,
    id: Id,
    epoch: Epoch,
    started: Nanos,
    ended: bool,
}

impl<P: Payload> FillPermit<P> {
    /// Installs `payload` if `proof`, read on the same connection before the query was sent, shows every candidate.
    /// `read_end` was read on it after the query's result.
    pub fn commit(mut self, payload: P, proof: &Visible, read_end: Lsn) -> Installed {
        self.ended = true;
        let cache = &self.cache;
        let mut core = cache.core();
        let Some(flight) = core.end_flight(self.id, proof, self.epoch) else {
            cache.counters.stale_fills.fetch_add(1, Relaxed);
            return Installed::Stale;
        };
        let entry = Entry::new(
            payload,
            &flight,
            store::Origin { id: self.id, epoch: self.epoch, read_end, started: self.started },
        );
        if entry.weight() > cache.limits.entry_bytes_max {
            core.forget(self.id);
            return Installed::TooLarge;
        }
        let out = cache.store.insert(flight.key, Arc::new(entry));
        let mut outcome = Installed::Stored;
        for id in out {
            core.forget(id);
            if id == self.id {
                outcome = Installed::TooLarge;
            } else {
                cache.counters.evicted_by_size.fetch_add(1, Relaxed);
            }
        }
        if outcome == Installed::Stored {
            cache.counters.installed.fetch_add(1, Relaxed);
        }
        outcome
    }
}

impl<P: Payload> Drop for FillPermit<P> {
    fn drop(&mut self) {
        if !self.ended {
            self.cache.core().abandon(self.id);
        }
    }
}
