//! A socket that a worker watches, and what the kernel has reported of it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{SockAddr, Socket, Type};

use crate::worker::{HERE, INPUT, RUNNING, TaskId, is_its_turn};

/// The state of a socket as the kernel reported it. One thread uses it; it is atomic only so that its owner can be
/// sent where there is no worker.
#[derive(Debug)]
pub(super) struct Readiness {
    bits: AtomicU8,
    /// The task to wake.
    pub(super) task: AtomicU64,
}

impl Default for Readiness {
    fn default() -> Self {
        // The kernel reports once that a socket is writable. A client has mostly sent something before its socket is
        // watched. So a new socket counts as readable: among many that arrive at once, none counts as silent because
        // its first event has yet to come.
        Self { bits: AtomicU8::new(Self::WRITABLE | Self::READABLE), task: AtomicU64::new(RUNNING.get().0) }
    }
}

impl Readiness {
    const READABLE: u8 = 1;
    const WRITABLE: u8 = 2;
    /// The peer has ended, or the connection has failed. The kernel reports it once, so it holds until it is read.
    const ENDED: u8 = 4;

    pub(super) fn add(&self, flags: EventFlags) {
        let mut bits = self.bits.load(Relaxed);
        if flags.intersects(EventFlags::IN) {
            bits |= Self::READABLE;
        }
        if flags.intersects(EventFlags::OUT) {
            bits |= Self::WRITABLE;
        }
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            bits |= Self::READABLE | Self::ENDED;
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            bits |= Self::WRITABLE; // which fails
        }
        self.bits.store(bits, Relaxed);
    }

    fn has(&self, bits: u8) -> bool {
        self.bits.load(Relaxed) & bits != 0
    }

    fn take(&self, bits: u8) {
        self.bits.store(self.bits.load(Relaxed) & !bits, Relaxed);
    }

    /// Registers the running task to be woken.
    fn wait<R>(&self) -> Poll<R> {
        self.task.store(RUNNING.get().0, Relaxed);
        Poll::Pending
    }
}

/// A socket that this thread's worker watches.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(super) socket: Socket,
    readiness: Arc<Readiness>,
    pub(super) number: Number,
}

/// What other threads may use of a worker.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) epoll: OwnedFd,
    /// Numbers of sockets that were dropped in other threads.
    pub(super) left: Mutex<Vec<usize>>,
}

impl Reach {
    fn is_here(&self) -> bool {
        let here = HERE.try_with(|here| here.get().is_some_and(|worker| std::ptr::eq(&raw const *worker.reach, self)));
        here == Ok(true)
    }
}

/// A socket's number in a worker, until it is dropped.
#[derive(Debug)]
pub(super) struct Number {
    pub(super) at: usize,
    pub(super) of: Arc<Reach>,
}

/// A socket that belongs to no task.
#[derive(Debug)]
pub(crate) enum Resting {
    /// The worker that had it goes on watching it, so that it can take it again without a system call; any other worker
    /// can take it, too.
    Watched(Watched),
    Unwatched(Socket),
}

impl Resting {
    pub(crate) fn socket(&self) -> &Socket {
        match self {
            Self::Watched(watched) => watched.socket(),
            Self::Unwatched(socket) => socket,
        }
    }

    /// Nobody watches it any more.
    pub(crate) fn into_socket(self) -> io::Result<Socket> {
        match self {
            Self::Watched(Watched { socket, number, .. }) => {
                // Another process may have it, so that its end here would not end the watch.
                epoll::delete(&number.of.epoll, &socket)?;
                Ok(socket)
            }
            Self::Unwatched(socket) => Ok(socket),
        }
    }

    /// For the running task.
    pub(crate) fn wake(self) -> io::Result<Watched> {
        match self {
            Self::Watched(watched) if watched.number.of.is_here() => {
                // What had come before this turn is known.
                watched.readiness.task.store(RUNNING.get().0, Relaxed);
                Ok(watched)
            }
            Self::Watched(Watched { socket, number, .. }) => {
                epoll::delete(&number.of.epoll, &socket)?;
                drop(number);
                Watched::of(socket)
            }
            Self::Unwatched(socket) => Watched::new(socket),
        }
    }
}

impl Watched {
    /// A connected socket, which is not to block.
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::of(socket)
    }

    /// One that does not block.
    fn of(socket: Socket) -> io::Result<Self> {
        let watched = HERE.with(|here| here.get().map(|worker| worker.watch(&socket)));
        let (readiness, number) = watched.ok_or(io::ErrorKind::Unsupported)??;
        Ok(Self { socket, readiness, number })
    }

    /// No task is woken for it any more, and it may go to another thread.
    pub(crate) fn rest(self) -> Resting {
        self.readiness.task.store(TaskId::NONE.0, Relaxed);
        Resting::Watched(self)
    }

    /// A new connection. There is no time-out but the kernel's.
    pub(crate) async fn connect(address: &SockAddr) -> io::Result<Self> {
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(address) {
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
            connected => connected?,
        }
        let watched = Self::of(socket)?;
        watched.readiness.take(Readiness::WRITABLE | Readiness::READABLE);
        watched.watch_for(INPUT | EventFlags::OUT)?;
        std::future::poll_fn(|_| {
            if watched.readiness.has(Readiness::WRITABLE) { Poll::Ready(()) } else { watched.readiness.wait() }
        })
        .await;
        match watched.socket.take_error()? {
            Some(error) => Err(error),
            None => watched.watch_for(INPUT).map(|()| watched),
        }
    }

    fn watch_for(&self, flags: EventFlags) -> io::Result<()> {
        HERE.with(|here| here.get().map_or(Ok(()), |worker| worker.watch_for(self, flags)))
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Nothing has come, and the task is woken when something does.
    pub(crate) fn is_silent(&self) -> bool {
        !self.readiness.has(Readiness::READABLE | Readiness::ENDED)
    }

    /// Receives once, into a buffer that is not empty.
    pub(crate) fn receive(&self, buffer: &mut [u8], flags: RecvFlags) -> Poll<io::Result<usize>> {
        while self.readiness.has(Readiness::READABLE | Readiness::ENDED) {
            if !is_its_turn() {
                return Poll::Pending;
            }
            let room = buffer.len();
            match rustix::net::recv(&self.socket, &mut *buffer, flags) {
                Ok((_, count)) => {
                    // The bytes did not fill the buffer: no more have come, and the next event will report them.
                    if 0 < count && count < room {
                        self.readiness.take(Readiness::READABLE);
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.readiness.take(Readiness::READABLE);
                    break;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        self.readiness.wait()
    }

    /// Sends once; the number of bytes that were taken.
    pub(crate) fn send(&self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        while self.readiness.has(Readiness::WRITABLE) {
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.readiness.take(Readiness::WRITABLE);
                    self.watch_for(INPUT | EventFlags::OUT)?;
                    break;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        self.readiness.wait()
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // The kernel forgets the socket when it is closed.
        if !self.of.is_here() {
            self.of.left.lock().unwrap_or_else(PoisonError::into_inner).push(self.at);
            return;
        }
        let _ = HERE.try_with(|here| {
            if let Some(worker) = here.get() {
                worker.inside.borrow_mut().forget(self.at);
            }
        });
    }
}
