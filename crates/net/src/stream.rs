//! A connected socket without TLS: a worker's own ([`crate::worker`]), or the runtime's where there is no worker.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::RecvFlags;
use socket2::{SockAddr, SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::worker::{self, Resting, Watched};

/// Silence after which the kernel probes the peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Pause between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Lets the kernel probe a silent peer.
pub fn set_keepalive(stream: &impl AsFd) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// TCP, or a Unix socket.
#[derive(Debug)]
pub struct Stream(Inner);

#[derive(Debug)]
enum Inner {
    Watched(Watched),
    /// It belongs to no task.
    Resting(Resting),
    /// There is none.
    Absent,
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// One that a worker was given, in its thread.
    pub fn watched(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        Ok(Self(Inner::Watched(Watched::new(socket.into().into())?)))
    }

    /// No connection: nothing comes, and what is to be sent waits.
    pub(crate) fn absent() -> Self {
        Self(Inner::Absent)
    }

    /// Belongs to no thread from here on, until [`Self::wake`].
    pub(crate) fn rest(&mut self) -> io::Result<()> {
        self.0 = match std::mem::replace(&mut self.0, Inner::Absent) {
            Inner::Watched(watched) => Inner::Resting(watched.rest()),
            Inner::Tcp(tcp) => Inner::Resting(Resting::Unwatched(tcp.into_std()?.into())),
            Inner::Unix(unix) => Inner::Resting(Resting::Unwatched(OwnedFd::from(unix.into_std()?).into())),
            inner => inner,
        };
        Ok(())
    }

    /// Belongs to this thread's worker, and to the running task.
    pub(crate) fn wake(&mut self) -> io::Result<()> {
        self.0 = match std::mem::replace(&mut self.0, Inner::Absent) {
            Inner::Resting(resting) => Inner::Watched(resting.wake()?),
            inner => inner,
        };
        Ok(())
    }

    /// The connection itself, for another process.
    pub(crate) fn into_descriptor(mut self) -> io::Result<OwnedFd> {
        self.rest()?;
        match self.0 {
            Inner::Resting(resting) => Ok(resting.into_socket()?.into()),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Connects by TCP, without a time-out but the kernel's.
    pub(crate) async fn connect_tcp(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(if worker::is_here() {
            Inner::Watched(Watched::connect(&address.into()).await?)
        } else {
            Inner::Tcp(TcpStream::connect(address).await?)
        }))
    }

    /// Connects to a Unix socket.
    pub(crate) async fn connect_unix(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self(if worker::is_here() {
            Inner::Watched(Watched::connect(&SockAddr::unix(path)?).await?)
        } else {
            Inner::Unix(UnixStream::connect(path).await?)
        }))
    }

    /// The peer's address; None for a Unix socket or a closed connection.
    pub(crate) fn peer_ip(&self) -> Option<IpAddr> {
        match &self.0 {
            Inner::Watched(watched) => Some(watched.socket().peer_addr().ok()?.as_socket()?.ip()),
            Inner::Tcp(tcp) => Some(tcp.peer_addr().ok()?.ip()),
            Inner::Resting(resting) => Some(resting.socket().peer_addr().ok()?.as_socket()?.ip()),
            Inner::Unix(_) | Inner::Absent => None,
        }
    }

    /// Both ends of a TCP connection: its own and the peer's.
    pub(crate) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let socket = match &self.0 {
            Inner::Watched(watched) => watched.socket(),
            Inner::Resting(resting) => resting.socket(),
            Inner::Tcp(tcp) => return Some((tcp.local_addr().ok()?, tcp.peer_addr().ok()?)),
            Inner::Unix(_) | Inner::Absent => return None,
        };
        Some((socket.local_addr().ok()?.as_socket()?, socket.peer_addr().ok()?.as_socket()?))
    }

    /// Whether nothing has come since the last receive; the task is woken when something does. Takes no lock and
    /// makes no system call.
    pub(crate) fn is_silent(&self) -> bool {
        match &self.0 {
            Inner::Watched(watched) => watched.is_silent(),
            inner => matches!(inner, Inner::Absent),
        }
    }

    /// The first byte that comes, which stays to be received; None if the peer has ended.
    pub async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut first = [0];
        let count = match &self.0 {
            Inner::Watched(watched) => std::future::poll_fn(|_| watched.receive(&mut first, RecvFlags::PEEK)).await?,
            Inner::Tcp(tcp) => tcp.peek(&mut first).await?,
            Inner::Unix(_) | Inner::Resting(_) | Inner::Absent => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(first.into_iter().take(count).next())
    }

    /// The options of a new connection by TCP.
    pub(crate) fn set_options(&self) -> io::Result<()> {
        let set = |socket: SockRef<'_>| {
            socket.set_tcp_nodelay(true)?;
            set_keepalive(&*socket)
        };
        match &self.0 {
            Inner::Watched(watched) => set(watched.socket().into()),
            Inner::Tcp(tcp) => set(tcp.into()),
            Inner::Unix(_) | Inner::Resting(_) | Inner::Absent => Ok(()),
        }
    }

    /// Receives once, into a buffer that is not empty; 0 bytes: the peer sends no more.
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Inner::Watched(watched) = &self.0 {
            return watched.receive(buffer, RecvFlags::empty());
        }
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Inner::Resting(_) | Inner::Absent => Poll::Pending,
            // Into room that nobody has written to.
            Inner::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Inner::Unix(unix) => Pin::new(unix).poll_read(cx, buffer),
            Inner::Watched(_) if buffer.remaining() == 0 => Poll::Ready(Ok(())),
            Inner::Watched(watched) => {
                let count = ready!(watched.receive(buffer.initialize_unfilled(), RecvFlags::empty()))?;
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Inner::Watched(watched) => watched.send(bytes),
            Inner::Resting(_) | Inner::Absent => Poll::Pending,
            Inner::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Inner::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // nothing is held back
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Inner::Watched(watched) => Poll::Ready(watched.socket().shutdown(Shutdown::Write)),
            Inner::Resting(_) | Inner::Absent => Poll::Ready(Ok(())),
            Inner::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Inner::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
        }
    }
}
