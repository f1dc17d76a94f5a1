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
//! It is a control loop that cannot run away: entries make room for the excess, as much as there is. If half of that is holes, half of
//! the excess is left, for the next time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::shared::Shared;

const EVERY: Duration = Duration::from_millis(100);
/// And whenever this share of the limit has come in: large results in place of small ones leave holes faster than that.
const FILLED_SHARE: u64 = 32;
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
    /// Bytes to be set aside, now that entries weigh so much. `in_time`: since the last such time, [`EVERY`] has passed.
    fn look(&mut self, taken: Taken, entries: u64, in_time: bool) -> u64 {
        if in_time {
            self.others.truncate(LINGER - 1);
            self.others.push_front(taken.resident.saturating_sub(entries));
        }
        let lasting = if self.others.len() < LINGER { None } else { self.others.iter().min().copied() };
        lasting.unwrap_or_default().max(taken.used.saturating_sub(entries))
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
        let aside = taken().map(|taken| aside.look(taken, shared.cache.bytes(), in_time));
        shared.cache.set_aside(aside.unwrap_or_else(|| shared.statement_bytes()));
        while !shared.cache.make_room() {
            // The change stream comes between.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_pages_count_once_they_have_lasted() {
        const MIB: u64 = 1 << 20;
        let mut aside = Aside::default();
        let mut look = |used, resident, entries| {
            aside.look(Taken { used: used * MIB, resident: resident * MIB }, entries * MIB, true) / MIB
        };
        // All goes, and its pages a little later.
        assert_eq!(look(110, 110, 100), 10);
        assert!((0..LINGER - 2).all(|_| look(10, 110, 0) == 10));
        assert!((0..LINGER).all(|_| look(10, 10, 0) == 10));
        // Others take their place all the time.
        let asides: Vec<u64> = (0..2 * LINGER).map(|_| look(110, 130, 100)).collect();
        assert_eq!((asides[0], asides[LINGER - 2], asides[LINGER - 1], asides[2 * LINGER - 1]), (10, 10, 30, 30));
        // What is used counts at once.
        assert_eq!(look(150, 150, 100), 50);
    }
}
