//! One end of a connection, whatever carries it: TCP, a Unix socket, or TLS over TCP.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
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
