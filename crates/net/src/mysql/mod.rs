//! MySQL and MariaDB upstreams: Freshet's own connections, the opening of sessions, and the authentication methods of both sides.
//!
//! Freshet uses a small client of its own instead of a driver, for the same reasons as for PostgreSQL ([`crate::postgres`]): a receive of the
//! binlog's packets must be cancellable, and a protocol error ends the connection.

mod address;
pub mod auth;
mod client;
mod error;
mod hosts;
pub mod identity;
mod login;
mod open;
mod packets;
mod quote;
pub mod role;
mod upstream;
mod version;

pub use address::Address;
pub use client::{ByteRows, Client, Rows};
pub use error::{ConnectError, Error, ServerError};
pub use open::{Opened, open, open_at, start_tls};
pub use quote::{quote_account, quote_name, quote_text};
pub use upstream::{Upstream, UpstreamError};
pub use version::ServerVersion;
