//! Sockets to an upstream: its address, its login, and service connections for Freshet's own statements.
//!
//! Client sessions are not here: they move frames over the plain socket that [`connect_tcp`] opens.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

pub mod conninfo;
pub mod pg;
mod tcp;
pub mod tls;
mod upstream;

pub use tcp::{connect_tcp, set_keepalive};
pub use upstream::{UpstreamUrl, UrlError};
