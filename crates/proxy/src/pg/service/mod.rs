//! What runs beside the sessions, each on an upstream connection of its own, so that none waits for another.

mod catalog;
mod connection;
mod coverage;
mod following;
mod lease;
mod lineage;
mod publication;
mod refresh;
mod users;
mod whereabouts;

pub use catalog::{updates_fail, watch_catalog};
pub use coverage::{cover_tables, stream_must_restart};
pub use lease::keep_lease;
pub use lineage::read_lineages;
pub use refresh::refresh_entries;
pub use users::look_up_users;
pub use whereabouts::watch_whereabouts;
