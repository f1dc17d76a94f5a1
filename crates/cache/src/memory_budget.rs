//! The memory budget of the store, which may change while the program runs.
//!
//! The budget is the memory limit minus the memory that other parts use for the cache. A smaller budget evicts
//! entries and removes their tags under the core's lock. All at once, this would delay every fill and the change
//! stream, until the lease expires and nothing is served. So the budget shrinks in steps ([`Cache::make_room`]), and
//! others take the lock in between.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use freshet_types::Nanos;

use crate::Cache;
use crate::admission::Keep;
use crate::entry::Payload;

/// The bytes evicted under one hold of the lock: some thousands of small entries, some milliseconds.
const STEP_BYTES: u64 = 4 << 20;
/// The reserve for other parts is a multiple of this share of the limit, so that the budget does not change all the
/// time.
const OVERHEAD_SHARE: u64 = 64;
/// The reserve shrinks only by at least this many multiples.
const LESS_UNITS: u64 = 4;
/// The least share of the limit that is left for entries. A very small limit leaves half of it, since the share would
/// be next to nothing.
const ROOM_SHARE: u64 = 8;
const ROOM_BYTES: u64 = 2 << 20;
/// The share of the limit for results that are being read.
const READ_SHARE: u64 = 4;
/// The same where entries have only their least share: no eviction can free memory for what is read.
const READ_SHARE_AT_LEAST: u64 = 32;

/// Limits of size and age.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The bytes of all entries with their keys and tags.
    pub memory_bytes: u64,
    /// The bytes of one entry.
    pub entry_bytes_max: u64,
    /// D: a hit is served only while the stream is proven to be younger than this.
    pub staleness_max: Nanos,
    /// Fills in flight at once.
    pub flights_max: usize,
    /// Which results are cached.
    pub keep: Keep,
}

impl Limits {
    /// The defaults for a memory limit.
    pub fn with_memory(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            entry_bytes_max: (memory_bytes / 64).clamp(16 << 10, 4 << 20),
            staleness_max: 1_000_000_000,
            flights_max: 2048,
            keep: Keep::default(),
        }
    }
}

/// The current budget.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    memory_bytes: AtomicU64,
    entry_bytes_max: AtomicU64,
    overhead: AtomicU64,
    /// The capacity given to the store, on its way to the budget. Written under the core's lock.
    given: AtomicU64,
    /// The bytes reserved for results that are being read.
    reserved: AtomicU64,
    /// [`Keep::Always`].
    pub(crate) keeps_all: AtomicBool,
}

impl MemoryBudget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes.into(),
            entry_bytes_max: limits.entry_bytes_max.into(),
            overhead: AtomicU64::new(0),
            given: limits.memory_bytes.into(),
            reserved: AtomicU64::new(0),
            keeps_all: (limits.keep == Keep::Always).into(),
        }
    }

    /// Reserves memory for a result that is being read; false if too little is left.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let limit = self.memory_bytes();
        let share = if limit - self.overhead_of(limit) > least(limit) { READ_SHARE } else { READ_SHARE_AT_LEAST };
        let fits = self.reserved.fetch_add(bytes, Relaxed) + bytes <= limit / share;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    pub(crate) fn entry_bytes_max(&self) -> u64 {
        self.entry_bytes_max.load(Relaxed)
    }

    fn wanted(&self) -> u64 {
        let limit = self.memory_bytes();
        limit - self.overhead_of(limit)
    }

    /// The part of this limit that is not for entries. The caller reads the limit once, since it may change at any
    /// time.
    fn overhead_of(&self, limit: u64) -> u64 {
        self.overhead.load(Relaxed).min(limit - least(limit))
    }
}

/// The least that is left for entries.
fn least(limit: u64) -> u64 {
    (limit / ROOM_SHARE).max(ROOM_BYTES.min(limit / 2))
}

impl<P: Payload> Cache<P> {
    /// Sets the memory limit, and the limit for one entry with it. Returns the previous memory limit.
    /// [`Self::make_room`] applies it.
    pub fn set_memory(&self, bytes: u64) -> u64 {
        self.core().set_memory(bytes);
        self.budget.entry_bytes_max.store(Limits::with_memory(bytes).entry_bytes_max, Relaxed);
        self.budget.memory_bytes.swap(bytes, Relaxed)
    }

    /// The bytes of all entries, with keys and tags.
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// By how much the budget of entries is below the limit.
    pub fn overhead(&self) -> u64 {
        self.budget.overhead_of(self.budget.memory_bytes())
    }

    /// Sets how much of the limit other parts use. Entries have the rest, but at least an eighth of the limit. One
    /// caller.
    pub fn set_overhead(&self, bytes: u64) {
        let unit = (self.budget.memory_bytes() / OVERHEAD_SHARE).max(1);
        let (bytes, before) = (bytes.next_multiple_of(unit), self.budget.overhead.load(Relaxed));
        // Small variations do not change the budget: with each step the store forgets a little about evicted entries.
        if bytes > before || bytes + LESS_UNITS * unit <= before {
            self.budget.overhead.store(bytes, Relaxed);
        }
    }

    /// Gives the store a larger capacity, or takes one step of a smaller one. Must be called until it returns true.
    pub fn make_room(&self) -> bool {
        if self.budget.given.load(Relaxed) == self.budget.wanted() {
            return true;
        }
        let mut core = self.core();
        let wanted = self.budget.wanted();
        let next = wanted.max(self.budget.given.load(Relaxed).saturating_sub(STEP_BYTES));
        self.budget.given.store(next, Relaxed);
        for evicted in self.store.set_capacity(next) {
            core.forget(evicted);
            self.counters.evicted.fetch_add(1, Relaxed);
        }
        next == wanted
    }
}
