//! The eviction policy: which entries leave when memory is short.
//!
//! # The problem
//!
//! Results differ by a factor of a thousand in size, and by as much in database time. An entry saves its request rate
//! times its database time; it costs bytes. A cache that orders entries by their last use, or by use alone, prefers
//! one large, cheap result to many small, expensive ones. A cache that stores every missed result loses its entries
//! to a scan, or to a loop larger than itself.
//!
//! # The policy
//!
//! Each entry has an estimated request rate, which halves in every period. The rate times the database time is the
//! entry's *value*. To free memory, a few entries are drawn at random, and the one with the least value for each byte
//! is evicted, until the candidate fits. So hits maintain no order; a hit only increments a counter in its entry. The
//! counter is fetched only for the entry that would be evicted, and for the next one if the fetched hits save the
//! first. Without its hits an entry is valued too low, never too high, and each fetch waits for memory.
//!
//! Before anything is evicted, the value of the entries to be evicted is compared with that of the candidate. They
//! stay unless the candidate was missed often enough to be clearly worth more. The request rate is an estimate, the
//! saving of one request is known. So the margin applies only where the two differ in the estimate alone.
//!
//! The estimate of a hot entry takes many periods to fall. An entry that has not been requested for some time is
//! therefore assumed to be requested less than once in that time. This ages each entry separately, and ages a rarely
//! requested entry only after long idleness. If many drawn entries are idle although they were requested often, the
//! working set has changed. Then the estimates of all entries age faster, until the idle ones are evicted or
//! requested again. A scan or a loop makes no entry idle.
//!
//! All this happens under one lock, which inserts take. Hits do not take it.
//!
//! Reading list: Einziger, Friedman & Manes, "TinyLFU" (2017), for comparing the candidate with its victim; Einziger
//! et al., "Lightweight Robust Size Aware Cache Management" (2022), for comparing it with all its victims;
//! Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching" (1998), for value by
//! bytes; Beckmann, Chen & Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit Density" (NSDI 2018), for sampling
//! instead of ordering.

use std::f32::consts::LN_2;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::entry::{Entry, Payload};
use crate::frequency_sketch::Time;

/// Entries drawn for each eviction.
const DRAWN: usize = 32;
/// How many of them have their hits fetched in any case, so that no entry's hits stay uncounted for long.
const FETCHED: usize = 4;
/// The weight of a candidate's value. Between equals the present entries stay; otherwise a loop would replace them
/// all the time.
const CANDIDATES_SHARE: f32 = 0.6;
/// The weight of its value if one request for it saves more than one request for all its victims together, by the factor
/// [`CLEARLY`]. A loop cannot replace them all the time then, since no victim can replace it in the same way.
const DEARER_SHARE: f32 = 1.1;
const CLEARLY: f32 = 1.05;
/// Requests credited to every entry and candidate, since few requests have been seen for most. An expensive result
/// may so be stored before its request rate is known.
const CREDIT: f32 = 0.5;
/// An entry that was not requested in some time is assumed to be requested this often in that time. Nearer to one, a
/// former hot set is evicted later. Much below, a loop replaces everything.
const ONCE_SINCE_USED: f32 = 0.8;

/// The least rate, as in [`Tracked`], from which idleness is judged.
const OFTEN: f32 = 4.0;
/// An entry is idle when this many requests were expected by now and none came. By chance this happens to one in
/// twenty.
const IDLE: f32 = 3.0;
/// The share of idle entries is averaged over about this many draws.
const IDLE_OF: f32 = 1024.0;
/// Up to this share of idle entries the working set has not changed.
const IDLE_USUALLY: f32 = 0.1;
/// The greatest factor by which estimates age faster.
const PACE_MAX: f32 = 32.0;

/// A result that is to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) bytes: u64,
    /// The database time that it took.
    pub(crate) nanos: f32,
    /// Its misses before this one.
    pub(crate) earlier: f32,
}

/// An entry with its request rate.
#[derive(Debug)]
pub(crate) struct Tracked<P> {
    pub(crate) key: Arc<[u8]>,
    pub(crate) entry: Arc<Entry<P>>,
    /// The database time for each of its bytes.
    nanos_per_byte: f32,
    /// The request rate as of `counted_at`: requests, halved in every period.
    rate: f32,
    counted_at: u64,
    /// When hits were last found in the counter.
    used_at: u64,
}

impl<P: Payload> Tracked<P> {
    /// The value for each byte.
    fn density(&mut self, time: Time) -> f32 {
        self.fetch_uses(time);
        self.density_without_uses(time)
    }

    /// The value for each byte without the hits that were not fetched yet: a lower bound.
    fn density_without_uses(&self, time: Time) -> f32 {
        (self.rate(time) + CREDIT) * self.nanos_per_byte
    }

    /// Requests in about one period, without the hits that were not fetched yet.
    fn rate(&self, time: Time) -> f32 {
        let once_since_used = ONCE_SINCE_USED / (LN_2 * time.since(self.used_at));
        (self.rate * (-time.since(self.counted_at)).exp2()).min(once_since_used)
    }

    /// Whether requests were expected by now and none came. None if the rate is too low to judge.
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
        // Assumes that the hits since then came evenly.
        let uses_left = if halvings < 1e-3 { 1.0 } else { (1.0 - left) / (halvings * LN_2) };
        self.rate = self.rate * left + uses as f32 * uses_left;
        (self.counted_at, self.used_at) = (time.now, time.now);
    }
}

/// The clock of the eviction policy. It counts requests, or runs faster.
#[derive(Debug, Default)]
struct Clock {
    /// The share of idle entries among those drawn.
    idle: f32,
    /// The requests at the last reading, and how far the clock is ahead of them.
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

    /// Counts one draw.
    fn note(&mut self, idle: bool) {
        self.idle += (f32::from(u8::from(idle)) - self.idle) / IDLE_OF;
    }
}

/// All entries, unordered.
#[derive(Debug)]
pub(crate) struct EvictionPolicy<P> {
    all: Vec<Tracked<P>>,
    bytes: u64,
    bytes_max: u64,
    /// Every candidate is stored, whatever it evicts.
    keeps_all: bool,
    clock: Clock,
    random: u64,
}

impl<P: Payload> EvictionPolicy<P> {
    pub(crate) fn new(bytes_max: u64, keeps_all: bool) -> Self {
        Self { all: Vec::new(), bytes: 0, bytes_max, keeps_all, clock: Clock::default(), random: 1 }
    }

    pub(crate) fn set_keeps_all(&mut self, keeps_all: bool) {
        self.keeps_all = keeps_all;
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

    /// Whether [`Self::insert`] would store the candidate, judged by a few draws.
    pub(crate) fn would_keep(&mut self, candidate: Candidate, time: Time) -> bool {
        let time = self.clock.at(time);
        self.choose(candidate, time).is_some()
    }

    /// Whether so many bytes fit without an eviction.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.free() >= bytes
    }

    fn free(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes)
    }

    /// Inserts an entry and returns those that it evicts. None if they are worth more, or the entry is larger than
    /// the capacity.
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

    /// Sets the capacity in bytes and returns the evicted entries.
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

    /// Moves the victims to the end and returns how many entries stay. None if the victims are worth more.
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

    /// Draws from the first `count` entries and returns the one with the least value for each byte.
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

    /// Removes a present entry and returns its request rate.
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

    /// A random index below `count`; None if `count` is 0.
    fn draw(&mut self, count: usize) -> Option<usize> {
        // xorshift64. Nobody gains by predicting it: a client can evict as much by requesting many keys.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from((u128::from(self.random) * count as u128) >> 64).ok().filter(|_| count > 0)
    }

    /// Panics unless places and bytes are consistent; for tests.
    pub(crate) fn validate(&self) {
        for (place, tracked) in self.all.iter().enumerate() {
            assert_eq!(tracked.entry.place.load(Relaxed), place);
        }
        assert_eq!(self.bytes, self.all.iter().map(|tracked| tracked.entry.weight()).sum::<u64>());
        assert!(self.bytes <= self.bytes_max);
    }
}
