//! Bounds the connections that have not logged in.
//!
//! They cost memory and nobody has vouched for them. When there are too many the oldest is closed: to refuse the newest
//! would let a flood of silent connections keep everyone out until their time is over, whereas a client that is being
//! let in needs its place for a few milliseconds only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// All connections that have not logged in, on whichever thread they are.
#[derive(Clone, Debug)]
pub(crate) struct HalfOpen {
    connections_max: usize,
    waiting: Arc<Mutex<Waiting>>,
}

/// By the order in which they came.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    tickets: BTreeMap<u64, Arc<Notify>>,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    evicted: Arc<Notify>,
    waiting: Arc<Mutex<Waiting>>,
}

impl HalfOpen {
    /// At most so many, and one at least.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self { connections_max, waiting: Arc::default() }
    }

    /// Takes a place, of the oldest if there is no free one.
    pub(crate) fn enter(&self) -> Ticket {
        let evicted = Arc::new(Notify::new());
        let number = with(&self.waiting, |waiting| {
            if waiting.tickets.len() >= self.connections_max
                && let Some((_, oldest)) = waiting.tickets.pop_first()
            {
                oldest.notify_one();
            }
            let number = waiting.next;
            waiting.next += 1;
            waiting.tickets.insert(number, Arc::clone(&evicted));
            number
        });
        Ticket { number, evicted, waiting: Arc::clone(&self.waiting) }
    }
}

impl Ticket {
    /// Completes when the connection must make room. To be awaited by one at a time, and not again after that.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        with(&self.waiting, |waiting| waiting.tickets.remove(&self.number));
    }
}

fn with<T>(waiting: &Mutex<Waiting>, work: impl FnOnce(&mut Waiting) -> T) -> T {
    // Each call leaves it consistent.
    work(&mut waiting.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_evicted(ticket: &Ticket) -> bool {
        pin!(ticket.evicted()).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    fn len(half_open: &HalfOpen) -> usize {
        with(&half_open.waiting, |waiting| waiting.tickets.len())
    }

    #[test]
    fn the_oldest_makes_room() {
        let half_open = HalfOpen::new(3);
        let mut tickets: Vec<_> = (0..3).map(|_| half_open.enter()).collect();
        assert!(!tickets.iter().any(is_evicted));
        // One that has logged in leaves its place to the next.
        drop(tickets.remove(1));
        tickets.push(half_open.enter());
        assert!(!tickets.iter().any(is_evicted));
        tickets.push(half_open.enter());
        assert_eq!(tickets.iter().map(is_evicted).collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(len(&half_open), 3);
        // The one that was told to go is gone already; its end frees nobody else's place.
        drop(tickets.remove(0));
        assert_eq!(len(&half_open), 3);
        drop(tickets);
        assert_eq!(len(&half_open), 0);
    }

    #[test]
    fn a_flood_from_many_threads() {
        let half_open = HalfOpen::new(10);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let half_open = half_open.clone();
                std::thread::spawn(move || {
                    let tickets: Vec<_> = (0..500).map(|_| half_open.enter()).collect();
                    assert!(len(&half_open) <= 10);
                    tickets
                })
            })
            .collect();
        let tickets: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(tickets.iter().filter(|ticket| !is_evicted(ticket)).count(), 10);
        drop(tickets);
        assert_eq!(len(&half_open), 0);
    }

    /// On two runtimes, as sessions run.
    #[test]
    fn a_waiting_connection_on_another_thread_is_told() {
        let half_open = HalfOpen::new(1);
        let ticket = half_open.enter();
        let waiter = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(ticket.evicted());
        });
        let _newer = half_open.enter();
        waiter.join().unwrap();
    }
}
