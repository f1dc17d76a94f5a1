//! The times at which the transactions of an open loop are due.
//!
//! The times of the whole load are assigned to its connections in turn, and so to the threads that own them. The share of a thread in the rate is its
//! share of the connections. With equal gaps, the threads together send at exactly the times of a single thread. A schedule is a function of the
//! rate, the seed and the number of calls. So arrivals that wait for a busy connection take no memory: they are not drawn yet.

use std::time::{Duration, Instant};

use crate::random::Random;

/// A time later than the end of any round. Rates near 0 would otherwise give times that no clock can represent.
const NEVER: f64 = 1e9;

/// The intended starts of one thread, in order.
#[derive(Debug)]
pub(super) struct Schedule {
    start: Instant,
    next: Instant,
    gaps: Gaps,
}

#[derive(Debug)]
enum Gaps {
    /// Transaction n of the whole load is due after n / rate seconds. It is computed from n, so that errors do not add up.
    Equal { rate: f64, round: u64, place: Share },
    /// The gaps are exponentially distributed, so the starts are a Poisson process.
    Exponential { rate: f64, random: Random, seconds: f64 },
}

/// The connections of the load that a thread owns: `first`, `first + step` … below `all`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) first: usize,
    pub(super) step: usize,
    pub(super) all: usize,
}

impl Share {
    /// The numbers of its connections.
    pub(super) fn numbers(self) -> impl Iterator<Item = usize> {
        (self.first..self.all).step_by(self.step)
    }
}

impl Schedule {
    /// Equal gaps. `rate` is that of the whole load per second.
    pub(super) fn equal(start: Instant, rate: f64, share: Share) -> Self {
        Self { start, next: start, gaps: Gaps::Equal { rate, round: 0, place: share } }.first()
    }

    /// Exponential gaps. `rate` is that of the whole load per second.
    pub(super) fn exponential(start: Instant, rate: f64, share: Share, random: Random) -> Self {
        let rate = rate * share.numbers().count() as f64 / share.all as f64;
        Self { start, next: start, gaps: Gaps::Exponential { rate, random, seconds: 0.0 } }.first()
    }

    fn first(mut self) -> Self {
        self.next = match &self.gaps {
            Gaps::Equal { rate, place, .. } => after(self.start, place.first as f64 / rate),
            Gaps::Exponential { .. } => self.draw(),
        };
        self
    }

    /// Transactions per second of this thread.
    pub(super) fn rate(&self) -> f64 {
        match &self.gaps {
            Gaps::Equal { rate, place, .. } => rate / place.step as f64,
            Gaps::Exponential { rate, .. } => *rate,
        }
    }

    /// The next intended start.
    pub(super) const fn peek(&self) -> Instant {
        self.next
    }

    /// Returns the next intended start and advances to the one after it.
    pub(super) fn take(&mut self) -> Instant {
        let following = self.draw();
        std::mem::replace(&mut self.next, following)
    }

    fn draw(&mut self) -> Instant {
        let seconds = match &mut self.gaps {
            Gaps::Equal { rate, round, place } => {
                place.first += place.step;
                if place.first >= place.all {
                    place.first %= place.step;
                    *round += 1;
                }
                (*round * place.all as u64 + place.first as u64) as f64 / *rate
            }
            Gaps::Exponential { rate, random, seconds } => {
                *seconds -= (1.0 - random.fraction()).ln() / *rate;
                *seconds
            }
        };
        after(self.start, seconds)
    }
}

fn after(start: Instant, seconds: f64) -> Instant {
    start + Duration::from_secs_f64(seconds.min(NEVER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(threads: usize, all: usize) -> impl Iterator<Item = Share> {
        (0..threads).map(move |first| Share { first, step: threads, all })
    }

    #[test]
    fn equal_gaps_of_all_threads_together_are_those_of_one() {
        let start = Instant::now();
        for (threads, connections) in [(1, 1), (1, 7), (2, 2), (2, 3), (3, 8), (4, 64)] {
            let mut times: Vec<Instant> = Vec::new();
            for share in shares(threads, connections) {
                let mut schedule = Schedule::equal(start, 300.0, share);
                while schedule.peek() < start + Duration::from_secs(7) {
                    times.push(schedule.take());
                }
            }
            times.sort();
            let expected: Vec<_> = (0..2100).map(|n| start + Duration::from_secs_f64(f64::from(n) / 300.0)).collect();
            assert_eq!(times, expected, "{threads} threads, {connections} connections");
        }
    }

    /// The distribution function of the gaps of all shares, sorted into 20 classes of equal probability. The chi-square statistic with 19 degrees of
    /// freedom exceeds 43.8 with probability 0.001. The mean of n gaps is within four of its standard deviations, mean / √n. The seed is fixed, so
    /// the test always gives the same result.
    #[test]
    #[expect(clippy::cast_sign_loss, reason = "probabilities are not negative")]
    fn poisson_gaps_are_exponential_with_the_mean_of_the_rate() {
        const CLASSES: usize = 20;
        const COUNT: usize = 100_000;
        let start = Instant::now();
        for (share, rate) in shares(2, 3).zip([1000.0 * 2.0 / 3.0, 1000.0 / 3.0]) {
            let mut schedule = Schedule::exponential(start, 1000.0, share, Random::numbered(42, share.first as u64));
            let (mut last, mut classes, mut sum) = (start, [0u32; CLASSES], 0.0);
            for _ in 0..COUNT {
                let due = schedule.take();
                let gap = due.duration_since(last).as_secs_f64();
                let probability = 1.0 - (-gap * rate).exp();
                classes[((probability * CLASSES as f64) as usize).min(CLASSES - 1)] += 1;
                (last, sum) = (due, sum + gap);
            }
            let expected = COUNT as f64 / CLASSES as f64;
            let chi_square: f64 = classes.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
            assert!(chi_square < 43.8, "{chi_square}: {classes:?}");
            let off = (sum / COUNT as f64 * rate - 1.0).abs();
            assert!(off < 4.0 / (COUNT as f64).sqrt(), "the mean is off by {off}");
        }
    }

    #[test]
    fn a_rate_near_zero_is_never_due() {
        let (start, share) = (Instant::now(), Share { first: 0, step: 1, all: 1 });
        let mut schedule = Schedule::equal(start, 1e-300, share);
        schedule.take();
        assert!(schedule.peek() > start + Duration::from_secs(86_400));
    }
}
