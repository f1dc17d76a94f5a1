//! Limits the connections that have not logged in.
//!
//! Connections without a login cost memory and are not authenticated. If there are too many, the oldest is closed. Refusing the newest instead would
//! let a flood of silent connections lock out all clients until their login times out, whereas a legitimate login takes only a few milliseconds. This
//! is so until the client has named its user. Then the login waits for the database. This takes long if all connections of an application log in at
//! once, so many more connections may be in this state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Limit of connections that have not named their user.
const SILENT_MAX: usize = 2_000;
/// Limit of connections that have not logged in.
const CONNECTIONS_MAX: usize = 10_000;

/// All connections that have not logged in, on any thread.
#[derive(Debug)]
pub(crate) struct PreAuthLimit {
    silent: Places,
    all: Places,
}

impl PreAuthLimit {
    /// The limits are lower if the process may open few files.
    pub(crate) fn new(files_max: usize) -> Self {
        Self {
            silent: Places::new(SILENT_MAX.min(files_max / 4)),
            all: Places::new(CONNECTIONS_MAX.min(files_max / 2)),
        }
    }

    /// Runs a login, from its first byte to its end. None if it was evicted.
    pub(crate) async fn login<T>(&self, login: impl Future<Output = T>) -> Option<T> {
        unless_evicted(self.all.enter(), login).await
    }

    /// Runs the part of the login in which the client names its user.
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

/// A limited number of connections, the newest.
#[derive(Clone, Debug)]
struct Places {
    connections_max: usize,
    waiting: Arc<Mutex<Waiting>>,
}

/// In order of arrival.
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
    /// Allows this many connections, and at least one.
    fn new(connections_max: usize) -> Self {
        Self { connections_max, waiting: Arc::default() }
    }

    /// Takes a place: a free one, or that of the oldest connection.
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
    /// Completes when the connection is evicted. Only one task may await it, once.
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
    // The data are consistent after each call.
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
        // A connection that has logged in frees its place.
        drop(tickets.remove(1));
        tickets.push(places.enter());
        assert!(!tickets.iter().any(is_evicted));
        tickets.push(places.enter());
        assert_eq!(tickets.iter().map(is_evicted).collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(len(&places), 3);
        // The evicted connection has already lost its place; its end frees no other place.
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
