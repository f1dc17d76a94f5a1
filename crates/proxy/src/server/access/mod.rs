//! Who is let in: what the operator chose, and what the logins of both families hold against a client.

mod users_file;

use std::path::PathBuf;

use freshet_net::tls::{ServerFiles, ServerTls, TlsError};
use thiserror::Error;

use crate::server::login_rate::LoginRateLimit;
use crate::server::pre_auth::PreAuthLimit;

pub use users_file::UsersError;
pub(crate) use users_file::UsersFile;

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Over TCP.
    Tcp(std::net::TcpStream),
    /// Over a Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By password: against the verifiers if a source of them is given, else the database asks.
    #[default]
    Auto,
    /// Not at all.
    Trust,
    /// By a certificate whose common name is the user.
    Cert,
}

/// What the operator chose.
#[derive(Clone, Debug, Default)]
pub struct AccessSettings {
    /// How clients prove who they are.
    pub method: Method,
    /// The server certificate; None: no TLS.
    pub tls: Option<ServerFiles>,
    /// Clients over TCP must use TLS.
    pub tls_required: bool,
    /// File of verifiers.
    pub users: Option<PathBuf>,
    /// Query for verifiers.
    pub auth_query: Option<String>,
    /// Failed logins per address and minute; 0: no limit.
    pub failures_max: u32,
    /// Descriptors that the process may have open.
    pub files_max: usize,
}

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The certificate or its key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system.
    #[error("random numbers: {0}")]
    Random(std::io::Error),
    /// The users file.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// Another family of databases has no such thing.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// What the logins of both families hold against a client.
#[derive(Debug)]
pub(crate) struct AccessRules {
    /// None: no TLS.
    pub(crate) tls: Option<ServerTls>,
    pub(crate) tls_required: bool,
    pub(crate) login_rate: LoginRateLimit,
    pub(crate) pre_auth: PreAuthLimit,
}

impl AccessRules {
    /// Reads certificate and key.
    pub(crate) fn new(settings: &AccessSettings) -> Result<Self, AccessError> {
        Ok(Self {
            tls: settings.tls.clone().map(ServerTls::load).transpose()?,
            tls_required: settings.tls_required,
            login_rate: LoginRateLimit::new(settings.failures_max),
            pre_auth: PreAuthLimit::new(settings.files_max),
        })
    }

    /// Reads them again. A bad file is named, and what was read before stays in use; so is that of the users, which were read again, too.
    pub(crate) fn reload(&self, users: Result<(), UsersError>) -> Vec<AccessError> {
        let tls = self.tls.as_ref().map_or(Ok(()), ServerTls::reload).map_err(AccessError::from);
        [tls, users.map_err(AccessError::from)].into_iter().filter_map(Result::err).collect()
    }
}
