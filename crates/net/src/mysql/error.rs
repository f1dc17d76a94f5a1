//! Errors of a connection to MySQL or MariaDB, with the party that caused them.

use std::io;
use std::time::Duration;

use freshet_wire::mysql::error::ErrorPacket;
use freshet_wire::reader::Malformed;

use super::auth::AuthError;

/// An ERR packet of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("ERROR {code} ({sqlstate}): {message}")]
pub struct ServerError {
    /// The error number.
    pub code: u16,
    /// The five characters of the SQLSTATE; empty before the login.
    pub sqlstate: String,
    /// The message.
    pub message: String,
}

impl ServerError {
    pub(super) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let ErrorPacket { code, sqlstate, message } = ErrorPacket::parse(payload)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self { code, sqlstate: text(sqlstate), message: text(message) })
    }
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host name could not be resolved, or the address does not answer.
    #[error("cannot reach the upstream: {0}")]
    Tcp(#[source] io::Error),
    /// Not within the time limit.
    #[error("the upstream did not complete the login within {0:?}")]
    Timeout(Duration),
    /// Several hosts, and none of those that answer is the primary.
    #[error("no host of the upstream is a primary: each is read-only, left out, or does not answer")]
    NoPrimary,
    /// The TLS handshake failed, or the certificate is not trusted.
    #[error("TLS with the upstream failed: {0}")]
    Tls(#[source] io::Error),
    /// `ssl-mode` requires TLS and the server has none.
    #[error("the upstream does not support TLS, but ssl-mode requires it")]
    NoTls,
    /// The server refused.
    #[error("the upstream refused the login: {0}")]
    Refused(#[source] Box<ServerError>),
    /// The server requires an authentication plugin that is not supported.
    #[error("the upstream asks for the authentication plugin {0:?}, which is not supported")]
    Method(String),
    /// The server asks for the clear-text password on a connection that others can read.
    #[error(
        "the upstream asks for the password in clear text, which needs TLS or a Unix socket: set ssl-mode=required (or stronger)"
    )]
    ClearText,
    /// The proof of the password could not be created.
    #[error("the login to the upstream failed: {0}")]
    Auth(#[from] AuthError),
    /// The connection broke during the login, or the server sent an unknown message.
    #[error("the login to the upstream failed: {0}")]
    Protocol(#[source] Error),
}

impl ConnectError {
    /// The server's ERR packet.
    pub(super) fn refused(payload: &[u8]) -> Self {
        match ServerError::decode(payload) {
            Ok(error) => Self::Refused(Box::new(error)),
            Err(error) => Self::Protocol(Error::Malformed(error)),
        }
    }

    /// Whether no server takes connections, rather than one that refuses this login: none answers, or it ends.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Timeout(_) | Self::NoPrimary => true,
            Self::Protocol(error) => matches!(error, Error::Io(_) | Error::Closed | Error::Timeout(_)),
            Self::Refused(error) => error.code == 1053, // ER_SERVER_SHUTDOWN
            _ => false,
        }
    }
}

/// Why a statement or the stream failed.
///
/// After anything but [`Error::Server`] the connection is dead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's own error.
    #[error("{0}")]
    Server(#[source] Box<ServerError>),
    /// The socket failed.
    #[error("the connection to the upstream failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the upstream closed the connection")]
    Closed,
    /// A packet could not be parsed.
    #[error("the upstream sent a malformed packet: {0}")]
    Malformed(#[from] Malformed),
    /// A packet has an unexpected sequence number.
    #[error("the upstream sent packet {found} where {expected} was due")]
    Sequence {
        /// The expected number.
        expected: u8,
        /// The number received.
        found: u8,
    },
    /// A packet, or all rows of an answer, exceed the limit of memory.
    #[error("the upstream's answer is larger than {0} bytes")]
    TooLarge(usize),
    /// No answer within the time limit.
    #[error("the upstream did not answer within {0:?}")]
    Timeout(Duration),
    /// An earlier failure, or a dropped call whose answer was not read, left the connection unusable.
    #[error("the connection is not usable after an earlier failure")]
    Dead,
}

impl Error {
    /// The server's error number, if it is the server's error.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server(error) => Some(error.code),
            _ => None,
        }
    }
}
