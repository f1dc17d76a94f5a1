//! Accepts connections and distributes them to the workers.
//!
//! One thread per worker ([`freshet_net::Worker`]): a session never leaves its thread. One acceptor gives each connection to the worker with the
//! fewest sessions, since the kernel's choice under `SO_REUSEPORT` is uneven for few connections.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use crate::mysql::{self, MySql};
use crate::postgres;
use crate::server::access::Incoming;
use crate::server::carried::CarriedSession;
use crate::server::databases::Databases;
use crate::server::sockets::{BACKLOG, Inherited, ListenAddress, Socket};

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

/// The target of an address's connections.
#[derive(Clone, Debug)]
pub enum Target {
    /// To the PostgreSQL database that the client names.
    Postgres(Arc<Databases>),
    /// To one server of MySQL or MariaDB: it speaks before the client can name anything.
    MySql(Arc<MySql>),
}

impl Work {
    /// Does it in a task. Each family has tasks of its own type, so that a poll leads straight into the session.
    fn spawn(self, worker: usize, load: Arc<AtomicUsize>) {
        match self {
            Self::Session(socket, Target::Postgres(databases)) => freshet_net::spawn(async move {
                postgres::session::serve(socket, databases, worker).await;
                load.fetch_sub(1, Relaxed);
            }),
            Self::Session(socket, Target::MySql(mysql)) => freshet_net::spawn(async move {
                mysql::session::serve(socket, mysql, worker).await;
                load.fetch_sub(1, Relaxed);
            }),
            Self::Carried(session, databases) => freshet_net::spawn(async move {
                postgres::session::take_over(session, databases, worker).await;
                load.fetch_sub(1, Relaxed);
            }),
            Self::Turn { .. } => {}
        }
    }
}

impl Target {
    async fn drained(&self) {
        match self {
            Self::Postgres(databases) => databases.drained().await,
            Self::MySql(mysql) => mysql.switches.drained().await,
        }
    }
}

/// Bound addresses and the workers behind them.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<(Arc<Socket>, Target)>,
    workers: Arc<Workers>,
}

/// The threads that serve connections.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<Worker>,
    /// The sockets whose connections they get; some may be closed.
    sockets: Mutex<Vec<Weak<Socket>>>,
    /// Another process accepts the connections of all sockets.
    handed_over: watch::Sender<bool>,
}

#[derive(Debug)]
struct Worker {
    queue: mpsc::Sender<Work>,
    load: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Work {
    Session(Incoming, Target),
    Carried(CarriedSession, Arc<Databases>),
    /// Dropped at the worker's next turn.
    Turn {
        _done: oneshot::Sender<()>,
    },
}

impl Listener {
    /// Binds the addresses that are not inherited.
    pub fn bind(
        addresses: &[(ListenAddress, Target)],
        workers: &Arc<Workers>,
        inherited: &mut Inherited,
    ) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        for (address, target) in addresses {
            let socket = Socket::open(address, inherited);
            let socket = socket.map_err(|error| ListenError::Bind(address.to_string(), error))?;
            sockets.push((Arc::new(socket), target.clone()));
        }
        Ok(Self { sockets, workers: workers.clone() })
    }

    /// The bound addresses.
    pub fn addresses(&self) -> io::Result<Vec<ListenAddress>> {
        self.sockets.iter().map(|(socket, _)| socket.bound()).collect()
    }

    /// Accepts until the drain of the target begins, or another process does, in tasks of the current runtime.
    pub fn run(self) {
        for (socket, target) in self.sockets {
            let workers = self.workers.clone();
            workers.note(&socket);
            socket.take_file();
            tokio::spawn(async move {
                let mut handed_over = workers.handed_over.subscribe();
                loop {
                    let accepted = tokio::select! {
                        accepted = socket.accept() => accepted,
                        () = target.drained() => return,
                        _ = handed_over.wait_for(|is_so| *is_so) => return,
                    };
                    match accepted {
                        Ok(incoming) => workers.deal(Work::Session(incoming, target.clone())),
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

impl Workers {
    /// Starts so many threads.
    pub fn start(count: usize) -> Result<Arc<Self>, ListenError> {
        let threads = (0..count.max(1)).map(Worker::start).collect::<Result<_, _>>();
        let threads = threads.map_err(ListenError::Worker)?;
        Ok(Arc::new(Self { threads, sockets: Mutex::default(), handed_over: watch::Sender::new(false) }))
    }

    fn note(&self, socket: &Arc<Socket>) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(socket));
    }

    fn sockets(&self) -> Vec<Arc<Socket>> {
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.iter().filter_map(Weak::upgrade).collect()
    }

    /// Second descriptors of all sockets that are listened on, each with its configured address.
    pub fn duplicates(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.sockets().iter().map(|socket| socket.duplicate()).collect()
    }

    /// Accepts no connections any more: another process does, with the duplicates.
    pub fn hand_over(&self) {
        self.sockets().iter().for_each(|socket| socket.leave_file());
        self.handed_over.send_replace(true);
    }

    /// Whether another process accepts the connections.
    pub fn is_handed_over(&self) -> bool {
        *self.handed_over.borrow()
    }

    /// The number of open connections, from the moment when each was accepted.
    pub fn connections(&self) -> usize {
        self.threads.iter().map(|worker| worker.load.load(Relaxed)).sum()
    }

    /// Serves a session of the process before this one.
    pub fn take_over(&self, session: CarriedSession, databases: &Arc<Databases>) {
        self.deal(Work::Carried(session, databases.clone()));
    }

    fn deal(&self, work: Work) {
        let Some(worker) = self.threads.iter().min_by_key(|worker| worker.load.load(Relaxed)) else { return };
        worker.load.fetch_add(1, Relaxed);
        if worker.queue.try_send(work).is_err() {
            worker.load.fetch_sub(1, Relaxed);
            tracing::warn!("a worker's queue is full: connection closed");
        }
    }

    /// Returns after all workers have taken the next connection from their queues: never, if one is stuck.
    pub async fn turn(&self) {
        for worker in &self.threads {
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
        let (queue, mut incoming) = mpsc::channel::<Work>(QUEUE_MAX);
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
                    work.spawn(at, worker_load.clone());
                }
            });
            tracing::error!(%error, "a worker has ended");
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(Self { queue, load })
    }
}
