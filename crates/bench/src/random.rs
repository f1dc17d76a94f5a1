//! A small random number generator, so that the same seed gives the same rows and the same load everywhere.

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::SplitMix64;

/// A generator with 64 bits of state. Any seed is good.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// An independent generator for item `number` of its kind.
    pub fn numbered(seed: u64, number: u64) -> Self {
        let mut mixed = Self::new(seed ^ number.wrapping_mul(0xD605_1F2D_96D8_C5D1));
        Self::new(mixed.next())
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform over `0..bound`; the bias for bounds below 2^32 is less than 2^-32.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Uniform over `0.0..1.0`.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An index below `bound`. Index i has a share of about (i + 1)^-0.8: a few are frequent, and most are rare. It inverts the continuous
    /// distribution.
    #[expect(clippy::cast_sign_loss, reason = "the product is never negative")]
    pub fn skewed(&mut self, bound: usize) -> usize {
        ((bound as f64 * self.fraction().powi(5)) as usize).min(bound.saturating_sub(1))
    }

    /// A random element of a list that is not empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// The interface of `rand_distr`'s distributions.
impl rand::TryRng for Random {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_below_its_bound_and_repeats_itself() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            assert!(one.below(10) < 10);
            assert!(one.skewed(10) < 10);
            two.next();
            two.next();
        }
        assert_eq!(one.next(), two.next());
    }

    #[test]
    fn skew_prefers_the_first() {
        let mut random = Random::new(1);
        let low = (0..10_000).filter(|_| random.skewed(1000) < 10).count();
        assert!((3000..5000).contains(&low), "{low}");
    }
}
