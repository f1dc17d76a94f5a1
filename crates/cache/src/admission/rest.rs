//! A statement whose hits cost more than they give rests: what there is of it is not served, and next to nothing is filled.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use freshet_types::{Nanos, is_drawn};

/// A rest is so long at first, twice as long each time that a trial was in vain, and so long at most.
const SHORTEST: Nanos = 1_000_000_000;
const LONGEST: Nanos = 16 * SHORTEST;
/// One miss of so many is filled meanwhile.
const FILLED: u32 = 512;
/// Of what is asked for one execution of so many is looked up, where the statement is known before its key.
const SEEN: u32 = 4;
/// What it is tried with behind a rest: one part of so many of that time.
const TRIAL_PART: Nanos = 200;

/// Whether a statement rests.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// When it ends; 0: there is none.
    until: AtomicU64,
    /// How long the last one was; 0: times were better since.
    last: AtomicU64,
    /// Results that were found meanwhile.
    found: AtomicU32,
}

impl Rest {
    pub(super) fn is_on(&self) -> bool {
        self.until.load(Relaxed) > 0
    }

    /// Hits still cost more than they give: begins a rest if the statement is `used_up`, or ends one whose time is over. Returns what the statement
    /// is tried with then, in time of the database.
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

    /// They pay again.
    pub(super) fn end(&self) {
        self.last.store(0, Relaxed);
        self.until.store(0, Relaxed);
    }

    /// This execution passes without a look-up. `passed`: how many have passed.
    pub(super) fn passes_unseen(&self, passed: impl FnOnce() -> u64) -> bool {
        self.is_on() && !is_drawn(passed(), SEEN.into())
    }

    /// A result was found: whether it is not to be served.
    pub(super) fn holds_back(&self) -> bool {
        let is_on = self.is_on();
        if is_on {
            self.found.fetch_add(1, Relaxed);
        }
        is_on
    }

    /// Results that were found since the last call.
    pub(super) fn take_found(&self) -> u32 {
        self.found.swap(0, Relaxed)
    }

    /// Of the misses that are seen meanwhile one in so many is filled.
    pub(super) fn fills_one_in(known: bool) -> u32 {
        if known { FILLED / SEEN } else { FILLED }
    }
}
