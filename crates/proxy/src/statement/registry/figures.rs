//! Counters of each normalized query.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use freshet_cache::admission::{Hits, Worth};
use freshet_types::{Nanos, Reason};

use crate::latency::HitLatency;
use crate::metrics::{Answers, ByReason};
use crate::statement::registry::NormalizedQuery;
use crate::statement::registry::results::ResultFigures;

/// The figures of one normalized query, for SHOW and the metrics.
#[derive(Debug, Default)]
pub(crate) struct StatementFigures {
    /// Hits.
    pub(crate) hits: HitLatency,
    /// Hits after an own write.
    pub(crate) hits_after_own_write: AtomicU64,
    /// Hits directly after a read that passed.
    pub(crate) hits_after_pass: AtomicU64,
    /// Fills: answers of the database that were to be cached.
    pub(crate) fills: AtomicU64,
    /// Statements passed.
    pub(crate) passed: AtomicU64,
    /// What the database took for the fills, round trip included.
    pub(crate) fill_answers: Answers,
    /// The same for what passed.
    pub(crate) pass_answers: Answers,
    /// Its results.
    pub(crate) results: ResultFigures,
    /// When it was executed first and last.
    pub(crate) seen: Seen,
    /// Useless key queries in a row, and those that were skipped for that.
    pub(crate) coarse: AtomicU32,
    /// The same for member keys, and for results that could not be cached since rows left meanwhile.
    pub(crate) members_coarse: AtomicU32,
    /// Whether its results are worth caching.
    pub(crate) worth: Worth,
    /// The last reason for a pass, or for an answer that was not cached.
    reasons: Mutex<Reasons>,
    /// See [`NormalizedQuery::not_cached`].
    not_cached: Mutex<Option<Reason>>,
}

/// When a statement was seen, in seconds since 1970.
#[derive(Debug)]
pub(crate) struct Seen {
    first: u64,
    last: AtomicU64,
    /// The calls when `last` was set.
    calls: AtomicU64,
}

impl Default for Seen {
    fn default() -> Self {
        let now = unix_seconds();
        Self { first: now, last: AtomicU64::new(now), calls: AtomicU64::new(0) }
    }
}

impl Seen {
    /// When it was first seen, and when its calls were first read to be so many: a hit does not note the time.
    pub(crate) fn read(&self, calls: u64) -> [u64; 2] {
        if self.calls.swap(calls, Relaxed) != calls {
            self.last.store(unix_seconds(), Relaxed);
        }
        [self.first, self.last.load(Relaxed)]
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[derive(Debug, Default)]
struct Reasons {
    /// The last one.
    last: Option<Reason>,
    passed: ByReason,
}

impl StatementFigures {
    /// The last reason for passing, or for not caching an answer.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.reasons().last.clone()
    }

    /// How often it passed for each reason, by [`Reason::label`].
    pub(crate) fn passed_by_reason(&self) -> Vec<(&'static str, u64)> {
        self.reasons().passed.all().to_vec()
    }

    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hits so far.
    pub(crate) fn hits(&self) -> Hits {
        let after_pass = self.hits_after_pass.load(Relaxed);
        Hits { all: self.hits.count(), after_own_write: self.hits_after_own_write.load(Relaxed), after_pass }
    }

    /// An answer of the database is to be cached.
    pub(crate) fn fill_begins(&self) {
        self.fills.fetch_add(1, Relaxed);
        self.worth.fill();
    }

    /// How long other misses wait for a fill: about four times its usual duration, with the work after it.
    pub(crate) fn join_wait(&self) -> Nanos {
        const LEAST: Nanos = 5_000_000;
        const MOST: Nanos = 10_000_000_000;
        const UNKNOWN: Nanos = 1_000_000_000;
        match self.fill_answers.mean() {
            0 => UNKNOWN,
            nanos => nanos.saturating_mul(4).clamp(LEAST, MOST),
        }
    }

    /// How often the statement was executed.
    pub(crate) fn calls(&self) -> u64 {
        self.hits.count() + self.fills.load(Relaxed) + self.passed.load(Relaxed)
    }

    /// What the database took, or would have taken without the cache.
    pub(crate) fn weight(&self) -> Nanos {
        let took = self.fill_answers.nanos().saturating_add(self.pass_answers.nanos());
        took.saturating_add(self.hits.count().saturating_mul(self.fill_answers.mean()))
    }

    /// Counts a fill that took `nanos`, of which about `turn` was queueing delay; returns the time without it.
    pub(crate) fn fill_took(&self, nanos: Nanos, turn: Nanos) -> Nanos {
        self.fill_answers.note(nanos.into());
        self.worth.answered(nanos, turn)
    }
}

impl Reasons {
    fn note(&mut self, reason: &Reason) {
        if self.last.as_ref() != Some(reason) {
            self.last = Some(reason.clone());
        }
    }
}

impl NormalizedQuery {
    pub(crate) fn note_passed(&self, reason: &Reason) {
        self.figures.passed.fetch_add(1, Relaxed);
        let mut reasons = self.figures.reasons();
        reasons.note(reason);
        reasons.passed.count(reason);
    }

    /// An answer that was to be cached cannot be, for a reason that will recur.
    pub(crate) fn note_not_cached(&self, reason: Reason) {
        self.figures.reasons().note(&reason);
        *self.figures.not_cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// An answer was cached.
    pub(crate) fn note_kept(&self) {
        *self.figures.not_cached.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Why the last answer that was to be cached was not; None if it was, or only the time was wrong.
    pub(crate) fn not_cached(&self) -> Option<Reason> {
        self.figures.not_cached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
