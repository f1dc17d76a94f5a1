//! The frequency sketch: how often keys were missed lately. It remembers keys without a cached result.
//!
//! The sketch is a table of counters with marks. A key has eight possible places; if it is in none, it replaces the
//! one with the least count. Each request halves one counter, in turn. So all counts halve within as many requests as
//! there are counters: a *period*. A hit only increments a counter in its shard; a later miss advances the time for
//! these hits.
//!
//! A sketch without marks would be smaller, but would now and then take a key for a frequent one that shares its
//! counters. In every loop this would happen once to a few in a hundred keys, which are more than a small cache
//! holds. A key that is forgotten too early does less harm.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The time by which counts and rates age, in requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) now: u64,
    /// The requests in which a rate halves.
    pub(crate) period: u64,
}

impl Time {
    /// Periods since `then`.
    pub(crate) fn since(self, then: u64) -> f32 {
        self.now.saturating_sub(then) as f32 / self.period as f32
    }
}

/// The places of one key: half a cache line.
const WAYS: usize = 8;

/// A counter: the mark of its key, and its misses in 256ths, so that the first halving does not forget a single miss.
#[derive(Clone, Copy, Debug)]
struct Counter(u32);

impl Counter {
    fn new(mark: u16, count: u16) -> Self {
        Self(u32::from(mark) << 16 | u32::from(count))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn count(self) -> u16 {
        self.0 as u16
    }

    fn mark(self) -> u32 {
        self.0 >> 16
    }

    /// The counter after so many halvings.
    fn halved(self, times: u32) -> Self {
        Self(self.mark() << 16 | u32::from(self.count().checked_shr(times).unwrap_or(0)))
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct FrequencySketch {
    counters: Box<[AtomicU32]>,
    /// All requests so far. Their number modulo the number of counters is the next counter to halve.
    requests: AtomicU64,
    noted: AtomicU64,
    hits_passed: AtomicU64,
}

impl FrequencySketch {
    const ONE: u16 = 256;
    /// The number of misses after which hits are fetched.
    const BETWEEN_FETCHES: u64 = 64;

    /// A sketch for a cache of this size.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        // At least one counter for each entry: most entries take a kilobyte or more. With a short period, the sketch
        // would forget keys before they are requested again.
        let count = usize::try_from(memory_bytes / 1024).unwrap_or(usize::MAX).clamp(1 << 16, 1 << 22);
        let counters = (0..count.next_power_of_two()).map(|_| AtomicU32::new(0)).collect();
        Self { counters, requests: AtomicU64::new(0), noted: AtomicU64::new(0), hits_passed: AtomicU64::new(0) }
    }

    /// All misses so far.
    pub(crate) fn noted(&self) -> u64 {
        self.noted.load(Relaxed)
    }

    pub(crate) fn time(&self) -> Time {
        Time { now: self.requests.load(Relaxed), period: self.counters.len() as u64 }
    }

    fn pass(&self, requests: u64) {
        let from = self.requests.fetch_add(requests, Relaxed);
        let halve = |counter: &AtomicU32, times| counter.store(Counter(counter.load(Relaxed)).halved(times).0, Relaxed);
        let (periods, rest) = (requests / self.time().period, requests % self.time().period);
        if periods > 0 {
            let times = u32::try_from(periods).unwrap_or(u32::MAX);
            self.counters.iter().for_each(|counter| halve(counter, times));
        }
        for at in from..from + rest {
            halve(&self.counters[usize::try_from(at).unwrap_or_default() & (self.counters.len() - 1)], 1);
        }
    }

    /// The places of a key, and its mark.
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    fn places(&self, hash: u64) -> (&[AtomicU32], u16) {
        let begin = hash as usize & (self.counters.len() - 1) & !(WAYS - 1);
        (&self.counters[begin..begin + WAYS], (hash >> 48) as u16)
    }

    /// The count in 256ths.
    fn count(&self, hash: u64) -> u16 {
        let (places, mark) = self.places(hash);
        let counters = places.iter().map(|place| Counter(place.load(Relaxed)));
        counters.filter(|counter| counter.mark() == u32::from(mark)).map(Counter::count).max().unwrap_or_default()
    }

    fn raise(&self, hash: u64, least: u16) {
        let (places, mark) = self.places(hash);
        let found = |place: &&AtomicU32| Counter(place.load(Relaxed)).mark() == u32::from(mark);
        let place = places.iter().find(found);
        let place = place.or_else(|| places.iter().min_by_key(|place| Counter(place.load(Relaxed)).count()));
        if let Some(place) = place
            && (!found(&place) || Counter(place.load(Relaxed)).count() < least)
        {
            place.store(Counter::new(mark, least).0, Relaxed);
        }
    }

    /// Counts a miss of the key with this hash. Returns about how many there were before. `hits` returns the number
    /// of all hits so far.
    pub(crate) fn note(&self, hash: u64, hits: impl FnOnce() -> u64) -> u8 {
        let since = if self.noted.fetch_add(1, Relaxed).is_multiple_of(Self::BETWEEN_FETCHES) {
            let hits = hits();
            hits.saturating_sub(self.hits_passed.swap(hits, Relaxed))
        } else {
            0
        };
        self.pass(since + 1);
        let before = self.count(hash);
        self.raise(hash, before.saturating_add(Self::ONE));
        u8::try_from(before.saturating_add(Self::ONE / 2) / Self::ONE).unwrap_or(u8::MAX)
    }

    /// Remembers the request rate of a key whose result was cached.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as of Rust 1.45 it saturates")]
    pub(crate) fn learn(&self, hash: u64, rate: f32) {
        self.raise(hash, (rate * f32::from(Self::ONE)) as u16);
    }

    /// The misses of the key before the one that was just noted.
    pub(crate) fn earlier(&self, hash: u64) -> f32 {
        f32::from(self.count(hash).saturating_sub(Self::ONE)) / f32::from(Self::ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        rapidhash::v3::rapidhash_v3(&key.to_le_bytes())
    }

    #[test]
    fn it_counts_and_forgets() {
        let misses = FrequencySketch::new(0);
        for _ in 0..100 {
            misses.note(hash(0), || 0);
        }
        assert!((90..=101).contains(&misses.note(hash(0), || 0)));
        assert!((90.0..=101.0).contains(&misses.earlier(hash(0))));
        for key in 1..=misses.time().period * 4 {
            misses.note(hash(key), || 0);
        }
        assert!(misses.note(hash(0), || 0) < 20);
    }

    #[test]
    fn hits_pass_the_time_too() {
        let misses = FrequencySketch::new(0);
        for _ in 0..64 {
            misses.note(hash(0), || 0);
        }
        let period = misses.time().period;
        assert_eq!(misses.note(hash(1), || 3 * period), 0);
        assert!((5..10).contains(&misses.note(hash(0), || 0)));
        assert!(misses.time().now > 3 * period);
    }
}
