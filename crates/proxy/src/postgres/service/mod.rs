//! Services in addition to the sessions. Each has its own upstream connection, so that none waits for another.

mod catalog;
mod connection;
mod failover_watch;
mod join_keys;
mod lease;
mod pools;
mod publication;
mod publishing;
mod refresh;
mod table_balance;
mod users;

pub use catalog::watch_catalog;
pub use failover_watch::watch_failover;
pub use join_keys::run_key_queries;
pub use lease::keep_lease;
pub use pools::close_idle_connections;
pub use publication::updates_fail;
pub use publishing::{publish_tables, stream_must_restart};
pub use refresh::refresh_entries;
pub use users::look_up_users;
