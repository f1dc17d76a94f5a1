//! What replicas have shown, as far as it is visible at the primary.
//!
//! Within an epoch: everything in the log when its end was asked for is visible once the stream has delivered all of it, and none of that is unproven.
//! An epoch may end before. Then it is visible once every transaction that had an id at that time has ended, which two answers of the same server show.

use std::collections::VecDeque;

use freshet_types::{End, Epoch, Lsn, Nanos};

/// So many epochs are remembered, and so many answers of each kind.
const COUNT_MAX: usize = 64;
/// If a commit stays unproven for this time, it waits for a standby or worse, and replicas should not show it.
const STUCK: Nanos = 100_000_000;

/// The transaction ids of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    /// When the server was started: see [`crate::ServerIdentity::postmaster_start`].
    pub(crate) server: String,
    /// The next one to be given, without its epoch.
    pub(crate) next: u32,
    /// All transactions with lower ids have ended.
    pub(crate) ended: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Log ends with the times at which they were asked for, of the current epoch.
    ends: VecDeque<(End, Nanos)>,
    epochs: VecDeque<(Epoch, Nanos)>,
    /// The position before the oldest unproven commit, and since when it is that.
    unproven: Option<(Lsn, Nanos)>,
    server: String,
    /// The ids that were next, with the times at which they were asked for.
    ids: VecDeque<(u32, Nanos)>,
    /// What was shown by this time is visible, whatever the epoch.
    as_of: Nanos,
}

impl Settled {
    /// The primary's log end was read by a question that was sent at this time.
    pub(super) fn note_end(&mut self, end: End, asked_at: Nanos) {
        if self.ends.back().is_some_and(|(last, _)| last.epoch != end.epoch) {
            self.ends.clear();
        }
        push(&mut self.ends, (end, asked_at));
    }

    /// See [`freshet_cache::Cache::visible_end`].
    pub(super) fn note_visible(&mut self, visible: End, has_unproven: bool, now: Nanos) {
        let since = self.unproven.filter(|(before, _)| *before == visible.lsn).map_or(now, |(_, since)| since);
        self.unproven = has_unproven.then_some((visible.lsn, since));
        let mut as_of = 0;
        while let Some((end, asked_at)) = self.ends.front()
            && end.epoch == visible.epoch
            && end.lsn <= visible.lsn
        {
            as_of = *asked_at;
            self.ends.pop_front();
        }
        if as_of == 0 {
            return;
        }
        match self.epochs.back_mut() {
            Some((last, time)) if *last == visible.epoch => *time = as_of.max(*time),
            _ => self.epochs.push_back((visible.epoch, as_of)),
        }
        if self.epochs.len() > COUNT_MAX {
            self.epochs.pop_front();
        }
    }

    /// The ids of an answer to a question that was sent at this time.
    pub(super) fn note_ids(&mut self, ids: Ids, asked_at: Nanos) {
        if self.server != ids.server {
            (self.server, self.as_of) = (ids.server, 0);
            self.ids.clear();
        }
        push(&mut self.ids, (ids.next, asked_at));
        // Ids wrap around; two of one time are near each other.
        let has_ended = |next: u32| next.wrapping_sub(ids.ended as u32).cast_signed() <= 0;
        while let Some(&(next, asked_at)) = self.ids.front()
            && has_ended(next)
        {
            self.as_of = asked_at.max(self.as_of);
            self.ids.pop_front();
        }
    }

    /// Whether everything is visible that was shown in this epoch, by this time, of this primary.
    pub(super) fn covers(&self, epoch: Epoch, since: Nanos, server: Option<&str>) -> bool {
        let by_ids = server == Some(&self.server) && self.as_of >= since;
        by_ids || self.epochs.iter().any(|(settled, as_of)| *settled == epoch && *as_of >= since)
    }

    /// Whether a commit is unproven for long.
    pub(super) fn is_stuck(&self, now: Nanos) -> bool {
        self.unproven.is_some_and(|(_, since)| now.saturating_sub(since) > STUCK)
    }
}

/// Adds one; of too many, every second one is forgotten, and a later one stands for it.
fn push<T>(list: &mut VecDeque<T>, one: T) {
    if list.len() >= COUNT_MAX {
        let mut is_kept = false;
        list.retain(|_| {
            is_kept = !is_kept;
            !is_kept
        });
    }
    list.push_back(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(epoch: u64, lsn: u64) -> End {
        End { epoch: Epoch(epoch), lsn: Lsn(lsn) }
    }

    fn ids(server: &str, next: u32, ended: u64) -> Ids {
        Ids { server: server.to_owned(), next, ended }
    }

    #[test]
    fn log_ends_settle_one_by_one_though_something_is_always_unproven() {
        let mut settled = Settled::default();
        for at in 2..=1000 {
            settled.note_end(end(1, 10 * at), at);
            settled.note_visible(end(1, 10 * at - 15), true, at);
            let covers = |since| settled.covers(Epoch(1), since, None);
            assert!(at < 4 || covers(at - 2), "{at}");
            assert!(!covers(at - 1) && !settled.covers(Epoch(2), 1, None), "{at}");
        }
    }

    #[test]
    fn a_commit_that_hangs_is_stuck_until_it_is_proven() {
        let mut settled = Settled::default();
        for at in 1..=1000 {
            settled.note_end(end(1, 100 + at), at);
        }
        settled.note_visible(end(1, 100), true, 1_000);
        settled.note_visible(end(1, 100), true, STUCK);
        assert!(!settled.is_stuck(STUCK + 1_000) && settled.is_stuck(STUCK + 1_001));
        assert!(!settled.covers(Epoch(1), 1, None));
        settled.note_visible(end(1, 2000), false, STUCK + 2_000);
        assert!(!settled.is_stuck(2 * STUCK) && settled.covers(Epoch(1), 1000, None));
    }

    #[test]
    fn after_the_end_of_an_epoch_transactions_settle_by_their_ids() {
        let mut settled = Settled::default();
        let near_wrap = u64::from(u32::MAX) - 1;
        settled.note_ids(ids("a", 1, near_wrap), 10); // two further ids were given, and one was not counted
        assert!(!settled.covers(Epoch(1), 10, Some("a")));
        settled.note_ids(ids("a", 4, near_wrap + 3), 20);
        assert!(settled.covers(Epoch(1), 10, Some("a")), "all below id 1 of the next round have ended");
        assert!(!settled.covers(Epoch(1), 11, Some("a")) && !settled.covers(Epoch(1), 10, Some("b")));
        assert!(!settled.covers(Epoch(1), 10, None));
        settled.note_ids(ids("b", 4, near_wrap + 3), 30);
        assert!(!settled.covers(Epoch(1), 10, Some("a")), "another server");
    }
}
