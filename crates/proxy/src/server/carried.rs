//! A session that goes on in another process.

use std::os::fd::OwnedFd;

use freshet_net::postgres::secret::SecretBytes;

/// A session between two processes: the connection to its client, and everything else of it.
#[derive(Debug)]
pub struct CarriedSession {
    /// The connection.
    pub socket: OwnedFd,
    /// What the session has written for the other process, with the keys of its login.
    pub state: SecretBytes,
}
