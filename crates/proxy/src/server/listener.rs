//! Accepts connections and distributes them to the workers.
//!
//! One thread per worker ([`freshet_net::Worker`]): a session never leaves its thread. One acceptor gives each connection to the worker with the
//! fewest sessions, since the kernel's choice under `SO_REUSEPORT` is uneven for few connections.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::mysql::{self, MySql};
use crate::server::access::Incoming;
use crate::server::databases::Databases;

/// Backlog of the kernel, which `net.core.somaxconn` may reduce. Beyond it a client retries after a second, waits without result for a MySQL server's
/// handshake, or gets an error from a Unix socket. So it must hold all connections of an application.
const BACKLOG: u32 = 65_535;
/// Limit of connections that wait for one worker.
const QUEUE_MAX: usize = BACKLOG as usize;

/// Why there is no listener.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Bind(String, #[source] io::Error),
    /// A worker could not be started.
    #[error("cannot start a worker: {0}")]
    Worker(#[source] io::Error),
}

/// The address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The target of an address's connections.
#[derive(Clone, Debug)]
pub enum Target {
    /// To the PostgreSQL database that the client names.
    Postgres(Arc<Databases>),
    /// To one server of MySQL or MariaDB: it speaks before the client can name anything.
    MySql(Arc<MySql>),
}

impl Target {
    async fn drained(&self) {
        match self {
            Self::Postgres(databases) => databases.drained().await,
            Self::MySql(mysql) => mysql.switches.drained().await,
        }
    }

    /// Serves a connection in a task. Each family has tasks of its own type, so that a poll leads straight into the session.
    fn spawn(self, socket: Incoming, worker: usize, load: Arc<AtomicUsize>) {
        match self {
            Self::Postgres(databases) => freshet_net::spawn(async move {
                crate::postgres::session::serve(socket, databases, worker).await;
                load.fetch_sub(1, Relaxed);
            }),
            Self::MySql(mysql) => freshet_net::spawn(async move {
                mysql::session::serve(socket, mysql, worker).await;
                load.fetch_sub(1, Relaxed);
            }),
        }
    }
}

/// Bound addresses and the workers behind them.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<(Socket, Target)>,
    workers: Arc<Workers>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The threads that serve connections.
#[derive(Debug)]
pub struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    queue: mpsc::Sender<Work>,
    load: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Work {
    Session(Incoming, Target),
    /// Dropped at the worker's next turn.
    Turn {
        _done: oneshot::Sender<()>,
    },
}

impl Listener {
    /// Binds the addresses.
    pub fn bind(addresses: &[(ListenAddress, Target)], workers: &Arc<Workers>) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        for (address, target) in addresses {
            let socket = match address {
                ListenAddress::Tcp(tcp) => {
                    let socket = bind_tcp(*tcp);
                    Socket::Tcp(socket.map_err(|error| ListenError::Bind(tcp.to_string(), error))?)
                }
                ListenAddress::Unix(path) => {
                    let socket = bind_unix(path);
                    let socket = socket.map_err(|error| ListenError::Bind(path.display().to_string(), error))?;
                    Socket::Unix(socket, SocketFile::new(path))
                }
            };
            sockets.push((socket, target.clone()));
        }
        Ok(Self { sockets, workers: workers.clone() })
    }

    /// The bound addresses.
    pub fn addresses(&self) -> io::Result<Vec<ListenAddress>> {
        let address = |(socket, _): &(Socket, Target)| match socket {
            Socket::Tcp(tcp) => tcp.local_addr().map(ListenAddress::Tcp),
            Socket::Unix(_, file) => Ok(ListenAddress::Unix(file.path.clone())),
        };
        self.sockets.iter().map(address).collect()
    }

    /// Accepts until the drain of the target begins, in tasks of the current runtime.
    pub fn run(self) {
        for (socket, target) in self.sockets {
            let workers = self.workers.clone();
            tokio::spawn(async move {
                loop {
                    let accepted = tokio::select! {
                        accepted = socket.accept() => accepted,
                        () = target.drained() => return,
                    };
                    match accepted {
                        Ok(incoming) => workers.deal(incoming, target.clone()),
                        Err(error) => {
                            // Most likely out of file descriptors, which ending sessions may free.
                            tracing::warn!(%error, "cannot accept a connection");
                            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                        }
                    }
                }
            });
        }
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Incoming> {
        match self {
            Self::Tcp(tcp) => Ok(Incoming::Tcp(tcp.accept().await?.0.into_std()?)),
            Self::Unix(unix, _) => Ok(Incoming::Unix(unix.accept().await?.0.into_std()?)),
        }
    }
}

/// A socket's file, which is removed with the listener.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: another process may have replaced the file meanwhile.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: Self::identity(path) }
    }

    fn identity(path: &Path) -> Option<(u64, u64)> {
        std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && self.identity == Self::identity(&self.path) {
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

impl Workers {
    /// Starts so many threads.
    pub fn start(count: usize) -> Result<Arc<Self>, ListenError> {
        let workers = (0..count.max(1)).map(Worker::start).collect::<Result<_, _>>();
        Ok(Arc::new(Self(workers.map_err(ListenError::Worker)?)))
    }

    fn deal(&self, incoming: Incoming, target: Target) {
        let Some(worker) = self.0.iter().min_by_key(|worker| worker.load.load(Relaxed)) else { return };
        worker.load.fetch_add(1, Relaxed);
        if worker.queue.try_send(Work::Session(incoming, target)).is_err() {
            worker.load.fetch_sub(1, Relaxed);
            tracing::warn!("a worker's queue is full: connection closed");
        }
    }

    /// Returns after all workers have taken the next connection from their queues: never, if one is stuck.
    pub async fn turn(&self) {
        for worker in &self.0 {
            let (done, turned) = oneshot::channel();
            if worker.queue.send(Work::Turn { _done: done }).await.is_ok() {
                let _ = turned.await;
            } else {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Worker {
    fn start(at: usize) -> io::Result<Self> {
        let (queue, mut incoming) = mpsc::channel(QUEUE_MAX);
        let load = Arc::new(AtomicUsize::new(0));
        let worker_load = load.clone();
        // This runtime provides timers and name resolution.
        let runtime = Handle::current();
        let (report, started) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new().name(format!("worker-{at}")).spawn(move || {
            let _entered = runtime.enter();
            let worker = match freshet_net::Worker::new() {
                Ok(worker) => worker,
                Err(error) => return report.send(Err(error)).unwrap_or_default(),
            };
            let _ = report.send(Ok(()));
            let error = worker.run(async move {
                while let Some(work) = incoming.recv().await {
                    if let Work::Session(socket, target) = work {
                        target.spawn(socket, at, worker_load.clone());
                    }
                }
            });
            tracing::error!(%error, "a worker has ended");
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(Self { queue, load })
    }
}
