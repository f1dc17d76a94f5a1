//! The services of one database as a set, so that they can be ended while the program goes on.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// Tasks that serve one database beside its sessions.
#[derive(Debug, Default)]
pub struct Tasks {
    /// None: ended.
    running: Mutex<Option<JoinSet<()>>>,
}

impl Tasks {
    /// Tasks may be added from now on, until [`Self::end`].
    pub(crate) fn new() -> Self {
        Self { running: Mutex::new(Some(JoinSet::new())) }
    }

    /// Runs a task, in the background.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(running) = &mut *self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            running.spawn(task);
        }
    }

    /// Ends all tasks, each where it waits; their connections are closed. None can be added any more.
    pub fn end(&self) {
        // The tasks hold the state that holds this.
        drop(self.running.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
