//! Histograms of latency. Each bucket is twice as wide as the one before: less than 1 µs, less than 2 µs, and so on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freshet_types::Nanos;

/// Buckets for hits: the last but one ends at 16 ms.
pub(crate) const OF_HITS: usize = 16;
/// Buckets for answers of the database: the last but one ends at 17 minutes.
pub(crate) const OF_ANSWERS: usize = 32;

/// Where the hits of one statement are counted: by as many workers at once as there are places, each in cells of its own.
#[derive(Debug, Default)]
pub(crate) struct HitLatency([Cells; Self::PLACES]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Cells(Latency<OF_HITS>);

impl HitLatency {
    const PLACES: usize = 8;

    pub(crate) fn note(&self, worker: usize, took: Took) {
        if let Some(cells) = self.0.get(worker % Self::PLACES) {
            cells.0.note(took);
        }
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|cells| cells.0.count()).sum()
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram::of_all(self.0.iter().map(|cells| cells.0.read()))
    }
}

/// A latency, and its bucket: several histograms count the same one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) nanos: Nanos,
    octave: usize,
}

impl From<Nanos> for Took {
    fn from(nanos: Nanos) -> Self {
        Self { nanos, octave: (u64::BITS - (nanos / 1000).leading_zeros()) as usize }
    }
}

/// One histogram of `N` buckets.
#[derive(Debug)]
pub(crate) struct Latency<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Latency<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> Latency<N> {
    pub(crate) fn note(&self, took: Took) {
        self.note_all(1, took);
    }

    /// So many took so long each.
    pub(crate) fn note_all(&self, count: u64, took: Took) {
        if let Some(cell) = self.0.get(took.octave.min(N - 1)) {
            cell.fetch_add(count, Relaxed);
        }
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|cell| cell.load(Relaxed)).sum()
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram { buckets: self.0.iter().map(|cell| cell.load(Relaxed)).collect() }
    }
}

/// A histogram that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many are in each bucket: the first ends at 1 µs, each other at twice the end of the one before, and the last never.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Upper ends of the buckets in seconds, with the number of each.
    pub fn in_seconds(&self) -> impl Iterator<Item = (f64, u64)> {
        let last = self.buckets.len().saturating_sub(1);
        self.buckets.iter().enumerate().map(move |(at, count)| {
            let end = if at == last { f64::INFINITY } else { end_in_micros(at) / 1e6 };
            (end, *count)
        })
    }

    /// The latency in microseconds that this share (0 to 1) does not exceed, interpolated within its bucket; None of nothing.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let count = self.count();
        let mut left = share.clamp(0.0, 1.0) * count as f64;
        if count == 0 {
            return None;
        }
        for (at, in_bucket) in self.buckets.iter().enumerate() {
            let in_bucket = *in_bucket as f64;
            if left <= in_bucket && in_bucket > 0.0 {
                let begin = if at == 0 { 0.0 } else { end_in_micros(at - 1) };
                return Some(begin + (end_in_micros(at) - begin) * left / in_bucket);
            }
            left -= in_bucket;
        }
        Some(end_in_micros(self.buckets.len()))
    }

    /// The average in microseconds, as if all were in the middle of their buckets; 0 of nothing.
    pub fn mean(&self) -> f64 {
        let middle = |at: usize| if at == 0 { 0.5 } else { 0.75 * end_in_micros(at) };
        let sum: f64 = self.buckets.iter().enumerate().map(|(at, count)| middle(at) * *count as f64).sum();
        sum / self.count().max(1) as f64
    }

    /// What is left of it without these.
    pub(crate) fn subtract(&mut self, part: &Self) {
        self.buckets.iter_mut().zip(&part.buckets).for_each(|(all, part)| *all = all.saturating_sub(*part));
    }

    /// All of these together.
    pub(crate) fn of_all(each: impl IntoIterator<Item = Self>) -> Self {
        each.into_iter().fold(Self::default(), |mut all, other| {
            all.buckets.resize(all.buckets.len().max(other.buckets.len()), 0);
            all.buckets.iter_mut().zip(&other.buckets).for_each(|(all, more)| *all += more);
            all
        })
    }
}

/// Where the bucket at this place ends.
fn end_in_micros(at: usize) -> f64 {
    2f64.powi(i32::try_from(at).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_octaves_of_a_microsecond() {
        let latency = Latency::<4>::default();
        for took in [0, 999, 1_000, 1_999, 2_000, 3_999, 4_000, u64::MAX] {
            latency.note(took.into());
        }
        assert_eq!(latency.read().buckets, [2, 2, 2, 2]);
        let ends: Vec<f64> = latency.read().in_seconds().map(|(end, _)| end).collect();
        assert_eq!(ends, [1e-6, 2e-6, 4e-6, f64::INFINITY]);
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let histogram = Histogram { buckets: vec![0, 0, 100, 100, 0] };
        assert_eq!(histogram.quantile(0.25), Some(3.0));
        assert_eq!(histogram.quantile(0.5), Some(4.0));
        assert_eq!(histogram.quantile(1.0), Some(8.0));
    }

    #[test]
    fn hits_of_all_workers_are_counted() {
        let hits = HitLatency::default();
        (0..20).for_each(|worker| hits.note(worker, 1_500.into()));
        assert_eq!((hits.count(), hits.read().buckets.get(1)), (20, Some(&20)));
    }
}
