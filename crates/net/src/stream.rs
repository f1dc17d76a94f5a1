//! A connected socket without TLS: a worker's own ([`crate::worker`]), or the runtime's where there is no worker.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::RecvFlags;
use socket2::SockAddr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::worker::{self, Watched};

/// TCP, or a Unix socket.
#[derive(Debug)]
pub struct Stream(Inner);

#[derive(Debug)]
enum Inner {
    Watched(Watched),
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// One that a worker was given, in its thread.
    pub fn watched(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        Ok(Self(Inner::Watched(Watched::new(socket.into().into())?)))
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
            Inner::Unix(_) => None,
        }
    }

    /// Both ends of a TCP connection: its own and the peer's.
    pub(crate) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match &self.0 {
            Inner::Watched(watched) => {
                let socket = watched.socket();
                Some((socket.local_addr().ok()?.as_socket()?, socket.peer_addr().ok()?.as_socket()?))
            }
            Inner::Tcp(tcp) => Some((tcp.local_addr().ok()?, tcp.peer_addr().ok()?)),
            Inner::Unix(_) => None,
        }
    }

    /// Whether nothing has come since the last receive; the task is woken when something does. Takes no lock and
    /// makes no system call.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(&self.0, Inner::Watched(watched) if watched.is_silent())
    }

    /// The first byte that comes, which stays to be received; None if the peer has ended.
    pub async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut first = [0];
        let count = match &self.0 {
            Inner::Watched(watched) => std::future::poll_fn(|_| watched.receive(&mut first, RecvFlags::PEEK)).await?,
            Inner::Tcp(tcp) => tcp.peek(&mut first).await?,
            Inner::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(first.into_iter().take(count).next())
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

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Inner::Watched(watched) => watched.socket().as_fd(),
            Inner::Tcp(tcp) => tcp.as_fd(),
            Inner::Unix(unix) => unix.as_fd(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
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
            Inner::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Inner::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
        }
    }
}
