//! Services in addition to the sessions. Each has its own upstream connection, so that none waits for another.

mod catalog;
mod connection;
mod failover_watch;
mod join_keys;
mod lease;
mod logins;
mod notifications;
mod pools;
mod publication;
mod publishing;
mod refresh;
mod servers;
mod table_balance;
mod users;

pub use catalog::watch_catalog;
pub use failover_watch::watch_failover;
pub use join_keys::run_key_queries;
pub use lease::keep_lease;
pub use logins::check_logins;
pub use notifications::listen_for_sessions;
pub use pools::tend_pools;
pub use publication::updates_fail;
pub use publishing::{publish_tables, stream_must_restart};
pub use refresh::refresh_entries;
pub use servers::{choose_from, note_leader, watch_servers};
pub use users::look_up_users;
