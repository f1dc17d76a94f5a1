//! One end of a connection, whatever carries it: TCP, a Unix socket, or TLS over TCP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{client, server};

use crate::stream::Stream;

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    /// Plain TCP.
    Tcp(Stream),
    /// A Unix socket.
    Unix(Stream),
    /// TLS to a client.
    Client(Box<server::TlsStream<Stream>>),
    /// TLS to an upstream.
    Upstream(Box<client::TlsStream<Stream>>),
}

impl Socket {
    /// No connection: nothing comes, and what is to be sent waits until there is one.
    pub fn absent() -> Self {
        Self::Tcp(Stream::absent())
    }

    /// A connection of another process, without TLS, in a worker's thread.
    pub fn inherited(socket: OwnedFd) -> io::Result<Self> {
        let stream = Stream::watched(socket)?;
        Ok(if stream.addresses().is_some() { Self::Tcp(stream) } else { Self::Unix(stream) })
    }

    /// Belongs to no thread from here on: it may be idle, and be taken to another one. [`Self::wake`] must follow
    /// before it is used again.
    pub fn rest(&mut self) -> io::Result<()> {
        self.stream().rest()
    }

    /// Belongs to this thread's worker, and to the running task.
    pub fn wake(&mut self) -> io::Result<()> {
        self.stream().wake()
    }

    /// The connection itself, for another process: TLS cannot go with it.
    pub fn into_descriptor(self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(plain) | Self::Unix(plain) => plain.into_descriptor(),
            Self::Client(_) | Self::Upstream(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn stream(&mut self) -> &mut Stream {
        match self {
            Self::Tcp(plain) | Self::Unix(plain) => plain,
            Self::Client(tls) => tls.get_mut().0,
            Self::Upstream(tls) => tls.get_mut().0,
        }
    }

    /// Nobody can read along between the ends: TLS, or a Unix socket.
    pub fn is_private(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }

    /// TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Upstream(_))
    }

    /// The peer's address; None for a Unix socket or a closed connection.
    pub fn peer_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(tcp) => tcp.peer_ip(),
            Self::Client(tls) => tls.get_ref().0.peer_ip(),
            Self::Upstream(tls) => tls.get_ref().0.peer_ip(),
            Self::Unix(_) => None,
        }
    }

    /// Both ends of a TCP connection: its own and the peer's; None for a Unix socket or a closed connection.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Self::Tcp(plain) | Self::Unix(plain) => plain.addresses(),
            Self::Client(tls) => tls.get_ref().0.addresses(),
            Self::Upstream(tls) => tls.get_ref().0.addresses(),
        }
    }

    /// Whether nothing has come since the last [`Self::poll_receive`]; the task is woken when something does. Takes
    /// no lock and makes no system call.
    pub fn is_silent(&self) -> bool {
        match self {
            Self::Tcp(plain) | Self::Unix(plain) => plain.is_silent(),
            Self::Client(_) | Self::Upstream(_) => false,
        }
    }

    /// Nothing has come, and the peer has not closed its side. Asks the connection if need be.
    pub fn find_quiet(&mut self) -> bool {
        self.is_silent() || self.poll_receive(&mut Context::from_waker(Waker::noop()), &mut [0]).is_pending()
    }

    /// Receives once, into a buffer that is not empty; 0 bytes: the peer sends no more.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(plain) | Self::Unix(plain) => plain.poll_receive(cx, buffer),
            Self::Client(_) | Self::Upstream(_) => {
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }

    /// Sends once; the number of bytes that were taken.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }
}

/// Calls a method of the transport inside.
macro_rules! inner {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Self::Tcp(plain) | Self::Unix(plain) => Pin::new(plain).$method($($argument),*),
            Self::Client(tls) => Pin::new(tls.as_mut()).$method($($argument),*),
            Self::Upstream(tls) => Pin::new(tls.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        inner!(self, poll_read(cx, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        inner!(self, poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, poll_shutdown(cx))
    }
}
