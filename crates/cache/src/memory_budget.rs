//! How much the store may hold, which may be another while the program runs.
//!
//! It is the memory limit less what is set aside for what others keep for the cache's sake. Less room means that entries go, and
//! their tags with them, under the core's lock. All at once, that would hold up every fill and the change stream, until its
//! proofs are too old and nothing is served. So room is taken away step by step ([`Cache::make_room`]), and whoever waits
//! for the lock comes between.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freshet_types::Nanos;

use crate::Cache;
use crate::admission::Keep;
use crate::entry::Payload;

/// What is taken away under one hold of the lock: some thousands of small entries, some milliseconds.
const STEP_BYTES: u64 = 4 << 20;
/// What is set aside is a multiple of this share of the limit, so that the room is not another all the time.
const ASIDE_SHARE: u64 = 64;
/// How many of these it is less before it is set so.
const LESS_UNITS: u64 = 4;
/// The least that is left for entries, as a share of the limit; half of a limit so small that this would be next to nothing.
const ROOM_SHARE: u64 = 8;
const ROOM_BYTES: u64 = 2 << 20;
/// The most that results may take while they are read, as a share of the limit.
const READ_SHARE: u64 = 4;
/// The same where entries have no more than their least, so that nothing else can make room for what is read.
const READ_SHARE_AT_LEAST: u64 = 32;

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
    /// Which answers are kept.
    pub keep: Keep,
}

impl Limits {
    /// The defaults for a memory bound.
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

/// What may be held now.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    memory_bytes: AtomicU64,
    entry_bytes_max: AtomicU64,
    aside: AtomicU64,
    /// How much the store is told to hold, on its way to the limit. Written under the core's lock.
    given: AtomicU64,
    /// What is reserved for results that are being read.
    reserved: AtomicU64,
}

impl MemoryBudget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes.into(),
            entry_bytes_max: limits.entry_bytes_max.into(),
            aside: AtomicU64::new(0),
            given: limits.memory_bytes.into(),
            reserved: AtomicU64::new(0),
        }
    }

    /// For a result that is being read; false if there is not as much room.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let limit = self.memory_bytes();
        let share = if self.wanted() > least(limit) { READ_SHARE } else { READ_SHARE_AT_LEAST };
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
        limit - self.aside.load(Relaxed).min(limit - least(limit))
    }
}

/// What entries have at any rate.
fn least(limit: u64) -> u64 {
    (limit / ROOM_SHARE).max(ROOM_BYTES.min(limit / 2))
}

impl<P: Payload> Cache<P> {
    /// Another limit from now on, and for one entry that which goes with it; returns what it was before. It is reached by
    /// [`Self::make_room`].
    pub fn set_memory(&self, bytes: u64) -> u64 {
        self.core().set_memory(bytes);
        self.budget.entry_bytes_max.store(Limits::with_memory(bytes).entry_bytes_max, Relaxed);
        self.budget.memory_bytes.swap(bytes, Relaxed)
    }

    /// Bytes of all entries, with keys and tags.
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// How much less than the limit is for entries.
    pub fn aside(&self) -> u64 {
        self.budget.memory_bytes() - self.budget.wanted()
    }

    /// So much of the limit is taken by others: entries have what is left of it, or an eighth of it
    /// at least. One caller.
    pub fn set_aside(&self, bytes: u64) {
        let unit = (self.budget.memory_bytes() / ASIDE_SHARE).max(1);
        let (bytes, before) = (bytes.next_multiple_of(unit), self.budget.aside.load(Relaxed));
        // What goes up and down a little does not lead to and fro: the store forgets with each step a little of what it knows
        // of entries that went.
        if bytes > before || bytes + LESS_UNITS * unit <= before {
            self.budget.aside.store(bytes, Relaxed);
        }
    }

    /// Gives the store the room that it is to have, or takes some of what is too much away: to be called until it returns true.
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
