//! The deterministic cache engine: it keeps results true, or does not keep them.
//!
//! It knows no sockets, no SQL text and has no clock of its own (time is a parameter), so that a simulator can
//! drive it through every race. The protocol is `docs/internals/protocol.md`; the model check in `spec/` explores it.
//!
//! # The problem
//!
//! A result is read from the database at one moment and installed at another, while commits arrive on the
//! change stream in their own time, some of them *before* any new snapshot of the database shows them. So
//! "invalidate what a delivered commit touches" is not enough: a query that was sent after the delivery may still
//! have seen the old state. Hence:
//!
//! 1. A fill is registered with its tags *before* its query is sent ([`Cache::begin_fill`]). It takes a copy of
//!    the matching commits that are PENDING (delivered, not yet proven visible), and each matching commit
//!    delivered afterwards is added. All these are its *candidates*.
//! 2. It is installed only if a snapshot read on the same connection before the query proves every candidate
//!    visible ([`FillPermit::commit`]). Otherwise the client has its answer, and nothing is cached.
//! 3. PENDING shrinks by proof only ([`Cache::prove`]), never by time. For tags that are known before the query is
//!    sent candidates are collected as they come; for tags that are told later a ring of past commits is searched.
//! 4. An entry remembers `read_end`, an upper bound on what its query saw, and is served only once the stream
//!    has passed it.
//! 5. A hit is served only under the *lease*: the stream has passed a position that was the log end less
//!    than D ago, and the catalogue was found unchanged less than D ago.
//!
//! # Access rules
//!
//! 1. Hits touch the atomics of [`Freshness`] and one shard of the store; they never take the `core` lock, nor that of the eviction policy.
//! 2. A hit reads epoch, applied position and lease **before** it looks the key up, in this order.
//! 3. All else happens under the `core` lock: what a commit does to entries and flights is complete before
//!    its position is published as applied.
//! 4. An entry is in the store only while its node is in `core`; the node owns the entry's tags.
//! 5. A new epoch voids everything: first the lease is taken away, then the entries go, then the epoch is published.

pub mod admission;
mod blocks;
mod core;
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
mod ring;
mod store;

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::task::Waker;

use freshet_types::{CatalogVersion, Commit, End, Epoch, Lsn, Nanos, Reason, TableId, Visible};

use crate::core::Core;
use crate::freshness::Freshness;
use crate::memory_budget::MemoryBudget;
use crate::store::Store;

pub use blocks::block_bytes;
pub use entry::{Entry, Keyed, Payload};
pub use faults::Faults;
pub use figures::{Counters, Levels};
pub use flight::FillRequest;
pub use freshness::{Proven, SnapshotBounds, Watermark};
pub use memory_budget::Limits;
pub use permit::{FillPermit, Installed};

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

/// What a newly loaded catalogue says otherwise than the one before.
#[derive(Clone, Copy, Debug)]
pub enum Redefinition<'a> {
    /// Perhaps everything.
    Everything,
    /// These relations, and nothing that any other depends on.
    Tables(&'a [TableId]),
}

/// The cache. `P` is what an entry holds for its reader.
#[derive(Debug)]
pub struct Cache<P: Payload> {
    /// Those of its beginning: what may be others now is in `room`.
    limits: Limits,
    budget: MemoryBudget,
    faults: Faults,
    freshness: Freshness,
    store: Store<P>,
    core: Mutex<Core>,
    counters: Counters,
}

impl<P: Payload> Cache<P> {
    /// An empty cache without a stream: everything bypasses until [`Self::connected`].
    pub fn new(limits: Limits, faults: Faults) -> Self {
        let mut core = Core::default();
        core.set_memory(limits.memory_bytes);
        Self {
            store: Store::new(limits.memory_bytes, limits.keep),
            freshness: Freshness::default(),
            core: Mutex::new(core),
            counters: Counters::default(),
            budget: MemoryBudget::new(&limits),
            limits,
            faults,
        }
    }

    /// Looks a key up under the rules of section 3 and the watermark of the session.
    pub fn lookup(&self, key: &[u8], watermark: &Watermark, now: Nanos) -> Lookup<P> {
        let seen = match self.freshness.read(watermark, now, self.limits.staleness_max, self.faults) {
            Ok(seen) => seen,
            Err(reason) => return Lookup::Bypass(reason),
        };
        let Some(entry) = self.store.get(key).filter(|entry| entry.payload.is_served()) else { return Lookup::Miss };
        if !entry.servable(&seen) && !self.faults.ignore_read_end {
            return Lookup::Bypass(Reason::NotYetApplied);
        }
        if let Some(snapshot) = &watermark.snapshot {
            // The commits that matter to the entry are then exactly those of the snapshot.
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

    /// Counts a miss of a key whose answer could be kept; how many there were lately, about.
    pub fn missed(&self, key: &[u8]) -> u8 {
        self.store.missed(key)
    }

    /// Whether a result would be kept that weighs so much, for which the database takes so long, and whose miss was just
    /// counted; those that would have to go may be worth more.
    pub fn would_keep(&self, key: &[u8], bytes: u64, nanos: Nanos) -> bool {
        self.store.would_keep(key, bytes, nanos)
    }

    /// Whether there is room for so many bytes, without any result that has to go.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.store.has_room(bytes)
    }

    /// Registers a fill, before its query is sent. Only one fill of a key is in flight at a time.
    pub fn begin_fill(self: &Arc<Self>, request: FillRequest<'_>) -> Result<FillPermit<P>, Reason> {
        let mut core = self.core();
        if core.flight_count() >= self.limits.flights_max {
            return Err(Reason::TooBusy);
        }
        // An old snapshot is newer than nobody's last answer.
        let started = if request.snapshot.is_none() { request.now } else { 0 };
        let begun = core.begin_flight(request, self.freshness.applied(), !self.faults.ignore_pending)?;
        Ok(FillPermit::new(self.clone(), begun, started))
    }

    /// Until when whoever misses may wait for the fill of this key that is in flight, and look up again then; another fill
    /// could not be installed meanwhile. None: it is not worth waiting for, or there is none.
    pub fn joinable_until(&self, key: &[u8], now: Nanos) -> Option<Nanos> {
        self.core().joiners(key).map(|(_, until)| until).filter(|until| *until > now)
    }

    /// Wakes the task once that fill has ended; false if there is none.
    pub fn join(&self, key: &[u8], waker: &Waker) -> bool {
        let mut core = self.core();
        let Some((joiners, _)) = core.joiners(key) else { return false };
        if !joiners.iter().any(|joiner| joiner.will_wake(waker)) {
            joiners.push(waker.clone());
        }
        true
    }

    // --- the stream's side, in stream order, one caller ----------------------------------------------------

    /// A new stream stands: voids everything and returns the new epoch.
    pub fn connected(&self) -> Epoch {
        let mut core = self.core();
        self.freshness.revoke();
        self.freshness.revoke_catalog();
        if let (Some(epoch), true) = (core.epoch(), self.faults.keep_on_reconnect) {
            core.set_suspended(false);
            return epoch;
        }
        self.flush(&mut core);
        let epoch = core.begin_epoch();
        self.freshness.begin_epoch(epoch);
        epoch
    }

    /// The stream broke, but the server keeps its place: nothing is served until it goes on ([`Self::resumed`]) and
    /// has caught up. What is cached stays, and so does PENDING.
    ///
    /// The server may have crashed and lost log that was not flushed, so that positions beyond what was delivered are
    /// written again with other content: what was read there, or is being read, goes.
    pub fn suspended(&self) {
        let mut core = self.core();
        self.freshness.revoke();
        core.set_suspended(true);
        core.fail_flights();
        let applied = self.freshness.applied();
        for (key, entry) in self.store.entries() {
            if entry.read_end() > applied {
                core.forget(entry.id());
                self.drop_flushed(vec![key]);
            }
        }
    }

    /// The stream of this epoch goes on where it broke: every commit behind the position that was passed is delivered.
    /// False: the epoch has ended, and only [`Self::connected`] helps.
    pub fn resumed(&self, epoch: Epoch) -> bool {
        let mut core = self.core();
        let same = core.epoch() == Some(epoch) && core.is_suspended();
        if same {
            core.set_suspended(false);
        }
        same
    }

    /// How far a slot may be confirmed: a process that starts from there knows of no PENDING commits, so it must be
    /// sent them again.
    pub fn confirmable(&self) -> Option<Lsn> {
        let core = self.core();
        core.epoch().map(|_| core.before_pending().unwrap_or_else(|| self.freshness.applied()))
    }

    /// The stream is gone or said something unknown: fails closed at once.
    pub fn disconnected(&self) {
        if self.faults.keep_on_reconnect {
            return self.suspended();
        }
        self.fail_closed(&mut self.core());
    }

    /// A commit was delivered: invalidates what it touches, taints the fills that it races with, and publishes its position.
    /// Returns the invalidated entries that are [`Payload::worth_refreshing`].
    ///
    /// If so many commits wait for proof that memory is at stake, the epoch ends as if the stream were gone.
    pub fn apply(&self, commit: Commit) -> Vec<Keyed<P>> {
        let mut hot = Vec::new();
        let mut core = self.core();
        if core.epoch().is_none() {
            return hot;
        }
        self.counters.commits.fetch_add(1, Relaxed);
        let end = commit.end;
        if !(commit.redefines && self.faults.ignore_redefinitions) {
            for id in core.touched(&commit) {
                if let Some(key) = core.invalidate_or_taint(id, &commit, self.faults) {
                    self.counters.invalidated.fetch_add(1, Relaxed);
                    hot.extend(self.store.remove(&key).filter(|(_, entry)| entry.payload.worth_refreshing()));
                }
            }
            core.remember_pending(commit, self.freshness.applied());
        }
        if core.pending_is_hopeless() {
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
    pub fn offer_log_end(&self, end: End, asked_at: Nanos) {
        let mut core = self.core();
        if core.epoch() == Some(end.epoch) && !core.is_suspended() {
            core.push_probe(end.lsn, asked_at);
            let applied = self.freshness.applied();
            self.freshness.advance(applied, core.probes());
        }
    }

    /// What is proven visible to any later query; None without a stream. For the lower bound of a snapshot.
    pub fn proven(&self) -> Option<Proven> {
        let core = self.core();
        let epoch = core.epoch()?;
        let lsn = core.before_pending().unwrap_or_else(|| self.freshness.applied());
        Some(Proven { end: End { epoch, lsn }, publications: core.publications(), catalog: core.catalog() })
    }

    // --- fences --------------------------------------------------------------------------------------------

    /// A write that ended before `end` is about to be acknowledged without the stream having delivered it: no result over
    /// `tables` (None: over any) is served before the stream has passed `end`.
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

    /// Likewise for a write of unknown position that was visible at `now`.
    pub fn fence_since(&self, now: Nanos) {
        self.freshness.fence_since(now);
    }

    /// Whether a write that may have touched these tables only, as this catalogue tells, can be acknowledged although the stream has
    /// not delivered it. To be asked after the upstream has answered it, so that every query sent later sees it.
    ///
    /// Once it is acknowledged no look-up may find an entry that misses it. An entry whose `read_end` was read behind the
    /// write's commit is served only once the stream has passed that, and with it has delivered the write, under whose tags it then
    /// goes. One whose `read_end` was read before was at that moment a flight already, and is now an entry or a flight still: its tags,
    /// told or to be told, would be on one of the tables. Keys that outlive their entry have their tags as well. So where there are none
    /// the write has nothing to wait for. That holds whatever snapshot a fill reads; a snapshot taken before the write is no reason, since its entry's
    /// `read_end` is read at its block's end.
    ///
    /// What the write touched is told by the catalogue. If a definition is not delivered, or not loaded, it may be another (a new trigger);
    /// if the stream is so late that acknowledgements were given under a fence, one of those may be a definition.
    pub fn is_free_of(&self, tables: &[TableId], catalog: CatalogVersion) -> bool {
        self.core().is_free_of(tables, catalog) && !self.freshness.has_fence()
    }

    /// The stream has passed this position, or there is no stream in which it could.
    pub fn has_passed(&self, end: End) -> bool {
        let core = self.core();
        core.epoch() != Some(end.epoch) || self.freshness.applied() >= end.lsn
    }

    /// Where the stream is.
    pub fn applied(&self) -> Lsn {
        self.freshness.applied()
    }

    /// When the last log end was asked for that the stream has passed; 0: none.
    pub fn current_as_of(&self) -> Nanos {
        self.freshness.current_as_of()
    }

    /// The stream has passed a log end that was asked for at `since` or later, or there is no stream that could.
    pub fn is_current_as_of(&self, since: Nanos) -> bool {
        self.freshness.is_current_as_of(since) || self.epoch().is_none()
    }

    /// When the oldest reading that the stream has not yet passed was asked for.
    pub fn oldest_probe(&self) -> Option<Nanos> {
        self.core().probes().front().map(|(_, asked_at)| *asked_at)
    }

    /// The current epoch; None without a stream.
    pub fn epoch(&self) -> Option<Epoch> {
        self.core().epoch()
    }

    // --- the catalogue and publication ------------------------------------------------------------------------

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

    /// Whether a catalogue is to be loaded: there is none, or the stream has delivered redefinitions.
    pub fn wants_catalog(&self) -> bool {
        self.core().wants_catalog()
    }

    /// A catalogue was loaded by a request sent at `asked_at`, in this epoch. `load` is what differs from the catalogue before, and
    /// `proof` was read in the same snapshot. False if a delivered redefinition is not in it: load again.
    pub fn catalog_loaded(
        &self,
        epoch: Epoch,
        version: CatalogVersion,
        load: Redefinition<'_>,
        proof: &Visible,
        asked_at: Nanos,
    ) -> bool {
        let mut core = self.core();
        if core.epoch() != Some(epoch) || !core.redefinitions_shown(proof) {
            return false;
        }
        match load {
            Redefinition::Tables(tables) if core.catalog().is_some() => {
                let keys = core.remove_dependents(tables);
                self.drop_flushed(keys);
            }
            _ => self.flush(&mut core),
        }
        core.set_catalog(Some(version));
        self.freshness.renew_catalog(asked_at);
        true
    }

    /// Every later snapshot's changes of these tables are known to be delivered.
    pub fn publish(&self, epoch: Epoch, tables: &[TableId]) {
        let mut core = self.core();
        if core.epoch() == Some(epoch) {
            core.publish(tables);
        }
    }

    /// The publication no longer holds these tables.
    pub fn unpublish(&self, tables: &[TableId]) {
        let mut core = self.core();
        let keys = core.unpublish(tables);
        self.drop_flushed(keys);
    }

    /// Whether the table is published.
    pub fn is_published(&self, table: TableId) -> bool {
        self.core().is_published(table)
    }

    /// What is held for the key, whether it may be served or not.
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
