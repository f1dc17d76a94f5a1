//! Sessions between clients and the upstream, and the services that keep the cache true.
//!
//! A statement's way: `session::client` reads frames, `session::plan` decides, a hit is written at once, and
//! everything else goes upstream; `session::upstream` forwards the answer and fills the cache on the way.
//! The services (`service::lease`, `service::catalog`, `service::publication`) talk to the upstream on connections of
//! their own. None of this knows how changes are received: the change stream drives the cache from outside.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod admin;
mod body;
mod context;
mod cool_off;
mod listener;
mod login_rate;
mod memory;
mod metrics;
mod moving;
pub mod mysql;
mod once;
mod peer;
pub mod pg;
mod pre_auth;
mod refreshes;
mod registry;
mod scheduling_delay;
mod server;
mod service;
mod session;
mod shared;
mod switches;
mod verify;
mod waits;
mod waits_skipped;

pub use body::Body;
pub use freshet_cache::admission::Keep;
pub use listener::{Family, ListenAddress, ListenError, Listener};
pub use memory::{Taken, keep_memory};
pub use metrics::{Metrics, PassedCount};
pub use scheduling_delay::SchedulingDelay;
pub use server::access::{AccessError, AccessSettings, Method, UsersError};
pub use shared::{Clock, Faults, KeyQueries, ServerIdentity, Settings, Shared};
pub use switches::Switches;
pub use verify::Verifier;
pub use waits::Waits;
