//! The measurements of one thread of the load.
//!
//! Each thread has its own recorder, so nothing is shared during the load. The recorders are added up afterwards. The clock decides what counts: an
//! event belongs to the measured interval if its time is in it, even if the thread has not noticed the start of the interval. A closed loop counts a
//! transaction by its end, since throughput is the number of ended ones. An open loop counts it by its intended start, so that every transaction due
//! in the interval is in the histogram. Otherwise the slowest ones would be missing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;

use crate::driver::Failure;

/// Longer latencies are recorded as this one: 10 minutes in nanoseconds.
const LONGEST: u64 = 600_000_000_000;

/// The figures of one thread, or of all together. Latencies are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Length of the measured interval. It is shorter than requested if the round was stopped early.
    pub measured: Duration,
    /// Successful transactions that ended in it (closed loop) or were due in it (open loop).
    pub transactions: u64,
    /// Latency of whole transactions; in an open loop, from the intended start. Unfinished transactions count with their latency so far.
    pub latency: Histogram<u64>,
    /// Latency of the statements that ended in the interval, for each statement of the workload.
    pub statements: Vec<Histogram<u64>>,
    /// Rows that these statements returned or changed, for each statement of the workload. All targets draw the same keys, so a target whose queries
    /// find fewer rows than the database gives wrong answers.
    pub rows: Vec<u64>,
    /// Number of failed transactions and reconnects by code, with the text of the first.
    pub failures: BTreeMap<String, (u64, String)>,
    /// Open loop: how late transactions start although a connection is free. This is the client's own lateness.
    pub lateness: Option<Histogram<u64>>,
    /// Transactions due in the interval (open loop), or begun before its end (closed loop), that had not ended at the end of the round. They are
    /// counted so that a transaction that hangs is not lost.
    pub unfinished: u64,
    /// Number of transactions that ended in each second of the measured interval; the last second may be incomplete.
    pub per_second: Vec<u64>,
}

impl Tally {
    /// A tally without events.
    pub(super) fn new(statements: usize, open: bool) -> Self {
        Self {
            measured: Duration::ZERO,
            transactions: 0,
            latency: histogram(),
            statements: (0..statements).map(|_| histogram()).collect(),
            rows: vec![0; statements],
            failures: BTreeMap::new(),
            lateness: open.then(histogram),
            unfinished: 0,
            per_second: Vec::new(),
        }
    }

    /// Adds the figures of another thread for the same interval.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.measured = self.measured.max(other.measured);
        self.transactions += other.transactions;
        self.latency.add(&other.latency)?;
        for (mine, others) in self.statements.iter_mut().zip(&other.statements) {
            mine.add(others)?;
        }
        for (mine, others) in self.rows.iter_mut().zip(&other.rows) {
            *mine += others;
        }
        for (code, (count, first)) in &other.failures {
            self.failures.entry(code.clone()).or_insert_with(|| (0, first.clone())).0 += count;
        }
        if let (Some(mine), Some(others)) = (&mut self.lateness, &other.lateness) {
            mine.add(others)?;
        }
        self.unfinished += other.unfinished;
        self.per_second.resize(self.per_second.len().max(other.per_second.len()), 0);
        for (mine, others) in self.per_second.iter_mut().zip(&other.per_second) {
            *mine += others;
        }
        Ok(())
    }
}

/// A histogram from 1 ns to 10 minutes with an error of at most 0.1%. Its size is fixed, so recording never allocates.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("constant bounds, and valid ones")
}

fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LONGEST));
}

/// Whether a load has succeeded at least once. Its threads share it, and each writes it at most twice.
#[derive(Debug, Default)]
pub(super) struct Health {
    succeeded: AtomicBool,
    failed: OnceLock<String>,
}

impl Health {
    /// An error if there were failures and no success.
    pub(super) fn check(&self) -> Result<()> {
        match self.failed.get() {
            Some(first) if !self.succeeded.load(Ordering::Relaxed) => bail!("{first}"),
            _ => Ok(()),
        }
    }
}

/// The figures of one thread while it runs.
#[derive(Debug)]
pub struct Recorder {
    tally: Tally,
    /// Empty until the load starts.
    interval: Range<Instant>,
    health: Arc<Health>,
    /// What this thread has reported to `health`, so that it reports only once.
    succeeded: bool,
    failed: bool,
}

impl Recorder {
    pub(super) fn new(statements: usize, open: bool, health: Arc<Health>) -> Self {
        let now = Instant::now();
        Self { tally: Tally::new(statements, open), interval: now..now, health, succeeded: false, failed: false }
    }

    /// Sets the measured interval.
    pub(super) fn start(&mut self, interval: Range<Instant>) {
        self.tally.per_second = vec![0; seconds(interval.end.duration_since(interval.start))];
        self.interval = interval;
    }

    /// Records an answer with this number of rows returned or changed. The statement was sent at `began`.
    pub fn statement(&mut self, index: usize, began: Instant, rows: u64) {
        let ended = Instant::now();
        if self.interval.contains(&ended)
            && let (Some(latency), Some(sum)) = (self.tally.statements.get_mut(index), self.tally.rows.get_mut(index))
        {
            record(latency, ended.duration_since(began));
            *sum += rows;
        }
    }

    /// Records the end of a transaction. `from` is its start; in an open loop, its intended start.
    pub(super) fn transaction(&mut self, from: Instant, ended: Instant) {
        if !self.succeeded {
            self.succeeded = true;
            self.health.succeeded.store(true, Ordering::Relaxed);
        }
        let ended_inside = self.interval.contains(&ended);
        if ended_inside {
            let second = ended.duration_since(self.interval.start).as_secs() as usize;
            if let Some(count) = self.tally.per_second.get_mut(second) {
                *count += 1;
            }
        }
        let counts = if self.open() { self.interval.contains(&from) } else { ended_inside };
        if counts {
            self.tally.transactions += 1;
            record(&mut self.tally.latency, ended.duration_since(from));
        }
    }

    /// Records a failed transaction or reconnect. `at` is the time; in an open loop, the transaction's intended start.
    pub(super) fn failure(&mut self, failure: &Failure, at: Instant) {
        if !self.failed {
            self.failed = true;
            let _ = self.health.failed.set(failure.to_string());
        }
        if !self.interval.contains(&at) {
            return;
        }
        match self.tally.failures.get_mut(&failure.code) {
            Some((count, _)) => *count += 1,
            None => drop(self.tally.failures.insert(failure.code.clone(), (1, failure.text.clone()))),
        }
    }

    /// Open loop: records that the transaction due at `due` started late although a connection was free.
    pub(super) fn lateness(&mut self, due: Instant, late: Duration) {
        if let Some(lateness) = self.tally.lateness.as_mut().filter(|_| self.interval.contains(&due)) {
            record(lateness, late);
        }
    }

    /// Records a transaction that will not end. `from` is its start; in an open loop, its intended start.
    pub(super) fn unfinished(&mut self, from: Instant, now: Instant) {
        let counts = if self.open() { self.interval.contains(&from) } else { from < self.interval.end };
        if counts {
            self.tally.unfinished += 1;
            record(&mut self.tally.latency, now.duration_since(from));
        }
    }

    /// Whether transactions count by their intended starts instead of their ends.
    pub(super) const fn open(&self) -> bool {
        self.tally.lateness.is_some()
    }

    /// Records that the load of this thread ended at `now`, perhaps before the interval did.
    pub(super) fn stop(&mut self, now: Instant) {
        self.interval.end = self.interval.end.min(now).max(self.interval.start);
        self.tally.measured = self.interval.end.duration_since(self.interval.start);
        self.tally.per_second.truncate(seconds(self.tally.measured));
    }

    /// The tally.
    pub(super) fn tally(&self) -> Tally {
        self.tally.clone()
    }
}

/// The number of seconds, complete or not, in an interval of this length.
fn seconds(length: Duration) -> usize {
    length.as_secs() as usize + usize::from(length.subsec_nanos() > 0)
}

/// Adds up the tallies of a load's threads.
pub(super) fn total(tallies: impl IntoIterator<Item = Tally>) -> Result<Tally> {
    let mut tallies = tallies.into_iter();
    let mut total = tallies.next().context("a load without threads")?;
    for tally in tallies {
        total.add(&tally)?;
    }
    Ok(total)
}
