//! What keeps to the memory limit, also when that becomes another while the program runs.
//!
//! Entries are weighed with all that belongs to them, and yet that is not what the process takes. Where small results went and
//! large ones came, every page keeps some of the small ones, and the rest of it is of no use to the large: half as much again as
//! was weighed, as measured. Statements, buffers of connections and tables come on top. So the process is measured: what it has taken
//! since its start beyond the weight of the entries is set aside, and entries have the rest of the limit. Looked at so often
//! that little comes between.
//!
//! Pages that nothing lives in stay resident until the allocator has given them back, a fifth of a second later
//! (`.cargo/config.toml`). To evict entries for their sake would make more of them. But where results come and go all the time, so
//! do these pages, and there are as many at any time: the least that there were of them of late is set aside, too.
//!
//! Entries that go leave holes first, and pages only once most of those around them are gone as well: to win back a little that is taken
//! too much, half of the entries would have to go. New ones go into the holes. So about the limit nothing is done: growth
//! ends a little below it, and only what is taken beyond a little above it is taken away.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::shared::Shared;

const EVERY: Duration = Duration::from_millis(100);
/// And whenever this share of the limit has come in: large results in place of small ones leave holes faster than that.
const FILLED_SHARE: u64 = 32;
/// How far below the limit growth ends, and how far above it entries go for others, as a share of the limit.
const BAND_SHARE: u64 = 32;
/// How many times ago pages may have come to be empty that are still resident.
const LINGER: usize = 5;

/// Bytes that the process has taken since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// In pages that something lives in.
    pub used: u64,
    /// All that are resident.
    pub resident: u64,
}

/// What is set aside of the memory limit.
#[derive(Debug, Default)]
struct Aside {
    /// What others than entries had resident, each time.
    others: VecDeque<u64>,
}

impl Aside {
    /// Bytes to be set aside of this limit, now that entries weigh so much; None: as many as before. `in_time`: since the last such
    /// time, [`EVERY`] has passed.
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
    /// Another limit from now on; returns what it was before. What has no room any more goes soon.
    pub fn set_memory(&self, bytes: u64) -> u64 {
        let before = self.cache.set_memory(bytes);
        self.registry.set_memory(bytes);
        self.memory_changed.notify_one();
        before
    }

    /// An entry of so many bytes has come in.
    pub(crate) fn note_filled(&self, bytes: u64) {
        if self.filled.fetch_add(bytes, Relaxed) + bytes >= self.cache.limits().memory_bytes / FILLED_SHARE {
            self.filled.store(0, Relaxed);
            self.memory_changed.notify_one();
        }
    }

    /// Bytes of the statements that are known.
    pub fn statement_bytes(&self) -> u64 {
        self.registry.bytes()
    }
}

/// Keeps the cache within its room, for ever. `taken`: what the process has taken, if that is known; else the bytes of
/// statements are set aside.
pub async fn keep_memory(shared: Arc<Shared>, taken: impl Fn() -> Option<Taken>) {
    let mut aside = Aside::default();
    let mut times = interval(EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let in_time = tokio::select! {
            _ = times.tick() => true,
            () = shared.memory_changed.notified() => false,
        };
        let limit = shared.cache.limits().memory_bytes;
        let bytes = match taken() {
            Some(taken) => aside.look(taken, shared.cache.bytes(), limit, in_time),
            None => Some(shared.statement_bytes()),
        };
        if let Some(bytes) = bytes {
            shared.cache.set_aside(bytes);
        }
        while !shared.cache.make_room() {
            // The change stream comes between.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 320;

    fn look(aside: &mut Aside, used: u64, resident: u64, entries: u64) -> Option<u64> {
        let taken = Taken { used: used * MIB, resident: resident * MIB };
        Some(aside.look(taken, entries * MIB, LIMIT * MIB, true)? / MIB)
    }

    #[test]
    fn empty_pages_count_once_they_have_lasted() {
        let mut aside = Aside::default();
        let mut look = |used, resident, entries| look(&mut aside, used, resident, entries);
        // All goes, and its pages a little later.
        assert_eq!(look(110, 110, 100), Some(20));
        assert!((0..LINGER - 2).all(|_| look(10, 110, 0) == Some(20)));
        assert!((0..LINGER).all(|_| look(10, 10, 0) == Some(20)));
        // Others take their place all the time.
        let asides: Vec<u64> = (0..2 * LINGER).filter_map(|_| look(110, 130, 100)).collect();
        assert_eq!((asides[0], asides[LINGER - 2], asides[LINGER - 1], asides[2 * LINGER - 1]), (20, 20, 40, 40));
        // What is used counts at once.
        assert_eq!(look(150, 150, 100), Some(60));
    }

    #[test]
    fn about_the_limit_entries_stay_as_they_are() {
        let mut aside = Aside::default();
        let mut look = |used, entries| look(&mut aside, used, used, entries);
        let room = |aside: Option<u64>| aside.map(|aside| LIMIT - aside);
        assert_eq!(room(look(300, 200)), Some(210), "as far as the lower edge");
        assert_eq!(room(look(310, 210)), Some(210));
        assert_eq!((look(311, 210), look(330, 210)), (None, None));
        assert_eq!(room(look(335, 210)), Some(205), "what is beyond the upper edge");
    }
}
