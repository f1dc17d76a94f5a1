//! What runs beside the sessions, each on an upstream connection of its own, so that none waits for another.

mod catalog;
mod connection;
mod coverage;
mod failover_watch;
mod following;
mod lease;
mod lineage;
mod publication;
mod refresh;
mod users;

pub use catalog::watch_catalog;
pub use coverage::{cover_tables, stream_must_restart};
pub use failover_watch::watch_failover;
pub use lease::keep_lease;
pub use lineage::read_lineages;
pub use publication::updates_fail;
pub use refresh::refresh_entries;
pub use users::look_up_users;
