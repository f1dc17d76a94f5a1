//! One statement under different loads.

use freshet_types::Nanos;

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
    hits_after_own_write: u64,
    after_own_write: bool,
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
            hits_after_own_write: 0,
            after_own_write: false,
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
        if self.known && self.worth.skips_look_up(|| self.passed) {
            self.passed += 1;
            return (false, false);
        }
        self.seen += 1;
        if let Some(hits) = self.live.get_mut(&key).filter(|_| self.worth.serves()) {
            *hits += 1;
            self.hits += 1;
            self.hits_after_own_write += u64::from(self.after_own_write);
            return (true, false);
        }
        let earlier = self.misses.note(rapidhash::v3::rapidhash_v3(&key.to_le_bytes()), || 0);
        let hits = Hits { all: self.hits, after_own_write: self.hits_after_own_write, after_pass: 0 };
        self.worth.count_miss(self.after_own_write, || (hits, self.now, false));
        let fills = if self.worth.is_suspended() {
            self.worth.fills_although_suspended(self.known)
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
    // The next miss caches it.
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
        let fills = (0..100_000).filter(|key| load.read(*key, if key % 16 == 0 { 60_000 } else { 250_000 }).1).count();
        fills / 1_000
    };
    // 10 µs are earned for each miss: for 40 µs, or for 40 + 60 that stand for 40 + 250.
    assert_eq!((of_a_hundred(false), of_a_hundred(true)), (25, 3));
}

#[test]
fn hits_after_own_write_pay_for_slow_statements_only() {
    let late = |known, took| {
        let mut load = Load { after_own_write: true, known, ..Load::new() };
        let (hits, fills) = load.run(200_000, 50_000, 100_000, took);
        (load, hits, fills)
    };
    for known in [false, true] {
        let (mut load, hits, fills) = late(known, 60_000);
        assert!(fills < 3_000 && hits < 10_000, "{hits} hits, {fills} fills");
        assert!(load.worth.is_suspended());
        // What is known before its key is hardly looked up.
        load.seen = 0;
        load.run(20_000, 50_000, 100_000, 60_000);
        assert!(load.worth.is_suspended() && (load.seen < 8_000) == known, "{} of 20,000", load.seen);
        // Then they come behind each other, which misses tell.
        load.after_own_write = false;
        let (hits, _) = load.run(200_000, 50_000, 100_000, 60_000);
        assert!(hits > 60_000, "{hits}");
        assert!(!load.worth.is_suspended());
        let (_, hits, _) = late(known, 1_000_000);
        assert!(hits > 60_000, "{hits}");
    }
}

#[test]
fn an_operator_ends_a_suspension() {
    let mut load = Load { after_own_write: true, ..Load::new() };
    load.run(200_000, 50_000, 100_000, 60_000);
    assert!(load.worth.is_suspended());
    load.worth.always_pays();
    assert!(!load.worth.is_suspended() && load.worth.serves());
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
