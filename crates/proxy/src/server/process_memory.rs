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
    /// A limit of this many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes: bytes.into(), changed: Notify::new() })
    }

    /// The limit in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

/// The least part of the memory limit that a database has, and the most that it may have, in bytes.
#[derive(Debug)]
pub(crate) struct MemoryBounds {
    pub(super) min: AtomicU64,
    pub(super) max: AtomicU64,
}

impl Default for MemoryBounds {
    fn default() -> Self {
        Self { min: 0.into(), max: u64::MAX.into() }
    }
}
