//! Bounds the connections that have not logged in.
//!
//! They cost memory and nobody has vouched for them. When there are too many the oldest is closed: to refuse the newest
//! would let a flood of silent connections keep everyone out until their time is over, whereas a client that is being
//! let in needs its place for a few milliseconds only. That holds for one that has yet to say who it is; behind that it is the
//! database that takes its time when all of an application connects at once, so many more may wait for that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Connections that have not said who they are.
const SILENT_MAX: usize = 2_000;
/// Connections that have not logged in.
const CONNECTIONS_MAX: usize = 10_000;

/// All connections that have not logged in, on whichever thread they are.
#[derive(Debug)]
pub(crate) struct PreAuthLimit {
    silent: Places,
    all: Places,
}

impl PreAuthLimit {
    /// Fewer if the process may not open many files.
    pub(crate) fn new(files_max: usize) -> Self {
        Self {
            silent: Places::new(SILENT_MAX.min(files_max / 4)),
            all: Places::new(CONNECTIONS_MAX.min(files_max / 2)),
        }
    }

    /// A login, from its first byte to its end; None if it was to make room.
    pub(crate) async fn login<T>(&self, login: impl Future<Output = T>) -> Option<T> {
        unless_evicted(self.all.enter(), login).await
    }

    /// The part of it in which the client says who it is.
    pub(crate) async fn hello<T>(&self, hello: impl Future<Output = T>) -> Option<T> {
        unless_evicted(self.silent.enter(), hello).await
    }
}

async fn unless_evicted<T>(ticket: Ticket, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = ticket.evicted() => {
            tracing::debug!("too many connections have not logged in: the oldest is closed");
            None
        }
    }
}

/// So many at a time, the newest.
#[derive(Clone, Debug)]
struct Places {
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
struct Ticket {
    number: u64,
    evicted: Arc<Notify>,
    waiting: Arc<Mutex<Waiting>>,
}

impl Places {
    /// At most so many, and one at least.
    fn new(connections_max: usize) -> Self {
        Self { connections_max, waiting: Arc::default() }
    }

    /// Takes a place, of the oldest if there is no free one.
    fn enter(&self) -> Ticket {
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
    async fn evicted(&self) {
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

    fn len(places: &Places) -> usize {
        with(&places.waiting, |waiting| waiting.tickets.len())
    }

    #[test]
    fn the_oldest_makes_room() {
        let places = Places::new(3);
        let mut tickets: Vec<_> = (0..3).map(|_| places.enter()).collect();
        assert!(!tickets.iter().any(is_evicted));
        // One that has logged in leaves its place to the next.
        drop(tickets.remove(1));
        tickets.push(places.enter());
        assert!(!tickets.iter().any(is_evicted));
        tickets.push(places.enter());
        assert_eq!(tickets.iter().map(is_evicted).collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(len(&places), 3);
        // The one that was told to go is gone already; its end frees nobody else's place.
        drop(tickets.remove(0));
        assert_eq!(len(&places), 3);
        drop(tickets);
        assert_eq!(len(&places), 0);
    }

    #[test]
    fn a_flood_from_many_threads() {
        let places = Places::new(10);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let places = places.clone();
                std::thread::spawn(move || {
                    let tickets: Vec<_> = (0..500).map(|_| places.enter()).collect();
                    assert!(len(&places) <= 10);
                    tickets
                })
            })
            .collect();
        let tickets: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(tickets.iter().filter(|ticket| !is_evicted(ticket)).count(), 10);
        drop(tickets);
        assert_eq!(len(&places), 0);
    }

    /// On two runtimes, as sessions run.
    #[test]
    fn a_waiting_connection_on_another_thread_is_told() {
        let places = Places::new(1);
        let ticket = places.enter();
        let waiter = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(ticket.evicted());
        });
        let _newer = places.enter();
        waiter.join().unwrap();
    }
}
