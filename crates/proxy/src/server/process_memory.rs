//! The memory limit, as one number for the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

/// The memory limit of the process, which the databases share.
#[derive(Debug)]
pub struct ProcessMemory {
    pub(super) bytes: AtomicU64,
    /// Notified when the limit has changed, or large entries were added.
    pub(super) changed: Notify,
}

impl ProcessMemory {
    /// With this limit.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes: bytes.into(), changed: Notify::new() })
    }

    /// The limit.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}
