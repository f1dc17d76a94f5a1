//! Query analytics: what is known of each normalized query.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;

use freshet_types::{Catalog, Reason, TableId};

use crate::clock::monotonic;
use crate::latency::Histogram;
use crate::shared::Shared;
use crate::statement::registry::{NormalizedQuery, StatementFigures};

/// Figures of one normalized query, or of all that are not listed.
#[derive(Clone, Debug)]
pub struct QueryReport {
    /// The hash of its text, in hexadecimal; empty: of all that are not listed.
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
    /// Its results.
    pub results: Results,
    /// When it was seen first and last, in seconds since 1970. The last is when the figures were first read to be these.
    pub seen: [u64; 2],
    /// Its results are served so long at most, by a rule, since changes do not invalidate them; None: they do.
    pub ttl_seconds: Option<f64>,
    /// How long hits took.
    pub hit_latency: Histogram,
    /// How long the database took, for fills and for what passed, with the round trip.
    pub database_latency: Histogram,
    /// The same, all together.
    pub database_seconds: f64,
    /// What the hits would have taken at the database if each had taken as long as a fill does on average, less what they took.
    pub saved_seconds: f64,
}

/// The results of a statement.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Cached now.
    pub entries: u64,
    /// Bytes of all that were read to be cached.
    pub cached_bytes: u64,
    /// Those that a commit invalidated.
    pub invalidated: u64,
    /// By which tables, those with most first, with how many each: a few at most.
    pub invalidated_by: Vec<(String, u64)>,
    /// Rows that were returned or changed.
    pub rows: Rows,
    /// How old they are when they are hit, in seconds, on average: estimated.
    pub hit_age_seconds: f64,
    /// The hit ratio above which caching pays; None: not known.
    pub break_even_hit_ratio: Option<f64>,
}

impl Results {
    fn of(figures: &StatementFigures, hits: u64, catalog: &Catalog) -> Self {
        let results = &figures.results;
        let (at_hits, [database, affected]) = (results.at_hits(hits, monotonic()), results.database_rows());
        let mut invalidated = results.invalidated();
        invalidated.by_table.sort_by_key(|(_, count)| Reverse(*count));
        Self {
            entries: results.entries.load(Relaxed),
            cached_bytes: results.bytes.load(Relaxed),
            invalidated: invalidated.count,
            invalidated_by: invalidated.by_table.iter().map(|(table, n)| (name_of(catalog, *table), *n)).collect(),
            rows: Rows { hits: at_hits.rows, database, affected },
            hit_age_seconds: at_hits.age,
            break_even_hit_ratio: figures.worth.break_even(figures.hits()),
        }
    }
}

/// Rows that a statement has returned or changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    /// From the cache, estimated: each entry's hits by its rows.
    pub hits: u64,
    /// From the database. On PostgreSQL only those of results that were to be cached.
    pub database: u64,
    /// Rows that the database says were changed. On PostgreSQL always 0.
    pub affected: u64,
}

impl QueryReport {
    fn of(query: &NormalizedQuery, catalog: &Catalog) -> Self {
        let figures = &query.figures;
        let (filled, passed) = (figures.fill_answers.read(), figures.pass_answers.read());
        let hit_latency = figures.hits.read();
        let (hits, each_fill) = (hit_latency.count(), figures.fill_answers.mean() as f64 / 1e9);
        Self {
            results: Results::of(figures, hits, catalog),
            seen: figures.seen.read(figures.calls()),
            digest: query.digest_text(),
            query: query.text.to_string(),
            hits,
            fills: figures.fills.load(Relaxed),
            passed: figures.passed.load(Relaxed),
            passed_by_reason: figures.passed_by_reason(),
            reason: figures.reason(),
            ttl_seconds: query.ttl().map(|ttl| ttl as f64 / 1e9),
            saved_seconds: (each_fill - hit_latency.mean() / 1e6) * hits as f64,
            hit_latency,
            database_seconds: filled.seconds + passed.seconds,
            database_latency: Histogram::of_all([filled.histogram, passed.histogram]),
        }
    }

    /// The figures of all statements together, as far as they are counted so.
    fn of_all(shared: &Shared) -> Self {
        let (metrics, answers) = (&shared.metrics, shared.metrics.answer_latency());
        Self {
            digest: String::new(),
            query: String::new(),
            hits: metrics.hits(),
            fills: metrics.fills(),
            passed: metrics.passed(),
            passed_by_reason: metrics.passed_by_reason().iter().map(|passed| (passed.reason, passed.count)).collect(),
            reason: None,
            results: Results {
                entries: shared.cache.levels(shared.clock.now()).entries,
                invalidated: shared.cache.counters().invalidated.load(Relaxed),
                ..Results::default()
            },
            ttl_seconds: None,
            hit_latency: metrics.hit_latency().histogram,
            database_seconds: answers.seconds,
            database_latency: answers.histogram,
            saved_seconds: 0.0,
            seen: [0; 2],
        }
    }

    /// What is left of the figures of all without these.
    fn subtract(&mut self, listed: &Self) {
        for (all, part) in [
            (&mut self.hits, listed.hits),
            (&mut self.fills, listed.fills),
            (&mut self.passed, listed.passed),
            (&mut self.results.entries, listed.results.entries),
            (&mut self.results.invalidated, listed.results.invalidated),
        ] {
            *all = all.saturating_sub(part);
        }
        for (reason, count) in &mut self.passed_by_reason {
            let part = listed.passed_by_reason.iter().find(|(other, _)| other == reason);
            *count = count.saturating_sub(part.map_or(0, |(_, count)| *count));
        }
        self.hit_latency.subtract(&listed.hit_latency);
        self.database_latency.subtract(&listed.database_latency);
        self.database_seconds = (self.database_seconds - listed.database_seconds).max(0.0);
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

/// Schema and name of a table; of one that is gone its number.
fn name_of(catalog: &Catalog, table: TableId) -> String {
    catalog
        .table(table)
        .map_or_else(|| format!("(table {})", table.0), |table| format!("{}.{}", table.schema, table.name))
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
        if self.trouble().is_none() {
            // It is over.
            all.retain(|advice| !matches!(advice.reason, Reason::NoStream | Reason::LeaseExpired));
        }
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        all.truncate(max);
        all
    }

    /// The normalized queries that the database has spent most time on, or would have without the cache. The last report is of all statements that
    /// are not listed, if any was executed: of those that were evicted, that are beyond the limit, or that have no normalized query.
    pub fn query_reports(&self, max: usize) -> Vec<QueryReport> {
        // Read first: what is executed meanwhile is not taken for a statement that is left out.
        let mut left_out = QueryReport::of_all(self);
        let catalog = self.catalog.load();
        let queries = self.registry.queries();
        let mut all: Vec<QueryReport> = queries.iter().map(|query| QueryReport::of(query, &catalog)).collect();
        all.retain(|report| report.calls() > 0);
        all.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        let more = self.registry.queries_evicted() + all.len().saturating_sub(max) as u64;
        all.truncate(max);
        for report in &all {
            left_out.subtract(report);
        }
        if left_out.calls() > 0 {
            left_out.passed_by_reason.retain(|(_, count)| *count > 0);
            left_out.query = format!("({more} more statements, and those without a digest)");
            all.push(left_out);
        }
        all
    }
}
