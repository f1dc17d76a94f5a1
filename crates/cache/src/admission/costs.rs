//! The formula of admission and the measured costs in it: see [`super`].

/// M − O of a fill while the memory budget has room: slightly less than the cheapest statement takes with its round trip
/// (docs/experiments/2026-11-26-what-a-fill-costs.md).
const FILL: i64 = 40_000;
/// M − O of a fill that evicts another entry, which saves something as well.
pub(super) const FILL_IN_PLACE: i64 = 120_000;
/// H of a hit after own write: the log end is probed, the stream must deliver up to it at once, and the session is woken
/// (docs/experiments/2026-11-25-late-hits.md).
const HIT_AFTER_OWN_WRITE: i64 = 80_000;
/// H of a hit after a pass, in a full cache: it needs a newer log end (docs/experiments/2026-11-26-few-hits.md). While a cache
/// fills, nearly all hits are of this kind and soon are no more, so they cost nothing there.
const HIT_AFTER_PASS: i64 = 35_000;

/// What one execution of a statement costs, in nanoseconds of the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// O: with the cache off.
    pub(super) pass: i64,
    /// H: a hit, on average.
    pub(super) hit: i64,
    /// M: a miss whose result is filled.
    pub(super) fill: i64,
}

impl Costs {
    /// The break-even hit ratio, (M − O) / (M − H). 1: no hit ratio pays.
    pub(super) fn break_even(self) -> f64 {
        if self.never_pays() {
            return 1.0;
        }
        (self.fill - self.pass) as f64 / (self.fill - self.hit) as f64
    }

    /// Whether so many hits pay for so many fills.
    pub(super) fn pays(self, hits: f64, fills: f64) -> bool {
        !self.never_pays() && hits >= self.break_even() * (hits + fills)
    }

    /// A hit costs no less than the database's answer.
    pub(super) fn never_pays(self) -> bool {
        self.hit >= self.pass
    }
}

/// M − O of a fill. `full`: it evicts another entry. `keys`: what its key query takes, 0 if it needs none.
pub(super) fn of_fill(full: bool, keys: u64) -> i64 {
    (if full { FILL_IN_PLACE } else { FILL }).saturating_add_unsigned(keys)
}

/// H, if this share of the hits comes after own write, and this share of the others after a pass in a full cache.
pub(super) fn of_hit(after_own_write: f64, after_pass: f64) -> i64 {
    let others = (1.0 - after_own_write) * after_pass;
    (after_own_write * HIT_AFTER_OWN_WRITE as f64 + others * HIT_AFTER_PASS as f64) as i64
}

/// Hits of one statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hits {
    /// All.
    pub all: u64,
    /// Directly after a write of their session.
    pub after_own_write: u64,
    /// Directly after a read of their session that passed.
    pub after_pass: u64,
}

impl Hits {
    /// The hits that came since then.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            after_own_write: self.after_own_write.saturating_sub(before.after_own_write),
            after_pass: self.after_pass.saturating_sub(before.after_pass),
        }
    }

    /// What they save while the cache has room: the sum of O − H, if the database takes so long for each answer. It is negative if they cost more.
    pub fn save(self, pass: u64) -> i64 {
        self.save_in(false, pass)
    }

    /// The same. `full`: hits after a pass cost something.
    pub(super) fn save_in(self, full: bool, pass: u64) -> i64 {
        let after_pass = if full { HIT_AFTER_PASS.saturating_mul(signed(self.after_pass)) } else { 0 };
        let cost = HIT_AFTER_OWN_WRITE.saturating_mul(signed(self.after_own_write)).saturating_add(after_pass);
        signed(self.all.saturating_mul(pass)).saturating_sub(cost)
    }
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The break-even hit ratio is where look-ups cost as much as executions with the cache off, and where savings are 0.
    #[test]
    fn the_break_even_hit_ratio_is_where_both_cost_the_same() {
        for (pass, hit, full, keys) in
            [(50_000, 0, false, 0), (60_000, 35_000, true, 0), (90_000, 80_000, false, 90_000)]
        {
            let costs = Costs { pass, hit, fill: pass + of_fill(full, keys) };
            let ratio = costs.break_even();
            let cached = ratio * hit as f64 + (1.0 - ratio) * costs.fill as f64;
            assert!((cached - pass as f64).abs() < 1.0, "{costs:?}: {cached}");
            let saved = ratio * (pass - hit) as f64 - (1.0 - ratio) * of_fill(full, keys) as f64;
            assert!(saved.abs() < 1.0, "{costs:?}: {saved}");
            assert!(costs.pays(ratio + 0.01, 1.0 - ratio) && !costs.pays(ratio - 0.01, 1.0 - ratio), "{costs:?}");
        }
        let costs = Costs { pass: 60_000, hit: 80_000, fill: 100_000 };
        assert!(costs.never_pays() && !costs.pays(1_000.0, 0.0));
    }
}
