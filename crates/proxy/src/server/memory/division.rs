//! The division of the memory limit among the databases.
//!
//! Each database has its floor, and the rest is divided equally at first. Then, once a second, a step moves memory from the database that needs it
//! least to the one that needs it most. The first is one that does not fill its part, or evicts least. The second is the full one that evicts most.
//! No part falls below its floor or grows above its ceiling. The steps are small, so that a database that is idle for a while does not lose all
//! cached results at once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::shared::Shared;

/// Measurements between two steps.
const STEP_EVERY: u32 = 10;
/// A step is this share of the limit.
const STEP_SHARE: u64 = 32;
/// A database is full if less than this share of its part is free.
const FREE_SHARE: u64 = 8;
/// The database that gains must evict this many times as much as the one that loses.
const TIMES_AS_MUCH: u64 = 2;

/// A database that shares the limit.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its state.
    pub shared: Arc<Shared>,
    /// The least that it has.
    pub(super) floor: u64,
    /// The most that it may have.
    pub(super) ceiling: u64,
}

impl Member {
    /// With its present bounds.
    pub fn of(shared: &Arc<Shared>) -> Self {
        let (floor, ceiling) = shared.memory_bounds();
        Self { shared: shared.clone(), floor, ceiling }
    }
}

/// The parts of the databases.
#[derive(Debug)]
pub(super) struct Division {
    limit: u64,
    parts: Vec<Part>,
    measurements: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// The address of its database's state.
    of: usize,
    bytes: u64,
    floor: u64,
    ceiling: u64,
    /// Results evicted until the last step, and since then.
    evicted_before: u64,
    evicted: u64,
    /// Whether it could use more memory.
    is_full: bool,
}

impl Part {
    fn new(member: &Member) -> Self {
        Self {
            of: Arc::as_ptr(&member.shared).addr(),
            bytes: 0,
            floor: member.floor,
            ceiling: member.ceiling.max(member.floor),
            evicted_before: 0,
            evicted: 0,
            is_full: false,
        }
    }

    fn need(&self) -> u64 {
        if self.is_full { self.evicted } else { 0 }
    }
}

impl Division {
    pub(super) fn new(databases: &[Member], limit: u64) -> Self {
        let mut division = Self { limit, parts: databases.iter().map(Part::new).collect(), measurements: 0 };
        division.divide();
        division.give(databases);
        division
    }

    /// The parts in bytes.
    pub(super) fn parts(&self) -> impl Iterator<Item = &u64> {
        self.parts.iter().map(|part| &part.bytes)
    }

    /// Adapts to a change of the limit, and to the needs of the databases once a second.
    pub(super) fn look(&mut self, databases: &[Member], limit: u64, in_time: bool) {
        self.measurements += u32::from(in_time);
        let now: Vec<Part> = databases.iter().map(Part::new).collect();
        let bounds = |part: &Part| (part.of, part.floor, part.ceiling);
        if !now.iter().map(bounds).eq(self.parts.iter().map(bounds)) {
            self.limit = limit;
            self.follow(now);
        } else if self.limit != limit {
            self.limit = limit;
            self.divide();
        } else if self.measurements >= STEP_EVERY {
            self.measurements = 0;
            for (part, Member { shared, .. }) in self.parts.iter_mut().zip(databases) {
                let evicted = shared.cache.counters().evicted.load(Relaxed);
                // Another state may now have the same address.
                part.evicted = evicted.saturating_sub(part.evicted_before);
                part.evicted_before = evicted;
                let used = shared.cache.bytes() + shared.cache.overhead();
                part.is_full = used >= part.bytes - part.bytes / FREE_SHARE;
            }
            self.step();
        } else {
            return;
        }
        self.give(databases);
    }

    /// Databases have come or gone, or have other bounds. Those that stay keep what they have, as far as the others do not need it for an equal part.
    fn follow(&mut self, now: Vec<Part>) {
        let before = std::mem::replace(&mut self.parts, now);
        self.divide();
        let bytes_before = |of: usize| before.iter().find(|part| part.of == of).copied();
        for part in &mut self.parts {
            if let Some(old) = bytes_before(part.of) {
                (part.bytes, part.evicted_before) = (part.bytes.max(old.bytes).min(part.ceiling), old.evicted_before);
            }
        }
        // The excess is taken from those that stay, in proportion to their parts above their floors.
        let sum: u64 = self.parts.iter().map(|part| part.bytes).sum();
        let too_much = sum.saturating_sub(self.limit);
        let stays = |part: &Part| bytes_before(part.of).is_some();
        let above = |part: &Part| part.bytes.saturating_sub(part.floor);
        let spare = self.parts.iter().filter(|part| stays(part)).map(above).sum::<u64>();
        for part in self.parts.iter_mut().filter(|part| stays(part)) {
            let share = u128::from(above(part)) * u128::from(too_much) / u128::from(spare.max(1));
            part.bytes -= u64::try_from(share).unwrap_or(0).min(above(part));
        }
        if self.parts.iter().map(|part| part.bytes).sum::<u64>() > self.limit + self.parts.len() as u64 {
            self.divide();
        }
    }

    fn give(&self, databases: &[Member]) {
        for (part, member) in self.parts.iter().zip(databases) {
            member.shared.take_part(part.bytes);
        }
    }

    /// The floors, and the rest in equal parts up to the ceilings.
    fn divide(&mut self) {
        let floors: u64 = self.parts.iter().map(|part| part.floor).sum();
        for part in &mut self.parts {
            // An operator may set a limit below all floors.
            let floor = u128::from(part.floor) * u128::from(self.limit) / u128::from(floors.max(self.limit).max(1));
            part.bytes = u64::try_from(floor).unwrap_or(part.floor);
        }
        let mut rest = self.limit.saturating_sub(self.parts.iter().map(|part| part.bytes).sum());
        // In the order of the distance from the ceiling, so that what one cannot take goes to the others.
        let mut open: Vec<&mut Part> = self.parts.iter_mut().collect();
        open.sort_by_key(|part| part.ceiling.saturating_sub(part.bytes));
        let mut count = open.len() as u64;
        for part in open {
            let more = (rest / count.max(1)).min(part.ceiling.saturating_sub(part.bytes));
            part.bytes += more;
            rest -= more;
            count -= 1;
        }
    }

    /// Moves a step of memory to where it is needed most.
    fn step(&mut self) {
        let most = self.parts.iter().enumerate().filter(|(_, part)| part.need() > 0 && part.bytes < part.ceiling);
        let Some((to, gains)) = most.max_by_key(|(_, part)| part.need()).map(|(at, part)| (at, *part)) else { return };
        let free = self.limit.saturating_sub(self.parts().sum());
        let step = (self.limit / STEP_SHARE).min(gains.ceiling - gains.bytes);
        let mut moved = step.min(free);
        let others = self.parts.iter_mut().enumerate().filter(|(at, part)| *at != to && part.bytes > part.floor);
        let least = others.map(|(_, part)| part).min_by_key(|part| (part.need(), u64::MAX - part.bytes));
        if let Some(part) =
            least.filter(|part| moved < step && part.need().saturating_mul(TIMES_AS_MUCH) <= gains.need())
        {
            let more = (step - moved).min(part.bytes - part.floor);
            part.bytes -= more;
            moved += more;
        }
        if let Some(part) = self.parts.get_mut(to) {
            part.bytes += moved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division(limit: u64, bounds: &[(u64, u64)]) -> Division {
        let part = |(of, (floor, ceiling)): (usize, &(u64, u64))| Part {
            of,
            bytes: 0,
            floor: *floor,
            ceiling: *ceiling,
            evicted_before: 0,
            evicted: 0,
            is_full: false,
        };
        let mut division = Division { limit, parts: bounds.iter().enumerate().map(part).collect(), measurements: 0 };
        division.divide();
        division
    }

    fn bytes(division: &Division) -> Vec<u64> {
        division.parts().copied().collect()
    }

    #[test]
    fn floors_are_given_first_and_ceilings_are_not_passed() {
        const MAX: u64 = u64::MAX;
        for (bounds, expected) in [
            (&[(0, MAX)][..], vec![320]),
            (&[(0, MAX), (0, MAX)], vec![160, 160]),
            (&[(100, MAX), (0, MAX)], vec![210, 110]),
            (&[(0, MAX), (0, 20), (0, MAX)], vec![150, 20, 150]),
            (&[(0, 30), (0, 20)], vec![30, 20]),
            (&[(400, MAX), (240, MAX)], vec![200, 120]),
        ] {
            assert_eq!(bytes(&division(320, bounds)), expected, "{bounds:?}");
        }
    }

    #[test]
    fn those_that_stay_keep_what_they_have() {
        let mut all = division(320, &[(0, u64::MAX), (40, u64::MAX)]);
        (all.parts[0].bytes, all.parts[1].bytes) = (260, 60);
        let [one, other] = [all.parts[0], all.parts[1]];
        let new = Part { of: 2, bytes: 0, floor: 20, ..one };
        all.follow(vec![one, new, other]);
        // The new one gets an equal part: its floor and a third of the rest.
        let parts = bytes(&all);
        assert!(parts[1] == 107 && parts[0] > parts[2] && parts[2] >= 40, "{parts:?}");
        assert!((319..=322).contains(&parts.iter().sum::<u64>()), "{parts:?}");
        // The memory of a removed database goes to those that stay.
        let [one, other] = [all.parts[0], all.parts[2]];
        all.follow(vec![one, other]);
        assert!(bytes(&all).iter().sum::<u64>() > 300, "{:?}", bytes(&all));
    }

    #[test]
    fn memory_goes_where_results_are_evicted() {
        let mut division = division(320, &[(50, u64::MAX), (0, u64::MAX), (0, 180)]);
        assert_eq!(bytes(&division), [140, 90, 90]);
        let needs = |division: &mut Division, needs: [u64; 3]| {
            for (part, need) in division.parts.iter_mut().zip(needs) {
                (part.evicted, part.is_full) = (need, need > 0);
            }
        };
        // No database needs more.
        division.step();
        assert_eq!(bytes(&division), [140, 90, 90]);
        // The largest idle one loses memory, down to its floor; then the next one.
        needs(&mut division, [0, 0, 7]);
        division.step();
        assert_eq!(bytes(&division), [130, 90, 100]);
        (0..8).for_each(|_| division.step());
        assert_eq!(bytes(&division), [70, 70, 180], "the ceiling");
        // Of two that evict, the one that evicts at least twice as much gets memory of the other.
        needs(&mut division, [9, 10, 9]);
        division.step();
        assert_eq!(bytes(&division), [70, 70, 180]);
        needs(&mut division, [9, 18, 9]);
        division.step();
        assert_eq!(bytes(&division), [70, 80, 170]);
        // A database that evicts without being full has just become smaller.
        needs(&mut division, [0, 18, 0]);
        division.parts[1].is_full = false;
        division.step();
        assert_eq!(bytes(&division), [70, 80, 170]);
    }
}
