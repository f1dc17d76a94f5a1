//! Caching is suspended for a statement: entries are not served, and next to nothing is filled.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use freshet_types::{Nanos, is_drawn};

/// The first suspension takes so long, each further one twice as long as the one before, and none longer than this.
const SHORTEST: Nanos = 1_000_000_000;
const LONGEST: Nanos = 16 * SHORTEST;
/// One miss of so many is filled meanwhile.
const FILLED: u32 = 512;
/// One execution of so many is looked up meanwhile, where the statement is known before the key.
const LOOKED_UP: u32 = 4;
/// The trial after a suspension has this part of its length as a balance.
const TRIAL_PART: Nanos = 200;

/// Whether caching is suspended for a statement.
#[derive(Debug, Default)]
pub(super) struct Suspension {
    /// When it ends; 0: caching is not suspended.
    until: AtomicU64,
    /// How long the last one took; 0: hits have paid since.
    last: AtomicU64,
    /// Entries that were found meanwhile.
    found: AtomicU32,
}

impl Suspension {
    pub(super) fn is_on(&self) -> bool {
        self.until.load(Relaxed) > 0
    }

    /// No hit ratio pays: suspends caching if the balance is `used_up`, or ends a suspension whose time is over. Returns the
    /// balance of the trial then.
    pub(super) fn go_on(&self, now: Nanos, used_up: bool) -> i64 {
        let (until, last) = (self.until.load(Relaxed), self.last.load(Relaxed));
        if until > now {
            return 0;
        }
        if until > 0 {
            self.until.store(0, Relaxed);
            return (last / TRIAL_PART).cast_signed();
        }
        if used_up {
            let next = (last * 2).clamp(SHORTEST, LONGEST);
            self.last.store(next, Relaxed);
            self.until.store(now + next, Relaxed);
        }
        0
    }

    /// Hits pay again.
    pub(super) fn end(&self) {
        self.last.store(0, Relaxed);
        self.until.store(0, Relaxed);
    }

    /// This execution passes without a look-up. `passed`: how many have passed.
    pub(super) fn skips_look_up(&self, passed: impl FnOnce() -> u64) -> bool {
        self.is_on() && !is_drawn(passed(), LOOKED_UP.into())
    }

    /// An entry was found: whether it is not served.
    pub(super) fn holds_back(&self) -> bool {
        let is_on = self.is_on();
        if is_on {
            self.found.fetch_add(1, Relaxed);
        }
        is_on
    }

    /// Entries that were found since the last call.
    pub(super) fn take_found(&self) -> u32 {
        self.found.swap(0, Relaxed)
    }

    /// One in so many of the misses that are looked up meanwhile is filled.
    pub(super) fn fills_one_in(known: bool) -> u32 {
        if known { FILLED / LOOKED_UP } else { FILLED }
    }
}
