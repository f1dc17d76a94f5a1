//! Those who wait for a connection of one pool, in order.
//!
//! **Threads.** A connection that stays with its thread needs neither a wake-up of another one nor a new watch of its socket. So who waits longest in the
//! thread that gives it back comes first, unless somebody came [`AHEAD_MAX`] before it. Nobody lets more than [`PASSED_MAX`] go ahead while it is the
//! first.
//!
//! Who vanishes leaves the queue under the pools' lock, before its receiver is closed. What it was handed in the same moment, and does not take any more,
//! is given back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::pool::{Group, Lease, PoolKey, Pools};

/// Nobody goes ahead of those who have waited for so much longer.
const AHEAD_MAX: Duration = Duration::from_millis(10);
/// So many go ahead of the one that has waited longest, at most; and those among so many of the first.
const PASSED_MAX: u32 = 16;
const LOOKED_AT_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Waiter<C> {
    ticket: u64,
    pub(super) group: Group,
    since: Instant,
    thread: ThreadId,
    pub(super) turn: oneshot::Sender<Lease<C>>,
}

#[derive(Debug)]
pub(super) struct Queue<C> {
    waiters: VecDeque<Waiter<C>>,
    /// How many have gone ahead of the first one.
    passed: u32,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Self { waiters: VecDeque::new(), passed: 0 }
    }
}

impl<C> Queue<C> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Who gets a connection of this group that this thread gives back: its place, and its own group.
    pub(super) fn next(&self, group: &Group) -> Option<(usize, &Group)> {
        let (before, here) = (self.waiters.front()?.since + AHEAD_MAX, thread::current().id());
        let looked_at = if self.passed < PASSED_MAX { LOOKED_AT_MAX } else { 0 };
        let mut candidates = self.waiters.iter().take(looked_at).take_while(|waiter| waiter.since < before);
        let at = candidates.position(|waiter| waiter.thread == here && group.suits(&waiter.group)).unwrap_or(0);
        self.waiters.get(at).map(|waiter| (at, &waiter.group))
    }

    pub(super) fn first_ticket(&self) -> u64 {
        self.waiters.front().map_or(u64::MAX, |waiter| waiter.ticket)
    }

    pub(super) fn longest_wait(&self) -> Duration {
        self.waiters.front().map_or(Duration::ZERO, |waiter| waiter.since.elapsed())
    }

    pub(super) fn join(&mut self, ticket: u64, group: Group) -> oneshot::Receiver<Lease<C>> {
        let (turn, receiver) = oneshot::channel();
        self.waiters.push_back(Waiter { ticket, group, since: Instant::now(), thread: thread::current().id(), turn });
        receiver
    }

    fn leave(&mut self, ticket: u64) {
        if self.first_ticket() == ticket {
            self.passed = 0;
        }
        self.waiters.retain(|waiter| waiter.ticket != ticket);
    }

    /// Takes this one out of the queue.
    pub(super) fn take_out(&mut self, at: usize) -> Option<Waiter<C>> {
        self.passed = if at == 0 { 0 } else { self.passed + 1 };
        self.waiters.remove(at)
    }
}

/// A place in the queue, until it is dropped.
pub(super) struct Queued<C> {
    pools: Arc<Pools<C>>,
    key: Arc<PoolKey>,
    ticket: u64,
    receiver: oneshot::Receiver<Lease<C>>,
    is_served: bool,
}

impl<C> Queued<C> {
    pub(super) fn new(
        pools: Arc<Pools<C>>,
        key: Arc<PoolKey>,
        ticket: u64,
        receiver: oneshot::Receiver<Lease<C>>,
    ) -> Self {
        Self { pools, key, ticket, receiver, is_served: false }
    }

    /// Returns when its turn has come.
    pub(super) async fn turn(mut self) -> Option<Lease<C>> {
        let lease = (&mut self.receiver).await.ok();
        self.is_served = true;
        lease
    }
}

impl<C> Drop for Queued<C> {
    fn drop(&mut self) {
        if self.is_served {
            return;
        }
        if let Some(pool) = self.pools.inside().pools.get_mut(&self.key) {
            pool.queue.leave(self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_the_thread_go_ahead_but_not_of_those_who_came_much_earlier() {
        let mut queue = Queue::<()>::default();
        let groups = [&b"a"[..], b"b", b"a"].map(Group::of);
        let _turns = [0, 1, 2].map(|at: usize| queue.join(at as u64, groups[at].clone()));
        let first = queue.waiters[0].since;
        queue.waiters.iter_mut().for_each(|waiter| waiter.since = first); // however late this thread was
        let here = thread::current().id();
        let elsewhere = thread::spawn(|| thread::current().id()).join().unwrap();
        let next = |queue: &Queue<()>| queue.next(&groups[0]).map(|(at, _)| at);
        assert_eq!(next(&queue), Some(0));
        queue.waiters[0].thread = elsewhere;
        assert_eq!(next(&queue), Some(2), "the one between needs another connection");
        queue.waiters[2].thread = elsewhere;
        assert_eq!(next(&queue), Some(0));
        queue.waiters[2].thread = here;
        queue.passed = PASSED_MAX;
        assert_eq!(next(&queue), Some(0), "many have gone ahead");
        queue.passed = 0;
        assert_eq!(next(&queue), Some(2));
        queue.waiters[0].since -= AHEAD_MAX;
        assert_eq!(next(&queue), Some(0), "it has waited for long");
        assert!(queue.take_out(1).is_some() && queue.passed == 1);
        queue.leave(0);
        assert_eq!((queue.passed, queue.len()), (0, 1));
    }
}
