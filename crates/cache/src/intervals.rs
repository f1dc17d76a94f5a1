//! Intervals that contain a number. A look-up finds them without visiting the others.
//!
//! This is an interval tree with fixed centres and without tree nodes. The centre of an interval is the number in it
//! that is divisible by the highest power of two. Each interval is stored once, at its centre, in two orders: by its
//! low end and by its high end. A look-up of x visits only the centres on its path through the binary tree of all
//! numbers, one for each level. At each centre the matching intervals are a prefix of one order. If x is below the
//! centre, they are those that begin at x or before, since all of them reach the centre. Otherwise they are those
//! that end at x or after. So a look-up costs one hash probe for each level in use, and one step for each interval
//! found.

use std::collections::{BTreeSet, HashMap};

use rapidhash::quality::RandomState;

/// Intervals of `u64`, both ends included. Each has an item that distinguishes it from others.
#[derive(Debug)]
pub(crate) struct Intervals<T> {
    centres: HashMap<Centre, Ends<T>, RandomState>,
    /// The levels in use, usually few, each with its number of centres.
    levels: Vec<(u8, usize)>,
}

/// The level, and the bits above it. Level 0 is a single number. At level n the highest bit in which the ends differ
/// is the n-th.
type Centre = (u8, u64);

#[derive(Debug)]
struct Ends<T> {
    by_low: BTreeSet<(u64, T)>,
    by_high: BTreeSet<(u64, T)>,
}

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Self { centres: HashMap::default(), levels: Vec::new() }
    }
}

impl<T: Copy + Ord> Intervals<T> {
    /// Inserts an interval. An interval with `low` above `high` contains no number and is ignored.
    pub(crate) fn insert(&mut self, (low, high): (u64, u64), item: T) {
        if low > high {
            return;
        }
        let centre = centre(low, high);
        let ends = self.centres.entry(centre).or_insert_with(|| {
            match self.levels.iter_mut().find(|(level, _)| *level == centre.0) {
                Some((_, used)) => *used += 1,
                None => self.levels.push((centre.0, 1)),
            }
            Ends { by_low: BTreeSet::new(), by_high: BTreeSet::new() }
        });
        ends.by_low.insert((low, item));
        ends.by_high.insert((high, item));
    }

    pub(crate) fn remove(&mut self, (low, high): (u64, u64), item: T) {
        let centre = centre(low, high);
        let Some(ends) = self.centres.get_mut(&centre).filter(|_| low <= high) else { return };
        ends.by_low.remove(&(low, item));
        ends.by_high.remove(&(high, item));
        if ends.by_low.is_empty() {
            self.centres.remove(&centre);
            self.levels.retain_mut(|(level, used)| {
                *used -= usize::from(*level == centre.0);
                *used > 0
            });
        }
    }

    /// Calls `found` for each interval that contains `number`.
    pub(crate) fn around(&self, number: u64, mut found: impl FnMut(T)) {
        for &(level, _) in &self.levels {
            let Some(ends) = self.centres.get(&(level, above(number, level))) else { continue };
            let below_centre = level > 0 && number & (1 << (level - 1)) == 0;
            if below_centre {
                ends.by_low.iter().take_while(|(low, _)| *low <= number).for_each(|(_, item)| found(*item));
            } else {
                ends.by_high.iter().rev().take_while(|(high, _)| *high >= number).for_each(|(_, item)| found(*item));
            }
        }
    }

    /// Calls `found` for each interval.
    pub(crate) fn all(&self, mut found: impl FnMut(T)) {
        self.centres.values().flat_map(|ends| &ends.by_low).for_each(|(_, item)| found(*item));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.centres.is_empty()
    }
}

fn centre(low: u64, high: u64) -> Centre {
    // The level is at most 64.
    let level = u8::try_from(u64::BITS - (low ^ high).leading_zeros()).unwrap_or(u8::MAX);
    (level, above(low, level))
}

/// The bits of a number above a level.
fn above(number: u64, level: u8) -> u64 {
    number.checked_shr(level.into()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_look_at_all_finds() {
        let mut random = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut number = || match next() % 4 {
            0 => next() % 32,
            1 => u64::MAX - next() % 32,
            2 => (1 << 63) + next() % 32 - 16,
            _ => next(),
        };
        let mut held: Vec<(u64, u64, u64)> = Vec::new();
        let mut intervals = Intervals::default();
        for step in 0..4_000u64 {
            if step % 3 == 2 && step % 600 > 200 {
                let (low, high, item) = held.swap_remove(usize::try_from(step).unwrap() % held.len());
                intervals.remove((low, high), item);
            } else {
                let (low, high) = (number(), number());
                intervals.insert((low, high), step);
                held.push((low, high, step));
            }
            let x = number();
            let mut found = Vec::new();
            intervals.around(x, |item| found.push(item));
            found.sort_unstable();
            let mut expected: Vec<u64> =
                held.iter().filter(|(low, high, _)| (*low..=*high).contains(&x)).map(|(_, _, item)| *item).collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "around {x}");
        }
        for (low, high, item) in held {
            intervals.remove((low, high), item);
        }
        assert!(intervals.is_empty() && intervals.levels.is_empty());
    }
}
