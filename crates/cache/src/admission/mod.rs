//! Whether an answer is worth keeping: what a statement's results have given so far, against what they have cost.
//!
//! To keep an answer costs more than to pass it on: tags, the log end, perhaps a query for keys. A hit saves the
//! statement's own execution. So where results change before anybody asks for them again, a cache costs more
//! than it gives. Each statement (shape) is judged by the lives of its own results that have ended: hits for each of them,
//! against the hits that would pay for a fill. If they do not pay, only keys are filled that were asked for before, more
//! often with each verdict like it; in the end few of those either. If few results end at all, there is room for them, and
//! the bar is lowered; so it is now and then when nothing is filled any more, since times change.
//!
//! That is for results which changes take away. Of those that would have to go for want of room each is weighed against what would
//! take its place (`eviction_policy.rs`), before the fill with what the statement's results take on average, and with its own figures
//! when it is there. So what is outweighed says nothing against its statement. Where results of one statement differ much the average
//! is a bad guess; then some are filled that it speaks against, for a small share of the statement's own time. Nor are more than that filled in the place
//! of others once hits have not earned what fills have cost: where all keys are asked for equally often, one result for another gains nothing.
//!
//! While there is room, nothing says yet whether anybody will ask again. What is filled at the first miss of its key is an investment; it is
//! made from a balance: each hit earns what the database was spared, each fill costs what a fill costs, each miss earns a small share of
//! its own time, and there is something to begin with. If it is used up, keys are filled at their second miss. So a cold
//! cache before many cheap results that nobody asks for again costs little, whatever its size. A key that is missed twice has cost
//! no more than about twice of what was needed at best.
//!
//! A hit right behind a write of its own session is a late one: the log end is asked for behind that write, the stream must come
//! that far at once, and the session be woken. That is about what a cheap statement costs. A hit right behind a read that passed costs
//! a log end, too. In a full cache that is too small for what is asked for, most hits are like that, and more of them
//! cannot be had. Where hits cost more than they give and the balance is used up, the statement rests: next to nothing is filled, and what there is is not served, so that nobody
//! waits for it. Misses tell as well as hits when most look-ups are not late any more, and what is found meanwhile tells what share of
//! them would hit; and it is tried anew now and then.
//!
//! Reading list: Karlin et al., "Competitive Snoopy Caching" (1988), for paying until one has paid what it costs to own; Einziger, Friedman & Manes, "TinyLFU: A Highly Efficient Cache Admission Policy" (2017), for admission by
//! the frequency of what is *not* in the cache.

mod rest;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use freshet_types::Nanos;

use crate::{Cache, Payload};
use rest::Rest;

/// Fills of a statement between two looks at what has become of its results.
const FILLS_BETWEEN: u64 = 64;
/// A verdict takes one ended result for so many fills at least: if fewer end, those are the young ones among results that
/// live long, and were hardly asked for yet.
const FILLS_PER_ENDED: u64 = 2;
/// Fills in which fewer ended, so that there is room.
const FILLS_WITH_ROOM: u64 = 8 * FILLS_BETWEEN;
/// Misses after which the bar is lowered if the few fills have given no verdict: times change.
const MISSES_MAX: u32 = 8192;
/// Up to this level the bar is the number of earlier misses of the key; above it, one in two, four … of such keys are filled.
const MISSES_LEVEL_MAX: u8 = 8;
const LEVEL_MAX: u8 = MISSES_LEVEL_MAX + 6;
/// What a fill costs more than passing, in time of the database: a bit less than the cheapest statement and its
/// round trip take (docs/experiments/2026-11-26-what-a-fill-costs.md).
const FILL_COSTS: i64 = 40_000;
/// The same in the place of another result, which is worth something, too.
const FILL_IN_PLACE_COSTS: i64 = 120_000;

/// What a late hit costs more than another, in time of the database (docs/decisions/2026-11-25-late-hits.md).
const LATE_HIT_COSTS: i64 = 80_000;
/// The same of a hit right behind a read that passed, in a full cache (docs/decisions/2026-11-26-few-hits.md).
const BEHIND_PASSED_COSTS: i64 = 35_000;

/// The balance that a statement has to begin with, and the most that it can have or owe: some hundreds of fills in
/// the place of others, three times as many while there is room.
const BALANCE_MAX: i64 = 512 * FILL_IN_PLACE_COSTS;
/// What fills may take of the statement's own time although nothing is hit: one part of so many, while there is room and in a full cache.
const MISS_EARNS: (i64, i64) = (25, 100);
/// Misses after which it is reckoned up.
const MISSES_BETWEEN: u32 = 64;

/// Of misses that do not look as if they would be kept one is filled for so much time of the database, so that these fills take
/// 2% of it; one in 64 at least.
const NANOS_FOR_A_TRY: u64 = 50 * FILL_IN_PLACE_COSTS.cast_unsigned();
const MISSES_FOR_A_TRY: u64 = 64;

/// Which answers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Those of statements whose results pay for being kept.
    #[default]
    Worthwhile,
    /// All.
    Always,
}

/// Something that was looked up and not found.
#[derive(Clone, Copy, Debug)]
pub struct Miss<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// It came right behind a write of its session.
    pub late: bool,
    /// It would not have been looked up if [`Worth::passes_unseen`] had said so.
    pub known: bool,
}

/// Whether a miss of the statement with this worth passes since the statement rests. Counts the miss then. `standing` says how many hits
/// the statement had ever, and what time it is.
pub fn rests<P: Payload>(
    cache: &Cache<P>,
    worth: &Worth,
    miss: Miss<'_>,
    standing: impl FnOnce() -> (Hits, Nanos),
) -> bool {
    if !worth.rests() {
        return false;
    }
    cache.missed(miss.key);
    worth.count(cache, miss.late, standing);
    worth.rests() && !worth.is_turn(Rest::fills_one_in(miss.known))
}

/// Whether the answer to a miss is to be kept, where it does not pass for [`rests`]. Counts the miss.
pub fn admits<P: Payload>(
    cache: &Cache<P>,
    worth: &Worth,
    miss: Miss<'_>,
    standing: impl FnOnce() -> (Hits, Nanos),
) -> bool {
    let Miss { key, late, .. } = miss;
    if worth.rests() {
        return worth.would_be_kept(cache, key); // it is its turn, and was counted
    }
    let earlier = cache.missed(key);
    if cache.limits().keep == Keep::Always {
        return true; // nothing is reckoned up: nobody rests
    }
    worth.count(cache, late, standing);
    worth.admits(earlier) && (worth.expects(cache, key) || worth.tries())
}

/// Hits of one statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hits {
    /// All.
    pub all: u64,
    /// Right behind a write of their session.
    pub late: u64,
    /// Right behind a read of their session that passed.
    pub behind_passed: u64,
}

impl Hits {
    /// Those that came since then.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            late: self.late.saturating_sub(before.late),
            behind_passed: self.behind_passed.saturating_sub(before.behind_passed),
        }
    }

    /// What they are worth, in time of the database, if it takes so long for each; late ones may cost more than they save.
    pub fn earn(self, nanos: Nanos) -> i64 {
        signed(self.all.saturating_mul(nanos)).saturating_sub(LATE_HIT_COSTS.saturating_mul(signed(self.late)))
    }

    /// The same in a full cache, where more of them cannot be had.
    fn earn_in_full(self, nanos: Nanos) -> i64 {
        self.earn(nanos).saturating_sub(BEHIND_PASSED_COSTS.saturating_mul(signed(self.behind_passed)))
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What the results of one statement are worth.
#[derive(Debug)]
pub struct Worth {
    level: AtomicU8,
    /// Since the last verdict: misses while the bar was up
    misses: AtomicU32,
    /// … fills, results that have ended, and their hits.
    fills: AtomicU64,
    ended: AtomicU64,
    hits: AtomicU64,
    /// The database's shortest answer since, and up to then.
    quickest: AtomicU64,
    quickest_before: AtomicU64,
    /// In time of the database: what hits have earned and fills have cost.
    balance: AtomicI64,
    /// Misses ever, and the hits that were reckoned up.
    missed: AtomicU32,
    hits_earned: [AtomicU64; 3],
    /// Late misses since then.
    late_misses: AtomicU32,
    rest: Rest,
    /// There was no room when it was last reckoned up.
    full: AtomicBool,
    /// The last fill took a query for keys besides, which costs the database about what the statement does.
    costs_twice: AtomicBool,
    /// Seven of eight answers take the database longer.
    quick: AtomicU64,
    /// What an answer takes on average: the database's time, and bytes in the store. 0: not known.
    nanos: AtomicU64,
    bytes: AtomicU64,
    /// Misses that did not look as if they would be kept.
    unlikely: AtomicU64,
}

impl Default for Worth {
    fn default() -> Self {
        Self {
            level: AtomicU8::default(),
            misses: AtomicU32::default(),
            fills: AtomicU64::default(),
            ended: AtomicU64::default(),
            hits: AtomicU64::default(),
            quickest: AtomicU64::new(u64::MAX),
            quickest_before: AtomicU64::default(),
            balance: AtomicI64::new(BALANCE_MAX),
            missed: AtomicU32::default(),
            hits_earned: Default::default(),
            late_misses: AtomicU32::default(),
            rest: Rest::default(),
            full: AtomicBool::default(),
            costs_twice: AtomicBool::default(),
            quick: AtomicU64::default(),
            nanos: AtomicU64::default(),
            bytes: AtomicU64::default(),
            unlikely: AtomicU64::default(),
        }
    }
}

impl Worth {
    /// Counts a miss, and reckons up now and then.
    fn count<P: Payload>(&self, cache: &Cache<P>, late: bool, standing: impl FnOnce() -> (Hits, Nanos)) {
        if late {
            self.late_misses.fetch_add(1, Relaxed);
        }
        if self.missed.fetch_add(1, Relaxed).is_multiple_of(MISSES_BETWEEN) {
            let (hits, now) = standing();
            self.reckon(hits, now, !cache.has_room(self.bytes.load(Relaxed)));
        }
    }

    /// By the hits ever, and whether the cache is full.
    fn reckon(&self, hits: Hits, now: Nanos, full: bool) {
        self.full.store(full, Relaxed);
        let [all, late, behind_passed] = &self.hits_earned;
        let before = Hits {
            all: all.swap(hits.all, Relaxed),
            late: late.swap(hits.late, Relaxed),
            behind_passed: behind_passed.swap(hits.behind_passed, Relaxed),
        };
        let new = hits.since(before);
        let misses = u64::from(MISSES_BETWEEN);
        let late = new.late + u64::from(self.late_misses.swap(0, Relaxed));
        let mostly_late = late.saturating_mul(2) > new.all.saturating_add(misses);
        // What takes the database longer is worth a log-end probe for each hit. A rest is not over for a little room.
        let quick = self.quick.load(Relaxed);
        let each_counts = (full || self.rests()) && signed(quick) < BEHIND_PASSED_COSTS;
        let earned = if each_counts { new.earn_in_full(self.shortest()) } else { new.earn(self.shortest()) };
        let misses_earn = self.miss_earns(full) * i64::from(MISSES_BETWEEN);
        let in_vain = if self.rests() {
            // Had what was found been served, so many of these hits would have come right behind a miss.
            let found = i64::from(self.rest.take_found().min(MISSES_BETWEEN));
            let missed = i64::from(MISSES_BETWEEN) - found;
            found * signed(quick) <= BEHIND_PASSED_COSTS * found * missed / i64::from(MISSES_BETWEEN)
        } else {
            earned <= 0
        };
        let in_vain = mostly_late || (each_counts && in_vain);
        self.earn(earned.saturating_add(if in_vain { 0 } else { misses_earn }));
        if in_vain && self.balance.load(Relaxed) <= 0 {
            self.earn(self.rest.go_on(now, self.is_used_up()).min(BALANCE_MAX));
        } else {
            self.rest.end();
        }
    }

    /// A small share of the time that the database takes for an answer on average. A query for keys takes as long on average, and its part
    /// of a fill's cost is counted by the shortest answer: by so much less is earned.
    fn miss_earns(&self, full: bool) -> i64 {
        let (part, fill) = if full { (MISS_EARNS.1, FILL_IN_PLACE_COSTS) } else { (MISS_EARNS.0, FILL_COSTS) };
        let average = signed(self.nanos.load(Relaxed));
        let share = average / part;
        if self.costs_twice.load(Relaxed) {
            let counted = fill.saturating_add_unsigned(self.shortest());
            (share as f64 * counted as f64 / fill.saturating_add(average) as f64) as i64
        } else {
            share
        }
    }

    /// It is not worth looking up for a while.
    pub fn rests(&self) -> bool {
        self.rest.is_on()
    }

    /// It rests, and this execution passes without a look-up, so that it costs what it costs with the cache off. Found or not, it is not
    /// counted: what is told of those that are seen goes for all. `passed`: how many have passed.
    pub fn passes_unseen(&self, passed: impl FnOnce() -> u64) -> bool {
        self.rest.passes_unseen(passed)
    }

    /// A result was found: whether it is to be served. If not, that is a miss.
    pub fn serves(&self) -> bool {
        !self.rest.holds_back()
    }

    fn is_turn(&self, one_in: u32) -> bool {
        self.missed.load(Relaxed).is_multiple_of(one_in)
    }

    /// Adds to the balance. Of two at once one may be lost.
    fn earn(&self, nanos: i64) {
        let sum = self.balance.load(Relaxed).saturating_add(nanos);
        self.balance.store(sum.clamp(-BALANCE_MAX, BALANCE_MAX), Relaxed);
    }

    /// The database's shortest answer of late; 0: not known.
    pub fn shortest(&self) -> u64 {
        match self.quickest.load(Relaxed) {
            u64::MAX => self.quickest_before.load(Relaxed),
            nanos => nanos,
        }
    }

    /// Whether a miss of a key that was missed so often before is to be filled.
    fn admits(&self, earlier: u8) -> bool {
        let level = self.level.load(Relaxed);
        if level == 0 {
            // A few at any rate, so that it is known what the database takes for them.
            return earlier > 0 || self.balance.load(Relaxed) > 0 || self.is_turn(MISSES_BETWEEN);
        }
        let turn = 1u32 << level.saturating_sub(MISSES_LEVEL_MAX);
        let misses = self.misses.fetch_add(1, Relaxed);
        if misses >= MISSES_MAX {
            self.begin_anew(level - 1);
        }
        earlier >= level.min(MISSES_LEVEL_MAX) && misses.is_multiple_of(turn)
    }

    /// Whether a result that is like the others of the statement would be kept, and that is likely to pay.
    fn expects<P: Payload>(&self, cache: &Cache<P>, key: &[u8]) -> bool {
        if self.is_used_up() { cache.has_room(self.bytes.load(Relaxed)) } else { self.would_be_kept(cache, key) }
    }

    fn would_be_kept<P: Payload>(&self, cache: &Cache<P>, key: &[u8]) -> bool {
        let bytes = self.bytes.load(Relaxed);
        bytes == 0 || cache.would_keep(key, bytes, self.nanos.load(Relaxed))
    }

    /// Hits have earned much less than fills have cost.
    fn is_used_up(&self) -> bool {
        self.balance.load(Relaxed) <= -BALANCE_MAX
    }

    /// Results differ, and times change, so some are filled that do not look like that: as many as the database hardly notices.
    fn tries(&self) -> bool {
        let one_in = (NANOS_FOR_A_TRY / self.nanos.load(Relaxed).max(1)).clamp(1, MISSES_FOR_A_TRY);
        self.unlikely.fetch_add(1, Relaxed).is_multiple_of(one_in)
    }

    /// A result weighs so much in the store.
    pub fn weighs(&self, bytes: u64) {
        note_average(&self.bytes, bytes);
    }

    /// A result needs a query for keys, or needs none.
    pub fn costs_twice(&self, does: bool) {
        self.costs_twice.store(does, Relaxed);
    }

    /// A fill begins.
    pub fn fill(&self) {
        let keys = if self.costs_twice.load(Relaxed) { self.shortest() } else { 0 };
        let costs = if self.full.load(Relaxed) { FILL_IN_PLACE_COSTS } else { FILL_COSTS };
        self.earn(-costs.saturating_add_unsigned(keys));
        let fills = self.fills.fetch_add(1, Relaxed) + 1;
        if !fills.is_multiple_of(FILLS_BETWEEN) {
            return;
        }
        if self.ended.load(Relaxed) * FILLS_PER_ENDED >= fills {
            self.judge();
        } else if fills >= FILLS_WITH_ROOM {
            self.begin_anew(self.level.load(Relaxed).saturating_sub(1));
        }
    }

    /// What the database took for an answer that came in this time, of which it waited about so long for its turn:
    /// a loaded machine makes what is cheap look dear otherwise.
    pub fn own(&self, took: Nanos, turn: Nanos) -> Nanos {
        took.saturating_sub(turn).max(self.shortest()).min(took)
    }

    /// The database has answered: see [`Self::own`], which is returned.
    pub fn answered(&self, took: Nanos, turn: Nanos) -> Nanos {
        if took < self.quickest.load(Relaxed) {
            self.quickest.fetch_min(took, Relaxed);
        }
        let own = self.own(took, turn);
        note_average(&self.nanos, own);
        note_eighth(&self.quick, own);
        own
    }

    /// A result is gone that was served so often.
    pub fn ended(&self, hits: u64) {
        self.ended.fetch_add(1, Relaxed);
        self.hits.fetch_add(hits, Relaxed);
    }

    /// Its results do not pay at present.
    pub fn is_low(&self) -> bool {
        self.level.load(Relaxed) > 0 || self.rests()
    }

    fn judge(&self) {
        let of_each = self.hits.load(Relaxed) as f64 / self.ended.load(Relaxed).max(1) as f64;
        let shortest = self.shortest();
        if self.quickest.swap(u64::MAX, Relaxed) < u64::MAX {
            self.quickest_before.store(shortest, Relaxed);
        }
        let pays = FILL_COSTS as f64 / shortest.max(1) as f64 + f64::from(u8::from(self.costs_twice.load(Relaxed)));
        let level = self.level.load(Relaxed);
        self.begin_anew(if of_each < pays {
            (level + 1).min(LEVEL_MAX)
        } else if of_each > 2.0 * pays {
            level.saturating_sub(1)
        } else {
            level
        });
    }

    fn begin_anew(&self, level: u8) {
        self.level.store(level, Relaxed);
        for counter in [&self.fills, &self.ended, &self.hits] {
            counter.store(0, Relaxed);
        }
        self.misses.store(0, Relaxed);
    }
}

/// Moves a mean by a sixteenth of what the value differs. Of two at once one may be lost.
fn note_average(mean: &AtomicU64, value: u64) {
    let before = mean.load(Relaxed);
    let after = if before == 0 { value } else { before - before / 16 + value / 16 };
    mean.store(after.max(1), Relaxed);
}

/// Moves the value that an eighth of all are not above: up by a little, or down by seven times as much. Of two at once one may be lost.
fn note_eighth(eighth: &AtomicU64, value: u64) {
    let before = eighth.load(Relaxed);
    let step = before / 256;
    let after = match before {
        0 => value,
        _ if value > before => before + step,
        _ => before - 7 * step,
    };
    eighth.store(after.max(256), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency_sketch::FrequencySketch;

    const SECOND: Nanos = 1_000_000_000;

    /// Statements that ask for keys at random: what share of the misses is filled.
    struct Load {
        misses: FrequencySketch,
        worth: Worth,
        random: u64,
        /// Live results by key: hits.
        live: std::collections::BTreeMap<u64, u64>,
        hits: u64,
        late_hits: u64,
        late: bool,
        /// The statement is known before the key.
        known: bool,
        passed: u64,
        seen: u64,
        now: Nanos,
    }

    impl Load {
        fn new() -> Self {
            let (misses, worth) = (FrequencySketch::new(0), Worth::default());
            Self {
                misses,
                worth,
                random: 1,
                live: std::collections::BTreeMap::new(),
                hits: 0,
                late_hits: 0,
                late: false,
                known: false,
                passed: 0,
                seen: 0,
                now: 0,
            }
        }

        fn random(&mut self) -> u64 {
            self.random = rapidhash::v3::rapidhash_v3(&self.random.to_le_bytes());
            self.random
        }

        /// Reads a key; whether it hit, and whether it was filled.
        fn read(&mut self, key: u64, took: Nanos) -> (bool, bool) {
            self.now += SECOND / 20_000;
            if self.known && self.worth.passes_unseen(|| self.passed) {
                self.passed += 1;
                return (false, false);
            }
            self.seen += 1;
            if let Some(hits) = self.live.get_mut(&key).filter(|_| self.worth.serves()) {
                *hits += 1;
                self.hits += 1;
                self.late_hits += u64::from(self.late);
                return (true, false);
            }
            let earlier = self.misses.note(rapidhash::v3::rapidhash_v3(&key.to_le_bytes()), || 0);
            self.worth.late_misses.fetch_add(u32::from(self.late), Relaxed);
            if self.worth.missed.fetch_add(1, Relaxed).is_multiple_of(MISSES_BETWEEN) {
                let hits = Hits { all: self.hits, late: self.late_hits, behind_passed: 0 };
                self.worth.reckon(hits, self.now, false);
            }
            let fills = if self.worth.rests() {
                self.worth.is_turn(Rest::fills_one_in(self.known))
            } else {
                self.worth.admits(earlier)
            };
            if !fills {
                self.passed += 1;
                return (false, false);
            }
            self.worth.fill();
            self.worth.answered(took, 0);
            self.live.insert(key, 0);
            (false, true)
        }

        fn end(&mut self, key: u64) {
            if let Some(hits) = self.live.remove(&key) {
                self.worth.ended(hits);
            }
        }

        /// Reads at random, of `keys`, with room for `room` results; hits and fills among the last half of the reads.
        fn run(&mut self, reads: u64, keys: u64, room: usize, took: Nanos) -> (u64, u64) {
            let (mut hits, mut fills) = (0, 0);
            for at in 0..reads {
                let key = self.random() % keys;
                let (hit, filled) = self.read(key, took);
                if at * 2 >= reads {
                    hits += u64::from(hit);
                    fills += u64::from(filled);
                }
                while self.live.len() > room {
                    let at = self.random() as usize % self.live.len();
                    let gone = *self.live.keys().nth(at).unwrap();
                    self.end(gone);
                }
            }
            (hits, fills)
        }
    }

    #[test]
    fn what_is_read_once_between_two_changes_is_hardly_filled() {
        let mut load = Load::new();
        let mut fills = 0;
        for _ in 0..100_000 {
            let key = load.random() % 100_000;
            fills += u64::from(load.read(key, 100_000).1);
            load.end(key);
        }
        assert!(fills < 3_000, "{fills}");
        // Hot keys too.
        let mut load = Load::new();
        let fills: u64 = (0..100_000)
            .map(|key| {
                let filled = load.read(key % 10, 100_000).1;
                load.end(key % 10);
                u64::from(filled)
            })
            .sum();
        assert!(fills < 5_000, "{fills}");
    }

    #[test]
    fn a_cache_much_too_small_for_uniform_reads_fills_few() {
        let (hits, fills) = Load::new().run(200_000, 20_000, 500, 100_000);
        assert!(fills < 10_000 && hits * 2 > fills, "{hits} hits, {fills} fills");
    }

    #[test]
    fn slow_statements_are_filled_although_they_seldom_hit() {
        let (hits, fills) = Load::new().run(20_000, 5_000, 500, 100_000_000);
        assert!(hits > 500 && fills > 5_000, "{hits} hits, {fills} fills");
    }

    #[test]
    fn what_is_slow_and_finds_room_is_filled_at_once() {
        let mut load = Load::new();
        for key in 0..10_000 {
            assert!(load.read(key, 20_000_000).1, "{key}");
        }
    }

    #[test]
    fn what_is_quick_is_filled_at_once_as_long_as_hits_earn_it() {
        let mut load = Load::new();
        let fills: u64 = (0..10_000).map(|key| u64::from(load.read(key, 50_000).1)).sum();
        assert!((1_536..2_300).contains(&fills), "{fills}");
        // Who asks again has it kept.
        let again: Vec<u64> = (0..10_000).filter(|key| !load.live.contains_key(key)).collect();
        assert!(again.iter().all(|key| load.read(*key, 50_000).1));
        assert!(!load.read(20_000, 50_000).1);
        // A few hits for each fill, and there is something to invest.
        for _ in 0..10 {
            (0..10_000).for_each(|key| assert!(load.read(key, 50_000).0));
        }
        let fills = (30_000..30_500).filter(|key| load.read(*key, 50_000).1).count();
        assert!(fills > 400, "{fills}");
    }

    /// A machine that is busy takes longer for the statement as well as for the query for keys.
    #[test]
    fn keys_cost_no_more_than_their_share_under_load() {
        let of_a_hundred = |twice| {
            let mut load = Load::new();
            load.worth.costs_twice(twice);
            let fills =
                (0..100_000).filter(|key| load.read(*key, if key % 16 == 0 { 60_000 } else { 250_000 }).1).count();
            fills / 1_000
        };
        // 10 µs are earned for each miss: for 40 µs, or for 40 + 60 that stand for 40 + 250.
        assert_eq!((of_a_hundred(false), of_a_hundred(true)), (25, 3));
    }

    #[test]
    fn late_hits_pay_for_slow_statements_only() {
        let late = |known, took| {
            let mut load = Load { late: true, known, ..Load::new() };
            let (hits, fills) = load.run(200_000, 50_000, 100_000, took);
            (load, hits, fills)
        };
        for known in [false, true] {
            let (mut load, hits, fills) = late(known, 60_000);
            assert!(fills < 3_000 && hits < 10_000, "{hits} hits, {fills} fills");
            assert!(load.worth.rests());
            // What is known before its key is hardly looked up.
            load.seen = 0;
            load.run(20_000, 50_000, 100_000, 60_000);
            assert!(load.worth.rests() && (load.seen < 8_000) == known, "{} of 20,000", load.seen);
            // Then they come behind each other, which misses tell.
            load.late = false;
            let (hits, _) = load.run(200_000, 50_000, 100_000, 60_000);
            assert!(hits > 60_000, "{hits}");
            assert!(!load.worth.rests());
            let (_, hits, _) = late(known, 1_000_000);
            assert!(hits > 60_000, "{hits}");
        }
    }

    #[test]
    fn an_eighth_of_the_answers_are_quick() {
        let eighth = AtomicU64::default();
        let mut load = Load::new();
        (0..10_000).for_each(|_| note_eighth(&eighth, load.random() % 1_000_000));
        let found = eighth.load(Relaxed);
        assert!((80_000..170_000).contains(&found), "{found}");
        (0..1_000).for_each(|_| note_eighth(&eighth, 40_000));
        assert!((38_000..=40_200).contains(&eighth.load(Relaxed)), "{eighth:?}");
    }

    #[test]
    fn better_times_are_noticed() {
        let mut load = Load::new();
        for _ in 0..50_000 {
            let key = load.random() % 50_000;
            load.read(key, 100_000);
            load.end(key);
        }
        assert!(load.worth.is_low());
        // Nothing changes any more.
        let (hits, _) = load.run(300_000, 1_000, 2_000, 100_000);
        assert!(hits > 140_000, "{hits}");
        assert!(!load.worth.is_low() || load.live.len() > 990);
    }
}
