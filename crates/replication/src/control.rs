//! Requests to a running follower.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Requests to one follower. They are signals without a queue: several at once count as one.
#[derive(Debug, Default)]
pub struct Control {
    keepalive: Notify,
    restart: Notify,
    stopping: AtomicBool,
    stop: Notify,
}

impl Control {
    /// A control without requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests that the server reports how far it has sent the log; the answer arrives as [`crate::Sink::advance`].
    pub fn request_keepalive(&self) {
        self.keepalive.notify_one();
    }

    /// Ends the stream and starts a new one, in a new epoch.
    pub fn restart(&self) {
        self.restart.notify_one();
    }

    /// Ends the follower.
    pub fn shutdown(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.stop.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) async fn keepalive_requested(&self) {
        self.keepalive.notified().await;
    }

    pub(crate) async fn restart_requested(&self) {
        self.restart.notified().await;
    }

    /// Waits until [`Self::shutdown`] is called.
    pub async fn stopped(&self) {
        while !self.is_stopping() {
            self.stop.notified().await;
        }
    }
}
