//! Service connections: Freshet's own statements on the upstream, and the replication stream.
//!
//! One small client instead of a driver, because the replication protocol (COPY in both directions) is not in the
//! drivers, because a receive must be cancel-safe (the follower waits for the stream and for requests at once),
//! and because whatever is out of step with the protocol must end the connection rather than be skipped: answers
//! shifted by one are the classic fault of proxies.

mod client;
mod error;
mod frames;
mod login;
mod open;
mod quote;
mod relay;
pub mod scram;
pub mod secret;

pub use client::{Client, Notification, Rows};
pub use error::{ConnectError, Error, ServerError};
pub use login::{Purpose, SessionLogin, login_session, login_session_at};
pub use open::cancel;
pub use quote::{quote_identifier, quote_literal};
pub use relay::Relay;
