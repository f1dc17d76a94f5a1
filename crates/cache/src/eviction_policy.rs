//! Who has to go.
//!
//! # The problem
//!
//! Results differ by a factor of a thousand in size, and by as much in the time that the database takes for them. What an
//! entry saves is how often it is asked for, times that time; what it takes is bytes. A cache that orders its entries by their
//! last use, or by use alone, keeps a large answer that was cheap in place of many small ones that were dear. And one that takes
//! in whatever was missed loses what it had to a scan, or to a loop larger than itself.
//!
//! # The way
//!
//! Each entry has an estimate of how often it is asked for, which halves in every period. Times the database's time, that is its
//! *value*. To make room a few entries are drawn at random and the one with the least value for its bytes goes, until there is room:
//! no order has to be kept up when somebody hits, and a hit only counts. Those hits are fetched only of the one that would go, and of the next one if they save it: without
//! them an entry is worth less, never more, and each look at another entry's counter waits for memory. But first what would have to go is compared with what
//! comes: unless the candidate was missed often enough to be clearly worth more, all stays as it is. How often it is asked for is a
//! guess, what a request for it saves is known; so the margin is for those that differ in nothing but the guess.
//!
//! An entry that was hot would outlast its time: its estimate would have to halve many times. So one that was not asked for
//! since some time is not taken to be asked for even once in that time. That forgets each for itself, and what was asked for every now and then
//! only after a long idleness. Where many at once are idle that were asked for often, others are asked for now: all that is known of them
//! is forgotten faster then, until they have gone or are asked for again. A scan or a loop silences nobody.
//!
//! All this happens under one lock, that of whoever inserts. Hits do not take it: they count in the entry.
//!
//! Reading list: Einziger, Friedman & Manes, "TinyLFU" (2017), for comparing what comes with what would have to go; Einziger et
//! al., "Lightweight Robust Size Aware Cache Management" (2022), for comparing it with all of them; Cherkasova, "Improving WWW
//! Proxies Performance with Greedy-Dual-Size-Frequency Caching" (1998), for value by bytes; Beckmann, Chen & Cidon, "LHD: Improving
//! Cache Hit Rate by Maximizing Hit Density" (NSDI 2018), for drawing a few instead of ordering all.

use std::f32::consts::LN_2;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::entry::{Entry, Payload};
use crate::frequency_sketch::Time;

/// Entries drawn for one that goes.
const DRAWN: usize = 32;
/// Of these, entries whose hits are fetched at any rate, so that none go unnoticed for long.
const FETCHED: usize = 4;
/// What a candidate counts for: between equals, whoever is there stays. Otherwise a loop would change them all the time.
const CANDIDATES_SHARE: f32 = 0.6;
/// What it counts for if a request for it saves more than one for each of those that would go, by [`CLEARLY`]. A loop cannot change
/// them all the time then, since none of them can come back for it like that.
const DEARER_SHARE: f32 = 1.1;
const CLEARLY: f32 = 1.05;
/// Requests that everything is credited with, since few have been seen of most: what is dear may come before it is
/// known to be asked for often.
const CREDIT: f32 = 0.5;
/// An entry that was not asked for in a time is taken to be asked for so often in that time. Nearer to one, a hot
/// set that has passed goes later; much below, loops change all.
const ONCE_SINCE_USED: f32 = 0.8;

/// What is known of it: so many requests at least, as in [`Tracked`]'s rate.
const OFTEN: f32 = 4.0;
/// It is idle when so many requests should have come by now and none did. If they come by chance, one in twenty is.
const IDLE: f32 = 3.0;
/// Of those that are drawn, the share of idle ones is that of so many.
const IDLE_OF: f32 = 1024.0;
/// Up to this share of them times have not changed.
const IDLE_USUALLY: f32 = 0.1;
/// All is forgotten so many times faster at most.
const PACE_MAX: f32 = 32.0;

/// What would come in, or comes in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) bytes: u64,
    /// What the database takes for it.
    pub(crate) nanos: f32,
    /// Its misses before this one.
    pub(crate) earlier: f32,
}

/// An entry and how often it is asked for.
#[derive(Debug)]
pub(crate) struct Tracked<P> {
    pub(crate) key: Arc<[u8]>,
    pub(crate) entry: Arc<Entry<P>>,
    /// What the database takes for it, for each of its bytes.
    nanos_per_byte: f32,
    /// Requests for it, halved once in a period, as of `counted_at`.
    rate: f32,
    counted_at: u64,
    /// When hits were last found to have been counted.
    used_at: u64,
}

impl<P: Payload> Tracked<P> {
    /// What it saves for each of its bytes.
    fn density(&mut self, time: Time) -> f32 {
        self.fetch_uses(time);
        self.density_without_uses(time)
    }

    /// The same without the hits that were not fetched yet: no more than that.
    fn density_without_uses(&self, time: Time) -> f32 {
        (self.rate(time) + CREDIT) * self.nanos_per_byte
    }

    /// Requests in about a period, without hits that were not fetched yet.
    fn rate(&self, time: Time) -> f32 {
        let once_since_used = ONCE_SINCE_USED / (LN_2 * time.since(self.used_at));
        (self.rate * (-time.since(self.counted_at)).exp2()).min(once_since_used)
    }

    /// Requests for it should have come by now. None: it was not asked for often.
    fn is_idle(&self, time: Time) -> Option<bool> {
        let expected = self.rate * LN_2 * time.since(self.counted_at);
        (self.rate >= OFTEN).then(|| expected > IDLE && self.entry.uses.load(Relaxed) == 0)
    }

    fn fetch_uses(&mut self, time: Time) {
        let uses = self.entry.uses.load(Relaxed);
        if uses == 0 {
            return;
        }
        self.entry.uses.fetch_sub(uses, Relaxed);
        let halvings = time.since(self.counted_at);
        let left = (-halvings).exp2();
        // For all that is known, the hits since then came evenly.
        let uses_left = if halvings < 1e-3 { 1.0 } else { (1.0 - left) / (halvings * LN_2) };
        self.rate = self.rate * left + uses as f32 * uses_left;
        (self.counted_at, self.used_at) = (time.now, time.now);
    }
}

/// The time of the eviction policy: that of requests, or faster.
#[derive(Debug, Default)]
struct Clock {
    /// The share of idle ones.
    idle: f32,
    /// Requests when it was last looked at, and how far it is ahead of them.
    requests: u64,
    ahead: u64,
}

impl Clock {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as of Rust 1.45 it saturates")]
    fn at(&mut self, requests: Time) -> Time {
        let pace = (self.idle / IDLE_USUALLY).powi(4).clamp(1.0, PACE_MAX);
        let passed = requests.now.saturating_sub(self.requests);
        self.ahead += (passed as f32 * (pace - 1.0)) as u64;
        self.requests += passed;
        Time { now: requests.now + self.ahead, ..requests }
    }

    /// One was drawn.
    fn note(&mut self, idle: bool) {
        self.idle += (f32::from(u8::from(idle)) - self.idle) / IDLE_OF;
    }
}

/// All entries, in no order.
#[derive(Debug)]
pub(crate) struct EvictionPolicy<P> {
    all: Vec<Tracked<P>>,
    bytes: u64,
    bytes_max: u64,
    /// What comes is kept whatever has to go.
    keeps_all: bool,
    clock: Clock,
    random: u64,
}

impl<P: Payload> EvictionPolicy<P> {
    pub(crate) fn new(bytes_max: u64, keeps_all: bool) -> Self {
        Self { all: Vec::new(), bytes: 0, bytes_max, keeps_all, clock: Clock::default(), random: 1 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.all.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tracked<P>> {
        self.all.iter()
    }

    /// Whether [`Self::insert`] would take it in, as far as a few draws tell.
    pub(crate) fn would_keep(&mut self, candidate: Candidate, time: Time) -> bool {
        let time = self.clock.at(time);
        self.choose(candidate, time).is_some()
    }

    /// Room for so many bytes, without any that have to go.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.free() >= bytes
    }

    fn free(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes)
    }

    /// Takes an entry in and gives back those that go for it. None: they are worth more, or there is not as much room in all.
    pub(crate) fn insert(
        &mut self,
        key: Arc<[u8]>,
        entry: Arc<Entry<P>>,
        earlier: f32,
        time: Time,
    ) -> Option<Vec<Tracked<P>>> {
        let (bytes, time) = (entry.weight(), self.clock.at(time));
        let stay = self.choose(Candidate { bytes, nanos: entry.nanos(), earlier }, time)?;
        let gone = self.all.split_off(stay);
        self.bytes += bytes;
        self.bytes -= gone.iter().map(|tracked| tracked.entry.weight()).sum::<u64>();
        entry.place.store(stay, Relaxed);
        let nanos_per_byte = entry.nanos() / bytes as f32;
        let rate = earlier + 1.0;
        self.all.push(Tracked { key, entry, nanos_per_byte, rate, counted_at: time.now, used_at: time.now });
        Some(gone)
    }

    /// Room for so many bytes from now on; gives back those that have to go.
    pub(crate) fn set_capacity(&mut self, bytes_max: u64, time: Time) -> Vec<Tracked<P>> {
        self.bytes_max = bytes_max;
        let (mut stay, time) = (self.all.len(), self.clock.at(time));
        while self.bytes > bytes_max
            && let Some((place, _)) = self.least(stay, time)
        {
            stay -= 1;
            self.bytes -= self.all[place].entry.weight();
            self.swap(place, stay);
        }
        let gone = self.all.split_off(stay);
        if stay < self.all.capacity() / 4 {
            self.all.shrink_to(2 * stay);
        }
        gone
    }

    /// Moves those that would have to go to the end, and says how many stay; None if they are worth more.
    fn choose(&mut self, candidate: Candidate, time: Time) -> Option<usize> {
        let worth = if self.keeps_all { f32::INFINITY } else { (candidate.earlier + CREDIT) * candidate.nanos };
        let (mut free, mut lost, mut lost_once) = (self.free(), 0.0, 0.0);
        let mut stay = self.all.len();
        while free < candidate.bytes {
            let (place, density) = self.least(stay, time)?;
            let bytes = self.all[place].entry.weight();
            lost += density * bytes as f32;
            lost_once += self.all[place].entry.nanos();
            let share = if lost_once * CLEARLY <= candidate.nanos { DEARER_SHARE } else { CANDIDATES_SHARE };
            if lost > worth * share {
                return None;
            }
            free += bytes;
            stay -= 1;
            self.swap(place, stay);
        }
        Some(stay)
    }

    /// The least of some of the first `count`, by value for its bytes.
    fn least(&mut self, count: usize, time: Time) -> Option<(usize, f32)> {
        let mut drawn = [(0, 0.0); DRAWN];
        for (at, drawn) in drawn.iter_mut().enumerate() {
            let place = self.draw(count)?;
            let tracked = self.all.get_mut(place)?;
            if at < FETCHED {
                if let Some(idle) = tracked.is_idle(time) {
                    self.clock.note(idle);
                }
                tracked.fetch_uses(time);
            }
            *drawn = (place, tracked.density_without_uses(time));
        }
        loop {
            let least = drawn.iter_mut().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
            let density = self.all.get_mut(least.0)?.density(time);
            if density <= least.1 {
                return Some(*least);
            }
            least.1 = density;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.all.swap(a, b);
        for place in [a, b] {
            self.all[place].entry.place.store(place, Relaxed);
        }
    }

    /// Removes an entry that is among them; how often it was asked for.
    pub(crate) fn remove(&mut self, entry: &Entry<P>, time: Time) -> Option<f32> {
        let last = self.all.len().checked_sub(1)?;
        self.swap(entry.place.load(Relaxed), last);
        self.bytes -= entry.weight();
        let time = self.clock.at(time);
        self.all.pop().map(|mut tracked| {
            tracked.fetch_uses(time);
            tracked.rate(time)
        })
    }

    /// A place below `count`; None if that is 0.
    fn draw(&mut self, count: usize) -> Option<usize> {
        // xorshift64: nobody gains by foreseeing it who could not as well ask for everything.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from((u128::from(self.random) * count as u128) >> 64).ok().filter(|_| count > 0)
    }

    /// Panics unless places and bytes are what they are said to be; for tests.
    pub(crate) fn validate(&self) {
        for (place, tracked) in self.all.iter().enumerate() {
            assert_eq!(tracked.entry.place.load(Relaxed), place);
        }
        assert_eq!(self.bytes, self.all.iter().map(|tracked| tracked.entry.weight()).sum::<u64>());
        assert!(self.bytes <= self.bytes_max);
    }
}
