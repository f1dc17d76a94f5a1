//! What the services of both families share.

pub(crate) mod cool_off;
pub(crate) mod failover_watch;
pub(crate) mod once;
pub(crate) mod refreshes;
pub(crate) mod tasks;
