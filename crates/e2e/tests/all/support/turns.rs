//! A relay in front of a server. For each connection it counts how often Freshet sends after the server has sent: this is the number of round trips,
//! whatever the distance of the server is.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use super::relaying::{listen, pass_on};
use super::under_way;

/// The traffic of one connection.
struct Dialogue {
    /// The server has sent since Freshet has, or nobody has sent yet.
    answered: bool,
    turns: usize,
}

type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It listens until the process ends.
pub(crate) struct Turns {
    pub(crate) address: SocketAddr,
    connections: Shared<Vec<Shared<Dialogue>>>,
}

impl Turns {
    /// `way`: how long the relay delays answers of the server.
    pub(crate) fn to(server: SocketAddr, way: Duration) -> Result<Self> {
        let connections = Shared::<Vec<Shared<Dialogue>>>::default();
        let all = Arc::clone(&connections);
        let address = listen(server, move |client, server| {
            let dialogue = Shared::new(Mutex::new(Dialogue { answered: true, turns: 0 }));
            lock(&all).push(Arc::clone(&dialogue));
            let heard = Arc::clone(&dialogue);
            let of_client = move |_: &[u8]| {
                let mut dialogue = lock(&dialogue);
                dialogue.turns += usize::from(std::mem::take(&mut dialogue.answered));
            };
            let of_server = move |_: &[u8]| {
                under_way(way);
                lock(&heard).answered = true;
            };
            pass_on(client, server, of_client, of_server)
        })?;
        Ok(Self { address, connections })
    }

    /// The round trips of the connection that was opened last.
    pub(crate) fn of_last(&self) -> Result<usize> {
        Ok(self.last()?())
    }

    /// Counts the round trips of the connection that was opened last, even if others are opened later.
    pub(crate) fn last(&self) -> Result<impl Fn() -> usize + use<>> {
        let last = Arc::clone(lock(&self.connections).last().context("no connection")?);
        Ok(move || lock(&last).turns)
    }
}
