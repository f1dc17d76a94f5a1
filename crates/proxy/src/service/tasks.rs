//! The services of one database as a set, so that they can be ended while the program continues.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// Tasks that serve one database in addition to its sessions.
#[derive(Debug, Default)]
pub struct Tasks {
    /// None once they have ended.
    running: Mutex<Option<JoinSet<()>>>,
}

impl Tasks {
    /// An empty set, to which tasks may be added until [`Self::end`].
    pub(crate) fn new() -> Self {
        Self { running: Mutex::new(Some(JoinSet::new())) }
    }

    /// Runs a task in the background.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(running) = &mut *self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            running.spawn(task);
        }
    }

    /// Ends all tasks wherever they wait, and closes their connections. No task can be added afterwards.
    pub fn end(&self) {
        // Each task holds the state that contains this set.
        drop(self.running.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
