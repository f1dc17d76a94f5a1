//! MySQL and MariaDB upstreams: Freshet's own connections, the opening of sessions, and the arithmetic of logins on both
//! legs.
//!
//! One small client instead of a driver, for the reasons that PostgreSQL's has ([`crate::postgres`]): the binlog is a stream of
//! packets that a receive must be able to give up waiting for, and whatever is out of step ends the connection.

pub mod auth;
mod client;
mod error;
pub mod identity;
mod login;
mod open;
mod packets;
mod quote;
mod upstream;
mod version;

pub use client::{ByteRows, Client, Rows};
pub use error::{ConnectError, Error, ServerError};
pub use open::{Opened, open, start_tls};
pub use quote::{quote_account, quote_name, quote_text};
pub use upstream::{Address, Upstream, UpstreamError};
pub use version::ServerVersion;
