//! Keeps the process within the memory limit, also after the limit has changed.
//!
//! The weight of the entries is not all the memory of the process. If large results replace small ones, every page still has some small ones, and the
//! rest of the page is useless for large ones. This was measured as half of the entries' weight in addition. Statements, buffers of connections and
//! tables need memory, too. So the memory of the process is measured. The bytes that it has allocated since its start beyond the weight of the
//! entries are subtracted from the limit, and entries get the rest. The measurement is frequent, so little changes in between.
//!
//! Empty pages stay resident until the allocator returns them, a fifth of a second later (`.cargo/config.toml`). Evicting entries because of them
//! would only create more. But if results come and go continuously, so do these pages, and there are always about as many: their recent minimum is
//! subtracted, too.
//! Evicted entries leave holes first, and free a page only once most of its other entries are evicted as well. To reduce a small excess, half of the
//! entries would have to be evicted. New entries fill the holes. So there is a band around the limit in which nothing is done. Growth ends a little
//! below the limit, and entries are evicted only for an excess of a little above it.
//!
//! The memory of the process is measured as a whole. Several databases have parts of the limit ([`division`]), and parts of the overhead in
//! proportion.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::server::memory::division::Division;
use crate::server::process_memory::ProcessMemory;
use crate::shared::Shared;

mod division;

pub use division::Member;

const EVERY: Duration = Duration::from_millis(100);
/// The memory is also measured whenever entries of this share of the limit were added: large results in place of small ones leave holes faster than
/// the interval.
const FILLED_SHARE: u64 = 32;
/// The width of the band below and above the limit, as a share of the limit.
const BAND_SHARE: u64 = 32;
/// Number of measurements for which empty pages may stay resident.
const LINGER: usize = 5;

/// Memory that the process has allocated since its start, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// In pages that are in use.
    pub used: u64,
    /// In all resident pages.
    pub resident: u64,
}

/// The memory subtracted from the limit.
#[derive(Debug, Default)]
struct Overhead {
    /// Resident bytes of everything but entries, at each measurement.
    others: VecDeque<u64>,
}

impl Overhead {
    /// Bytes to subtract from this limit for this weight of entries. None: no change. `in_time`: [`EVERY`] has passed since the last such
    /// measurement.
    fn look(&mut self, taken: Taken, entries: u64, limit: u64, in_time: bool) -> Option<u64> {
        if in_time {
            self.others.truncate(LINGER - 1);
            self.others.push_front(taken.resident.saturating_sub(entries));
        }
        let lasting = if self.others.len() < LINGER { None } else { self.others.iter().min().copied() };
        let others = lasting.unwrap_or_default().max(taken.used.saturating_sub(entries));
        let band = limit / BAND_SHARE;
        match others + entries {
            all if all <= limit - band => Some(others + band),
            all if all > limit + band => Some(others.saturating_sub(band)),
            _ => None,
        }
    }
}

impl Shared {
    /// The least part of the memory limit that this database has, and the most that it may have, in bytes.
    pub fn memory_bounds(&self) -> (u64, u64) {
        (self.memory_bounds.min.load(Relaxed), self.memory_bounds.max.load(Relaxed))
    }

    /// Sets them; the division follows soon.
    pub fn set_memory_bounds(&self, (min, max): (u64, u64)) {
        self.memory_bounds.min.store(min, Relaxed);
        self.memory_bounds.max.store(max, Relaxed);
        self.settings.memory.changed.notify_one();
    }

    /// Sets another limit of the process; returns the previous one. Entries above the limit are evicted soon.
    pub fn set_memory(&self, bytes: u64) -> u64 {
        let memory = &self.settings.memory;
        let before = memory.bytes.swap(bytes, Relaxed);
        let part = u128::from(self.cache.limits().memory_bytes) * u128::from(bytes) / u128::from(before.max(1));
        self.take_part(u64::try_from(part).unwrap_or(bytes));
        memory.changed.notify_one();
        before
    }

    /// Sets the part of the limit that this database has.
    fn take_part(&self, bytes: u64) {
        if self.cache.limits().memory_bytes != bytes {
            self.cache.set_memory(bytes);
            self.registry.set_memory(bytes);
        }
    }

    /// Notes that an entry of this many bytes was added.
    pub(crate) fn note_filled(&self, bytes: u64) {
        if self.filled.fetch_add(bytes, Relaxed) + bytes >= self.cache.limits().memory_bytes / FILLED_SHARE {
            self.filled.store(0, Relaxed);
            self.settings.memory.changed.notify_one();
        }
    }

    /// Bytes of the known statements.
    pub fn statement_bytes(&self) -> u64 {
        self.registry.bytes()
    }
}

/// Keeps the caches of all databases within the limit; never returns. `databases` are those that share it now. `taken` is the measured memory of the
/// process, if available. Otherwise the bytes of statements are subtracted.
pub async fn keep_memory(
    memory: Arc<ProcessMemory>,
    databases: impl Fn() -> Vec<Member>,
    taken: impl Fn() -> Option<Taken>,
) {
    let mut overhead = Overhead::default();
    let mut division = Division::new(&databases(), memory.bytes());
    let mut times = interval(EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let in_time = tokio::select! {
            _ = times.tick() => true,
            () = memory.changed.notified() => false,
        };
        let (limit, databases) = (memory.bytes(), databases());
        division.look(&databases, limit, in_time);
        let measured = taken().map(|taken| {
            let entries = databases.iter().map(|member| member.shared.cache.bytes()).sum();
            overhead.look(taken, entries, limit, in_time)
        });
        for (Member { shared, .. }, part) in databases.iter().zip(division.parts()) {
            let own = |all: u64| (u128::from(all) * u128::from(*part) / u128::from(limit.max(1))) as u64;
            if let Some(bytes) = measured.map_or_else(|| Some(shared.statement_bytes()), |all| all.map(own)) {
                shared.cache.set_overhead(bytes);
            }
            while !shared.cache.make_room() {
                // The change stream may run in between.
                tokio::task::yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 320;

    fn look(overhead: &mut Overhead, used: u64, resident: u64, entries: u64) -> Option<u64> {
        let taken = Taken { used: used * MIB, resident: resident * MIB };
        Some(overhead.look(taken, entries * MIB, LIMIT * MIB, true)? / MIB)
    }

    #[test]
    fn empty_pages_count_once_they_have_lasted() {
        let mut overhead = Overhead::default();
        let mut look = |used, resident, entries| look(&mut overhead, used, resident, entries);
        // All entries are evicted, and their pages freed a little later.
        assert_eq!(look(110, 110, 100), Some(20));
        assert!((0..LINGER - 2).all(|_| look(10, 110, 0) == Some(20)));
        assert!((0..LINGER).all(|_| look(10, 10, 0) == Some(20)));
        // Other pages replace them continuously.
        let overheads: Vec<u64> = (0..2 * LINGER).filter_map(|_| look(110, 130, 100)).collect();
        assert_eq!(
            (overheads[0], overheads[LINGER - 2], overheads[LINGER - 1], overheads[2 * LINGER - 1]),
            (20, 20, 40, 40)
        );
        // Used pages count at once.
        assert_eq!(look(150, 150, 100), Some(60));
    }

    #[test]
    fn about_the_limit_entries_stay_as_they_are() {
        let mut overhead = Overhead::default();
        let mut look = |used, entries| look(&mut overhead, used, used, entries);
        let room = |overhead: Option<u64>| overhead.map(|overhead| LIMIT - overhead);
        assert_eq!(room(look(300, 200)), Some(210), "as far as the lower edge");
        assert_eq!(room(look(310, 210)), Some(210));
        assert_eq!((look(311, 210), look(330, 210)), (None, None));
        assert_eq!(room(look(335, 210)), Some(205), "what is beyond the upper edge");
    }
}
