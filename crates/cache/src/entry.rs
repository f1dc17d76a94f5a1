//! A cached result, its origin, and the position from which it may be served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use freshet_types::{Epoch, Lsn, Nanos, TableId};

use crate::blocks::block_bytes;
use crate::flight::{Flight, Id};
use crate::freshness::{Proven, Seen};

/// The payload of an entry.
pub trait Payload: Send + Sync + std::fmt::Debug + 'static {
    /// The bytes it owns on the heap, in allocator blocks: [`block_bytes`].
    fn heap_bytes(&self) -> usize;

    /// The database time that the result took, which a hit saves; at least 1.
    fn nanos(&self) -> Nanos {
        1
    }

    /// The key by which its misses were counted, if it differs from the entry's key.
    fn counted_by(&self) -> Option<&[u8]> {
        None
    }

    /// Whether it is served at present; if not, a look-up misses.
    fn is_served(&self) -> bool {
        true
    }

    /// Tells the payload how many bytes its entry takes, before the entry is inserted.
    fn weighed(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Tells the payload that its entry was evicted, or not stored, in favour of entries worth more.
    fn outweighed(&self) {}

    /// Tells the payload that a commit invalidated its entry, which changed rows of these tables; none if it is not known which.
    fn invalidated(&self, tables: &[TableId]) {
        let _ = tables;
    }

    /// Whether it was hit so often that, once invalidated, it should be read again in the background.
    fn worth_refreshing(&self) -> bool {
        false
    }
}

/// An installed result.
#[derive(Debug)]
pub struct Entry<P> {
    /// The payload for the reader.
    pub payload: P,
    origin: Origin,
    /// The entry is served once the stream has passed this position: the log end after its query, or a later fence. With [`BY_TIME`]: until when it is
    /// served, whatever the stream has passed. So the look-up of other entries need not ask for that.
    servable_from: AtomicU64,
    weight: u64,
    /// Hits since the eviction policy last fetched them.
    pub(crate) uses: AtomicU32,
    /// Its index in the eviction policy.
    pub(crate) place: AtomicUsize,
}

/// No log reaches this position.
const BY_TIME: u64 = 1 << 63;

/// The origin of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) id: Id,
    pub(crate) epoch: Epoch,
    /// The log end after its query.
    pub(crate) read_end: Lsn,
    /// A time before its query was sent.
    pub(crate) started: Nanos,
    /// How often tables had been published at that time.
    pub(crate) publications: u64,
    /// The entry is served once a check of the catalogue has succeeded that was requested at this time or later.
    pub(crate) catalog_since: Nanos,
}

impl<P: Payload> Entry<P> {
    /// An allowance for the slots in the store, the eviction policy and the core. Their tables are half full at
    /// worst.
    const ENTRY_BYTES: usize = 224;
    /// The counters of an `Arc`.
    const COUNTERS_BYTES: usize = 16;

    /// `until`: see [`Self::until`].
    pub(crate) fn new(payload: P, flight: &Flight, origin: Origin, until: Option<Nanos>) -> Self {
        let bytes = Self::ENTRY_BYTES
            + block_bytes(Self::COUNTERS_BYTES + std::mem::size_of::<Self>())
            + payload.heap_bytes()
            + block_bytes(Self::COUNTERS_BYTES + flight.key.len())
            + flight.tags_bytes;
        let servable_from = until.map_or(origin.read_end.max(flight.fence).0, |until| BY_TIME | until);
        let servable_from = AtomicU64::new(servable_from);
        let (uses, place) = (AtomicU32::new(0), AtomicUsize::new(0));
        Self { payload, origin, servable_from, weight: bytes as u64, uses, place }
    }

    /// The bytes of the entry with its key and tags.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    pub(crate) fn nanos(&self) -> f32 {
        self.payload.nanos().max(1) as f32
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

    pub(crate) fn servable(&self, seen: &Seen) -> bool {
        self.origin.epoch == seen.epoch
            && seen.applied.0 >= self.servable_from.load(SeqCst)
            && seen.catalog_as_of >= self.origin.catalog_since
    }

    /// Until when it is served in its epoch, if that is a matter of time alone. It is not [`Self::servable`] then.
    pub(crate) fn until(&self) -> Option<Nanos> {
        let from = self.servable_from.load(SeqCst);
        (from & BY_TIME != 0).then_some(from & !BY_TIME)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.origin.epoch
    }

    /// Whether everything that its query may have seen was proven visible at that time.
    pub(crate) fn is_within(&self, lo: &Proven) -> bool {
        let Origin { epoch, read_end, publications, .. } = self.origin;
        epoch == lo.end.epoch && read_end <= lo.end.lsn && publications <= lo.publications
    }

    /// Delays the entry until the stream has passed this position.
    pub(crate) fn fence(&self, lsn: Lsn) {
        self.servable_from.fetch_max(lsn.0, SeqCst);
    }
}

/// An entry with its key.
pub type Keyed<P> = (Arc<[u8]>, Arc<Entry<P>>);
