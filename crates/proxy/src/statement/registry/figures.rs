//! What is counted for each normalized query.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use freshet_cache::admission::{Hits, Worth};
use freshet_types::{Nanos, Reason};

use crate::metrics::Spread;
use crate::statement::registry::NormalizedQuery;

/// Figures of one normalized query, for SHOW and the metrics.
#[derive(Debug, Default)]
pub(crate) struct StatementFigures {
    /// Answers from the cache.
    pub(crate) hits: Spread,
    /// Of these, right behind a write of their session.
    pub(crate) late_hits: AtomicU64,
    /// Right behind a read that passed.
    pub(crate) hits_after_pass: AtomicU64,
    /// Answers from the database that were to be kept.
    pub(crate) fills: AtomicU64,
    /// Statements passed.
    pub(crate) passed: AtomicU64,
    /// Nanoseconds the database took for the fills, round trip included.
    pub(crate) fill_nanos: AtomicU64,
    /// Entries now.
    pub(crate) entries: AtomicU64,
    /// KeyQueries in a row that told less than was asked for, and those that were not read for that.
    pub(crate) coarse: AtomicU32,
    /// The same of keys of rows that go, and of results that could not be kept since some went meanwhile.
    pub(crate) members_coarse: AtomicU32,
    /// Whether its results are worth keeping.
    pub(crate) worth: Worth,
    /// The last reason for passing, or for not keeping an answer.
    pub(crate) reason: Mutex<Option<Reason>>,
    /// See [`NormalizedQuery::not_cached`].
    not_cached: Mutex<Option<Reason>>,
}

impl StatementFigures {
    /// Hits so far.
    pub(crate) fn hits(&self) -> Hits {
        let after_pass = self.hits_after_pass.load(Relaxed);
        Hits { all: self.hits.sum(), after_own_write: self.late_hits.load(Relaxed), after_pass }
    }

    /// An answer of the database is to be kept.
    pub(crate) fn fill_begins(&self) {
        self.fills.fetch_add(1, Relaxed);
        self.worth.fill();
    }

    /// How long others that miss wait for a fill: some four times of what one takes, and what follows it.
    pub(crate) fn join_wait(&self) -> Nanos {
        const LEAST: Nanos = 5_000_000;
        const MOST: Nanos = 10_000_000_000;
        const UNKNOWN: Nanos = 1_000_000_000;
        match self.fill_nanos.load(Relaxed) {
            0 => UNKNOWN,
            nanos => (nanos.saturating_mul(4) / self.fills.load(Relaxed).max(1)).clamp(LEAST, MOST),
        }
    }

    /// The database took so long for it, of which it waited about so long for its turn; what it took without that.
    pub(crate) fn fill_took(&self, nanos: Nanos, turn: Nanos) -> Nanos {
        self.fill_nanos.fetch_add(nanos, Relaxed);
        self.worth.answered(nanos, turn)
    }
}

impl NormalizedQuery {
    pub(crate) fn note_passed(&self, reason: &Reason) {
        self.figures.passed.fetch_add(1, Relaxed);
        self.note_reason(reason);
    }

    fn note_reason(&self, reason: &Reason) {
        let mut last = self.figures.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(reason) {
            *last = Some(reason.clone());
        }
    }

    /// An answer that was to be kept cannot be, for what it is and not for what happened meanwhile.
    pub(crate) fn note_not_cached(&self, reason: Reason) {
        self.note_reason(&reason);
        *self.figures.not_cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// An answer is kept.
    pub(crate) fn note_kept(&self) {
        *self.figures.not_cached.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Why the last answer that was to be kept was not; None if it was, or only the moment was wrong.
    pub(crate) fn not_cached(&self) -> Option<Reason> {
        self.figures.not_cached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
