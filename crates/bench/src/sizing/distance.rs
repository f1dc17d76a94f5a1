//! The hits of an LRU cache of any size, from one pass over a trace.
//!
//! An LRU cache contains the most recently requested results, up to its size. An access is a hit if all results requested since the last access to
//! the same key, this key included, fit in the cache. Their total size is the *reuse distance*, here in bytes (Mattson et al., "Evaluation techniques
//! for storage hierarchies", 1970). A tree of sums over the times of last accesses gives each distance in logarithmic time (Bennett and Kruskal, "LRU
//! stack processing", 1975).
//!
//! For a long trace a sample of the *keys* is enough: those whose hash is below a threshold, with all of their accesses. The distances in the whole
//! trace are the distances in the sample divided by the sampling rate (SHARDS: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with
//! SHARDS", FAST 2015). A hot key may be in the sample or not, which changes the number of accesses. The difference from the expected number is
//! counted as accesses with distance zero, which is the paper's SHARDS-adj.

use std::collections::HashMap;

use crate::random::Random;

/// Whether a key, which is a hash, is in a sample with this rate.
pub fn sampled(key: u64, rate: f64) -> bool {
    // The key is hashed again, so that the sample does not depend on the data from which the key was made.
    rate >= 1.0 || Random::new(key).fraction() < rate
}

/// The reuse distances, which give the hits of all sizes.
#[derive(Clone, Debug, Default)]
pub struct Distances {
    /// Reuse distances in bytes of the whole trace, ascending.
    bytes: Vec<f64>,
    /// Expected number of sampled accesses after the warm-up.
    expected: f64,
    /// Actual number of sampled accesses after the warm-up.
    counted: u64,
}

impl Distances {
    /// Computes the distances of a trace of keys with sizes `bytes`, at a rate above 0 and at most 1. The first `warm` accesses fill the cache and do
    /// not count.
    pub fn of(trace: impl ExactSizeIterator<Item = u64>, bytes: impl Fn(u64) -> u64, rate: f64, warm: usize) -> Self {
        let mut found = Self { expected: trace.len().saturating_sub(warm) as f64 * rate, ..Self::default() };
        let mut last: HashMap<u64, (usize, u64)> = HashMap::new();
        let mut sums = Sums::new(trace.len());
        for (place, key) in trace.enumerate().filter(|(_, key)| sampled(*key, rate)) {
            let counts = place >= warm;
            found.counted += u64::from(counts);
            let own = bytes(key);
            if let Some((before, held)) = last.insert(key, (place, own)) {
                let between = sums.behind(before);
                sums.take(before, held);
                if counts {
                    found.bytes.push(between as f64 / rate + own as f64);
                }
            }
            sums.add(place, own);
        }
        found.bytes.sort_by(f64::total_cmp);
        found
    }

    /// Hit ratio of a cache of this size in bytes.
    pub fn hit_ratio(&self, size: f64) -> f64 {
        let hits = self.bytes.partition_point(|distance| *distance <= size) as f64;
        if self.expected <= 0.0 {
            return 0.0;
        }
        ((hits + self.expected - self.counted as f64) / self.expected).clamp(0.0, 1.0)
    }

    /// The size beyond which nothing is gained.
    pub fn enough(&self) -> f64 {
        self.bytes.last().copied().unwrap_or_default()
    }
}

/// Sums over changing values: a Fenwick tree.
struct Sums(Vec<u64>, u64);

impl Sums {
    fn new(places: usize) -> Self {
        Self(vec![0; places + 1], 0)
    }

    fn add(&mut self, place: usize, value: u64) {
        self.1 += value;
        self.each(place, |sum| *sum += value);
    }

    fn take(&mut self, place: usize, value: u64) {
        self.1 -= value;
        self.each(place, |sum| *sum -= value);
    }

    fn each(&mut self, place: usize, change: impl Fn(&mut u64)) {
        let mut at = place + 1;
        while let Some(sum) = self.0.get_mut(at) {
            change(sum);
            at += at & at.wrapping_neg();
        }
    }

    /// The sum of the values after this place.
    fn behind(&self, place: usize) -> u64 {
        let (mut at, mut up_to) = (place + 1, 0);
        while at > 0 {
            up_to += self.0[at];
            at &= at - 1;
        }
        self.1 - up_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::distribution::{Distribution, Keys};

    fn size(key: u64) -> u64 {
        100 + key % 7 * 50
    }

    /// A cache with a list in the order of last use, which evicts from the end of the list.
    fn simulated(trace: &[u64], capacity: u64, warm: usize) -> f64 {
        let (mut stack, mut hits) = (Vec::<u64>::new(), 0);
        for (place, key) in trace.iter().enumerate() {
            let mut above = 0;
            let found = stack.iter().rposition(|held| {
                above += size(*held);
                held == key
            });
            // It is a hit if the key and everything used after it fit in the cache.
            if found.is_some() && above <= capacity && place >= warm {
                hits += 1;
            }
            if let Some(at) = found {
                stack.remove(at);
            }
            stack.push(*key);
        }
        f64::from(hits) / (trace.len() - warm) as f64
    }

    fn trace(distribution: &str, keys: usize, length: usize) -> Vec<u64> {
        let keys = Keys::new(distribution.parse::<Distribution>().unwrap(), keys).unwrap();
        let mut random = Random::new(11);
        (0..length).map(|_| Random::new(keys.draw(&mut random) as u64).next()).collect()
    }

    #[test]
    fn without_sampling_they_are_those_of_a_stack() {
        for (distribution, warm) in [("zipf:1", 0), ("uniform", 500), ("hotspot:0.2:0.8", 1_000)] {
            let trace = trace(distribution, 300, 3_000);
            let distances = Distances::of(trace.iter().copied(), size, 1.0, warm);
            for capacity in [0, 99, 100, 1_000, 5_000, 20_000, 50_000, 75_000, 200_000] {
                let (expected, found) = (simulated(&trace, capacity, warm), distances.hit_ratio(capacity as f64));
                assert!((expected - found).abs() < 1e-12, "{distribution} {capacity}: {found}, not {expected}");
            }
        }
    }

    #[test]
    fn a_loop_is_all_or_nothing() {
        let trace: Vec<u64> = (0..1_000).map(|place| place % 100).collect();
        let distances = Distances::of(trace.iter().copied(), |_| 10, 1.0, 100);
        let shown =
            [distances.hit_ratio(999.0), distances.hit_ratio(1_000.0), distances.enough()].map(|v| v.to_string());
        assert_eq!(shown, ["0", "1", "1000"]);
        assert!(Distances::default().hit_ratio(1.0) < 1e-9);
    }

    /// The paper reports a mean error of 0.01 for its own traces, with a rate of 0.01 and some million keys. Here the rate is 0.1, with 20,000 keys.
    #[test]
    fn a_sample_of_the_keys_comes_close() {
        for distribution in ["zipf:1", "uniform"] {
            let trace = trace(distribution, 20_000, 200_000);
            let exact = Distances::of(trace.iter().copied(), size, 1.0, 50_000);
            let part = Distances::of(trace.iter().copied(), size, 0.1, 50_000);
            let sizes: Vec<f64> = (1..=20).map(|step| exact.enough() * f64::from(step) / 20.0).collect();
            let off = |size: &f64| (exact.hit_ratio(*size) - part.hit_ratio(*size)).abs();
            let mean = sizes.iter().map(off).sum::<f64>() / sizes.len() as f64;
            assert!(mean < 0.02, "{distribution}: {mean}");
        }
    }
}
