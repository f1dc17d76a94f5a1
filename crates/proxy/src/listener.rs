//! Accepts connections and deals them out to the workers.
//!
//! One thread per worker, each with a runtime of its own: a session never leaves its thread. One acceptor deals
//! connections to the worker with the fewest sessions, since the kernel's choice under `SO_REUSEPORT` is uneven for
//! few connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::session;
use crate::shared::Shared;

/// Connections dealt out and not yet taken up, per worker.
const QUEUE_MAX: usize = 1024;

/// Why there is no listener.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, #[source] io::Error),
    /// A worker could not be started.
    #[error("cannot start a worker: {0}")]
    Worker(#[source] io::Error),
}

/// A bound address and its workers.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    workers: Vec<Worker>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Worker {
    queue: mpsc::Sender<std::net::TcpStream>,
    load: Arc<AtomicUsize>,
}

impl Listener {
    /// Binds the address and starts the workers.
    pub async fn bind(address: SocketAddr, workers: usize, shared: Arc<Shared>) -> Result<Self, ListenError> {
        let socket = TcpListener::bind(address).await.map_err(|error| ListenError::Bind(address, error))?;
        let workers = (0..workers.max(1)).map(|at| Worker::start(at, &shared)).collect::<Result<_, _>>();
        Ok(Self { socket, workers: workers.map_err(ListenError::Worker)?, shared })
    }

    /// The bound address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts for ever.
    pub async fn run(self) {
        loop {
            match self.socket.accept().await {
                Ok((socket, _)) => self.deal(socket),
                Err(error) => {
                    // Out of descriptors, most likely: others may end meanwhile.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn deal(&self, socket: TcpStream) {
        self.shared.metrics.connections.fetch_add(1, Relaxed);
        let Some(worker) = self.workers.iter().min_by_key(|worker| worker.load.load(Relaxed)) else { return };
        let Ok(socket) = socket.into_std() else { return };
        worker.load.fetch_add(1, Relaxed);
        if worker.queue.try_send(socket).is_err() {
            worker.load.fetch_sub(1, Relaxed);
            tracing::warn!("a worker's queue is full: connection closed");
        }
    }
}

impl Worker {
    fn start(at: usize, shared: &Arc<Shared>) -> io::Result<Self> {
        let (queue, mut incoming) = mpsc::channel::<std::net::TcpStream>(QUEUE_MAX);
        let load = Arc::new(AtomicUsize::new(0));
        let (shared, worker_load) = (shared.clone(), load.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name(format!("worker-{at}")).spawn(move || {
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, async move {
                while let Some(socket) = incoming.recv().await {
                    let (shared, load) = (shared.clone(), worker_load.clone());
                    tokio::task::spawn_local(async move {
                        if let Ok(socket) = TcpStream::from_std(socket) {
                            session::serve(socket, shared, at).await;
                        }
                        load.fetch_sub(1, Relaxed);
                    });
                }
            });
        })?;
        Ok(Self { queue, load })
    }
}
