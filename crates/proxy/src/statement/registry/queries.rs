//! The normalized queries in memory. Their bytes are limited. The heaviest of them are not evicted, so that their figures are exact however many
//! others come and go: hits do not touch this table, and to its eviction policy a statement that always hits looks unused.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quick_cache::sync::{Cache, Iter};
use quick_cache::{Lifecycle, Weighter};
use rapidhash::quality::RandomState;

use super::{ByBytes, NormalizedQuery};

/// The heaviest have one of so many parts of the limit.
const PARTS: u64 = 4;
/// The heaviest are selected once one of so many parts of the table is new. A new query stays about twice as long, even if nothing refers to it.
const SELECTIONS: u64 = 64;

#[derive(Debug)]
pub(super) struct Queries {
    all: Cache<Box<str>, Arc<NormalizedQuery>, ByBytes, RandomState, KeepsHeaviest>,
    /// Queries added so far.
    added: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct KeepsHeaviest;

impl Lifecycle<Box<str>, Arc<NormalizedQuery>> for KeepsHeaviest {
    /// Dropped without the table's lock.
    type RequestState = Vec<Arc<NormalizedQuery>>;

    fn is_pinned(&self, _: &Box<str>, query: &Arc<NormalizedQuery>) -> bool {
        query.charge.is_pinned.load(Relaxed)
    }

    fn on_evict(&self, evicted: &mut Self::RequestState, _: Box<str>, query: Arc<NormalizedQuery>) {
        evicted.push(query);
    }
}

impl Weighter<Box<str>, Arc<NormalizedQuery>> for ByBytes {
    fn weight(&self, _key: &Box<str>, query: &Arc<NormalizedQuery>) -> u64 {
        query.bytes() as u64
    }
}

impl Queries {
    pub(super) fn new(items: usize, bytes: u64) -> Self {
        let all = Cache::with(items, bytes, ByBytes, RandomState::new(), KeepsHeaviest);
        Self { all, added: AtomicU64::new(0) }
    }

    pub(super) fn get(&self, text: &str) -> Option<Arc<NormalizedQuery>> {
        self.all.get(text)
    }

    pub(super) fn insert(&self, query: Arc<NormalizedQuery>) {
        let (added, limit) = (self.added.fetch_add(1, Relaxed), self.all.capacity());
        let is_due = added.is_multiple_of((self.all.len() as u64 / SELECTIONS).max(1));
        // Some of its shards may be full before the others.
        if is_due && self.all.weight() > limit / 4 {
            self.pin_heaviest(limit);
        }
        self.all.insert(query.text.clone(), query);
    }

    fn pin_heaviest(&self, limit: u64) {
        let mut all: Vec<_> = self.all.iter().map(|(_, query)| (query.figures.weight(), query)).collect();
        all.sort_unstable_by_key(|(weight, _)| Reverse(*weight));
        let mut left = limit / PARTS;
        for (weight, query) in all {
            left = left.saturating_sub(query.bytes() as u64);
            query.charge.is_pinned.store(weight > 0 && left > 0, Relaxed);
        }
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        self.pin_heaviest(bytes);
        self.all.set_capacity(bytes);
    }

    pub(super) fn iter(&self) -> Iter<'_, Box<str>, Arc<NormalizedQuery>, ByBytes, RandomState, KeepsHeaviest> {
        self.all.iter()
    }

    /// Queries that were evicted. One that was evicted several times counts as often.
    pub(super) fn evicted(&self) -> u64 {
        self.added.load(Relaxed).saturating_sub(self.all.len() as u64)
    }

    #[cfg(test)]
    pub(super) fn clear(&self) {
        self.all.clear();
    }
}
