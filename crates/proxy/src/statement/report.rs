//! Query analytics: what is known of each normalized query.

use std::sync::atomic::Ordering::Relaxed;

use freshet_types::Reason;

use crate::latency::Histogram;
use crate::shared::Shared;
use crate::statement::registry::NormalizedQuery;

/// Figures of one normalized query.
#[derive(Clone, Debug)]
pub struct QueryReport {
    /// The hash of its text, in hexadecimal.
    pub digest: String,
    /// Its text, with parameters in place of its constants.
    pub query: String,
    /// Statements served from the cache.
    pub hits: u64,
    /// Statements answered by the database, to be cached.
    pub fills: u64,
    /// Statements that passed.
    pub passed: u64,
    /// Of these, how many for each reason, by [`Reason::label`].
    pub passed_by_reason: Vec<(&'static str, u64)>,
    /// Why it last passed, or its result was not cached.
    pub reason: Option<Reason>,
    /// Results cached now.
    pub entries: u64,
    /// Results that a commit invalidated.
    pub invalidated: u64,
    /// Bytes of all results that were read to be cached.
    pub cached_bytes: u64,
    /// How long hits took.
    pub hit_latency: Histogram,
    /// How long the database took, for fills and for what passed, with the round trip.
    pub database_latency: Histogram,
    /// The same, all together.
    pub database_seconds: f64,
    /// What the hits would have taken at the database if each had taken as long as a fill does on average, less what they took.
    pub saved_seconds: f64,
}

impl QueryReport {
    fn of(query: &NormalizedQuery) -> Self {
        let figures = &query.figures;
        let (filled, passed) = (figures.fill_answers.read(), figures.pass_answers.read());
        let hit_latency = figures.hits.read();
        let (hits, answers) = (hit_latency.count(), figures.fill_answers.count());
        let each_fill = if answers == 0 { 0.0 } else { filled.seconds / answers as f64 };
        Self {
            digest: query.digest_text(),
            query: query.text.to_string(),
            hits,
            fills: figures.fills.load(Relaxed),
            passed: figures.passed.load(Relaxed),
            passed_by_reason: figures.passed_by_reason(),
            reason: figures.reason(),
            entries: figures.entries.load(Relaxed),
            invalidated: figures.invalidated.load(Relaxed),
            cached_bytes: figures.cached_bytes.load(Relaxed),
            saved_seconds: (each_fill - hit_latency.mean() / 1e6) * hits as f64,
            hit_latency,
            database_seconds: filled.seconds + passed.seconds,
            database_latency: Histogram::of_all([filled.histogram, passed.histogram]),
        }
    }

    /// What the database took, or would have taken without the cache.
    fn weight(&self) -> f64 {
        self.database_seconds + self.saved_seconds.max(0.0)
    }

    /// How often the statement was executed.
    pub fn calls(&self) -> u64 {
        self.hits + self.fills + self.passed
    }

    /// The share of hits among its executions, between 0 and 1.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.calls().max(1) as f64
    }
}

/// What would make a statement cacheable that passes.
#[derive(Clone, Debug)]
pub struct Advice {
    /// As in [`QueryReport`].
    pub digest: String,
    /// As in [`QueryReport`].
    pub query: String,
    /// Statements that passed.
    pub passed: u64,
    /// What the database took for them: the most that caching would save.
    pub seconds: f64,
    /// Why the last one passed, or was not cached.
    pub reason: Reason,
    /// What to do.
    pub remedy: String,
}

impl Advice {
    fn of(query: &NormalizedQuery) -> Option<Self> {
        let figures = &query.figures;
        let passed = figures.passed.load(Relaxed);
        let reason = query.not_cached().or_else(|| figures.reason().filter(|_| passed > 0))?;
        if reason == Reason::NotPublished && figures.fills.load(Relaxed) > 0 {
            return None; // it was published meanwhile
        }
        Some(Self {
            digest: query.digest_text(),
            query: query.text.to_string(),
            passed,
            seconds: figures.pass_answers.read().seconds,
            remedy: reason.remedy()?,
            reason,
        })
    }
}

impl Shared {
    /// Statements that pass for a reason that can be mended, the one first on which the database has spent most time.
    pub fn advice(&self, max: usize) -> Vec<Advice> {
        let mut all: Vec<Advice> = self.registry.queries().iter().filter_map(|query| Advice::of(query)).collect();
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        all.truncate(max);
        all
    }

    /// The normalized queries that the database has spent most time on, or would have without the cache.
    pub fn query_reports(&self, max: usize) -> Vec<QueryReport> {
        let mut all: Vec<QueryReport> = self.registry.queries().iter().map(|query| QueryReport::of(query)).collect();
        all.retain(|report| report.calls() > 0);
        all.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        all.truncate(max);
        all
    }
}
