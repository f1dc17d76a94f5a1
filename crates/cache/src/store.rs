//! The bounded store: bytes in, bytes out, the crate's eviction in between.
//!
//! `quick_cache` (Clock-PRO, sharded, weighted) does the work. Its eviction hook hands the evicted entries
//! back, so that their tags leave the dependency index under the same lock that inserted the new entry.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use freshet_model::{Epoch, Lsn, Nanos};
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, Weighter};
use rapidhash::quality::RandomState;

use crate::blocks::block_bytes;
use crate::core::Id;
use crate::flight::Flight;
use crate::freshness::Proven;

/// What an entry holds for its reader.
pub trait Payload: Send + Sync + std::fmt::Debug + 'static {
    /// Bytes it owns on the heap, in blocks: [`block_bytes`].
    fn heap_bytes(&self) -> usize;

    /// Whether it was used so much that, evicted by a change, it should be read again in the background.
    fn worth_refreshing(&self) -> bool {
        false
    }
}

/// An installed result.
#[derive(Debug)]
pub struct Entry<P> {
    /// What the reader gets.
    pub payload: P,
    origin: Origin,
    /// Served once the stream has passed this: the end of the log after its query, or a later fence.
    servable_from: AtomicU64,
    weight: u64,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) id: Id,
    pub(crate) epoch: Epoch,
    /// The end of the log after its query.
    pub(crate) read_end: Lsn,
    /// Before its query was sent.
    pub(crate) started: Nanos,
    /// How often tables had been covered then.
    pub(crate) coverings: u64,
}

impl<P: Payload> Entry<P> {
    /// Allowances: for the slots of the store and of the core, in tables that are half full at worst; for a tag, with its
    /// share of the dependency index.
    const ENTRY_BYTES: usize = 224;
    const TAG_BYTES: usize = 208;
    /// The counters of an `Arc`.
    const COUNTERS_BYTES: usize = 16;

    pub(crate) fn new(payload: P, flight: &Flight, origin: Origin) -> Self {
        let bytes = Self::ENTRY_BYTES
            + block_bytes(Self::COUNTERS_BYTES + std::mem::size_of::<Self>())
            + payload.heap_bytes()
            + block_bytes(Self::COUNTERS_BYTES + flight.key.len())
            + flight.tags.0 * Self::TAG_BYTES
            + flight.tags.1;
        let servable_from = AtomicU64::new(origin.read_end.max(flight.fence).0);
        Self { payload, origin, servable_from, weight: bytes as u64 }
    }

    /// Its bytes, with key and tags.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    pub(crate) fn started(&self) -> Nanos {
        self.origin.started
    }

    pub(crate) fn read_end(&self) -> Lsn {
        self.origin.read_end
    }

    pub(crate) fn id(&self) -> Id {
        self.origin.id
    }

    pub(crate) fn servable(&self, epoch: Epoch, applied: Lsn) -> bool {
        self.origin.epoch == epoch && applied.0 >= self.servable_from.load(SeqCst)
    }

    /// Its query saw nothing but what was proven visible then.
    pub(crate) fn is_within(&self, lo: &Proven) -> bool {
        let Origin { epoch, read_end, coverings, .. } = self.origin;
        epoch == lo.end.epoch && read_end <= lo.end.lsn && coverings <= lo.coverings
    }

    /// No longer served before the stream has passed this.
    pub(crate) fn fence(&self, lsn: Lsn) {
        self.servable_from.fetch_max(lsn.0, SeqCst);
    }
}

/// An entry with its key.
pub type Keyed<P> = (Arc<[u8]>, Arc<Entry<P>>);

#[derive(Clone, Debug)]
struct ByWeight;

impl<P: Payload> Weighter<Arc<[u8]>, Arc<Entry<P>>> for ByWeight {
    fn weight(&self, _key: &Arc<[u8]>, entry: &Arc<Entry<P>>) -> u64 {
        entry.weight()
    }
}

/// Hands evicted entries back to the caller of `insert`, who listens; those of another capacity, where the crate lets nobody
/// listen, wait to be fetched.
#[derive(Clone, Debug, Default)]
struct Evicted {
    unheard: Arc<Mutex<Vec<Id>>>,
}

impl<P: Payload> Lifecycle<Arc<[u8]>, Arc<Entry<P>>> for Evicted {
    type RequestState = Option<Vec<Id>>;

    fn on_evict(&self, out: &mut Option<Vec<Id>>, _key: Arc<[u8]>, entry: Arc<Entry<P>>) {
        match out {
            Some(heard) => heard.push(entry.id()),
            None => self.unheard.lock().unwrap_or_else(PoisonError::into_inner).push(entry.id()),
        }
    }
}

/// Entries by full key.
#[derive(Debug)]
pub(crate) struct Store<P: Payload> {
    cache: Cache<Arc<[u8]>, Arc<Entry<P>>, ByWeight, RandomState, Evicted>,
    unheard: Arc<Mutex<Vec<Id>>>,
}

impl<P: Payload> Store<P> {
    pub(crate) fn new(memory_bytes: u64) -> Self {
        /// A guess that sizes the initial tables only.
        const TYPICAL_ENTRY_BYTES: u64 = 4096;
        let items = usize::try_from(memory_bytes / TYPICAL_ENTRY_BYTES).unwrap_or(usize::MAX).clamp(64, 1 << 20);
        let evicted = Evicted::default();
        let unheard = evicted.unheard.clone();
        Self { cache: Cache::with(items, memory_bytes, ByWeight, RandomState::new(), evicted), unheard }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Entry<P>>> {
        self.cache.get(key)
    }

    /// Inserts an entry whose key is not present; returns the ids of those that had to go (perhaps its own).
    pub(crate) fn insert(&self, key: Arc<[u8]>, entry: Arc<Entry<P>>) -> Vec<Id> {
        let mut out = Some(Vec::new());
        self.cache.insert_with_lifecycle(key, entry, &mut out);
        out.unwrap_or_default()
    }

    /// Room for so many bytes from now on; returns the ids of those that had to go.
    pub(crate) fn set_capacity(&self, bytes: u64) -> Vec<Id> {
        self.cache.set_capacity(bytes);
        std::mem::take(&mut *self.unheard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn remove(&self, key: &[u8]) -> Option<Keyed<P>> {
        self.cache.remove(key)
    }

    pub(crate) fn len(&self) -> u64 {
        self.cache.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    pub(crate) fn entries(&self) -> Vec<Keyed<P>> {
        self.cache.iter().collect()
    }
}
