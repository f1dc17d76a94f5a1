//! How often keys were missed lately: what is known of results that are not kept.
//!
//! A sketch: each key has two counters among many that it shares with others, and the lesser of them counts. Each request
//! halves one counter, in turn, so that all that is known halves in as many requests as there are counters: a *period*. Hits
//! pay for that with an increment in their shard; a miss passes the time for those since.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

/// The time of all that forgets: requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) now: u64,
    /// In which a rate halves.
    pub(crate) period: u64,
}

impl Time {
    /// Periods since then.
    pub(crate) fn since(self, then: u64) -> f64 {
        self.now.saturating_sub(then) as f64 / self.period as f64
    }
}

/// The sketch.
#[derive(Debug)]
pub(crate) struct Misses {
    /// In 256ths, so that what was missed once is not forgotten by the first halving.
    counters: Box<[AtomicU16]>,
    /// Requests that have passed; those modulo the number of counters say which is the next to be halved.
    requests: AtomicU64,
    noted: AtomicU64,
    hits_passed: AtomicU64,
}

impl Misses {
    const ONE: u16 = 256;
    /// Misses after which the hits since are fetched.
    const BETWEEN_FETCHES: u64 = 64;

    /// For a cache of so many bytes.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        // At least one for each entry: most take a kilobyte or more. A short period forgets what it is to find out.
        let count = usize::try_from(memory_bytes / 1024).unwrap_or(usize::MAX).clamp(1 << 16, 1 << 22);
        let counters = (0..count.next_power_of_two()).map(|_| AtomicU16::new(0)).collect();
        Self { counters, requests: AtomicU64::new(0), noted: AtomicU64::new(0), hits_passed: AtomicU64::new(0) }
    }

    pub(crate) fn time(&self) -> Time {
        Time { now: self.requests.load(Relaxed), period: self.counters.len() as u64 }
    }

    fn counter(&self, hash: u64) -> &AtomicU16 {
        &self.counters[usize::try_from(hash & (self.counters.len() as u64 - 1)).unwrap_or_default()]
    }

    fn pass(&self, requests: u64) {
        let from = self.requests.fetch_add(requests, Relaxed);
        let halve = |counter: &AtomicU16, times: u32| {
            counter.store(counter.load(Relaxed).checked_shr(times).unwrap_or(0), Relaxed);
        };
        let (periods, rest) = (requests / self.time().period, requests % self.time().period);
        if periods > 0 {
            let times = u32::try_from(periods).unwrap_or(u32::MAX);
            self.counters.iter().for_each(|counter| halve(counter, times));
        }
        (from..from + rest).for_each(|at| halve(self.counter(at), 1));
    }

    /// In 256ths.
    fn count(&self, hash: u64) -> u16 {
        self.counter(hash).load(Relaxed).min(self.counter(hash >> 32).load(Relaxed))
    }

    fn raise(&self, hash: u64, least: u16) {
        for counter in [self.counter(hash), self.counter(hash >> 32)] {
            if counter.load(Relaxed) < least {
                counter.store(least, Relaxed);
            }
        }
    }

    /// Counts a miss of the key with this hash; how many there were before, about. `hits` says how many hits there were ever.
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

    /// The key was asked for so often while a result of it was kept.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as of Rust 1.45 it saturates")]
    pub(crate) fn learn(&self, hash: u64, rate: f64) {
        self.raise(hash, (rate * f64::from(Self::ONE)) as u16);
    }

    /// How many misses of the key there were before the one that was just noted.
    pub(crate) fn earlier(&self, hash: u64) -> f64 {
        f64::from(self.count(hash).saturating_sub(Self::ONE)) / f64::from(Self::ONE)
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
        let misses = Misses::new(0);
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
        let misses = Misses::new(0);
        for _ in 0..64 {
            misses.note(hash(0), || 0);
        }
        let period = misses.time().period;
        assert_eq!(misses.note(hash(1), || 3 * period), 0);
        assert!((5..10).contains(&misses.note(hash(0), || 0)));
        assert!(misses.time().now > 3 * period);
    }
}
