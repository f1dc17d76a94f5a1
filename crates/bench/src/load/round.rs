//! A round: its loads, its parts, and the reasons for an early end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Loop;
use super::recorder::Health;

/// How often each thread checks whether the round was stopped.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// Lengths of a round's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
    pub(super) cool_down: Duration,
}

/// The points in time that divide a round, the same for all threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    /// The first transaction may start.
    pub(super) start: Instant,
    /// Start of the measured interval.
    pub(super) begin: Instant,
    /// End of the measured interval.
    pub(super) end: Instant,
    /// No transaction starts from here on.
    pub(super) finish: Instant,
}

impl Timeline {
    pub(super) fn new(start: Instant, times: &Times) -> Self {
        let begin = start + times.warm_up;
        let end = begin + times.measured;
        Self { start, begin, end, finish: end + times.cool_down }
    }
}

/// Connections that run the same kind of transactions at the same pace.
#[derive(Debug)]
pub(super) struct Load<C> {
    /// The name, for errors.
    pub(super) name: &'static str,
    pub(super) client: Arc<C>,
    pub(super) connections: usize,
    pub(super) threads: usize,
    pub(super) pace: Loop,
    /// Number of statements that are measured.
    pub(super) statements: usize,
    /// Seed of the arrivals.
    pub(super) seed: u64,
    pub(super) health: Arc<Health>,
}

/// Signals that end the round early.
#[derive(Debug)]
pub(super) struct Signals<'a> {
    pub(super) stop: &'a AtomicBool,
    pub(super) abandoned: AtomicBool,
}

impl Signals<'_> {
    /// Whether the user or an error has stopped it.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.abandoned()
    }

    /// Whether an error has stopped it. The figures are then not used.
    pub(super) fn abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Stops the round because of an error.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Sleeps until this time. False if the round is stopped before.
    pub(super) fn sleep_until(&self, time: Instant) -> bool {
        loop {
            if self.stopped() {
                return false;
            }
            let rest = time.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return true;
            }
            thread::sleep(rest.min(TICK));
        }
    }
}
