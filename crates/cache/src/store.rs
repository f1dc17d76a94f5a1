//! The store: entries by key, bounded in bytes.
//!
//! Entries are divided into shards, each a table behind its own lock. A hit takes only the lock of one shard and
//! increments two counters. The eviction policy spans all entries ([`crate::eviction_policy`]), so that a small cache
//! is not divided into still smaller ones. Evicted ids are returned to the caller, who removes their tags from the
//! dependency index under the same lock that inserted the new entry.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use freshet_types::Nanos;
use hashbrown::HashTable;
use rapidhash::quality::RandomState;

use crate::admission::Keep;
use crate::entry::{Entry, Keyed, Payload};
use crate::eviction_policy::{Candidate, EvictionPolicy, Tracked};
use crate::flight::Id;
use crate::frequency_sketch::FrequencySketch;
use crate::size_curve::{Event, SizeCurve};

/// The entries of one part of the keys, and their hits.
#[derive(Debug)]
#[repr(align(64))]
struct Shard<P> {
    entries: RwLock<HashTable<Keyed<P>>>,
    hits: AtomicU64,
}

/// Entries by full key.
#[derive(Debug)]
pub(crate) struct Store<P: Payload> {
    hasher: RandomState,
    shards: Box<[Shard<P>]>,
    eviction_policy: Mutex<EvictionPolicy<P>>,
    sketch: FrequencySketch,
    size_curve: SizeCurve,
}

impl<P: Payload> Store<P> {
    const SHARDS: usize = 64;

    pub(crate) fn new(memory_bytes: u64, keep: Keep) -> Self {
        let shard = |_| Shard { entries: RwLock::default(), hits: AtomicU64::new(0) };
        Self {
            hasher: RandomState::new(),
            shards: (0..Self::SHARDS).map(shard).collect(),
            eviction_policy: Mutex::new(EvictionPolicy::new(memory_bytes, keep == Keep::Always)),
            sketch: FrequencySketch::new(memory_bytes),
            size_curve: SizeCurve::new(memory_bytes),
        }
    }

    pub(crate) fn set_keep(&self, keep: Keep) {
        self.eviction_policy().set_keeps_all(keep == Keep::Always);
    }

    fn shard(&self, hash: u64) -> &Shard<P> {
        // The tables use the low bits and the highest seven.
        &self.shards[(hash >> 40) as usize % Self::SHARDS]
    }

    /// Finds an entry for a reader and counts the hit.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Entry<P>>> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash);
        let entries = shard.entries.read().unwrap_or_else(PoisonError::into_inner);
        let (_, entry) = entries.find(hash, |(other, _)| **other == *key)?;
        entry.uses.fetch_add(1, Relaxed);
        shard.hits.fetch_add(1, Relaxed);
        self.size_curve.note(hash, || Event::Hit(entry.weight()));
        Some(entry.clone())
    }

    /// Finds an entry without counting a hit.
    pub(crate) fn peek(&self, key: &[u8]) -> Option<Arc<Entry<P>>> {
        let hash = self.hasher.hash_one(key);
        let entries = self.shard(hash).entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.find(hash, |(other, _)| **other == *key).map(|(_, entry)| entry.clone())
    }

    /// Counts a miss. Returns about how many there were before.
    pub(crate) fn missed(&self, key: &[u8]) -> u8 {
        let hash = self.hasher.hash_one(key);
        self.size_curve.note(hash, || Event::Miss);
        self.sketch.note(hash, || self.hits())
    }

    fn hits(&self) -> u64 {
        self.shards.iter().map(|shard| shard.hits.load(Relaxed)).sum()
    }

    /// Hits and misses.
    pub(crate) fn requests(&self) -> u64 {
        self.hits() + self.sketch.noted()
    }

    pub(crate) fn size_curve(&self) -> &SizeCurve {
        &self.size_curve
    }

    /// Whether an entry like this would be stored. Its miss must just have been counted.
    pub(crate) fn would_keep(&self, key: &[u8], bytes: u64, nanos: Nanos) -> bool {
        let earlier = self.sketch.earlier(self.hasher.hash_one(key));
        self.eviction_policy().would_keep(Candidate { bytes, nanos: nanos as f32, earlier }, self.sketch.time())
    }

    /// Whether an entry of this size fits without an eviction.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.eviction_policy().has_room(bytes)
    }

    /// Inserts an entry whose key is not present. Returns the ids of the evicted entries, or None if the entry is not
    /// stored.
    pub(crate) fn insert(&self, key: Arc<[u8]>, entry: Arc<Entry<P>>) -> Option<Vec<Id>> {
        let hash = self.hasher.hash_one(&*key);
        let (earlier, time) = (self.sketch.earlier(self.counted(hash, &entry)), self.sketch.time());
        let Some(gone) = self.eviction_policy().insert(key.clone(), entry.clone(), earlier, time) else {
            entry.payload.outweighed();
            return None;
        };
        let gone = gone.iter().map(|gone| self.outweighed(gone)).collect();
        self.size_curve.note(hash, || Event::Stored(entry.weight()));
        let mut entries = self.shard(hash).entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert_unique(hash, (key, entry), |(key, _)| self.hasher.hash_one(&**key));
        Some(gone)
    }

    /// The hash under which the misses of the entry were counted.
    fn counted(&self, hash: u64, entry: &Entry<P>) -> u64 {
        entry.payload.counted_by().map_or(hash, |key| self.hasher.hash_one(key))
    }

    /// Sets the capacity in bytes. Returns the ids of the evicted entries.
    pub(crate) fn set_capacity(&self, bytes: u64) -> Vec<Id> {
        let gone = self.eviction_policy().set_capacity(bytes, self.sketch.time());
        gone.iter().map(|gone| self.outweighed(gone)).collect()
    }

    /// Removes an entry that the eviction policy has evicted.
    fn outweighed(&self, gone: &Tracked<P>) -> Id {
        self.take(self.hasher.hash_one(&*gone.key), &gone.key);
        gone.entry.payload.outweighed();
        gone.entry.id()
    }

    fn take(&self, hash: u64, key: &[u8]) -> Option<Keyed<P>> {
        let mut entries = self.shard(hash).entries.write().unwrap_or_else(PoisonError::into_inner);
        Some(entries.find_entry(hash, |(other, _)| **other == *key).ok()?.remove().0)
    }

    pub(crate) fn remove(&self, key: &[u8]) -> Option<Keyed<P>> {
        let hash = self.hasher.hash_one(key);
        let (key, entry) = self.take(hash, key)?;
        self.size_curve.note(hash, || Event::Gone);
        // It was not evicted: the request rate of its key is remembered for the next result.
        let rate = self.eviction_policy().remove(&entry, self.sketch.time());
        self.sketch.learn(self.counted(hash, &entry), rate.unwrap_or_default());
        Some((key, entry))
    }

    pub(crate) fn len(&self) -> u64 {
        self.eviction_policy().len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.eviction_policy().bytes()
    }

    pub(crate) fn entries(&self) -> Vec<Keyed<P>> {
        self.eviction_policy().iter().map(|tracked| (tracked.key.clone(), tracked.entry.clone())).collect()
    }

    /// Panics unless the shards and the eviction policy hold the same entries; for tests.
    pub(crate) fn validate(&self) {
        let eviction_policy = self.eviction_policy();
        eviction_policy.validate();
        let found = |shard: &Shard<P>| shard.entries.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        assert_eq!(self.shards.iter().map(found).sum::<u64>(), eviction_policy.len());
        for tracked in eviction_policy.iter() {
            assert!(self.peek(&tracked.key).is_some_and(|entry| Arc::ptr_eq(&entry, &tracked.entry)));
        }
    }

    fn eviction_policy(&self) -> MutexGuard<'_, EvictionPolicy<P>> {
        self.eviction_policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
