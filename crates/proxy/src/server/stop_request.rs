//! The end of the program, requested by a statement in any database.

use std::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire},
};

use tokio::sync::Notify;

const AFTER_DRAIN: u8 = 1;
const AT_ONCE: u8 = 2;

/// The request to stop, if there is one. All databases share it.
#[derive(Debug, Default)]
pub struct StopRequest {
    requested: AtomicU8,
    made: Notify,
}

impl StopRequest {
    /// Requests the end of the program: at once, or after a drain.
    pub(crate) fn make(&self, at_once: bool) {
        self.requested.fetch_max(if at_once { AT_ONCE } else { AFTER_DRAIN }, AcqRel);
        self.made.notify_waiters();
    }

    /// Returns when the end is requested. `at_once`: without a drain.
    pub async fn made(&self, at_once: bool) {
        loop {
            let mut made = std::pin::pin!(self.made.notified());
            made.as_mut().enable();
            if self.requested.load(Acquire) >= if at_once { AT_ONCE } else { AFTER_DRAIN } {
                return;
            }
            made.await;
        }
    }

    /// Whether the program is to end at once.
    pub fn is_at_once(&self) -> bool {
        self.requested.load(Acquire) == AT_ONCE
    }
}
