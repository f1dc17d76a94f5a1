//! Counters. Those of the hit path are one padded cell per worker, so that no two cores share a cache line.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use freshet_types::Reason;

/// A counter that all workers raise, each in a place of its own as far as there are places.
#[derive(Debug, Default)]
pub(crate) struct Spread([Padded; Self::PLACES]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded(AtomicU64);

impl Spread {
    const PLACES: usize = 8;

    pub(crate) fn raise(&self, worker: usize) {
        if let Some(place) = self.0.get(worker % Self::PLACES) {
            place.0.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|place| place.0.load(Relaxed)).sum()
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) fills: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) hit_bytes: AtomicU64,
    pub(crate) sessions: AtomicU64,
    /// Few: they are looked through faster than a tree is gone down.
    passed_by_reason: Mutex<Vec<(&'static str, u64)>>,
}

impl WorkerCounters {
    pub(crate) fn count_passed(&self, reason: &Reason) {
        self.passed.fetch_add(1, Relaxed);
        let mut by_reason = self.passed_by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        let label = reason.label();
        match by_reason.iter_mut().find(|(other, _)| *other == label) {
            Some((_, count)) => *count += 1,
            None => by_reason.push((label, 1)),
        }
    }
}

/// All counters.
#[derive(Debug)]
pub struct Metrics {
    workers: Vec<WorkerCounters>,
    /// Connections accepted since the start.
    pub connections: AtomicU64,
    /// Clients that could not prove who they are.
    pub login_failures: AtomicU64,
}

/// Statements passed for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedCount {
    /// [`Reason::label`].
    pub reason: &'static str,
    /// How many.
    pub count: u64,
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers.max(1)).map(|_| WorkerCounters::default()).collect(),
            connections: AtomicU64::new(0),
            login_failures: AtomicU64::new(0),
        }
    }

    pub(crate) fn worker(&self, at: usize) -> Option<&WorkerCounters> {
        self.workers.get(at)
    }

    fn sum(&self, counter: impl Fn(&WorkerCounters) -> &AtomicU64) -> u64 {
        self.workers.iter().map(|worker| counter(worker).load(Relaxed)).sum()
    }

    /// Answers from the cache.
    pub fn hits(&self) -> u64 {
        self.sum(|w| &w.hits)
    }

    /// Their bytes.
    pub fn hit_bytes(&self) -> u64 {
        self.sum(|w| &w.hit_bytes)
    }

    /// Answers from the database that were to be kept.
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
            for (reason, count) in &*worker.passed_by_reason.lock().unwrap_or_else(PoisonError::into_inner) {
                *all.entry(reason).or_default() += count;
            }
        }
        all.into_iter().map(|(reason, count)| PassedCount { reason, count }).collect()
    }
}
