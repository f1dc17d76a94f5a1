//! Takes a sample of the figures each second, for the dashboard's charts.
//!
//! A counter counts since the start. An operator wants to know what happens now. So each sample has the differences from the previous one, and the
//! latencies in between. The samples of the last minutes are stored, so that a page is not empty when it is opened.
//!
//! There are samples of each database, and of all databases together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use freshet_proxy::{Database, Databases, Histogram, Shared};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

use super::health::health;

const EVERY: Duration = Duration::from_secs(1);
/// The most samples that are stored: ten minutes.
const SAMPLES_MAX: usize = 600;
/// The most samples that a slow listener may be behind. Then it misses some.
const BEHIND_MAX: usize = 8;

/// Takes the samples.
#[derive(Debug)]
pub(super) struct Sampler {
    databases: Arc<Databases>,
    started: Instant,
    /// The samples by database name. None: of all together.
    samples: Mutex<BTreeMap<Option<String>, Samples>>,
}

/// Samples of one database, or of all.
#[derive(Debug)]
struct Samples {
    before: Counted,
    /// The latest samples as JSON.
    latest: VecDeque<Arc<str>>,
    /// Sends samples to listeners.
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
        // There may be no listener.
        let _ = self.sender.send(sample);
    }
}

/// The counters at a moment.
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

    /// Takes samples. Never returns.
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

    /// Takes a sample of each database. None: only reads the counters.
    fn take(&self, seconds: Option<f64>) {
        let all = self.databases.databases();
        let mut samples = self.samples();
        // The samples of a removed database end the wait of its listeners.
        samples.retain(|name, _| name.as_ref().is_none_or(|name| all.iter().any(|one| one.name == *name)));
        for database in all.iter() {
            database.family.shared().cache.read_size_curve();
        }
        // A database that is opened on demand may have the name of a server of MySQL.
        let names: BTreeSet<&String> = all.iter().map(|one| &one.name).collect();
        for name in names.into_iter().map(Some).chain([None]) {
            let is_it = |one: &&Database| name.is_none_or(|name| one.name == *name);
            let of: Vec<Database> = all.iter().filter(is_it).cloned().collect();
            let samples = samples.entry(name.cloned()).or_insert_with(|| Samples::new(&of));
            if let Some(seconds) = seconds {
                samples.take(&of, seconds);
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

    /// The coming samples. None if there is no such database, or if it was added within this second.
    pub(super) fn listen(&self, name: Option<&str>) -> Option<broadcast::Receiver<Arc<str>>> {
        Some(self.samples().get(&name.map(str::to_owned))?.sender.subscribe())
    }

    /// Ends the wait of all listeners.
    pub(super) fn dismiss(&self) {
        self.samples().clear();
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

fn sum(all: &[Database], of: impl Fn(&Shared) -> u64) -> u64 {
    all.iter().map(|database| of(database.family.shared())).sum()
}

/// The histogram over all databases.
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

/// The events between two histograms.
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
    // The worst age of all databases.
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
