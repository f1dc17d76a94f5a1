//! The queue of results to refresh, and the limit of the database time that refreshing may use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freshet_types::Nanos;
use tokio::sync::Notify;

use crate::session::body::{Body, Source};

/// The most results that wait. Of more, the coldest are dropped.
const WAITING_MAX: usize = 1000;
/// The most time that is saved up while nothing is refreshed.
const SAVED_MAX: Nanos = 200_000_000;

/// The outcome of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The statement ran, and its answer is cached if it may be.
    Read,
    /// Nothing was sent: a refresh is not necessary, or not possible.
    NotAsked,
    /// New snapshots do not yet show the change that invalidated the entry, or the stream is late.
    TooSoon,
}

/// A result to refresh.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: Arc<[u8]>,
    pub(crate) source: Source,
}

/// Waiting results, by heat: hits per time since the last read from the database.
#[derive(Debug, Default)]
struct Waiting {
    /// The number orders results with the same heat: older ones first.
    by_heat: BTreeMap<(u64, std::cmp::Reverse<u64>), Job>,
    next: u64,
}

impl Waiting {
    fn add(&mut self, heat: u64, job: Job) {
        self.next += 1;
        self.by_heat.insert((heat, std::cmp::Reverse(self.next)), job);
        if self.by_heat.len() > WAITING_MAX {
            self.by_heat.pop_first();
        }
    }

    fn hottest(&mut self) -> Option<Job> {
        self.by_heat.pop_last().map(|(_, job)| job)
    }
}

/// Heat: hits in a thousand seconds.
fn heat(hits: u64, over: Nanos) -> u64 {
    let per_time = u128::from(hits) * 1_000_000_000_000 / u128::from(over.max(1));
    u64::try_from(per_time).unwrap_or(u64::MAX)
}

/// The waiting results, and counters of the refreshed ones.
#[derive(Debug, Default)]
pub struct Refreshes {
    /// Whether refreshing is enabled.
    on: bool,
    waiting: Mutex<Waiting>,
    added: Notify,
    read: AtomicU64,
    installed: AtomicU64,
    nanos: AtomicU64,
}

impl Refreshes {
    pub(crate) fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    pub(crate) fn add(&self, key: Arc<[u8]>, body: &Body, now: Nanos) {
        if self.on {
            let heat = heat(body.hits(), now.saturating_sub(body.since));
            self.waiting().add(heat, Job { key, source: body.source.clone() });
            self.added.notify_one();
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a result waits and there is time for it. Returns the hottest, which may have arrived during the wait.
    pub(crate) async fn wait_for_one(&self, pause: impl Fn() -> Duration) -> Job {
        loop {
            if self.waiting().by_heat.is_empty() {
                self.added.notified().await;
            }
            let pause = pause();
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            if let Some(job) = self.waiting().hottest() {
                return job;
            }
        }
    }

    /// Counts a result that was read in this time.
    pub(crate) fn count_read(&self, nanos: Nanos) {
        self.read.fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// Counts a result that was cached.
    pub(crate) fn count_installed(&self) {
        self.installed.fetch_add(1, Relaxed);
    }

    /// Number of results that were read again.
    pub fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Number of results that were read again and cached.
    pub fn installed(&self) -> u64 {
        self.installed.load(Relaxed)
    }

    /// Database time that refreshing has used.
    pub fn nanos(&self) -> Nanos {
        self.nanos.load(Relaxed)
    }

    /// Number of waiting results.
    pub fn waiting_count(&self) -> usize {
        self.waiting().by_heat.len()
    }
}

/// A share of all time. After more was used, nothing is refreshed until the excess is saved again.
#[derive(Debug)]
pub(crate) struct Budget {
    share: f64,
    /// May be negative.
    saved: f64,
    as_of: Nanos,
}

impl Budget {
    /// None if the share is zero.
    pub(crate) fn new(share: f64, now: Nanos) -> Option<Self> {
        (share > 0.0).then_some(Self { share: share.min(1.0), saved: SAVED_MAX as f64, as_of: now })
    }

    fn saved_at(&self, now: Nanos) -> f64 {
        (self.saved + now.saturating_sub(self.as_of) as f64 * self.share).min(SAVED_MAX as f64)
    }

    pub(crate) fn spend(&mut self, nanos: Nanos, now: Nanos) {
        self.saved = self.saved_at(now) - nanos as f64;
        self.as_of = now;
    }

    /// The time until some time is available.
    pub(crate) fn wait(&self, now: Nanos) -> Duration {
        Duration::from_secs_f64((-self.saved_at(now)).max(0.0) / self.share / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::statement::registry::Registry;

    fn job(key: u64) -> Job {
        let statement = Registry::new(1 << 20, freshet_types::Dialect::Postgres).statement(b"select 1", &[]).unwrap();
        let source = Source { query: statement.query.clone(), statement: Weak::new() };
        Job { key: key.to_be_bytes().as_slice().into(), source }
    }

    fn keys(waiting: &mut Waiting) -> Vec<u64> {
        std::iter::from_fn(|| waiting.hottest())
            .map(|job| u64::from_be_bytes(job.key[..].try_into().unwrap()))
            .collect()
    }

    #[test]
    fn the_hottest_come_first_and_the_coldest_are_dropped() {
        let mut waiting = Waiting::default();
        for (key, (hits, over)) in [(1, 1000), (5, 1000), (5, 100), (0, 1), (5, 1000)].into_iter().enumerate() {
            waiting.add(heat(hits, over), job(key as u64));
        }
        assert_eq!(keys(&mut waiting), [2, 1, 4, 0, 3]);
        for key in 0..2 * WAITING_MAX as u64 {
            waiting.add(heat(key % 1500, 1_000_000), job(key));
        }
        let left = keys(&mut waiting);
        assert_eq!(left.len(), WAITING_MAX);
        assert!(left.iter().all(|key| key % 1500 >= 250), "{left:?}");
    }

    #[test]
    fn heat_has_no_limit() {
        assert!(heat(1, 1_000_000_000) > 0);
        assert!(heat(u64::MAX, 0) == u64::MAX);
        assert!(heat(2, u64::MAX) <= heat(u64::MAX, u64::MAX));
    }

    #[test]
    fn the_share_of_time_is_kept() {
        const SECOND: Nanos = 1_000_000_000;
        let mut budget = Budget::new(0.1, SECOND).unwrap();
        assert!(Budget::new(0.0, SECOND).is_none());
        let (mut now, mut spent) = (SECOND, 0);
        for turn in 0..1000 {
            now += Nanos::try_from(budget.wait(now).as_nanos()).unwrap() + turn % 7;
            assert!(budget.wait(now) <= Duration::from_nanos(100), "waiting is enough");
            let nanos = 1_000_000 * (1 + turn % 90);
            now += nanos;
            spent += nanos;
            budget.spend(nanos, now);
        }
        let allowed = (now - SECOND) / 10 + SAVED_MAX + 90_000_000;
        assert!(spent <= allowed && spent > allowed / 2, "{spent} of {allowed}");
        // Savings are bounded.
        now += 1000 * SECOND;
        budget.spend(2 * SAVED_MAX, now);
        assert!(budget.wait(now) >= Duration::from_nanos(9 * SAVED_MAX));
    }
}
