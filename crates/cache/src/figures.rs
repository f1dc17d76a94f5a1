//! The counters and levels of the cache, for metrics and SHOW.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freshet_types::{End, Nanos, TableId};

use crate::admission::Keep;
use crate::entry::{Keyed, Payload};
use crate::{Cache, Limits};

/// Counters since the start; all monotonic.
#[derive(Debug, Default)]
pub struct Counters {
    /// Results cached.
    pub installed: AtomicU64,
    /// Results not cached because a commit raced with them.
    pub stale_fills: AtomicU64,
    /// Results not cached because they exceed the limit for one entry.
    pub too_large: AtomicU64,
    /// Entries invalidated by a commit that changed data.
    pub invalidated: AtomicU64,
    /// Entries evicted because of the memory budget.
    pub evicted: AtomicU64,
    /// Entries removed with a new epoch, a changed catalogue (by a commit, or as it was read) or a changed publication.
    pub flushed: AtomicU64,
    /// Commits delivered by the stream.
    pub commits: AtomicU64,
    /// Look-ups that found a result which is served for a time.
    pub hits_by_ttl: AtomicU64,
}

/// The current levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Cached entries.
    pub entries: u64,
    /// Their bytes, with keys and tags.
    pub bytes: u64,
    /// Commits delivered and not yet proven visible.
    pub pending: usize,
    /// Fills in flight.
    pub flights: usize,
    /// The position that the stream has passed; None without a stream.
    pub applied: Option<End>,
    /// The age of the proof that the stream is current; None without one.
    pub stream_age: Option<Nanos>,
    /// The age of the last check of the catalogue; None without one.
    pub catalog_age: Option<Nanos>,
    /// Tables whose changes the stream is known to deliver.
    pub published: usize,
}

impl<P: Payload> Cache<P> {
    /// Whether the stream has ever delivered a change of the table's rows. Until then, tags need not be precise.
    pub fn has_changed(&self, table: TableId) -> bool {
        self.core().has_changed(table)
    }

    /// Whether any of these changes was not an insert.
    pub fn has_lost_rows(&self, table: TableId) -> bool {
        self.core().has_lost_rows(table)
    }

    /// About how many delivered commits changed the rows of each table. The count is too high if changes of several
    /// tables alternate in one commit.
    pub fn changes(&self) -> Vec<(TableId, u64)> {
        self.core().changes()
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The current levels.
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
            published: core.published_count(),
        }
    }

    /// The current limits.
    pub fn limits(&self) -> Limits {
        let (memory_bytes, entry_bytes_max) = (self.budget.memory_bytes(), self.budget.entry_bytes_max());
        let keep = if self.budget.keeps_all.load(Relaxed) { Keep::Always } else { Keep::Worthwhile };
        Limits { memory_bytes, entry_bytes_max, staleness_max: self.freshness.staleness_max(), keep, ..self.limits }
    }

    /// Sets D. Look-ups that begin later keep to it.
    pub fn set_staleness_max(&self, nanos: Nanos) {
        self.freshness.set_staleness_max(nanos);
    }

    /// Sets which results are cached from now on.
    pub fn set_keep(&self, keep: Keep) {
        self.budget.keeps_all.store(keep == Keep::Always, Relaxed);
        self.store.set_keep(keep);
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
        self.store.validate();
        let entries = self.store.entries();
        assert_eq!(entries.len(), core.entry_count(), "every entry has its node, every node its entry");
        for (key, entry) in entries {
            core.validate_entry(entry.id(), &key);
        }
    }
}
