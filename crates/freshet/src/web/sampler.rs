//! One sample of the figures each second: the dashboard's charts are made of them.
//!
//! A counter says how much happened since the start. An operator looks at how much happens now, so each sample has the differences from the one
//! before, and the latencies of what happened in between. The samples of the last minutes stay, so that a page that is opened is not empty.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use freshet_proxy::{Histogram, Shared};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

use super::health::health;

const EVERY: Duration = Duration::from_secs(1);
/// Samples that stay: ten minutes.
const SAMPLES_MAX: usize = 600;
/// Samples that a slow listener may be behind. Then it misses some.
const BEHIND_MAX: usize = 8;

/// Takes the samples.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) shared: Arc<Shared>,
    started: Instant,
    /// As JSON.
    samples: Mutex<VecDeque<Arc<str>>>,
    /// For those who listen.
    sender: broadcast::Sender<Arc<str>>,
}

/// The counters at one moment.
#[derive(Debug, Default)]
struct Counted {
    hits: u64,
    fills: u64,
    passed: u64,
    invalidated: u64,
    evicted: u64,
    commits: u64,
    hit_latency: Histogram,
    database_latency: Histogram,
}

impl Sampler {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (sender, _) = broadcast::channel(BEHIND_MAX);
        Self { shared, started: Instant::now(), samples: Mutex::default(), sender }
    }

    /// Takes samples for ever.
    pub(super) async fn run(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut before, mut at) = (Counted::of(&self.shared), Instant::now());
        loop {
            ticks.tick().await;
            self.shared.cache.read_size_curve();
            let (now, seconds) = (Counted::of(&self.shared), at.elapsed().as_secs_f64());
            if seconds < EVERY.as_secs_f64() / 2.0 {
                continue; // the first tick comes at once
            }
            let sample: Arc<str> = sample(&self.shared, &now, &before, seconds).to_string().into();
            (before, at) = (now, Instant::now());
            let mut samples = self.samples();
            if samples.len() >= SAMPLES_MAX {
                samples.pop_front();
            }
            samples.push_back(sample.clone());
            drop(samples);
            // Nobody may listen.
            let _ = self.sender.send(sample);
        }
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Arc<str>>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest samples, the oldest first.
    pub(super) fn history(&self) -> Vec<Arc<str>> {
        self.samples().iter().cloned().collect()
    }

    /// Those to come.
    pub(super) fn listen(&self) -> broadcast::Receiver<Arc<str>> {
        self.sender.subscribe()
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Counted {
    fn of(shared: &Shared) -> Self {
        let (metrics, counters) = (&shared.metrics, shared.cache.counters());
        let hit_latency = metrics.hit_latency().histogram;
        Self {
            hits: hit_latency.count(),
            fills: metrics.fills(),
            passed: metrics.passed(),
            invalidated: counters.invalidated.load(Relaxed),
            evicted: counters.evicted.load(Relaxed),
            commits: counters.commits.load(Relaxed),
            hit_latency,
            database_latency: metrics.answer_latency().histogram,
        }
    }
}

/// What happened between the two.
fn since(now: &Histogram, before: &Histogram) -> Histogram {
    let earlier = before.buckets.iter().copied().chain(std::iter::repeat(0));
    Histogram { buckets: now.buckets.iter().zip(earlier).map(|(now, before)| now.saturating_sub(before)).collect() }
}

fn sample(shared: &Shared, now: &Counted, before: &Counted, seconds: f64) -> Value {
    let rate = |of: fn(&Counted) -> u64| of(now).saturating_sub(of(before)) as f64 / seconds;
    let (hits, database) = (rate(|c| c.hits), rate(|c| c.fills) + rate(|c| c.passed));
    let hit_latency = since(&now.hit_latency, &before.hit_latency);
    let database_latency = since(&now.database_latency, &before.database_latency);
    let quantile = |of: &Histogram, share| of.quantile(share).map(|micros| micros / 1e6);
    let levels = shared.cache.levels(shared.clock.now());
    let age = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64 / 1e9);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "time": time.as_millis() as u64,
        "hits_per_second": hits,
        "database_per_second": database,
        "fills_per_second": rate(|c| c.fills),
        "passed_per_second": rate(|c| c.passed),
        "hit_ratio": (hits + database > 0.0).then(|| hits / (hits + database)),
        "hit_p50_seconds": quantile(&hit_latency, 0.5),
        "hit_p99_seconds": quantile(&hit_latency, 0.99),
        "database_p50_seconds": quantile(&database_latency, 0.5),
        "database_p99_seconds": quantile(&database_latency, 0.99),
        "invalidated_per_second": rate(|c| c.invalidated),
        "evicted_per_second": rate(|c| c.evicted),
        "commits_per_second": rate(|c| c.commits),
        "staleness_seconds": age(levels.stream_age),
        "catalog_age_seconds": age(levels.catalog_age),
        "staleness_max_seconds": age(Some(shared.cache.limits().staleness_max)),
        "entries": levels.entries,
        "bytes": levels.bytes,
        "overhead_bytes": shared.cache.overhead(),
        "memory_limit_bytes": shared.cache.limits().memory_bytes,
        "sessions": shared.metrics.sessions(),
        "health": health(shared),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_latencies_of_its_second_alone() {
        let (before, now) = (Histogram { buckets: vec![5, 7] }, Histogram { buckets: vec![5, 9, 4] });
        assert_eq!(since(&now, &before).buckets, [0, 2, 4]);
        assert_eq!(since(&now, &Histogram::default()).buckets, now.buckets);
    }
}
