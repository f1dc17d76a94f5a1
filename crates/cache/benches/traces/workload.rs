//! The traces, and the results that they ask for. The same seeds make the same ones everywhere.

use crate::policies::{Key, Results};

/// How much is replayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Results that may be asked for; the scan has as many again.
    pub(crate) keys: usize,
    pub(crate) requests: usize,
}

impl Scale {
    pub(crate) const FULL: Self = Self { keys: 20_000, requests: 600_000 };
    pub(crate) const QUICK: Self = Self { keys: 5_000, requests: 150_000 };

    /// Requests that fill the cache and are not counted.
    pub(crate) fn warm_up(self) -> usize {
        self.requests / 6
    }

    /// Requests after which the choice by what was asked for until then is made anew.
    pub(crate) fn relearned(self) -> usize {
        self.requests / 60
    }
}

/// The shape of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    Zipf(f64),
    Uniform,
    /// All keys, one after the other, again and again.
    Loop,
    /// Zipf 0.99, and by turns with it a scan of another table: 1,000 of its keys after 2,000 requests.
    ScanInZipf,
    /// Zipf 0.99, whose ranks belong to other keys after each twelfth of the trace.
    ShiftingZipf,
}

pub(crate) const PATTERNS: [(&str, Pattern); 7] = [
    ("zipf 0.8", Pattern::Zipf(0.8)),
    ("zipf 0.99", Pattern::Zipf(0.99)),
    ("zipf 1.2", Pattern::Zipf(1.2)),
    ("uniform", Pattern::Uniform),
    ("loop", Pattern::Loop),
    ("scan in zipf 0.99", Pattern::ScanInZipf),
    ("shifting zipf 0.99", Pattern::ShiftingZipf),
];

/// splitmix64
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Between 0 and 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    #[expect(clippy::cast_sign_loss, reason = "between the bounds")]
    fn log_uniform(&mut self, low: u64, high: u64) -> u64 {
        (low as f64 * (high as f64 / low as f64).powf(self.unit())) as u64
    }
}

/// Ranks by Zipf's law.
struct Ranks {
    cumulated: Vec<f64>,
}

impl Ranks {
    fn new(count: usize, exponent: f64) -> Self {
        let weights = (0..count).map(|rank| (rank as f64 + 1.0).powf(-exponent));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { cumulated: sums.collect() }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let at = random.unit() * self.cumulated.last().copied().unwrap_or_default();
        self.cumulated.partition_point(|sum| *sum < at).min(self.cumulated.len() - 1)
    }
}

/// The requests. Which result a rank belongs to does not matter, since sizes and times are drawn independently.
pub(crate) fn trace(pattern: Pattern, scale: Scale) -> Vec<Key> {
    let mut random = Random(1);
    let exponent = if let Pattern::Zipf(exponent) = pattern { exponent } else { 0.99 };
    let ranks = Ranks::new(scale.keys, exponent);
    let mut scanned = 0;
    let keys = (0..scale.requests).map(|at| match pattern {
        Pattern::Uniform => random.next() as usize % scale.keys,
        Pattern::Loop => at % scale.keys,
        Pattern::ScanInZipf if at % 3_000 >= 2_000 => {
            scanned += 1;
            scale.keys + scanned % scale.keys
        }
        Pattern::Zipf(_) | Pattern::ScanInZipf => ranks.draw(&mut random),
        Pattern::ShiftingZipf => {
            let shift = at / (scale.requests / 12) * (scale.keys / 12);
            (ranks.draw(&mut random) + shift) % scale.keys
        }
    });
    keys.map(|key| key as Key).collect()
}

/// Results as they are before the store's own bytes are added: all of 4 kB that take a millisecond.
pub(crate) fn equal(count: usize) -> Results {
    Results { bytes: vec![4_000; count], nanos: vec![1_000_000; count] }
}

/// Between 200 bytes and 50 kB, and between 50 µs and 50 ms, log-uniform and independent of each other.
pub(crate) fn unequal(count: usize) -> Results {
    let mut random = Random(2);
    let bytes = (0..count).map(|_| random.log_uniform(200, 50_000)).collect();
    let nanos = (0..count).map(|_| random.log_uniform(50_000, 50_000_000)).collect();
    Results { bytes, nanos }
}
