//! Access control: the operator's settings, and the rules of login that both families share.

mod users_file;

use std::path::PathBuf;
use std::sync::Arc;

use freshet_net::tls::{ServerFiles, ServerTls, TlsError};
use thiserror::Error;

use crate::server::client_limit::ClientLimit;
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

/// The authentication method of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By password: against the verifiers if a source of them is given, else by the database.
    #[default]
    Auto,
    /// None.
    Trust,
    /// By a certificate whose common name is the user.
    Cert,
}

/// The operator's settings.
#[derive(Clone, Debug, Default)]
pub struct AccessSettings {
    /// The authentication method of clients.
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
    /// Clients that may be connected at once; None: no limit.
    pub clients_max: Option<usize>,
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
    /// A setting that this family of databases does not support.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// The rules of login that all databases of an instance share.
#[derive(Debug)]
pub struct AccessRules {
    /// None: no TLS.
    pub(crate) tls: Option<ServerTls>,
    pub(crate) tls_required: bool,
    pub(crate) login_rate: LoginRateLimit,
    pub(crate) pre_auth: PreAuthLimit,
    pub(crate) clients: ClientLimit,
}

impl AccessRules {
    /// Reads certificate and key.
    pub fn new(settings: &AccessSettings) -> Result<Arc<Self>, AccessError> {
        Ok(Arc::new(Self {
            tls: settings.tls.clone().map(ServerTls::load).transpose()?,
            tls_required: settings.tls_required,
            login_rate: LoginRateLimit::new(settings.failures_max),
            pre_auth: PreAuthLimit::new(settings.files_max),
            clients: ClientLimit::new(settings.clients_max),
        }))
    }

    /// Sets how many logins of an address may fail in a minute; 0: no limit.
    pub(crate) fn set_failures_max(&self, failures_max: u32) {
        self.login_rate.set_failures_max(failures_max);
    }

    /// Reads them again, also the users file. A bad file is reported, and its previous contents stay in use.
    pub(crate) fn reload(&self, users: Result<(), UsersError>) -> Vec<AccessError> {
        let tls = self.tls.as_ref().map_or(Ok(()), ServerTls::reload).map_err(AccessError::from);
        [tls, users.map_err(AccessError::from)].into_iter().filter_map(Result::err).collect()
    }
}
