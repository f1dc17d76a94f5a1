//! What the services of both families share.

pub(crate) mod failover_watch;
