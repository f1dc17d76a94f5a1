//! Where one server listens.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use super::Environment;

/// A TCP address or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host on the network.
    Tcp {
        /// `host`: the name that the certificate must be valid for. It is resolved unless `ip` is set.
        name: String,
        /// `hostaddr`, which replaces the resolution.
        ip: Option<IpAddr>,
        /// The port.
        port: u16,
    },
    /// A socket in a directory of this machine.
    Unix {
        /// The directory.
        directory: PathBuf,
        /// The port, which is part of the socket's name.
        port: u16,
    },
}

impl Address {
    /// The name that the server's certificate must carry. TLS is not spoken over Unix sockets.
    pub fn server_name(&self) -> &str {
        match self {
            Self::Tcp { name, .. } => name,
            Self::Unix { .. } => "localhost",
        }
    }

    /// The socket's path, `DIRECTORY/.s.PGSQL.PORT`, or none for TCP.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match self {
            Self::Tcp { .. } => None,
            Self::Unix { directory, port } => Some(directory.join(format!(".s.PGSQL.{port}"))),
        }
    }

    /// The host's name in a password file: the default socket is `localhost` there.
    pub(super) fn name_in_passfile(&self, environment: &Environment) -> Cow<'_, str> {
        match self {
            Self::Unix { directory, .. } if directory == environment.socket_directory() => "localhost".into(),
            Self::Unix { directory, .. } => directory.to_string_lossy(),
            Self::Tcp { name, .. } => name.into(),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp { port, .. } | Self::Unix { port, .. } => *port,
        }
    }
}

/// `db.example:5432`, `[::1]:5432` or `/var/run/postgresql/.s.PGSQL.5432`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port, .. } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port, .. } => write!(f, "{name}:{port}"),
            Self::Unix { directory, port } => write!(f, "{}/.s.PGSQL.{port}", directory.display()),
        }
    }
}
