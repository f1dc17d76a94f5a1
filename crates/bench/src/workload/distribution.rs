//! The distribution of keys.
//!
//! The benefit of a cache depends mostly on the skew of the accesses. So each distribution has an exact formula, and the tests compare the draws with
//! it (chi-square). Keys are 0 to n - 1.
//!
//! - `uniform`: each 1/n.
//! - `zipf:S`: key i has a share in proportion to 1 / (i + 1)^S, for any S ≥ 0. 0 is uniform; YCSB uses 0.99. The hottest rows are adjacent, like
//!   rows that are hot because they were created together.
//! - `scrambled:S`: the same shares, assigned to keys by a fixed permutation. The hot rows are spread over all pages of the table, as if they were
//!   independent of the time of creation.
//! - `latest:S`: `zipf` from the other end: key n - 1 is the hottest.
//! - `hotspot:R:A`: the first R of the rows (a share) get A of the accesses, uniformly. The other rows get the rest, also uniformly.
//! - `zipfian`: YCSB's (`ScrambledZipfianGenerator`). It draws ranks of `zipf:0.99` over 10^10 items; the hash of a rank modulo n is the key. Unlike
//!   with `scrambled`, the shares of the hottest keys do not grow when n shrinks: the first has 1/26.47 for any n.
//! - `special`: the default of sysbench up to 1.0.20, with its default settings. A quarter of the draws is the mean of twelve uniform numbers. The
//!   others are uniform over the upper three quarters of the middle hundredth of the keys: sysbench uses the number that chose this branch a second
//!   time (`sb_rand_special` in `src/sb_rand.c`).
//!
//! `latest` and `hotspot` without numbers use YCSB's: 0.99, and 0.2:0.8.
//!
//! `rand_distr` draws Zipf's numbers by rejection: a draw costs the same for any n and needs no table.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use rand_distr::Distribution as _;
use rand_distr::Zipf;

use crate::random::Random;

/// A distribution over the keys of any table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// The same share for each key.
    Uniform,
    /// By rank, with this exponent.
    Zipf(f64),
    /// As `Zipf`, with ranks assigned to keys by a permutation.
    Scrambled(f64),
    /// As `Zipf`, counted from the last key down.
    Latest(f64),
    /// The share of the hot rows, and their share of the accesses.
    Hotspot(f64, f64),
    /// YCSB's.
    Zipfian,
    /// sysbench's.
    Special,
}

impl FromStr for Distribution {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let exponent = || -> Result<f64> {
            let exponent = number(settings).with_context(|| format!("{name}:S, where S is a number"))?;
            ensure!(exponent <= 10.0, "an exponent from 0 to 10, not {exponent}");
            Ok(exponent)
        };
        Ok(match name {
            "uniform" if settings.is_empty() => Self::Uniform,
            "special" if settings.is_empty() => Self::Special,
            "zipfian" if settings.is_empty() => Self::Zipfian,
            "latest" if settings.is_empty() => Self::Latest(ZIPFIAN),
            "hotspot" if settings.is_empty() => Self::Hotspot(0.2, 0.8),
            "zipf" => Self::Zipf(exponent()?),
            "scrambled" => Self::Scrambled(exponent()?),
            "latest" => Self::Latest(exponent()?),
            "hotspot" => {
                let (rows, accesses) =
                    settings.split_once(':').context("hotspot:ROWS:ACCESSES, two shares from 0 to 1")?;
                let (rows, accesses) = (number(rows)?, number(accesses)?);
                ensure!(rows > 0.0 && rows < 1.0 && accesses <= 1.0, "hotspot:ROWS:ACCESSES are shares from 0 to 1");
                Self::Hotspot(rows, accesses)
            }
            _ => bail!(
                "{text:?} is none of uniform, zipfian, zipf:S, scrambled:S, latest:S, hotspot:ROWS:ACCESSES and special"
            ),
        })
    }
}

/// Zero or more, and finite.
fn number(text: &str) -> Result<f64> {
    let number: f64 = text.parse().with_context(|| format!("{text:?} is not a number"))?;
    ensure!(number >= 0.0 && number.is_finite(), "{text} is out of range");
    Ok(number)
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(s) => write!(f, "zipf:{s}"),
            Self::Scrambled(s) => write!(f, "scrambled:{s}"),
            Self::Latest(s) => write!(f, "latest:{s}"),
            Self::Hotspot(rows, accesses) => write!(f, "hotspot:{rows}:{accesses}"),
            Self::Zipfian => f.write_str("zipfian"),
            Self::Special => f.write_str("special"),
        }
    }
}

/// A distribution over the keys `0..count`, ready to draw.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    count: usize,
    draw: Draw,
}

#[derive(Clone, Copy, Debug)]
enum Draw {
    Uniform,
    Zipf(Zipf<f64>),
    Scrambled(Zipf<f64>),
    Latest(Zipf<f64>),
    Hotspot { hot: usize, accesses: f64 },
    Zipfian(Zipf<f64>),
    Special,
}

impl Keys {
    /// An error if there are no keys.
    pub fn new(distribution: Distribution, count: usize) -> Result<Self> {
        ensure!(count > 0, "no rows to draw from");
        let zipf = |s| Zipf::new(count as f64, s).with_context(|| format!("zipf:{s} over {count} rows"));
        let draw = match distribution {
            Distribution::Uniform => Draw::Uniform,
            Distribution::Zipf(s) => Draw::Zipf(zipf(s)?),
            Distribution::Scrambled(s) => Draw::Scrambled(zipf(s)?),
            Distribution::Latest(s) => Draw::Latest(zipf(s)?),
            Distribution::Hotspot(rows, accesses) => {
                let hot = portion(count as f64 * rows).clamp(1, count);
                // If all rows are hot, no other row can be drawn.
                Draw::Hotspot { hot, accesses: if hot == count { 1.0 } else { accesses } }
            }
            Distribution::Zipfian => Draw::Zipfian(Zipf::new(ZIPFIAN_ITEMS, ZIPFIAN)?),
            Distribution::Special => Draw::Special,
        };
        Ok(Self { count, draw })
    }

    /// The next key.
    pub fn draw(&self, random: &mut Random) -> usize {
        let rank = |zipf: &Zipf<f64>, random: &mut Random| portion(zipf.sample(random)).clamp(1, self.count) - 1;
        match &self.draw {
            Draw::Uniform => random.below(self.count),
            Draw::Zipf(zipf) => rank(zipf, random),
            Draw::Scrambled(zipf) => permuted(rank(zipf, random), self.count),
            Draw::Latest(zipf) => self.count - 1 - rank(zipf, random),
            Draw::Hotspot { hot, accesses } => {
                if random.fraction() < *accesses {
                    random.below(*hot)
                } else {
                    hot + random.below(self.count - hot)
                }
            }
            Draw::Zipfian(zipf) => {
                let rank = (portion(zipf.sample(random)) as u64).saturating_sub(1);
                (fnv(rank) % self.count as u64) as usize
            }
            Draw::Special => special(random, self.count),
        }
    }
}

/// The id of a key: ids begin at 1.
pub(super) fn id(key: usize) -> i64 {
    i64::try_from(key).map_or(i64::MAX, |key| key.saturating_add(1))
}

/// The integer part.
#[expect(clippy::cast_sign_loss, reason = "no caller has a negative number")]
fn portion(number: f64) -> usize {
    number as usize
}

/// YCSB's exponent (`ZipfianGenerator.ZIPFIAN_CONSTANT`).
const ZIPFIAN: f64 = 0.99;
/// Number of items that `zipfian` draws from. YCSB has the sum of their shares as a constant (`ScrambledZipfianGenerator.ZETAN`).
const ZIPFIAN_ITEMS: f64 = 1e10;

/// YCSB's `Utils.fnvhash64`, which scatters keys: FNV-1a over the eight bytes of a number, lowest byte first, without the sign.
pub(super) fn fnv(number: u64) -> u64 {
    let hash = number
        .to_le_bytes()
        .into_iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211));
    hash.cast_signed().unsigned_abs()
}

/// Uniform numbers in each mean that sysbench takes.
const ITERATIONS: u32 = 12;
/// Share of the draws that are means.
const MEANS: f64 = 0.25;
/// Share of the keys that the other draws use.
const MIDDLE: f64 = 0.01;

fn special(random: &mut Random, count: usize) -> usize {
    let width = count as f64 - 1.0;
    let first = random.fraction();
    if first < MEANS {
        let sum: f64 = (0..ITERATIONS).map(|_| random.fraction()).sum();
        return portion(sum * width / f64::from(ITERATIONS));
    }
    let middle = width * MIDDLE;
    portion(first * (middle + 1.0) + width / 2.0 - middle / 2.0).min(count - 1)
}

/// The key of a rank among `count` keys, by a permutation that depends on `count` alone.
///
/// Four rounds of a Feistel network permute the numbers of an even count of bits; there are at most four times as many numbers as needed. A result
/// outside the range is permuted again until it is inside (cycle walking; Black and Rogaway 2002), so the mapping stays one to one.
pub(super) fn permuted(rank: usize, count: usize) -> usize {
    let half_bits = (usize::BITS - (count - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half_bits) - 1;
    let mut key = rank as u64;
    loop {
        let (mut left, mut right) = (key >> half_bits, key & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ (Random::numbered(right, round).next() & mask));
        }
        key = left << half_bits | right;
        if key < count as u64 {
            return key as usize;
        }
    }
}

#[cfg(test)]
mod tests;
