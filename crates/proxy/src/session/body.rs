//! The contents of a cache entry: the answer's frames, ready to send.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use freshet_cache::{Payload, block_bytes};
use freshet_types::{Nanos, TableId};

use crate::clock::monotonic;
use crate::latency::Took;
use crate::session::moving::Reached;
use crate::statement::registry::{NormalizedQuery, Statement};

/// `RowDescription` if the client requested it, `DataRow`s, `CommandComplete`. If the client requested the statement's description:
/// `ParameterDescription`, `RowDescription`, `BindComplete`, `DataRow`s, `CommandComplete`.
///
/// `ParseComplete`, `BindComplete` and `ReadyForQuery` are added for each hit.
#[derive(Debug)]
pub struct Body {
    pub(crate) frames: Box<[u8]>,
    /// MySQL and MariaDB: the positions of the session's status flags, which are set for each reader; 0 for none.
    pub(crate) status_places: [u32; 2],
    /// MySQL and MariaDB: the answer to `FOUND_ROWS()` after it, if the statement counts rows for that.
    pub(crate) found_rows: Option<Arc<OnceLock<FoundRows>>>,
    /// MySQL and MariaDB: the number of rows that `FOUND_ROWS()` returns after it, if it is the number of its rows.
    pub(crate) rows: Option<u32>,
    /// The other executions that it answers.
    pub(crate) reached: Option<Box<Reached>>,
    pub(crate) source: Source,
    /// When it was read.
    pub(crate) since: Nanos,
    /// The database's time for it.
    took: Nanos,
    /// When it was cached, by the system's monotonic time.
    cached_at: Nanos,
    /// Its rows, which each hit returns.
    row_count: u32,
    /// Number of times it was served.
    hits: AtomicU64,
    /// It was replaced by a more valuable entry, which says nothing against its statement.
    outweighed: AtomicBool,
}

/// The query for the number of rows without LIMIT, and its answer.
#[derive(Debug)]
pub(crate) struct FoundRows {
    pub(crate) text: Box<[u8]>,
    pub(crate) frames: Box<[u8]>,
    /// As in [`Body`].
    pub(crate) status_places: [u32; 2],
}

impl FoundRows {
    /// Limit of the bytes of a stored query and of its answer.
    pub(crate) const BYTES_MAX: usize = 512;
}

/// The statement of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) query: Arc<NormalizedQuery>,
    /// Of the extended protocol. When the registry drops the statement, its number disappears, and so does the entry's key. The key of a `Query` is
    /// its text.
    pub(crate) statement: Weak<Statement>,
}

impl Body {
    /// An answer with so many rows, read since a time, for which the database took so long.
    pub(crate) fn new((rows, frames): (u64, Vec<u8>), source: Source, (since, took): (Nanos, Nanos)) -> Self {
        let (cached_at, row_count) = (monotonic(), u32::try_from(rows).unwrap_or(u32::MAX));
        source.query.figures.results.begins(frames.len(), row_count, cached_at);
        let (frames, hits, outweighed) = (frames.into(), AtomicU64::new(0), AtomicBool::new(false));
        let (status_places, found_rows, rows, reached) = ([0; 2], None, None, None);
        Self {
            frames,
            status_places,
            found_rows,
            rows,
            reached,
            source,
            since,
            took,
            cached_at,
            row_count,
            hits,
            outweighed,
        }
    }

    /// The answer's frames.
    pub fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// Counts a hit on this worker.
    pub(crate) fn note_hit(&self, worker: usize, took: Took) {
        self.hits.fetch_add(1, Relaxed);
        self.source.query.figures.hits.note(worker, took);
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let figures = &self.source.query.figures;
        figures.results.ends(self.hits(), self.row_count, (self.cached_at, monotonic()));
        if !self.outweighed.load(Relaxed) {
            figures.worth.ended(self.hits());
        }
    }
}

impl Payload for Body {
    fn heap_bytes(&self) -> usize {
        // Memory allocated later is counted from the beginning.
        let found_rows = self.found_rows.as_ref().map_or(0, |_| 2 * FoundRows::BYTES_MAX);
        block_bytes(self.frames.len()) + found_rows + self.reached.as_ref().map_or(0, |reached| reached.bytes())
    }

    fn nanos(&self) -> Nanos {
        self.took
    }

    fn counted_by(&self) -> Option<&[u8]> {
        self.reached.as_ref()?.counted_by()
    }

    fn is_served(&self) -> bool {
        let query = &self.source.query;
        !query.is_disabled() && query.figures.worth.serves()
    }

    fn weighed(&self, bytes: u64) {
        self.source.query.figures.worth.weighs(bytes);
    }

    fn outweighed(&self) {
        self.outweighed.store(true, Relaxed);
    }

    fn invalidated(&self, tables: &[TableId]) {
        let query = &self.source.query;
        let table = match tables {
            [table] => Some(*table),
            several => several.iter().copied().find(|table| query.reads(*table)),
        };
        query.figures.results.invalidated_by(table);
    }

    /// One hit is enough: without the entry, the statement would have run for that reader.
    fn worth_refreshing(&self) -> bool {
        self.hits() > 0
    }
}
