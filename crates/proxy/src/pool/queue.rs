//! Those who wait for a connection of one pool, in order.
//!
//! Who vanishes leaves the queue under the pools' lock, before its receiver is closed. So whoever is in the queue can be handed something. What it does
//! not take any more is given back when its receiver is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::pool::{Group, Lease, PoolKey, Pools};

#[derive(Debug)]
struct Waiter<C> {
    ticket: u64,
    group: Group,
    since: Instant,
    turn: oneshot::Sender<Lease<C>>,
}

#[derive(Debug)]
pub(super) struct Queue<C> {
    waiters: VecDeque<Waiter<C>>,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Self { waiters: VecDeque::new() }
    }
}

impl<C> Queue<C> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The group of who is next.
    pub(super) fn first(&self) -> Option<&Group> {
        self.waiters.front().map(|waiter| &waiter.group)
    }

    pub(super) fn first_ticket(&self) -> u64 {
        self.waiters.front().map_or(u64::MAX, |waiter| waiter.ticket)
    }

    pub(super) fn longest_wait(&self) -> Duration {
        self.waiters.front().map_or(Duration::ZERO, |waiter| waiter.since.elapsed())
    }

    pub(super) fn join(&mut self, ticket: u64, group: Group) -> oneshot::Receiver<Lease<C>> {
        let (turn, receiver) = oneshot::channel();
        self.waiters.push_back(Waiter { ticket, group, since: Instant::now(), turn });
        receiver
    }

    fn leave(&mut self, ticket: u64) {
        self.waiters.retain(|waiter| waiter.ticket != ticket);
    }

    /// Hands the lease to who is first. Returns it if nobody waits.
    pub(super) fn serve(&mut self, lease: Lease<C>) -> Option<Lease<C>> {
        match self.waiters.pop_front() {
            Some(waiter) => waiter.turn.send(lease).err(),
            None => Some(lease),
        }
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
