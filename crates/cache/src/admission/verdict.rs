//! The break-even hit ratio of results that were invalidated: how often a key must have been missed before it is filled.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::costs::Costs;

/// Fills of a statement between two verdicts.
const FILLS_BETWEEN: u64 = 64;
/// A verdict needs one ended result for so many fills. If fewer ended, those are the young ones among results that
/// live long, and hardly anybody asked for them yet.
const FILLS_PER_ENDED: u64 = 2;
/// If fewer ended during so many fills, most results live long.
const FILLS_WITH_ROOM: u64 = 8 * FILLS_BETWEEN;
/// The level is lowered after so many misses without a verdict: the load may have changed.
const MISSES_MAX: u32 = 8192;
/// Up to this level a key needs so many earlier misses. Above it, one in two, four … of such keys is filled.
const MISSES_LEVEL_MAX: u8 = 8;
const LEVEL_MAX: u8 = MISSES_LEVEL_MAX + 6;

/// The verdict on one statement's results, as a level. 0: they pay.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    level: AtomicU8,
    /// Since the last verdict: misses while the level was above 0,
    misses: AtomicU32,
    /// fills,
    fills: AtomicU64,
    /// results that ended,
    ended: AtomicU64,
    /// and hits of those.
    hits: AtomicU64,
}

impl Verdict {
    /// Results do not pay at present.
    pub(super) fn is_low(&self) -> bool {
        self.level.load(Relaxed) > 0
    }

    /// Whether a miss is filled whose key had so many earlier misses. Counts it, if results do not pay.
    pub(super) fn allows(&self, earlier: u8) -> bool {
        let level = self.level.load(Relaxed);
        if level == 0 {
            return true;
        }
        let one_in = 1u32 << level.saturating_sub(MISSES_LEVEL_MAX);
        let misses = self.misses.fetch_add(1, Relaxed);
        if misses >= MISSES_MAX {
            self.begin_anew(level - 1);
        }
        earlier >= level.min(MISSES_LEVEL_MAX) && misses.is_multiple_of(one_in)
    }

    /// A result was removed that had so many hits.
    pub(super) fn ended(&self, hits: u64) {
        self.ended.fetch_add(1, Relaxed);
        self.hits.fetch_add(hits, Relaxed);
    }

    /// A fill begins. Gives the verdict by these costs when it is time; true: it was given.
    pub(super) fn fill(&self, costs: impl FnOnce() -> Costs) -> bool {
        let fills = self.fills.fetch_add(1, Relaxed) + 1;
        if !fills.is_multiple_of(FILLS_BETWEEN) {
            return false;
        }
        let level = self.level.load(Relaxed);
        let ended = self.ended.load(Relaxed);
        if ended * FILLS_PER_ENDED >= fills {
            self.begin_anew(self.judged(level, ended.max(1), costs()));
            return true;
        }
        if fills >= FILLS_WITH_ROOM {
            self.begin_anew(level.saturating_sub(1));
        }
        false
    }

    /// The level after this one. It is lowered where half of the hits would pay.
    fn judged(&self, level: u8, ended: u64, costs: Costs) -> u8 {
        let (hits, fills) = (self.hits.load(Relaxed) as f64, ended as f64);
        match () {
            () if !costs.pays(hits, fills) => (level + 1).min(LEVEL_MAX),
            () if costs.pays(hits / 2.0, fills) => level.saturating_sub(1),
            () => level,
        }
    }

    fn begin_anew(&self, level: u8) {
        self.level.store(level, Relaxed);
        for counter in [&self.fills, &self.ended, &self.hits] {
            counter.store(0, Relaxed);
        }
        self.misses.store(0, Relaxed);
    }
}
