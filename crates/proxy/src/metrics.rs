//! Counters. Those of the hit path have one padded cell per worker, so that no two cores share a cache line.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use freshet_types::{Nanos, Reason};

use crate::latency::{Histogram, Latency, OF_ANSWERS, OF_HITS, Took};

/// The counters of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    hits: Latency<OF_HITS>,
    hit_nanos: AtomicU64,
    hit_bytes: AtomicU64,
    pub(crate) fills: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) answers: Answers,
    pub(crate) sessions: AtomicU64,
    passed_by_reason: Mutex<ByReason>,
}

/// How many statements passed for each reason, by [`Reason::label`]. Few: scanning them is faster than searching a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByReason(Vec<(&'static str, u64)>);

impl ByReason {
    pub(crate) fn count(&mut self, reason: &Reason) {
        let label = reason.label();
        match self.0.iter_mut().find(|(other, _)| std::ptr::eq(*other, label) || *other == label) {
            Some((_, count)) => *count += 1,
            None => self.0.push((label, 1)),
        }
    }

    pub(crate) fn all(&self) -> &[(&'static str, u64)] {
        &self.0
    }
}

/// What the database took for its answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    latency: Latency<OF_ANSWERS>,
    nanos: AtomicU64,
}

impl Answers {
    pub(crate) fn note(&self, took: Took) {
        self.latency.note(took);
        self.nanos.fetch_add(took.nanos, Relaxed);
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.latency.count()
    }

    /// All together.
    pub(crate) fn nanos(&self) -> Nanos {
        self.nanos.load(Relaxed)
    }

    /// On average; 0 of none.
    pub(crate) fn mean(&self) -> Nanos {
        self.nanos() / self.count().max(1)
    }

    pub(crate) fn read(&self) -> Timed {
        Timed { histogram: self.latency.read(), seconds: self.nanos() as f64 / 1e9 }
    }
}

/// A histogram of latency and the sum of all in it.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// By latency.
    pub histogram: Histogram,
    /// All latencies together.
    pub seconds: f64,
}

impl WorkerCounters {
    fn count_hits(&self, count: usize, bytes: usize, took: Took) {
        let count = count as u64;
        self.hits.note_all(count, took);
        self.hit_nanos.fetch_add(count * took.nanos, Relaxed);
        self.hit_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn count_passed(&self, reason: &Reason) {
        self.passed.fetch_add(1, Relaxed);
        self.passed_by_reason.lock().unwrap_or_else(PoisonError::into_inner).count(reason);
    }
}

/// All counters.
#[derive(Debug)]
pub struct Metrics {
    workers: Vec<WorkerCounters>,
    /// Connections accepted since the start.
    pub connections: AtomicU64,
    /// Logins with a wrong password or without a required proof.
    pub login_failures: AtomicU64,
    /// MySQL and MariaDB: connections to the server for a client that were refused or could not be made.
    pub(crate) upstream_failures: AtomicU64,
}

/// The number of statements that passed for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedCount {
    /// [`Reason::label`].
    pub reason: &'static str,
    /// The number.
    pub count: u64,
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers.max(1)).map(|_| WorkerCounters::default()).collect(),
            connections: AtomicU64::new(0),
            login_failures: AtomicU64::new(0),
            upstream_failures: AtomicU64::new(0),
        }
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn worker(&self, at: usize) -> Option<&WorkerCounters> {
        self.workers.get(at)
    }

    /// Counts hits of this worker: their answers' bytes together, and the latency of each.
    pub(crate) fn count_hits(&self, worker: usize, (count, bytes): (usize, usize), took: Took) {
        if let Some(counters) = self.worker(worker) {
            counters.count_hits(count, bytes, took);
        }
    }

    pub(crate) fn count_passed(&self, worker: usize, reason: &Reason) {
        if let Some(counters) = self.worker(worker) {
            counters.count_passed(reason);
        }
    }

    /// Counts an answer of the database and its latency.
    pub(crate) fn count_answer(&self, worker: usize, took: Took) {
        if let Some(counters) = self.worker(worker) {
            counters.answers.note(took);
        }
    }

    fn sum(&self, counter: impl Fn(&WorkerCounters) -> &AtomicU64) -> u64 {
        self.workers.iter().map(|worker| counter(worker).load(Relaxed)).sum()
    }

    /// Hits.
    pub fn hits(&self) -> u64 {
        self.workers.iter().map(|worker| worker.hits.count()).sum()
    }

    /// How long they took, from the look-up to the answer in the output buffer.
    pub fn hit_latency(&self) -> Timed {
        let histograms = self.workers.iter().map(|worker| worker.hits.read());
        Timed { histogram: Histogram::of_all(histograms), seconds: self.sum(|w| &w.hit_nanos) as f64 / 1e9 }
    }

    /// How long the database took for what was not answered from the cache, with the round trip.
    pub fn answer_latency(&self) -> Timed {
        let all: Vec<Timed> = self.workers.iter().map(|worker| worker.answers.read()).collect();
        let seconds = all.iter().map(|timed| timed.seconds).sum();
        Timed { histogram: Histogram::of_all(all.into_iter().map(|timed| timed.histogram)), seconds }
    }

    /// Bytes of hits.
    pub fn hit_bytes(&self) -> u64 {
        self.sum(|w| &w.hit_bytes)
    }

    /// Fills: answers of the database that were to be cached.
    pub fn fills(&self) -> u64 {
        self.sum(|w| &w.fills)
    }

    /// Statements passed.
    pub fn passed(&self) -> u64 {
        self.sum(|w| &w.passed)
    }

    /// Sessions open now.
    pub fn sessions(&self) -> u64 {
        self.sum(|w| &w.sessions)
    }

    /// Statements passed, by reason.
    pub fn passed_by_reason(&self) -> Vec<PassedCount> {
        let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
        for worker in &self.workers {
            for (reason, count) in worker.passed_by_reason.lock().unwrap_or_else(PoisonError::into_inner).all() {
                *all.entry(reason).or_default() += count;
            }
        }
        all.into_iter().map(|(reason, count)| PassedCount { reason, count }).collect()
    }
}
