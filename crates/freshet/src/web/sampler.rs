//! One sample of the figures each second: the dashboard's charts are made of them.
//!
//! A counter says how much happened since the start. An operator looks at how much happens now, so each sample has the differences from the one
//! before, and the latencies of what happened in between. The samples of the last minutes stay, so that a page that is opened is not empty.
//!
//! There are samples of each database, and of all of them together.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use freshet_proxy::{Database, Databases, Histogram, Shared};
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
    databases: Arc<Databases>,
    started: Instant,
    /// By the name of the database; None: of all together.
    samples: Mutex<BTreeMap<Option<String>, Samples>>,
}

/// Samples of one database, or of all.
#[derive(Debug)]
struct Samples {
    before: Counted,
    /// As JSON.
    latest: VecDeque<Arc<str>>,
    /// For those who listen.
    sender: broadcast::Sender<Arc<str>>,
}

impl Samples {
    fn new(all: &[Database]) -> Self {
        Self { before: Counted::of(all), latest: VecDeque::new(), sender: broadcast::channel(BEHIND_MAX).0 }
    }

    fn take(&mut self, all: &[Database], seconds: f64) {
        let now = Counted::of(all);
        let sample: Arc<str> = sample(all, &now, &self.before, seconds).to_string().into();
        self.before = now;
        if self.latest.len() >= SAMPLES_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(sample.clone());
        // Nobody may listen.
        let _ = self.sender.send(sample);
    }
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
    pub(super) fn new(databases: Arc<Databases>) -> Self {
        Self { databases, started: Instant::now(), samples: Mutex::default() }
    }

    /// Takes samples for ever.
    pub(super) async fn run(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut at = Instant::now();
        self.take(None);
        loop {
            ticks.tick().await;
            let seconds = at.elapsed().as_secs_f64();
            if seconds < EVERY.as_secs_f64() / 2.0 {
                continue; // the first tick comes at once
            }
            at = Instant::now();
            self.take(Some(seconds));
        }
    }

    /// A sample of each; None: only a beginning.
    fn take(&self, seconds: Option<f64>) {
        let all = self.databases.databases();
        let mut samples = self.samples();
        // One that has gone ends the wait of its listeners.
        samples.retain(|name, _| name.as_ref().is_none_or(|name| all.iter().any(|one| one.name == *name)));
        for database in all.iter() {
            database.family.shared().cache.read_size_curve();
        }
        let each = all.iter().map(|one| (Some(one.name.clone()), std::slice::from_ref(one)));
        for (name, of) in each.chain([(None, all.as_slice())]) {
            let samples = samples.entry(name).or_insert_with(|| Samples::new(of));
            if let Some(seconds) = seconds {
                samples.take(of, seconds);
            }
        }
    }

    fn samples(&self) -> MutexGuard<'_, BTreeMap<Option<String>, Samples>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest samples, the oldest first.
    pub(super) fn history(&self, name: Option<&str>) -> Vec<Arc<str>> {
        let samples = self.samples();
        let of = samples.get(&name.map(str::to_owned));
        of.map(|samples| samples.latest.iter().cloned().collect()).unwrap_or_default()
    }

    /// Those to come; None: there is no such database, or it was added within this second.
    pub(super) fn listen(&self, name: Option<&str>) -> Option<broadcast::Receiver<Arc<str>>> {
        Some(self.samples().get(&name.map(str::to_owned))?.sender.subscribe())
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

fn sum(all: &[Database], of: impl Fn(&Shared) -> u64) -> u64 {
    all.iter().map(|database| of(database.family.shared())).sum()
}

/// Of all together.
fn merged(all: &[Database], of: impl Fn(&Shared) -> Histogram) -> Histogram {
    let mut buckets: Vec<u64> = Vec::new();
    for database in all {
        let histogram = of(database.family.shared());
        buckets.resize(buckets.len().max(histogram.buckets.len()), 0);
        buckets.iter_mut().zip(&histogram.buckets).for_each(|(sum, count)| *sum += count);
    }
    Histogram { buckets }
}

impl Counted {
    fn of(all: &[Database]) -> Self {
        let hit_latency = merged(all, |shared| shared.metrics.hit_latency().histogram);
        Self {
            hits: hit_latency.count(),
            fills: sum(all, |shared| shared.metrics.fills()),
            passed: sum(all, |shared| shared.metrics.passed()),
            invalidated: sum(all, |shared| shared.cache.counters().invalidated.load(Relaxed)),
            evicted: sum(all, |shared| shared.cache.counters().evicted.load(Relaxed)),
            commits: sum(all, |shared| shared.cache.counters().commits.load(Relaxed)),
            hit_latency,
            database_latency: merged(all, |shared| shared.metrics.answer_latency().histogram),
        }
    }
}

/// What happened between the two.
fn since(now: &Histogram, before: &Histogram) -> Histogram {
    let earlier = before.buckets.iter().copied().chain(std::iter::repeat(0));
    Histogram { buckets: now.buckets.iter().zip(earlier).map(|(now, before)| now.saturating_sub(before)).collect() }
}

fn sample(all: &[Database], now: &Counted, before: &Counted, seconds: f64) -> Value {
    let rate = |of: fn(&Counted) -> u64| of(now).saturating_sub(of(before)) as f64 / seconds;
    let (hits, database) = (rate(|c| c.hits), rate(|c| c.fills) + rate(|c| c.passed));
    let hit_latency = since(&now.hit_latency, &before.hit_latency);
    let database_latency = since(&now.database_latency, &before.database_latency);
    let quantile = |of: &Histogram, share| of.quantile(share).map(|micros| micros / 1e6);
    let levels = |shared: &Shared| shared.cache.levels(shared.clock.now());
    // The worst of all counts.
    let age = |of: &dyn Fn(&Shared) -> Option<u64>| {
        let streams = all.iter().filter(|database| database.has_stream());
        let oldest: Option<Vec<u64>> = streams.map(|database| of(database.family.shared())).collect();
        oldest.and_then(|ages| ages.into_iter().max()).map(|nanos| nanos as f64 / 1e9)
    };
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
        "staleness_seconds": age(&|shared| levels(shared).stream_age),
        "catalog_age_seconds": age(&|shared| levels(shared).catalog_age),
        "staleness_max_seconds": age(&|shared| Some(shared.cache.limits().staleness_max)),
        "entries": sum(all, |shared| levels(shared).entries),
        "bytes": sum(all, |shared| levels(shared).bytes),
        "overhead_bytes": sum(all, |shared| shared.cache.overhead()),
        "memory_limit_bytes": sum(all, |shared| shared.cache.limits().memory_bytes),
        "sessions": sum(all, |shared| shared.metrics.sessions()),
        "health": health(all),
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
