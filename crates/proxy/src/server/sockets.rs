//! Listening sockets: bound by this process, or inherited from the process that it replaces.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};

use crate::server::access::Incoming;

/// Backlog of the kernel, which `net.core.somaxconn` may reduce. Beyond it a client retries after a second, waits without result for a MySQL server's
/// handshake, or gets an error from a Unix socket. So it must hold all connections of an application.
pub(super) const BACKLOG: u32 = 65_535;

/// The address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The listening sockets of the process that this one replaces, with the addresses of its configuration.
#[derive(Debug, Default)]
pub struct Inherited(Vec<(String, OwnedFd)>);

impl Inherited {
    /// These sockets.
    pub fn new(sockets: Vec<(String, OwnedFd)>) -> Self {
        Self(sockets)
    }

    /// Takes the socket of an address. An address may be there several times: with port 0 each has a port of its own.
    pub fn take(&mut self, address: &str) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(other, _)| other == address)?;
        Some(self.0.remove(at).1)
    }

    /// The addresses that nobody has taken.
    pub fn rest(&self) -> Vec<&str> {
        self.0.iter().map(|(address, _)| address.as_str()).collect()
    }
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Socket {
    /// As it was configured.
    address: ListenAddress,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl Socket {
    /// Takes the inherited socket of this address, or binds it.
    pub(super) fn open(address: &ListenAddress, inherited: &mut Inherited) -> io::Result<Self> {
        let kind = match (address, inherited.take(&address.to_string())) {
            (ListenAddress::Tcp(address), None) => Kind::Tcp(bind_tcp(*address)?),
            (ListenAddress::Tcp(_), Some(socket)) => Kind::Tcp(TcpListener::from_std(socket.into())?),
            (ListenAddress::Unix(path), None) => Kind::Unix(bind_unix(path)?, SocketFile::new(path, false)),
            // The file is the old process's until this one accepts connections.
            (ListenAddress::Unix(path), Some(socket)) => {
                Kind::Unix(UnixListener::from_std(socket.into())?, SocketFile::new(path, true))
            }
        };
        Ok(Self { address: address.clone(), kind })
    }

    /// The bound address.
    pub(super) fn bound(&self) -> io::Result<ListenAddress> {
        match &self.kind {
            Kind::Tcp(tcp) => tcp.local_addr().map(ListenAddress::Tcp),
            Kind::Unix(_, file) => Ok(ListenAddress::Unix(file.path.clone())),
        }
    }

    /// The next connection. May be dropped at any time.
    pub(super) async fn accept(&self) -> io::Result<Incoming> {
        match &self.kind {
            Kind::Tcp(tcp) => Ok(Incoming::Tcp(tcp.accept().await?.0.into_std()?)),
            Kind::Unix(unix, _) => Ok(Incoming::Unix(unix.accept().await?.0.into_std()?)),
        }
    }

    /// A second descriptor of the socket, for another process, and the configured address.
    pub(super) fn duplicate(&self) -> io::Result<(String, OwnedFd)> {
        let socket = match &self.kind {
            Kind::Tcp(tcp) => tcp.as_fd().try_clone_to_owned(),
            Kind::Unix(unix, _) => unix.as_fd().try_clone_to_owned(),
        };
        Ok((self.address.to_string(), socket?))
    }

    /// The socket's file is this process's, which accepts its connections.
    pub(super) fn take_file(&self) {
        self.leave_file_if(false);
    }

    /// The socket's file belongs to another process from now on.
    pub(super) fn leave_file(&self) {
        self.leave_file_if(true);
    }

    fn leave_file_if(&self, left: bool) {
        if let Kind::Unix(_, file) = &self.kind {
            file.left.store(left, Relaxed);
        }
    }
}

/// A socket's file, which is removed with the listener.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: another process may have replaced the file meanwhile.
    identity: Option<(u64, u64)>,
    left: AtomicBool,
}

impl SocketFile {
    /// `left`: it is another process's.
    fn new(path: &Path, left: bool) -> Self {
        Self { path: path.to_owned(), identity: Self::identity(path), left: AtomicBool::new(left) }
    }

    fn identity(path: &Path) -> Option<(u64, u64)> {
        std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = self.identity.is_some() && self.identity == Self::identity(&self.path);
        if is_ours && !self.left.load(Relaxed) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds an address as [`TcpListener::bind`] does, with a longer queue.
fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds a Unix socket that everybody may connect to, as PostgreSQL does. A socket file without a server is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let bind = || {
        let socket = UnixSocket::new_stream()?;
        socket.bind(path)?;
        socket.listen(BACKLOG)
    };
    let socket = match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // A local connection is accepted or refused at once.
            let dead = std::os::unix::net::UnixStream::connect(path);
            let is_dead = dead.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !(is_dead && std::fs::symlink_metadata(path)?.file_type().is_socket()) {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            bind()?
        }
        other => other?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
    Ok(socket)
}
