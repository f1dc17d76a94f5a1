//! The policies that the cache is measured against, each written as its paper has it and no faster than that takes.
//!
//! All of them count bytes: an entry weighs what it weighs in the real store, and a result that is larger than the
//! whole cache is never kept.
//!
//! Reading list: Megiddo & Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003); Yang et al., "FIFO Queues
//! are All You Need for Cache Eviction" (SOSP 2023), for S3-FIFO; Belady, "A Study of Replacement Algorithms for a
//! Virtual-Storage Computer" (1966).

use std::collections::{BTreeMap, HashMap};

/// Which result a request asks for.
pub(crate) type Key = u32;

/// What the results are: by key.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    /// Bytes in the store, all counted.
    pub(crate) bytes: Vec<u64>,
    /// Time of the database.
    pub(crate) nanos: Vec<u64>,
}

impl Results {
    fn bytes(&self, key: Key) -> u64 {
        self.bytes[key as usize]
    }
}

/// A cache as the trace sees it.
pub(crate) trait Policy {
    /// A request; whether it was a hit. A miss may fill.
    fn request(&mut self, key: Key) -> bool;
}

/// Keys in the order in which they were put at the back, with their bytes.
#[derive(Debug, Default)]
struct Queue {
    order: BTreeMap<u64, Key>,
    places: HashMap<Key, u64>,
    next: u64,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, key: Key, bytes: u64) {
        self.order.insert(self.next, key);
        self.places.insert(key, self.next);
        self.next += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, key: Key, bytes: u64) -> bool {
        let Some(place) = self.places.remove(&key) else { return false };
        self.order.remove(&place);
        self.bytes -= bytes;
        true
    }

    fn pop(&mut self, results: &Results) -> Option<Key> {
        let (_, key) = self.order.pop_first()?;
        self.places.remove(&key);
        self.bytes -= results.bytes(key);
        Some(key)
    }
}

/// Evicts what was asked for longest ago.
pub(crate) struct Lru<'a> {
    results: &'a Results,
    capacity: u64,
    kept: Queue,
}

impl<'a> Lru<'a> {
    /// For so many bytes.
    pub(crate) fn new(results: &'a Results, capacity: u64) -> Self {
        Self { results, capacity, kept: Queue::default() }
    }
}

impl Policy for Lru<'_> {
    fn request(&mut self, key: Key) -> bool {
        let bytes = self.results.bytes(key);
        let hit = self.kept.remove(key, bytes);
        if bytes <= self.capacity {
            while self.kept.bytes + bytes > self.capacity {
                self.kept.pop(self.results);
            }
            self.kept.push(key, bytes);
        }
        hit
    }
}

/// Two LRU lists, of what was asked for once and more often, whose shares follow the hits among what each has lately lost.
pub(crate) struct Arc<'a> {
    results: &'a Results,
    capacity: u64,
    /// The bytes that the list of those asked for once is to have.
    target: u64,
    once: Queue,
    often: Queue,
    lost_once: Queue,
    lost_often: Queue,
}

impl<'a> Arc<'a> {
    /// For so many bytes.
    pub(crate) fn new(results: &'a Results, capacity: u64) -> Self {
        let [once, often, lost_once, lost_often] = [(); 4].map(|()| Queue::default());
        Self { results, capacity, target: 0, once, often, lost_once, lost_often }
    }

    /// REPLACE of the paper, until there is room for so many bytes.
    fn make_room(&mut self, bytes: u64, was_lost_often: bool) {
        while self.once.bytes + self.often.bytes + bytes > self.capacity {
            let of_once = self.once.bytes > self.target || (was_lost_often && self.once.bytes == self.target);
            if (of_once && !self.once.order.is_empty()) || self.often.order.is_empty() {
                let Some(key) = self.once.pop(self.results) else { return };
                self.lost_once.push(key, self.results.bytes(key));
            } else if let Some(key) = self.often.pop(self.results) {
                self.lost_often.push(key, self.results.bytes(key));
            }
        }
    }

    fn forget_lost(&mut self) {
        while self.once.bytes + self.lost_once.bytes > self.capacity && self.lost_once.pop(self.results).is_some() {}
        let all = |arc: &Self| arc.once.bytes + arc.often.bytes + arc.lost_once.bytes + arc.lost_often.bytes;
        while all(self) > 2 * self.capacity && self.lost_often.pop(self.results).is_some() {}
    }
}

impl Policy for Arc<'_> {
    fn request(&mut self, key: Key) -> bool {
        let bytes = self.results.bytes(key);
        if self.once.remove(key, bytes) || self.often.remove(key, bytes) {
            self.often.push(key, bytes);
            return true;
        }
        if bytes > self.capacity {
            return false;
        }
        let (lost_once, lost_often) = (self.lost_once.bytes, self.lost_often.bytes);
        if self.lost_once.remove(key, bytes) {
            self.target = (self.target + (bytes * lost_often / lost_once).max(bytes)).min(self.capacity);
            self.make_room(bytes, false);
            self.often.push(key, bytes);
        } else if self.lost_often.remove(key, bytes) {
            self.target = self.target.saturating_sub((bytes * lost_once / lost_often).max(bytes));
            self.make_room(bytes, true);
            self.often.push(key, bytes);
        } else {
            self.make_room(bytes, false);
            self.once.push(key, bytes);
        }
        self.forget_lost();
        false
    }
}

/// A small queue for what is new, a main one for what was asked for again, and the memory of what the small one has lost.
pub(crate) struct S3Fifo<'a> {
    results: &'a Results,
    capacity: u64,
    small: Queue,
    main: Queue,
    lost: Queue,
    /// Hits of what is kept, 3 at most.
    hits: HashMap<Key, u8>,
}

impl<'a> S3Fifo<'a> {
    /// For so many bytes: a tenth in the small queue, and as many bytes remembered as the main queue has.
    pub(crate) fn new(results: &'a Results, capacity: u64) -> Self {
        let [small, main, lost] = [(); 3].map(|()| Queue::default());
        Self { results, capacity, small, main, lost, hits: HashMap::new() }
    }

    fn evict_from_small(&mut self) -> bool {
        while let Some(key) = self.small.pop(self.results) {
            let bytes = self.results.bytes(key);
            if self.hits.get(&key).is_some_and(|hits| *hits > 1) {
                self.hits.insert(key, 0);
                self.main.push(key, bytes);
                continue;
            }
            self.hits.remove(&key);
            self.lost.push(key, bytes);
            while self.lost.bytes > self.capacity / 10 * 9 && self.lost.pop(self.results).is_some() {}
            return true;
        }
        false
    }

    fn evict_from_main(&mut self) -> bool {
        while let Some(key) = self.main.pop(self.results) {
            match self.hits.get_mut(&key) {
                Some(hits) if *hits > 0 => {
                    *hits -= 1;
                    self.main.push(key, self.results.bytes(key));
                }
                _ => {
                    self.hits.remove(&key);
                    return true;
                }
            }
        }
        false
    }
}

impl Policy for S3Fifo<'_> {
    fn request(&mut self, key: Key) -> bool {
        if let Some(hits) = self.hits.get_mut(&key) {
            *hits = (*hits + 1).min(3);
            return true;
        }
        let bytes = self.results.bytes(key);
        if bytes > self.capacity {
            return false;
        }
        while self.small.bytes + self.main.bytes + bytes > self.capacity {
            let small = self.small.bytes >= self.capacity / 10 || self.main.order.is_empty();
            let _ = (small && self.evict_from_small()) || self.evict_from_main();
        }
        let again = self.lost.remove(key, bytes);
        if again { &mut self.main } else { &mut self.small }.push(key, bytes);
        self.hits.insert(key, 0);
        false
    }
}

/// What one would keep who knew how often each result will be asked for, and never change: the best value for a byte.
pub(crate) struct Top {
    kept: Vec<bool>,
}

impl Top {
    /// For so many bytes; `value_of` is what a hit is worth.
    pub(crate) fn new(results: &Results, capacity: u64, trace: &[Key], value_of: impl Fn(Key) -> f64) -> Self {
        let mut counts = vec![0u32; results.bytes.len()];
        for key in trace {
            counts[*key as usize] += 1;
        }
        Self { kept: best(results, capacity, &counts, value_of) }
    }
}

impl Policy for Top {
    fn request(&mut self, key: Key) -> bool {
        self.kept[key as usize]
    }
}

/// The best choice by what was asked for until now, chosen anew now and then: it forgets nothing, and pays for no change.
pub(crate) struct Learned<'a> {
    results: &'a Results,
    capacity: u64,
    /// What a hit is worth.
    values: Vec<f64>,
    counts: Vec<u32>,
    kept: Vec<bool>,
    every: usize,
    requests: usize,
}

impl<'a> Learned<'a> {
    /// For so many bytes; `value_of` is what a hit is worth.
    pub(crate) fn new(results: &'a Results, capacity: u64, every: usize, value_of: impl Fn(Key) -> f64) -> Self {
        let count = results.bytes.len();
        let values = (0..count as Key).map(value_of).collect();
        Self { results, capacity, values, counts: vec![0; count], kept: vec![false; count], every, requests: 0 }
    }
}

impl Policy for Learned<'_> {
    fn request(&mut self, key: Key) -> bool {
        if self.requests.is_multiple_of(self.every) {
            self.kept = best(self.results, self.capacity, &self.counts, |key| self.values[key as usize]);
        }
        self.requests += 1;
        self.counts[key as usize] += 1;
        self.kept[key as usize]
    }
}

/// What to keep of what is asked for so often.
fn best(results: &Results, capacity: u64, counts: &[u32], value_of: impl Fn(Key) -> f64) -> Vec<bool> {
    let density = |key: &Key| f64::from(counts[*key as usize]) * value_of(*key) / results.bytes(*key) as f64;
    let mut keys: Vec<Key> = (0..).zip(counts).filter(|(_, count)| **count > 0).map(|(key, _)| key).collect();
    keys.sort_by(|a, b| density(b).total_cmp(&density(a)));
    let (mut kept, mut used) = (vec![false; results.bytes.len()], 0);
    for key in keys {
        if used + results.bytes(key) <= capacity {
            used += results.bytes(key);
            kept[key as usize] = true;
        }
    }
    kept
}

/// Knows the future: evicts what is asked for last, and keeps nothing that would be that itself. The optimum for equal sizes
/// and costs; otherwise a heuristic.
pub(crate) struct Belady<'a> {
    results: &'a Results,
    capacity: u64,
    /// For each request of the trace when its key comes next.
    next_use: Vec<usize>,
    at: usize,
    /// By next use.
    kept: BTreeMap<usize, Key>,
    used: u64,
}

impl<'a> Belady<'a> {
    /// For so many bytes and this trace, which must be what is then asked for.
    pub(crate) fn new(results: &'a Results, capacity: u64, trace: &[Key]) -> Self {
        let mut next_use = vec![0; trace.len()];
        let mut seen = vec![None; results.bytes.len()];
        for (at, key) in trace.iter().enumerate().rev() {
            // Those that never come again differ, so that each has a place in the order.
            next_use[at] = seen[*key as usize].replace(at).unwrap_or(trace.len() + at);
        }
        Self { results, capacity, next_use, at: 0, kept: BTreeMap::new(), used: 0 }
    }
}

impl Policy for Belady<'_> {
    fn request(&mut self, key: Key) -> bool {
        let (bytes, next) = (self.results.bytes(key), self.next_use[self.at]);
        let hit = self.kept.remove(&self.at).is_some();
        self.at += 1;
        if hit {
            self.used -= bytes;
        }
        if bytes > self.capacity {
            return hit;
        }
        self.kept.insert(next, key);
        self.used += bytes;
        while self.used > self.capacity {
            let Some((_, gone)) = self.kept.pop_last() else { break };
            self.used -= self.results.bytes(gone);
        }
        hit
    }
}
