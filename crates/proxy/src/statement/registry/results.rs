//! The results of one normalized query: how many are cached, their rows and ages, and what invalidated them.
//!
//! A hit counts nothing here. What hits returned and how old it was is worked out from the hits of each entry when it leaves the cache, and from
//! averages for those that are there. So it is an estimate: an entry's hits are taken to be spread evenly over its life.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freshet_types::{Nanos, TableId};

/// Tables that are counted by name; further ones are counted together.
const TABLES_MAX: usize = 4;
const MILLI: Nanos = 1_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ResultFigures {
    /// Entries now.
    pub(crate) entries: AtomicU64,
    /// Bytes of the results that were cached.
    pub(crate) bytes: AtomicU64,
    /// Of the entries now: all rows, and all times at which they were read, in milliseconds.
    rows: AtomicU64,
    since: AtomicU64,
    /// Of those that were entries: all hits, the rows that these returned, and their ages in milliseconds.
    ended_hits: AtomicU64,
    ended_rows: AtomicU64,
    ended_ages: AtomicU64,
    /// Rows of the database's answers, and rows that it says were changed.
    database_rows: AtomicU64,
    rows_affected: AtomicU64,
    invalidated: Mutex<Invalidated>,
}

/// Results that commits invalidated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Invalidated {
    /// In all.
    pub(crate) count: u64,
    /// By which tables, the first few. The others are not listed.
    pub(crate) by_table: Vec<(TableId, u64)>,
}

/// Averages over all hits of a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AtHits {
    /// Rows that they returned in all.
    pub(crate) rows: u64,
    /// How old a result was, in seconds.
    pub(crate) age: f64,
}

impl ResultFigures {
    /// A result was cached at this time.
    pub(crate) fn begins(&self, bytes: usize, rows: u32, now: Nanos) {
        self.entries.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.rows.fetch_add(u64::from(rows), Relaxed);
        self.since.fetch_add(now / MILLI, Relaxed);
    }

    /// It is no longer in the cache, and had so many hits.
    pub(crate) fn ends(&self, hits: u64, rows: u32, (since, now): (Nanos, Nanos)) {
        self.entries.fetch_sub(1, Relaxed);
        self.rows.fetch_sub(u64::from(rows), Relaxed);
        self.since.fetch_sub(since / MILLI, Relaxed);
        if hits > 0 {
            let age = now.saturating_sub(since) / MILLI / 2;
            self.ended_hits.fetch_add(hits, Relaxed);
            self.ended_rows.fetch_add(hits.saturating_mul(u64::from(rows)), Relaxed);
            self.ended_ages.fetch_add(hits.saturating_mul(age), Relaxed);
        }
    }

    /// A commit invalidated one; None: it is not known by which table.
    pub(crate) fn invalidated_by(&self, table: Option<TableId>) {
        let mut invalidated = self.invalidations_now();
        invalidated.count += 1;
        let Some(table) = table else { return };
        let by_table = &mut invalidated.by_table;
        match by_table.iter().position(|(other, _)| *other == table) {
            Some(at) => by_table.get_mut(at).into_iter().for_each(|(_, count)| *count += 1),
            None if by_table.len() < TABLES_MAX => by_table.push((table, 1)),
            None => {}
        }
    }

    fn invalidations_now(&self) -> MutexGuard<'_, Invalidated> {
        self.invalidated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn invalidated(&self) -> Invalidated {
        self.invalidations_now().clone()
    }

    /// The database has answered.
    pub(crate) fn answered(&self, rows: u64, affected: u64) {
        self.database_rows.fetch_add(rows, Relaxed);
        self.rows_affected.fetch_add(affected, Relaxed);
    }

    /// Rows of the database's answers, and rows that it says were changed.
    pub(crate) fn database_rows(&self) -> [u64; 2] {
        [self.database_rows.load(Relaxed), self.rows_affected.load(Relaxed)]
    }

    /// What so many hits returned in all.
    pub(crate) fn at_hits(&self, hits: u64, now: Nanos) -> AtHits {
        let (entries, live) = (self.entries.load(Relaxed), hits.saturating_sub(self.ended_hits.load(Relaxed)));
        let live_rows = u128::from(live) * u128::from(self.rows.load(Relaxed)) / u128::from(entries.max(1));
        let since = self.since.load(Relaxed) as f64 / entries.max(1) as f64;
        let age = if entries > 0 { ((now / MILLI) as f64 - since).max(0.0) / 2.0 } else { 0.0 };
        let ages = self.ended_ages.load(Relaxed) as f64 + live as f64 * age;
        AtHits {
            rows: self.ended_rows.load(Relaxed).saturating_add(live_rows as u64),
            age: ages / hits.max(1) as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_return_the_rows_of_their_entries() {
        let figures = ResultFigures::default();
        figures.begins(100, 3, 1_000 * MILLI);
        figures.begins(100, 5, 1_000 * MILLI);
        let at_hits = figures.at_hits(10, 3_000 * MILLI);
        assert_eq!((at_hits.rows, at_hits.age), (40, 1.0), "both had as many, in the middle of two seconds");
        figures.ends(8, 3, (1_000 * MILLI, 3_000 * MILLI));
        assert_eq!(figures.at_hits(10, 5_000 * MILLI).rows, 8 * 3 + 2 * 5);
        figures.ends(2, 5, (1_000 * MILLI, 5_000 * MILLI));
        let at_hits = figures.at_hits(10, 9_000 * MILLI);
        assert_eq!((at_hits.rows, at_hits.age), (34, (8.0 + 2.0 * 2.0) / 10.0));
        assert!(ResultFigures::default().at_hits(0, MILLI).age.abs() < f64::EPSILON);
    }

    #[test]
    fn few_tables_are_counted_by_name() {
        let figures = ResultFigures::default();
        (0..10).for_each(|table| figures.invalidated_by(Some(TableId(table))));
        figures.invalidated_by(Some(TableId(1)));
        figures.invalidated_by(None);
        let Invalidated { count, by_table } = figures.invalidated();
        assert_eq!((count, by_table.len(), by_table.get(1)), (12, TABLES_MAX, Some(&(TableId(1), 2))));
    }
}
