//! What runs beside the sessions, each on an upstream connection of its own, so that none waits for another.

mod catalog;
mod connection;
mod coverage;
mod lease;
mod users;

pub use catalog::watch_catalog;
pub use coverage::cover_tables;
pub use lease::keep_lease;
pub use users::look_up_users;
