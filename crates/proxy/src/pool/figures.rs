//! What is counted.

use std::sync::atomic::AtomicU64;

/// What has happened since the start.
#[derive(Debug, Default)]
pub struct PoolFigures {
    /// Connections that were handed to sessions.
    pub check_outs: AtomicU64,
    /// How often a session had to wait.
    pub waits: AtomicU64,
    /// How long in all, in nanoseconds.
    pub waited: AtomicU64,
    /// Sessions that waited for too long.
    pub timeouts: AtomicU64,
    /// PostgreSQL: connections that were given the settings of a session ahead of its statement.
    pub changed: AtomicU64,
    /// PostgreSQL: sessions for which another connection listens to channels.
    pub listening: AtomicU64,
}
