//! The deterministic cache engine. It keeps cached results true, and removes results that it cannot keep true.
//!
//! The engine knows no sockets and no SQL text. Time is a parameter, so that a simulator can drive it through every
//! race. `docs/internals/protocol.md` describes the protocol; the model check in `spec/` explores it.
//!
//! # The problem
//!
//! The database computes a result at one moment and the cache installs it at another. Meanwhile commits arrive on the
//! change stream, some *before* any new snapshot of the database shows them. A query that was sent after the delivery
//! of a commit may still have seen the old state, so to invalidate on delivery is not enough. Hence:
//!
//! 1. A fill is registered with its tags *before* its query is sent ([`Cache::begin_fill`]). It copies the matching
//!    *unproven commits*: those that were delivered and are not yet proven visible. Each matching commit that is
//!    delivered later is added. Together they are the fill's *candidates*.
//! 2. The result is installed only if a visibility proof shows every candidate ([`FillPermit::commit`]): a snapshot
//!    read on the same connection before the query. Otherwise the client receives its answer and nothing is cached.
//! 3. Within an epoch, commits leave the unproven set by proof only ([`Cache::prove`]), never by time.
//! 4. Past commits are searched in two cases only: for deferred tags, known after the query has run, and for queries on
//!    an older snapshot. A bounded ring of proven commits serves both. Otherwise candidates are collected on arrival.
//! 5. An entry has a `read_end`, an upper bound on what its query saw. It is served once the stream has passed this.
//! 6. A hit is served only under the *lease*. The stream must have passed a position that was the log end less than D
//!    ago, and the catalogue must have been found unchanged less than D ago.
//!
//! # Access rules
//!
//! 1. Hits touch the atomics of [`Freshness`] and one shard of the store, never the locks of `core` or eviction policy.
//! 2. A hit reads epoch, applied position and lease **before** it looks the key up, in this order.
//! 3. Entries, flights and tags change under the `core` lock only. The effects of a commit on them are complete
//!    before its position is published as applied.
//! 4. An entry is in the store only while its node is in `core`. The node owns the entry's tags.
//! 5. A new epoch voids everything: the lease is revoked, then the entries are removed, then the epoch is published.

pub mod admission;
mod blocks;
mod by_time;
mod catalog;
mod core;
mod discard;
mod entry;
mod eviction_policy;
mod faults;
mod figures;
mod flight;
mod frequency_sketch;
mod freshness;
mod index;
mod intervals;
mod memory_budget;
mod permit;
mod replicas;
mod ring;
mod size_curve;
mod store;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use freshet_types::{CatalogVersion, Commit, End, Epoch, Lsn, Nanos, Reason, TableId, Visible};

use crate::core::Core;
use crate::freshness::Freshness;
use crate::memory_budget::MemoryBudget;
use crate::store::Store;

pub use blocks::block_bytes;
pub use catalog::{CatalogLoad, Redefinition};
pub use entry::{Entry, Keyed, Payload};
pub use faults::Faults;
pub use figures::{Counters, Levels};
pub use flight::FillRequest;
pub use freshness::{Proven, SnapshotBounds, Watermark};
pub use memory_budget::Limits;
pub use permit::{FillPermit, Installed};
pub use size_curve::SizePoint;

/// The result of a look-up.
#[derive(Debug)]
pub enum Lookup<P> {
    /// Serve this entry.
    Hit(Arc<Entry<P>>),
    /// No entry can be served: a fill may begin.
    Miss,
    /// Send the query to the database and do not cache the result.
    Bypass(Reason),
}

/// The cache. `P` is the payload of an entry.
#[derive(Debug)]
pub struct Cache<P: Payload> {
    /// The limits at the start. `budget` and `freshness` have those of now.
    limits: Limits,
    budget: MemoryBudget,
    faults: Faults,
    freshness: Freshness,
    store: Store<P>,
    core: Mutex<Core>,
    counters: Counters,
}

impl<P: Payload> Cache<P> {
    /// An empty cache without a stream: every look-up bypasses it until [`Self::connected`].
    pub fn new(limits: Limits, faults: Faults) -> Self {
        let mut core = Core::default();
        core.set_memory(limits.memory_bytes);
        Self {
            store: Store::new(limits.memory_bytes, limits.keep),
            freshness: Freshness::new(limits.staleness_max),
            core: Mutex::new(core),
            counters: Counters::default(),
            budget: MemoryBudget::new(&limits),
            limits,
            faults,
        }
    }

    /// Looks a key up under the hit rules (section 3 of the protocol) and the watermark of the session.
    pub fn lookup(&self, key: &[u8], watermark: &Watermark, now: Nanos) -> Lookup<P> {
        let seen = match self.freshness.read(watermark, now, self.faults) {
            Ok(seen) => seen,
            Err(reason) => return Lookup::Bypass(reason),
        };
        let Some(entry) = self.store.get(key).filter(|entry| entry.payload.is_served()) else { return Lookup::Miss };
        if !entry.servable(&seen) && !self.faults.ignore_read_end {
            return self.lookup_by_time(entry, seen.epoch, watermark, now);
        }
        if let Some(snapshot) = &watermark.snapshot {
            // The commits that match the entry are then exactly those of the snapshot.
            return if !entry.is_within(&snapshot.lo) && !self.faults.ignore_lo {
                Lookup::Bypass(Reason::Snapshot)
            } else if !(seen.snapshot_passed || self.faults.ignore_hi) || !seen.catalog_passed {
                Lookup::Bypass(Reason::Watermark)
            } else {
                Lookup::Hit(entry)
            };
        }
        // An entry whose query was sent after the session's last answer is at least as new as that answer.
        let newer = entry.started() > watermark.since;
        if seen.watermark_passed || (newer && seen.catalog_passed) || self.faults.ignore_watermark {
            Lookup::Hit(entry)
        } else {
            Lookup::Bypass(Reason::Watermark)
        }
    }

    /// Counts a miss of a key whose result could be cached. Returns about how many misses there were lately.
    pub fn missed(&self, key: &[u8]) -> u8 {
        self.store.missed(key)
    }

    /// Whether a result of this size and database time, whose miss was just counted, is worth what it would replace.
    pub fn would_keep(&self, key: &[u8], bytes: u64, nanos: Nanos) -> bool {
        self.store.would_keep(key, bytes, nanos)
    }

    /// Whether a result of this size fits without an eviction.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.store.has_room(bytes)
    }

    /// Registers a fill before its query is sent. Only one fill of a key is in flight at a time.
    pub fn begin_fill(self: &Arc<Self>, request: FillRequest<'_>) -> Result<FillPermit<P>, Reason> {
        let mut core = self.core();
        if core.flight_count() >= self.limits.flights_max {
            return Err(Reason::TooBusy);
        }
        // A query on an older snapshot may miss what a session has already read: no session may take it for newer.
        let started = if request.snapshot.is_none() { request.now } else { 0 };
        let begun = core.begin_flight(request, self.freshness.applied(), !self.faults.ignore_unproven)?;
        Ok(FillPermit::new(self.clone(), begun, started))
    }

    /// Until when another session may wait for the fill of this key that is in flight, and then look up again. Another
    /// fill could not be installed meanwhile. None if there is no fill, or waiting is not worth it.
    pub fn joinable_until(&self, key: &[u8], now: Nanos) -> Option<Nanos> {
        self.core().joiners(key).map(|(_, until)| until).filter(|until| *until > now)
    }

    /// Wakes the task once the fill of this key has ended; false if there is none.
    pub fn join(&self, key: &[u8], waker: &Waker) -> bool {
        let mut core = self.core();
        let Some((joiners, _)) = core.joiners(key) else { return false };
        if !joiners.iter().any(|joiner| joiner.will_wake(waker)) {
            joiners.push(waker.clone());
        }
        true
    }

    // --- the stream's side, in stream order, one caller ----------------------------------------------------

    /// A new stream is established: voids everything and returns the new epoch.
    pub fn connected(&self) -> Epoch {
        let mut core = self.core();
        self.freshness.revoke();
        self.freshness.revoke_catalog();
        if let (Some(epoch), true) = (core.epoch(), self.faults.skip_flush) {
            core.set_suspended(false);
            return epoch;
        }
        self.flush(&mut core);
        let epoch = core.begin_epoch();
        self.freshness.begin_epoch(epoch);
        epoch
    }

    /// The stream broke, but the slot keeps its position. Nothing is served until the stream continues
    /// ([`Self::resumed`]) and has caught up. Cached entries and unproven commits stay.
    ///
    /// The server may have crashed and lost unflushed log. It then writes the positions beyond the last delivered commit
    /// again, with other content. Entries that were read beyond that commit are removed, and all fills in flight fail.
    pub fn suspended(&self) {
        let mut core = self.core();
        self.freshness.revoke();
        core.set_suspended(true);
        core.fail_flights();
        let applied = self.freshness.applied();
        self.drop_where(&mut core, |entry| entry.read_end() > applied);
    }

    /// The stream of this epoch continues where it broke: it delivers every commit after the applied position. False
    /// if the epoch has ended; a new stream must then begin with [`Self::connected`].
    pub fn resumed(&self, epoch: Epoch) -> bool {
        let mut core = self.core();
        let same = core.epoch() == Some(epoch) && core.is_suspended();
        if same {
            core.set_suspended(false);
        }
        same
    }

    /// The position up to which a slot may be confirmed. A new process that starts there knows no unproven commits, so the server must deliver them again.
    pub fn confirmable(&self) -> Option<Lsn> {
        let core = self.core();
        core.epoch().map(|_| core.before_pending().unwrap_or_else(|| self.freshness.applied()))
    }

    /// The stream has ended or delivered something unknown: fails closed at once.
    pub fn disconnected(&self) {
        if self.faults.skip_flush {
            return self.suspended();
        }
        self.fail_closed(&mut self.core());
    }

    /// A commit was delivered. It invalidates the entries that it touches and becomes a candidate of the fills that it races with; then its position is
    /// published. Returns the invalidated entries that are [`Payload::worth_refreshing`]. If too many commits await proof or a catalogue, the epoch ends, bounding memory.
    pub fn apply(&self, commit: Commit) -> Vec<Keyed<P>> {
        let mut hot = Vec::new();
        let mut core = self.core();
        if core.epoch().is_none() {
            return hot;
        }
        self.counters.commits.fetch_add(1, Relaxed);
        let end = commit.end;
        if !(commit.redefines && self.faults.ignore_redefinitions) {
            let counter = if commit.redefines { &self.counters.flushed } else { &self.counters.invalidated };
            let tables = std::cell::OnceCell::new(); // once for all entries: a commit may have thousands of rows
            for id in core.touched(&commit) {
                if let Some(key) = core.invalidate_or_taint(id, &commit, self.faults) {
                    counter.fetch_add(1, Relaxed);
                    let tables = tables.get_or_init(|| commit.tables());
                    let removed = self.store.remove(&key).inspect(|(_, entry)| entry.payload.invalidated(tables));
                    hot.extend(removed.filter(|(_, entry)| entry.payload.worth_refreshing()));
                }
            }
            core.remember_pending(commit, self.freshness.applied());
        }
        if core.is_hopeless() {
            self.fail_closed(&mut core);
            return hot;
        }
        self.freshness.advance(end, core.probes());
        hot
    }

    /// The stream passed `lsn` without a commit that matters.
    pub fn advance(&self, lsn: Lsn) {
        let mut core = self.core();
        self.freshness.advance(lsn, core.probes());
    }

    // --- proofs --------------------------------------------------------------------------------------------

    /// A snapshot of the primary: the commits that it shows are no longer unproven.
    pub fn prove(&self, epoch: Epoch, visible: &Visible) {
        let mut core = self.core();
        if core.epoch() == Some(epoch) {
            core.prove(visible);
        }
    }

    /// Whether any commit waits for a proof.
    pub fn has_pending(&self) -> bool {
        self.core().pending_count() > 0
    }

    /// Offers a log-end probe: `end` was read from the primary by a request sent at `asked_at`. Once the stream has
    /// passed `end`, the lease is renewed to `asked_at`.
    pub fn offer_log_end(&self, end: End, asked_at: Nanos) {
        let mut core = self.core();
        if core.epoch() == Some(end.epoch) && !core.is_suspended() {
            core.push_probe(end.lsn, asked_at);
            let applied = self.freshness.applied();
            self.freshness.advance(applied, core.probes());
        }
    }

    /// What is proven visible to any later query; None without a stream. It is the lower bound of a snapshot.
    pub fn proven(&self) -> Option<Proven> {
        let core = self.core();
        let epoch = core.epoch()?;
        let lsn = core.before_pending().unwrap_or_else(|| self.freshness.applied());
        Some(Proven { end: End { epoch, lsn }, publications: core.publications(), catalog: core.catalog() })
    }

    // --- fences --------------------------------------------------------------------------------------------

    /// A write that ended before `end` is about to be acknowledged before the stream has delivered it. No result over
    /// `tables` (None: over any table) is served before the stream has passed `end`.
    pub fn fence(&self, tables: Option<&[TableId]>, end: End) {
        let mut core = self.core();
        if core.epoch() != Some(end.epoch) {
            return; // what was read before the epoch is void, and what is read in it sees the write
        }
        let Some(tables) = tables else { return self.freshness.fence(end.lsn) };
        for key in core.fence(tables, end.lsn) {
            if let Some(entry) = self.store.peek(&key) {
                entry.fence(end.lsn);
            }
        }
    }

    /// Like [`Self::fence`] over all tables, for a write of unknown position that was visible at `now`.
    pub fn fence_since(&self, now: Nanos) {
        self.freshness.fence_since(now);
    }

    /// Whether the commit wait of a write can be skipped. The write may have touched only `tables`, according to this
    /// catalogue. Must be called after the database has answered the write, so that every query sent later sees it.
    ///
    /// Once the write is acknowledged, no look-up may find an entry that misses it. There are two kinds of entries:
    ///
    /// * The `read_end` of the entry was read after the write's commit. The entry is served only once the stream has
    ///   passed that position. By then the stream has delivered the write, which invalidates the entry.
    /// * The `read_end` was read before. At that moment the fill was in flight, so it is now an entry or still a
    ///   flight. Its tags, deferred ones included, would be on one of the tables.
    ///
    /// Retained keys have their tags in the index as well. So if the index has no tags on the tables, the write has
    /// nothing to wait for. This holds for every snapshot that a fill reads: `read_end` is read at the end of the
    /// block.
    ///
    /// The catalogue determines which tables a write touches. A redefinition that is not yet loaded may change them (a
    /// new trigger). While a fence is up, the stream is late, and an acknowledged write may have been a redefinition.
    pub fn is_free_of(&self, tables: &[TableId], catalog: CatalogVersion) -> bool {
        self.core().is_free_of(tables, catalog) && !self.freshness.has_fence()
    }

    /// The stream has passed this position, or belongs to another epoch, or there is no stream.
    pub fn has_passed(&self, end: End) -> bool {
        let core = self.core();
        core.epoch() != Some(end.epoch) || self.freshness.applied() >= end.lsn
    }

    /// The position that the stream has passed.
    pub fn applied(&self) -> Lsn {
        self.freshness.applied()
    }

    /// When the latest log-end probe that the stream has passed was sent; 0 if there is none.
    pub fn current_as_of(&self) -> Nanos {
        self.freshness.current_as_of()
    }

    /// The stream has passed a log end that was requested at `since` or later, or there is no stream.
    pub fn is_current_as_of(&self, since: Nanos) -> bool {
        self.freshness.is_current_as_of(since) || self.epoch().is_none()
    }

    /// When the oldest log-end probe that the stream has not yet passed was sent.
    pub fn oldest_probe(&self) -> Option<Nanos> {
        self.core().probes().front().map(|(_, asked_at)| *asked_at)
    }

    /// The current epoch; None without a stream.
    pub fn epoch(&self) -> Option<Epoch> {
        self.core().epoch()
    }

    // --- the publication -----------------------------------------------------------------------------------

    /// The stream is known to deliver all changes of these tables that any later snapshot may miss.
    pub fn publish(&self, epoch: Epoch, tables: &[TableId]) {
        let mut core = self.core();
        if core.epoch() == Some(epoch) {
            core.publish(tables);
        }
    }

    /// The publication no longer contains these tables.
    pub fn unpublish(&self, tables: &[TableId]) {
        let mut core = self.core();
        let keys = core.unpublish(tables);
        self.drop_flushed(keys);
    }

    /// Whether the table is published.
    pub fn is_published(&self, table: TableId) -> bool {
        self.core().is_published(table)
    }

    /// The entry of the key, whether it may be served or not.
    pub fn peek(&self, key: &[u8]) -> Option<Arc<Entry<P>>> {
        self.store.peek(key)
    }

    /// Whether the entry is still installed.
    pub fn is_kept(&self, entry: &Entry<P>) -> bool {
        self.core().is_entry(entry.id())
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
        let keys = core.flush();
        self.drop_flushed(keys);
    }

    fn drop_flushed(&self, keys: Vec<Arc<[u8]>>) {
        for key in keys {
            self.store.remove(&key);
            self.counters.flushed.fetch_add(1, Relaxed);
        }
    }
}
