//! Sessions that wait for the change stream to pass a position: commit waits, and look-ups that would otherwise bypass although the position is about
//! to be passed.
//!
//! The stream's task wakes the waits. The order matters: register, then check whether the position was passed, then sleep. Waits are few and short,
//! so one lock is enough; the stream takes it only while a session waits.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use freshet_types::{Lsn, Nanos};

/// All waits for one stream.
#[derive(Debug, Default)]
pub struct Waits {
    wakers: Mutex<Wakers>,
    waiting: AtomicUsize,
    /// The number of commit waits among them.
    committing: AtomicUsize,
    /// Counts the positions.
    generation: AtomicU64,
    /// The number of commit waits, their total time, and the number of those replaced by a fence.
    pub commit_waits: AtomicU64,
    /// See [`Self::commit_waits`].
    pub commit_wait_nanos: AtomicU64,
    /// See [`Self::commit_waits`].
    pub fences: AtomicU64,
    /// Commit waits that were skipped, since no entry depended on the tables of the write.
    pub waits_skipped: AtomicU64,
    /// Messages that were committed to flush the log (PostgreSQL).
    pub flushes: AtomicU64,
    /// The recent time of commit waits: a moving average, in nanoseconds.
    recent_commit_wait_nanos: AtomicU64,
    /// Just behind the stream's position when a commit wait last timed out; 0: none has.
    stalled_at: AtomicU64,
    /// The recent time of the database's answers: a moving average, in nanoseconds.
    answer_nanos: AtomicU64,
    /// The recent time of log-end probes: the average, and the minimum.
    probe_nanos: AtomicU64,
    probe_least: AtomicU64,
}

/// With each probe the minimum grows by one part in this many.
const LEAST_LASTS: Nanos = 1 << 16;

/// The shortest and the longest wait of a look-up, in nanoseconds.
const LOOK_WAIT: RangeInclusive<Nanos> = 2_000_000..=100_000_000;
/// The wait as a multiple of the database's time for an answer. Under load the stream waits for those answers.
const LOOK_WAIT_ANSWERS: Nanos = 4;

/// As a multiple of the average commit wait, with its minimum and maximum in nanoseconds.
const STUCK_COMMIT_WAITS: Nanos = 4;
const STUCK: RangeInclusive<Nanos> = 3_000_000..=20_000_000;

/// A session's look-ups wait for their position for a few times the database's time for an answer. After a wait without success the next look-ups do
/// not wait: one, then three, then seven of them, as long as no wait succeeds.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    left_out: u8,
    to_leave_out: u8,
}

impl Patience {
    /// Whether a look-up that begins now may wait.
    pub(crate) fn try_wait(&mut self) -> bool {
        let is_there = self.left_out >= self.to_leave_out;
        if !is_there {
            self.left_out += 1;
        }
        is_there
    }

    /// A wait was without success.
    pub(crate) fn lose(&mut self) {
        self.left_out = 0;
        self.to_leave_out = (self.to_leave_out.saturating_mul(2) | 1).min(127);
    }

    /// A look-up needed no wait, or its wait succeeded.
    pub(crate) fn gain(&mut self) {
        *self = Self::default();
    }
}

/// What a session waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitFor {
    /// The stream passes this position; any next position if it is 0.
    Position(Lsn),
    /// The stream passes a log end that was read at this time or later.
    Time(Nanos),
    /// A catalogue check that began at this time or later is complete.
    Catalog(Nanos),
}

/// Waits by their value, each with a unique number.
type Waiting = BTreeMap<(u64, u64), Waker>;

#[derive(Debug, Default)]
struct Wakers {
    by_position: Waiting,
    by_time: Waiting,
    by_catalog: Waiting,
    next: u64,
}

impl Wakers {
    fn of(&mut self, wait_for: WaitFor) -> (&mut Waiting, u64) {
        match wait_for {
            WaitFor::Position(lsn) => (&mut self.by_position, lsn.0),
            WaitFor::Time(since) => (&mut self.by_time, since),
            WaitFor::Catalog(since) => (&mut self.by_catalog, since),
        }
    }

    fn remove(&mut self, wait_for: WaitFor, number: u64) {
        let (waiting, key) = self.of(wait_for);
        waiting.remove(&(key, number));
    }
}

/// Removes the waits up to this value.
fn take(waiting: &mut Waiting, up_to: u64) -> Waiting {
    let later = waiting.split_off(&(up_to.saturating_add(1), 0));
    std::mem::replace(waiting, later)
}

impl Waits {
    /// The stream has passed `lsn`, and a log end that was read at `as_of`.
    pub fn passed(&self, lsn: Lsn, as_of: Nanos) {
        self.generation.fetch_add(1, SeqCst);
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let mut wakers = self.wakers();
        let woken = [take(&mut wakers.by_position, lsn.0), take(&mut wakers.by_time, as_of)];
        drop(wakers);
        woken.into_iter().flatten().for_each(|(_, waker)| waker.wake());
    }

    /// A catalogue check that began at `as_of` is complete.
    pub(crate) fn looked(&self, as_of: Nanos) {
        if self.waiting.load(SeqCst) > 0 {
            let woken = take(&mut self.wakers().by_catalog, as_of);
            woken.into_values().for_each(Waker::wake);
        }
    }

    /// The awaited position may never come: there is a new stream, or none.
    pub fn interrupt(&self) {
        self.passed(Lsn(u64::MAX - 1), u64::MAX - 1);
    }

    /// Changes whenever the stream has passed a position.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }

    /// A commit wait took this long.
    pub(crate) fn waited_for_commit(&self, nanos: Nanos) {
        self.waited_for_catalog(nanos);
        let average = self.recent_commit_wait_nanos.load(Relaxed);
        self.recent_commit_wait_nanos.store(average - average / 8 + nanos / 8, Relaxed);
    }

    /// The same, also for a wait for the catalogue, which does not affect the average of the stream's waits.
    pub(crate) fn waited_for_catalog(&self, nanos: Nanos) {
        self.commit_waits.fetch_add(1, Relaxed);
        self.commit_wait_nanos.fetch_add(nanos, Relaxed);
    }

    /// If the stream has not moved for this long during a commit wait, it may need a flush of the log. Under load it stands still for a while without
    /// needing one.
    pub(crate) fn stuck_after(&self) -> Nanos {
        self.recent_commit_wait_nanos
            .load(Relaxed)
            .saturating_mul(STUCK_COMMIT_WAITS)
            .clamp(*STUCK.start(), *STUCK.end())
    }

    /// A commit wait timed out, and the stream has come no further than this.
    pub(crate) fn timed_out(&self, applied: Lsn) {
        self.stalled_at.store(applied.0 + 1, Relaxed);
    }

    /// Whether a commit wait timed out and the stream has not moved since: the next one need not wait.
    pub(crate) fn is_stalled(&self, applied: Lsn) -> bool {
        self.stalled_at.load(Relaxed) == applied.0 + 1
    }

    /// The database answered a query in this time.
    pub(crate) fn answered_in(&self, nanos: Nanos) {
        let average = self.answer_nanos.load(Relaxed);
        // The first value is the average. If two threads store at once, one value is lost, which does no harm.
        let average = if average == 0 { nanos } else { average - average / 8 + nanos / 8 };
        self.answer_nanos.store(average, Relaxed);
    }

    /// A log-end probe took this long. Only one task calls this.
    pub(crate) fn read_in(&self, nanos: Nanos) {
        let (average, least) = (self.probe_nanos.load(Relaxed), self.probe_least.load(Relaxed));
        let (average, least) = if average == 0 { (nanos, nanos) } else { (average, least) };
        self.probe_nanos.store(average - average / 8 + nanos / 8, Relaxed);
        self.probe_least.store(nanos.min(least + least / LEAST_LASTS), Relaxed);
    }

    /// The queueing delay of the database, network included: the time of a log-end probe, which is always the same work, beyond its minimum.
    pub(crate) fn turn(&self) -> Nanos {
        self.probe_nanos.load(Relaxed).saturating_sub(self.probe_least.load(Relaxed))
    }

    /// The recent time of a log-end probe.
    pub(crate) fn probe_took(&self) -> Nanos {
        self.probe_nanos.load(Relaxed)
    }

    /// How long a look-up may wait.
    pub(crate) fn look_wait(&self) -> Nanos {
        self.answer_nanos.load(Relaxed).saturating_mul(LOOK_WAIT_ANSWERS).clamp(*LOOK_WAIT.start(), *LOOK_WAIT.end())
    }

    /// Whether there is a commit wait.
    pub(crate) fn has_commit_wait(&self) -> bool {
        self.committing.load(SeqCst) > 0
    }

    fn wakers(&self) -> MutexGuard<'_, Wakers> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session's wait. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    waits: Arc<Waits>,
    is_for_commit: bool,
    registered: Option<(WaitFor, u64)>,
}

impl Wait {
    /// `is_for_commit`: it is a commit wait.
    pub(crate) fn new(waits: &Arc<Waits>, is_for_commit: bool) -> Self {
        waits.waiting.fetch_add(1, SeqCst);
        if is_for_commit {
            waits.committing.fetch_add(1, SeqCst);
        }
        Self { waits: waits.clone(), is_for_commit, registered: None }
    }

    /// Wakes the task once the awaited event has come. The caller must check again whether it has.
    pub(crate) fn register(&mut self, wait_for: WaitFor, waker: &Waker) {
        let mut wakers = self.waits.wakers();
        if let Some((before, number)) = self.registered.take() {
            wakers.remove(before, number);
        }
        wakers.next += 1;
        let number = wakers.next;
        let (waiting, key) = wakers.of(wait_for);
        waiting.insert((key, number), waker.clone());
        self.registered = Some((wait_for, number));
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some((wait_for, number)) = self.registered.take() {
            self.waits.wakers().remove(wait_for, number);
        }
        if self.is_for_commit {
            self.waits.committing.fetch_sub(1, SeqCst);
        }
        self.waits.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_wait_by_what_the_database_takes() {
        let waits = Waits::default();
        assert_eq!(waits.look_wait(), 2_000_000);
        waits.answered_in(10_000_000);
        assert_eq!(waits.look_wait(), 40_000_000, "the first answer is all that is known");
        (0..100).for_each(|_| waits.answered_in(10_000_000));
        assert!((39_600_000..=40_000_000).contains(&waits.look_wait()), "{}", waits.look_wait());
        (0..100).for_each(|_| waits.answered_in(Nanos::MAX / 16));
        assert_eq!(waits.look_wait(), 100_000_000);
    }

    #[test]
    fn what_a_probe_takes_under_load_is_a_turn() {
        let waits = Waits::default();
        assert_eq!(waits.turn(), 0);
        (0..100).for_each(|_| waits.read_in(100_000));
        assert!(waits.turn() < 1000, "{}", waits.turn());
        (0..100).for_each(|_| waits.read_in(500_000));
        assert!((390_000..=400_000).contains(&waits.turn()), "{}", waits.turn());
        // The database is further away now.
        (0..1_000_000).for_each(|_| waits.read_in(500_000));
        assert!(waits.turn() < 1000, "{}", waits.turn());
    }

    #[test]
    fn each_is_woken_by_what_it_waits_for() {
        struct Woken(AtomicUsize);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let waits = Arc::new(Waits::default());
        let all = [WaitFor::Position(Lsn(0)), WaitFor::Position(Lsn(7)), WaitFor::Time(5)];
        let woken = all.map(|_| Arc::new(Woken(AtomicUsize::new(0))));
        let mut each: Vec<Wait> = all.iter().map(|_| Wait::new(&waits, false)).collect();
        let taken = || woken.each_ref().map(|woken| woken.0.swap(0, SeqCst));
        let mut after = |lsn, as_of| {
            for ((wait, wait_for), woken) in each.iter_mut().zip(all).zip(&woken) {
                wait.register(wait_for, &woken.clone().into());
            }
            waits.passed(Lsn(lsn), as_of);
            taken()
        };
        assert_eq!(after(6, 4), [1, 0, 0]);
        assert_eq!(after(7, 4), [1, 1, 0]);
        assert_eq!(after(6, 5), [1, 0, 1]);
        waits.interrupt();
        assert_eq!(taken(), [0, 1, 0], "the others were woken before");
        assert_eq!(after(0, 0), [1, 0, 0]);
        drop(each);
        let wakers = waits.wakers();
        assert!(wakers.by_position.is_empty() && wakers.by_time.is_empty());
    }

    #[test]
    fn a_stream_is_stalled_from_a_commit_wait_that_timed_out_until_it_moves() {
        let waits = Waits::default();
        assert!(!waits.is_stalled(Lsn(0)));
        waits.timed_out(Lsn(7));
        assert!(waits.is_stalled(Lsn(7)) && !waits.is_stalled(Lsn(8)));
    }

    #[test]
    fn what_does_not_help_is_tried_ever_less_often() {
        let mut patience = Patience::default();
        let without = |patience: &mut Patience| (0..1000).find(|_| patience.try_wait()).unwrap_or(1000);
        let mut seen = Vec::new();
        for _ in 0..10 {
            seen.push(without(&mut patience));
            patience.lose();
        }
        assert_eq!(seen, [0, 1, 3, 7, 15, 31, 63, 127, 127, 127]);
        patience.gain();
        assert_eq!(without(&mut patience), 0);
    }
}
