//! Sessions between clients and the upstream, and the services that keep the cache true.
//!
//! A statement's way: `session::client` reads frames, `session::plan` decides, a hit is written at once, and
//! everything else goes upstream; `session::upstream` forwards the answer and fills the cache on the way.
//! The services (`service::lease`, `service::catalog`, `service::coverage`) talk to the upstream on connections of
//! their own. None of this knows how changes are received: the change stream drives the cache from outside.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod admin;
mod body;
mod context;
mod listener;
mod login;
mod metrics;
mod registry;
pub mod service;
mod session;
mod shared;

pub use body::Body;
pub use listener::{ListenAddress, ListenError, Listener};
pub use login::{AccessError, AccessSettings, Method, UsersError};
pub use metrics::{Metrics, PassedCount};
pub use shared::{Clock, ServerIdentity, Settings, Shared};
