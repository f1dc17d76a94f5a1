//! Sockets to clients and servers: connection strings, TLS, logins in both directions, and service connections for
//! Freshet's own statements.
//!
//! Client sessions are in another crate. They move frames over the [`Socket`]s that this crate opens.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod connect_throttle;
pub mod conninfo;
pub mod mysql;
pub mod postgres;
mod socket;
mod stream;
mod tcp;
pub mod tls;
mod upstream;
mod worker;

pub use conninfo::Conninfo;
pub use socket::Socket;
pub use stream::{Stream, set_keepalive};
pub use upstream::{Upstream, UpstreamError};
pub use worker::{Worker, spawn};
