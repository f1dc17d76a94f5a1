//! The size curve: the share of look-ups that a smaller or larger cache would serve.
//!
//! # The problem
//!
//! An operator wants to know what more memory would gain, or what less would lose, without trying it. An LRU cache contains the latest requested
//! results, up to its size. So a look-up is a hit if all results requested since the same key's last look-up, this key included, fit: the *reuse
//! distance*, in bytes (Mattson et al., "Evaluation techniques for storage hierarchies", 1970). One count of distances gives the hit ratio of all
//! sizes. The eviction policy here is not LRU and serves a few more; the curve is a lower bound where memory is short.
//!
//! # The sample
//!
//! Only a sample of the keys is observed, those whose hash ends in zeros, with all of their look-ups. Their distances are those of all keys times
//! the rate (SHARDS: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015). If too many keys or look-ups are
//! in the sample, the rate is halved and half of the keys leave. A hot key is in the sample or not. The difference from the true number of look-ups
//! is taken as look-ups of distance zero, which is the paper's SHARDS-adj.
//!
//! A result that a commit has invalidated is no hit in a cache of any size. Its key leaves the order, so its next look-up has no distance.
//!
//! A look-up tests some bits of a hash that it has. One of sixteen, or fewer, then appends to a list under a lock that it does not wait for. The
//! list is read once a second, away from sessions. Until the first reading nothing is sampled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Cache;
use crate::entry::Payload;

/// The rate at the beginning: one key in sixteen.
const MASK: u64 = 15;
/// No key at all.
const OFF: u64 = u64::MAX;
/// Keys and events at most: one for so many bytes of the memory limit, between these bounds.
const BYTES_PER_KEY: u64 = 16 << 10;
const KEYS: (u64, u64) = (512, 8192);
/// Buckets for each doubling of the distance, and in all.
const PER_OCTAVE: f64 = 4.0;
const BUCKETS: usize = 180;
/// With each reading the earlier ones lose this much: half in half an hour of seconds.
const FADE: f64 = 0.999_615;
/// With fewer keys in the sample the curve says nothing.
const KEYS_MIN: usize = 24;
/// Sizes: powers of the square root of two, around the present one.
const STEPS: i32 = 8;

/// One point of the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizePoint {
    /// The memory limit.
    pub memory_bytes: u64,
    /// The share of look-ups of cacheable statements that such a cache would serve, between 0 and 1.
    pub hit_ratio: f64,
}

/// What happened to a key of the sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A look-up found a result of so many bytes.
    Hit(u64),
    /// A look-up found none.
    Miss,
    /// A result of so many bytes was cached.
    Stored(u64),
    /// The result was invalidated.
    Gone,
}

/// The sample and what is counted of it.
#[derive(Debug)]
pub(crate) struct SizeCurve {
    /// A key is in the sample if these bits of its hash are zero.
    mask: AtomicU64,
    keys_max: usize,
    events: Mutex<Vec<(u64, Event)>>,
    distances: Mutex<Distances>,
}

impl SizeCurve {
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let keys_max = usize::try_from((memory_bytes / BYTES_PER_KEY).clamp(KEYS.0, KEYS.1)).unwrap_or(usize::MAX);
        let (events, distances) = (Mutex::default(), Mutex::default());
        Self { mask: AtomicU64::new(OFF), keys_max, events, distances }
    }

    /// Notes an event if the key is in the sample.
    pub(crate) fn note(&self, hash: u64, event: impl FnOnce() -> Event) {
        if is_sampled(hash, self.mask.load(Relaxed)) {
            self.append(hash, event());
        }
    }

    #[cold]
    fn append(&self, hash: u64, event: Event) {
        let Ok(mut events) = self.events.try_lock() else { return };
        if events.len() < self.keys_max {
            events.push((hash, event));
        } else if matches!(event, Event::Hit(_) | Event::Miss) {
            self.halve();
            let mask = self.mask.load(Relaxed);
            events.retain(|(hash, _)| is_sampled(*hash, mask));
        }
    }

    fn halve(&self) {
        self.mask.store(self.mask.load(Relaxed) << 1 | 1, Relaxed);
    }

    /// Reads the events. `requests`: the number of all look-ups so far.
    fn read(&self, requests: u64) {
        let mut distances = self.distances.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mask.load(Relaxed) == OFF {
            distances.requests = requests;
            return self.mask.store(MASK, Relaxed);
        }
        let mut events = std::mem::take(&mut distances.spare);
        std::mem::swap(&mut events, &mut self.events.lock().unwrap_or_else(PoisonError::into_inner));
        distances.use_mask(self.mask.load(Relaxed));
        distances.fade(requests);
        for (hash, event) in events.drain(..) {
            distances.take(hash, event);
        }
        distances.spare = events;
        while distances.keys.len() > self.keys_max {
            self.halve();
            distances.use_mask(self.mask.load(Relaxed));
        }
    }

    fn distances(&self) -> MutexGuard<'_, Distances> {
        self.distances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_sampled(hash: u64, mask: u64) -> bool {
    // Neither the bits that choose a shard nor the lowest, which choose a place in it.
    (hash >> 20) & mask == 0
}

/// The reuse distances of the sample.
#[derive(Debug, Default)]
struct Distances {
    mask: u64,
    /// By hash: the place in the order of last use, and the bytes.
    keys: HashMap<u64, (usize, u64)>,
    /// The bytes of each place.
    sums: Sums,
    next: usize,
    /// Look-ups by distance, scaled to all keys.
    buckets: Vec<f64>,
    /// Look-ups in the sample, scaled to all keys, and of all keys.
    counted: f64,
    expected: f64,
    /// All look-ups at the last reading.
    requests: u64,
    /// An empty list for the events to come, so that none has to grow again.
    spare: Vec<(u64, Event)>,
}

impl Distances {
    /// How many keys each of the sample stands for.
    fn scale(&self) -> f64 {
        (self.mask.wrapping_add(1)) as f64
    }

    fn use_mask(&mut self, mask: u64) {
        if self.mask != mask {
            self.mask = mask;
            self.keys.retain(|hash, _| is_sampled(*hash, mask));
            self.renumber();
        }
    }

    fn fade(&mut self, requests: u64) {
        self.buckets.iter_mut().for_each(|bucket| *bucket *= FADE);
        self.counted *= FADE;
        self.expected = self.expected * FADE + requests.saturating_sub(self.requests) as f64;
        self.requests = requests;
    }

    fn take(&mut self, hash: u64, event: Event) {
        if !is_sampled(hash, self.mask) {
            return;
        }
        match event {
            Event::Hit(bytes) => self.look_up(hash, Some(bytes)),
            Event::Miss => self.look_up(hash, None),
            Event::Stored(bytes) => {
                let place = self.keys.get(&hash).map(|(place, _)| *place);
                self.remove(hash);
                self.put(hash, place, bytes);
            }
            Event::Gone => self.remove(hash),
        }
    }

    fn look_up(&mut self, hash: u64, bytes: Option<u64>) {
        self.counted += self.scale();
        let before = self.keys.get(&hash).copied();
        if let Some((place, held)) = before {
            let own = bytes.unwrap_or(held) as f64;
            let distance = self.sums.behind(place) as f64 * self.scale() + own;
            let scale = self.scale();
            self.buckets.resize(BUCKETS, 0.0);
            if let Some(bucket) = self.buckets.get_mut(bucket_of(distance)) {
                *bucket += scale;
            }
        }
        self.remove(hash);
        // Of a result that is not known yet, the average is assumed.
        let average = || self.sums.total / (self.keys.len() as u64).max(1);
        let bytes = bytes.or(before.map(|(_, held)| held)).unwrap_or_else(average);
        self.put(hash, None, bytes);
    }

    /// At this place, or the latest.
    fn put(&mut self, hash: u64, place: Option<usize>, bytes: u64) {
        if place.is_none() && self.next >= self.sums.places() {
            self.renumber();
        }
        let place = place.unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.sums.add(place, bytes);
        self.keys.insert(hash, (place, bytes));
    }

    fn remove(&mut self, hash: u64) {
        if let Some((place, bytes)) = self.keys.remove(&hash) {
            self.sums.take(place, bytes);
        }
    }

    /// Numbers the places again, in the same order, with as many free ones behind.
    fn renumber(&mut self) {
        let mut order: Vec<(usize, u64)> = self.keys.iter().map(|(hash, (place, _))| (*place, *hash)).collect();
        order.sort_unstable();
        self.sums = Sums::new(order.len() * 2 + 1024);
        self.next = order.len();
        for (at, (_, hash)) in order.into_iter().enumerate() {
            if let Some((place, bytes)) = self.keys.get_mut(&hash) {
                *place = at;
                self.sums.add(at, *bytes);
            }
        }
    }

    /// The share of look-ups that a cache with so many bytes of entries would serve.
    fn hit_ratio(&self, bytes: f64) -> f64 {
        let at = bucket_of(bytes);
        let below: f64 = self.buckets.iter().take(at).sum();
        // As if they were evenly spread in the bucket.
        let part = (bytes.max(1.0).log2() * PER_OCTAVE).fract() * self.buckets.get(at).copied().unwrap_or_default();
        let expected = self.expected.max(1.0);
        ((below + part + expected - self.counted) / expected).clamp(0.0, 1.0)
    }
}

#[expect(clippy::cast_sign_loss, reason = "the logarithm of at least 1")]
fn bucket_of(bytes: f64) -> usize {
    ((bytes.max(1.0).log2() * PER_OCTAVE) as usize).min(BUCKETS - 1)
}

/// Sums over places, each of which changes: a tree of Fenwick's.
#[derive(Debug, Default)]
struct Sums {
    tree: Vec<u64>,
    total: u64,
}

impl Sums {
    fn new(places: usize) -> Self {
        Self { tree: vec![0; places + 1], total: 0 }
    }

    fn places(&self) -> usize {
        self.tree.len().saturating_sub(1)
    }

    fn add(&mut self, place: usize, bytes: u64) {
        self.total += bytes;
        self.each(place, |sum| *sum += bytes);
    }

    fn take(&mut self, place: usize, bytes: u64) {
        self.total -= bytes;
        self.each(place, |sum| *sum -= bytes);
    }

    fn each(&mut self, place: usize, change: impl Fn(&mut u64)) {
        let mut at = place + 1;
        while let Some(sum) = self.tree.get_mut(at) {
            change(sum);
            at += at & at.wrapping_neg();
        }
    }

    /// Of all places behind this one.
    fn behind(&self, place: usize) -> u64 {
        let (mut at, mut up_to) = (place + 1, 0);
        while at > 0 {
            up_to += self.tree.get(at).copied().unwrap_or_default();
            at &= at - 1;
        }
        self.total - up_to
    }
}

impl<P: Payload> Cache<P> {
    /// Begins to sample look-ups, or reads what was sampled. Call it about once a second.
    pub fn read_size_curve(&self) {
        self.store.size_curve().read(self.store.requests());
    }

    /// What a smaller or larger memory limit would serve, by the last half hour or so; empty as long as too little was sampled.
    #[expect(clippy::cast_sign_loss, reason = "sizes are positive")]
    pub fn size_curve(&self) -> Vec<SizePoint> {
        let memory = self.limits().memory_bytes as f64;
        // What the limit leaves for entries.
        let share = ((memory - self.overhead() as f64) / memory.max(1.0)).clamp(0.0, 1.0);
        let distances = self.store.size_curve().distances();
        if distances.keys.len() < KEYS_MIN || distances.counted <= 0.0 {
            return Vec::new();
        }
        let sizes = (-STEPS..=STEPS).map(|step| memory * f64::from(step).exp2().sqrt());
        let point = |size: f64| SizePoint { memory_bytes: size as u64, hit_ratio: distances.hit_ratio(size * share) };
        sizes.map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        rapidhash::v3::rapidhash_v3(&key.to_le_bytes())
    }

    /// Look-ups in a loop over this many results of 1,000 bytes.
    fn looped(keys: u64, rounds: u64) -> SizeCurve {
        let curve = SizeCurve::new(1 << 30);
        curve.read(0);
        let mut requests = 0;
        for round in 0..rounds {
            for key in 0..keys {
                curve.note(hash(key), || if round == 0 { Event::Miss } else { Event::Hit(1000) });
                curve.note(hash(key), || Event::Stored(1000));
                requests += 1;
                if requests % 1000 == 0 {
                    curve.read(requests);
                }
            }
        }
        curve.read(requests);
        curve
    }

    #[test]
    fn a_loop_is_served_by_a_cache_of_its_size_alone() {
        let curve = looped(10_000, 20);
        let distances = curve.distances();
        assert!(distances.hit_ratio(5e6) < 0.15, "{}", distances.hit_ratio(5e6));
        assert!(distances.hit_ratio(20e6) > 0.85, "{}", distances.hit_ratio(20e6));
        assert!(distances.keys.len() > 300 && distances.keys.len() < 1000, "{}", distances.keys.len());
    }

    #[test]
    fn the_sample_is_bounded() {
        let curve = looped(300_000, 2);
        let distances = curve.distances();
        assert!(distances.keys.len() <= curve.keys_max && distances.keys.len() > 2000, "{}", distances.keys.len());
        assert!(distances.hit_ratio(600e6) > distances.hit_ratio(100e6) + 0.3);
        drop(distances);
        // Events that nobody reads.
        (0..10_000_000).for_each(|key| curve.note(hash(key), || Event::Miss));
        assert!(curve.events.lock().unwrap().len() <= curve.keys_max);
    }

    #[test]
    fn what_is_invalidated_is_served_by_no_cache() {
        let curve = SizeCurve::new(1 << 30);
        curve.read(0);
        for requests in 0..200_000 {
            let hash = hash(requests % 1000);
            curve.note(hash, || Event::Miss);
            curve.note(hash, || Event::Stored(1000));
            curve.note(hash, || Event::Gone);
            if requests % 1000 == 0 {
                curve.read(requests);
            }
        }
        curve.read(200_000);
        assert!(curve.distances().hit_ratio(1e12) < 0.3, "{}", curve.distances().hit_ratio(1e12));
    }
}
