//! One end of a connection, whatever carries it: TCP, a Unix socket, or TLS over TCP.
//!
//! A session watches two sockets, and mostly one of them has something to say. To ask the runtime about a silent socket
//! takes a lock and a look at the task's budget, each time. So [`Socket::poll_receive`] asks once: what wakes the task
//! stays registered until the socket has something, and until then a load tells that it has not.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop;
use tokio_rustls::{client, server};

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS to a client.
    Client(Box<server::TlsStream<TcpStream>>),
    /// TLS to an upstream.
    Upstream(Box<client::TlsStream<TcpStream>>),
}

impl Socket {
    /// Nobody between the ends can read along: TLS, or a Unix socket.
    pub fn is_private(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }

    /// TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Upstream(_))
    }

    /// The peer's address; None for a Unix socket or a peer that is gone.
    pub fn peer_ip(&self) -> Option<IpAddr> {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Client(tls) => tls.get_ref().0,
            Self::Upstream(tls) => tls.get_ref().0,
            Self::Unix(_) => return None,
        };
        tcp.peer_addr().ok().map(|address| address.ip())
    }
}

/// Whether a socket's silence has been noted: what wakes the task is registered, and has not been taken since. It belongs to
/// one socket, which one task alone receives from.
#[derive(Debug, Default)]
pub struct Watch {
    is_set: bool,
}

/// A socket without TLS.
trait Plain: AsFd {
    fn attempt<R>(&self, interest: Interest, action: impl FnOnce() -> io::Result<R>) -> io::Result<R>;
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// See [`Socket::is_silent`].
    fn is_silent(&self) -> bool {
        self.attempt(Interest::READABLE, || Ok(())).is_err()
    }

    /// See [`Socket::poll_receive`].
    fn receive(&self, cx: &mut Context<'_>, buffer: &mut [u8], watch: &mut Watch) -> Poll<io::Result<usize>> {
        loop {
            if !watch.is_set {
                // Without budget it would not be registered.
                watch.is_set = coop::has_budget_remaining();
                ready!(self.poll_readable(cx))?;
            }
            let mut received = None;
            let attempt = self.attempt(Interest::READABLE, || {
                // An event has taken what wakes the task.
                watch.is_set = false;
                let Poll::Ready(turn) = coop::poll_proceed(cx) else { return Ok(()) };
                let (_, count) = rustix::net::recv(self, &mut *buffer, RecvFlags::empty())?;
                turn.made_progress();
                received = Some(count);
                // What came did not fill the room: there is no more, and the next event will tell of it.
                if 0 < count && count < buffer.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (received, attempt) {
                (Some(count), _) => return Poll::Ready(Ok(count)),
                (None, Ok(())) => return Poll::Pending, // others' turn; the task is woken
                (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                (None, Err(_)) if watch.is_set => return Poll::Pending,
                (None, Err(_)) => {}
            }
        }
    }

    /// See [`Socket::poll_send`].
    fn send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let send = || Ok(rustix::net::send(self, bytes, SendFlags::NOSIGNAL)?);
            match self.attempt(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.poll_writable(cx))?,
                sent => return Poll::Ready(sent),
            }
        }
    }
}

/// Both kinds have these methods under the same names.
macro_rules! plain {
    ($stream:ty) => {
        impl Plain for $stream {
            fn attempt<R>(&self, interest: Interest, action: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                self.try_io(interest, action)
            }

            fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_read_ready(cx)
            }

            fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_write_ready(cx)
            }
        }
    };
}

plain!(TcpStream);
plain!(UnixStream);

impl Socket {
    /// Nothing has come since [`Self::poll_receive`] was last asked, and the task is woken when something does. Without a lock or
    /// a system call.
    pub fn is_silent(&self, watch: &Watch) -> bool {
        watch.is_set
            && match self {
                Self::Tcp(tcp) => tcp.is_silent(),
                Self::Unix(unix) => unix.is_silent(),
                Self::Client(_) | Self::Upstream(_) => false,
            }
    }

    /// Receives once, into a buffer that is not empty; 0 bytes: the peer sends no more.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        watch: &mut Watch,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => tcp.receive(cx, buffer, watch),
            Self::Unix(unix) => unix.receive(cx, buffer, watch),
            Self::Client(_) | Self::Upstream(_) => {
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }

    /// Sends once; the number of bytes that were taken.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => tcp.send(cx, bytes),
            Self::Unix(unix) => unix.send(cx, bytes),
            Self::Client(_) | Self::Upstream(_) => Pin::new(self).poll_write(cx, bytes),
        }
    }
}

/// Calls a method of the transport inside.
macro_rules! inner {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).$method($($argument),*),
            Self::Unix(unix) => Pin::new(unix).$method($($argument),*),
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
