//! What caching saves for one statement: see [`super`].

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use freshet_types::Nanos;

use super::answers::Answers;
use super::costs::{self, Costs, FILL_IN_PLACE, Hits, signed};
use super::suspension::Suspension;
use super::verdict::Verdict;
use crate::{Cache, Payload};

/// The upper bound of the balance, where it begins, and the negative of its lower bound: some hundreds of fills that evict
/// another entry, three times as many while there is room.
pub(super) const BALANCE_MAX: i64 = 512 * FILL_IN_PLACE;
/// What a miss adds to the balance: one part of so many of the database's average answer, while there is room and in a full cache. That share of
/// the statement's own time is spent on fills although nothing hits.
const MISS_EARNS: (i64, i64) = (25, 100);
/// The balance is reckoned after so many misses.
const MISSES_BETWEEN: u32 = 64;
/// Of the misses whose results would probably not be cached, one is filled for each such time of the database, so that these fills take
/// 2% of it; one in 64 at least.
const NANOS_FOR_A_TRY: u64 = 50 * FILL_IN_PLACE.cast_unsigned();
const MISSES_FOR_A_TRY: u64 = 64;

/// What caching saves for one statement, and what admission knows for its decision. Of two updates at once one may be lost.
#[derive(Debug)]
pub struct Worth {
    answers: Answers,
    verdict: Verdict,
    suspension: Suspension,
    /// hits·(O − H) − fills·(M − O), bounded.
    balance: AtomicI64,
    /// All misses, and the hits that are in the balance.
    missed: AtomicU32,
    reckoned: [AtomicU64; 3],
    /// Misses after own write since the balance was reckoned.
    missed_after_own_write: AtomicU32,
    /// There was no room when it was reckoned.
    full: AtomicBool,
    /// The last fill needed a key query, which costs the database about what the statement does.
    costs_twice: AtomicBool,
    /// Misses whose results would probably not be cached.
    unlikely: AtomicU64,
}

impl Default for Worth {
    fn default() -> Self {
        Self {
            answers: Answers::default(),
            verdict: Verdict::default(),
            suspension: Suspension::default(),
            balance: AtomicI64::new(BALANCE_MAX),
            missed: AtomicU32::default(),
            reckoned: Default::default(),
            missed_after_own_write: AtomicU32::default(),
            full: AtomicBool::default(),
            costs_twice: AtomicBool::default(),
            unlikely: AtomicU64::default(),
        }
    }
}

impl Worth {
    /// Counts a miss, and reckons now and then.
    pub(super) fn count<P: Payload>(
        &self,
        cache: &Cache<P>,
        after_own_write: bool,
        so_far: impl FnOnce() -> (Hits, Nanos),
    ) {
        self.count_miss(after_own_write, || {
            let (hits, now) = so_far();
            (hits, now, !cache.has_room(self.answers.bytes()))
        });
    }

    /// The same. `so_far` says as well whether the cache is full.
    pub(super) fn count_miss(&self, after_own_write: bool, so_far: impl FnOnce() -> (Hits, Nanos, bool)) {
        if after_own_write {
            self.missed_after_own_write.fetch_add(1, Relaxed);
        }
        if self.missed.fetch_add(1, Relaxed).is_multiple_of(MISSES_BETWEEN) {
            let (hits, now, full) = so_far();
            self.reckon(hits, now, full);
        }
    }

    /// Adds to the balance what hits saved since the last call, and suspends caching or ends that.
    fn reckon(&self, hits: Hits, now: Nanos, full: bool) {
        self.full.store(full, Relaxed);
        let [all, after_own_write, after_pass] = &self.reckoned;
        let before = Hits {
            all: all.swap(hits.all, Relaxed),
            after_own_write: after_own_write.swap(hits.after_own_write, Relaxed),
            after_pass: after_pass.swap(hits.after_pass, Relaxed),
        };
        let new = hits.since(before);
        let never_pays = self.never_pays(new, full);
        let misses_earn = if never_pays { 0 } else { self.miss_earns(full) * i64::from(MISSES_BETWEEN) };
        self.earn(new.save_in(full, self.shortest()).saturating_add(misses_earn));
        if never_pays && self.balance.load(Relaxed) <= 0 {
            self.earn(self.suspension.go_on(now, self.is_used_up()).min(BALANCE_MAX));
        } else {
            self.suspension.end();
        }
    }

    /// Whether H ≥ O by the look-ups since the last call. A miss after own write would have been such a hit.
    fn never_pays(&self, new: Hits, full: bool) -> bool {
        let misses = u64::from(MISSES_BETWEEN);
        let missed_after_own_write = u64::from(self.missed_after_own_write.swap(0, Relaxed));
        let after_own_write = share(new.after_own_write + missed_after_own_write, new.all.saturating_add(misses));
        let after_pass = if self.is_suspended() {
            1.0 - share(u64::from(self.suspension.take_found()), misses) // a little room does not end a suspension
        } else if full {
            let others = new.all.saturating_sub(new.after_own_write);
            if others == 0 { 1.0 } else { share(new.after_pass, others) }
        } else {
            0.0
        };
        let hit = costs::of_hit(after_own_write, after_pass);
        // Most answers may take longer than the shortest: a hit of those pays if it does at its highest price.
        let highest = costs::of_hit(after_own_write, 1.0);
        // Without an answer O is not known.
        let known = self.shortest() > 0;
        known
            && self.costs(self.shortest(), hit).never_pays()
            && self.costs(self.answers.eighth(), highest).never_pays()
    }

    /// `pass` and `hit` are O and H.
    fn costs(&self, pass: u64, hit: i64) -> Costs {
        let pass = signed(pass);
        Costs { pass, hit, fill: pass.saturating_add(costs::of_fill(self.full.load(Relaxed), self.keys())) }
    }

    /// The break-even hit ratio, if hits go on to cost what these did on average; None while O is not known.
    pub fn break_even(&self, hits: Hits) -> Option<f64> {
        let after_own_write = share(hits.after_own_write, hits.all.max(1));
        let others = hits.all.saturating_sub(hits.after_own_write);
        let after_pass = if self.full.load(Relaxed) { share(hits.after_pass, others.max(1)) } else { 0.0 };
        let pass = self.shortest();
        (pass > 0).then(|| self.costs(pass, costs::of_hit(after_own_write, after_pass)).break_even())
    }

    /// What the key query of a fill takes.
    fn keys(&self) -> u64 {
        if self.costs_twice.load(Relaxed) { self.shortest() } else { 0 }
    }

    /// A small share of the database's average answer. A key query takes as long on average, but the balance charges it
    /// by the shortest answer; so the share is less by that.
    fn miss_earns(&self, full: bool) -> i64 {
        let part = if full { MISS_EARNS.1 } else { MISS_EARNS.0 };
        let average = signed(self.answers.nanos());
        let share = average / part;
        if self.costs_twice.load(Relaxed) {
            let (charged, taken) = (costs::of_fill(full, self.keys()), costs::of_fill(full, self.answers.nanos()));
            (share as f64 * charged as f64 / taken as f64) as i64
        } else {
            share
        }
    }

    /// Caching is suspended.
    pub fn is_suspended(&self) -> bool {
        self.suspension.is_on()
    }

    /// An operator has decided that it is cached whether hits pay or not: a suspension ends.
    pub fn always_pays(&self) {
        self.suspension.end();
    }

    /// Caching is suspended, and this execution passes without a look-up, so that it costs what it costs with the cache off. It is not
    /// counted: the look-ups of the others are a sample. `passed`: how many have passed.
    pub fn skips_look_up(&self, passed: impl FnOnce() -> u64) -> bool {
        self.suspension.skips_look_up(passed)
    }

    /// An entry was found: whether it is served. If not, that is a miss.
    pub fn serves(&self) -> bool {
        !self.suspension.holds_back()
    }

    pub(super) fn fills_although_suspended(&self, known: bool) -> bool {
        self.is_turn(Suspension::fills_one_in(known))
    }

    fn is_turn(&self, one_in: u32) -> bool {
        self.missed.load(Relaxed).is_multiple_of(one_in)
    }

    /// Adds to the balance.
    fn earn(&self, nanos: i64) {
        let sum = self.balance.load(Relaxed).saturating_add(nanos);
        self.balance.store(sum.clamp(-BALANCE_MAX, BALANCE_MAX), Relaxed);
    }

    /// The database's shortest answer lately; 0: not known.
    pub fn shortest(&self) -> u64 {
        self.answers.shortest()
    }

    /// Whether a miss of a key is filled that was missed so often before.
    pub(super) fn admits(&self, earlier: u8) -> bool {
        // A few at any rate, so that O is known.
        let trusts = earlier > 0 || self.verdict.is_low() || self.balance.load(Relaxed) > 0;
        self.verdict.allows(earlier) && (trusts || self.is_turn(MISSES_BETWEEN))
    }

    /// Whether an average result of the statement would be cached, and is likely to pay.
    pub(super) fn expects<P: Payload>(&self, cache: &Cache<P>, key: &[u8]) -> bool {
        if self.is_used_up() { cache.has_room(self.answers.bytes()) } else { self.would_be_kept(cache, key) }
    }

    pub(super) fn would_be_kept<P: Payload>(&self, cache: &Cache<P>, key: &[u8]) -> bool {
        let bytes = self.answers.bytes();
        bytes == 0 || cache.would_keep(key, bytes, self.answers.nanos())
    }

    /// Hits have saved much less than fills have cost.
    fn is_used_up(&self) -> bool {
        self.balance.load(Relaxed) <= -BALANCE_MAX
    }

    /// Results differ, and the load changes: some are filled that would probably not be cached, as many as the database hardly notices.
    pub(super) fn tries(&self) -> bool {
        let one_in = (NANOS_FOR_A_TRY / self.answers.nanos().max(1)).clamp(1, MISSES_FOR_A_TRY);
        self.unlikely.fetch_add(1, Relaxed).is_multiple_of(one_in)
    }

    /// A result weighs so much in the store.
    pub fn weighs(&self, bytes: u64) {
        self.answers.weigh(bytes);
    }

    /// A result needs a key query, or needs none.
    pub fn costs_twice(&self, does: bool) {
        self.costs_twice.store(does, Relaxed);
    }

    /// A fill begins.
    pub fn fill(&self) {
        self.earn(-costs::of_fill(self.full.load(Relaxed), self.keys()));
        // An invalidated result has left its place, and the kinds of hits change faster than verdicts: H is 0.
        let costs = || {
            let pass = self.shortest().max(1);
            Costs { pass: signed(pass), hit: 0, fill: signed(pass).saturating_add(costs::of_fill(false, self.keys())) }
        };
        if self.verdict.fill(costs) {
            self.answers.forget_shortest();
        }
    }

    /// What the database took for an answer that came in this time, of which it waited about so long for its turn:
    /// on a loaded machine a cheap statement would look expensive otherwise.
    pub fn own(&self, took: Nanos, turn: Nanos) -> Nanos {
        self.answers.own(took, turn)
    }

    /// The database has answered: see [`Self::own`], which is returned.
    pub fn answered(&self, took: Nanos, turn: Nanos) -> Nanos {
        self.answers.note(took, turn)
    }

    /// A result was removed that had so many hits, and not for want of room.
    pub fn ended(&self, hits: u64) {
        self.verdict.ended(hits);
    }

    /// Caching does not pay at present.
    pub fn is_low(&self) -> bool {
        self.verdict.is_low() || self.is_suspended()
    }
}

fn share(part: u64, all: u64) -> f64 {
    (part as f64 / all as f64).min(1.0)
}
