//! Errors of a service connection, with the party that caused them.

use std::io;
use std::time::Duration;

use super::scram::ScramError;
use freshet_wire::reader::{Malformed, Reader};

/// An ErrorResponse of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{severity}: {message} (SQLSTATE {code})")]
pub struct ServerError {
    /// `ERROR`, `FATAL` or `PANIC`, not translated.
    pub severity: String,
    /// The five characters of the SQLSTATE.
    pub code: String,
    /// The primary message, in the server's language.
    pub message: String,
    /// The detail, or empty.
    pub detail: String,
    /// The hint, or empty.
    pub hint: String,
    /// The body of the whole message, unchanged.
    pub body: Box<[u8]>,
}

impl ServerError {
    /// Decodes the body of an ErrorResponse or NoticeResponse ("Error and Notice Message Fields" in the manual).
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let mut error = Self { body: body.into(), ..Self::default() };
        loop {
            let field = reader.u8("error field")?;
            if field == 0 {
                reader.finish()?;
                return Ok(error);
            }
            let text = String::from_utf8_lossy(reader.cstr("error text")?);
            match field {
                b'V' => error.severity = text.into_owned(),
                b'C' => error.code = text.into_owned(),
                b'M' => error.message = text.into_owned(),
                b'D' => error.detail = text.into_owned(),
                b'H' => error.hint = text.into_owned(),
                _ => {}
            }
        }
    }
}

/// Why a service connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host name could not be resolved, or the address does not answer.
    #[error("cannot reach the upstream: {0}")]
    Tcp(#[source] io::Error),
    /// Not within the time limit.
    #[error("the upstream did not complete the login within {0:?}")]
    Timeout(Duration),
    /// The TLS handshake failed, or the certificate is not trusted.
    #[error("TLS with the upstream failed: {0}")]
    Tls(#[source] io::Error),
    /// `sslmode` requires TLS and the server has none.
    #[error("the upstream does not support TLS, but sslmode requires it")]
    NoTls,
    /// The host does not match `target_session_attrs`.
    #[error("{0} is not what target_session_attrs asks for")]
    NotWanted(String),
    /// The server refused.
    #[error("the upstream refused the login: {0}")]
    Refused(#[source] Box<ServerError>),
    /// The server asks for a password and none is given.
    #[error(
        "the upstream asks for a password and none is known: give it in the connection string, PGPASSWORD or ~/.pgpass"
    )]
    PasswordMissing,
    /// The server asks for a proof of the other kind of verifier than the client's: it has another password for the user, or none.
    #[error("the upstream asks for {0}, and the client's proof is of another kind")]
    OtherVerifier(&'static str),
    /// The server asks for an authentication method that is not supported.
    #[error("the upstream asks for {0}, which is not supported")]
    Method(String),
    /// `channel_binding` requires channel binding and the server does not use it.
    #[error("channel binding is required, but the upstream asks for a login without it")]
    NotBound,
    /// SCRAM failed: usually because the server could not prove that it knows the password.
    #[error("SCRAM-SHA-256 with the upstream failed: {0}")]
    Scram(#[from] ScramError),
    /// The connection broke during the login, or the server sent an unknown message.
    #[error("the login to the upstream failed: {0}")]
    Protocol(#[source] Error),
}

impl ConnectError {
    /// The server's ErrorResponse.
    pub fn refused(body: &[u8]) -> Self {
        match ServerError::decode(body) {
            Ok(error) => Self::Refused(Box::new(error)),
            Err(error) => Self::Protocol(Error::Malformed(error)),
        }
    }

    /// Whether no server takes connections, rather than one that refuses this login: none answers, the one that does is no primary, or it starts or ends.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Timeout(_) | Self::NotWanted(_) => true,
            Self::Protocol(error) => matches!(error, Error::Io(_) | Error::Closed | Error::Timeout(_)),
            // cannot_connect_now, and the ends of a server
            Self::Refused(error) => matches!(error.code.as_str(), "57P01" | "57P02" | "57P03"),
            _ => false,
        }
    }
}

/// Why a statement or the stream on a service connection failed.
///
/// After anything but [`Error::Server`] with severity `ERROR` the connection is dead.
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
    /// A message could not be parsed.
    #[error("the upstream sent a malformed message: {0}")]
    Malformed(#[from] Malformed),
    /// A message that is not allowed in this state.
    #[error("the upstream sent message {:?} where it does not belong", char::from(*.0))]
    Unexpected(u8),
    /// A message, or all rows of an answer, exceed the limit of memory.
    #[error("the upstream's answer is larger than {0} bytes")]
    TooLarge(usize),
    /// No answer within the time limit.
    #[error("the upstream did not answer within {0:?}")]
    Timeout(Duration),
    /// The server ended the stream.
    #[error("the upstream ended the stream")]
    CopyDone,
    /// An earlier failure, or a dropped call whose answer was not read, left the connection unusable.
    #[error("the connection is not usable after an earlier failure")]
    Dead,
}

impl Error {
    /// The server's SQLSTATE, if it is the server's error.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Server(error) => Some(&error.code),
            _ => None,
        }
    }
}
