//! What is done once the pools' lock is free: closing connections, and waking those who get one.

use tokio::sync::oneshot;

use crate::pool::Lease;

/// It is dropped behind the lock.
pub(super) struct After<C> {
    pub(super) closed: Vec<C>,
    /// Who gets what. One that has vanished in the meantime does not take it: then it goes to the next.
    pub(super) served: Vec<(oneshot::Sender<Lease<C>>, Lease<C>)>,
}

impl<C> Default for After<C> {
    fn default() -> Self {
        Self { closed: Vec::new(), served: Vec::new() }
    }
}

impl<C> Drop for After<C> {
    fn drop(&mut self) {
        for (turn, lease) in self.served.drain(..) {
            drop(turn.send(lease));
        }
    }
}
