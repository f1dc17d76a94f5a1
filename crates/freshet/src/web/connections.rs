//! Connections to the web endpoints. Their number and the time between answers are limited. They use TLS if there is a certificate.
//!
//! Only the first bytes received after an answer extend the time limit. So a client that sends its request in many small pieces cannot keep its
//! connection.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::access::Access;

/// The most connections open at once. Further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// The most connections from one address, except a loopback address. Further ones are closed, so that others can connect.
const OF_ONE_ADDRESS_MAX: usize = 32;
/// Time limit from the start of a connection to its first answer. The answer to a later request has at least as much time, from the first bytes of
/// the request.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// A connection is closed if nothing is written for this time. The dashboard's events are written each second.
const IDLE_MAX: Duration = Duration::from_secs(20);
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, most likely because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection's place, taken until this is dropped.
struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_address: Arc<()>,
}

/// One connection.
pub(super) struct Connection {
    io: Box<dyn Io>,
    deadline: Pin<Box<Sleep>>,
    /// Whether something was written after the last byte was received.
    answered: bool,
    _place: Place,
}

/// Number of open connections of each address: the references to its entry, without the entry's own.
#[derive(Debug, Default)]
struct Addresses(HashMap<IpAddr, Arc<()>>);

impl Addresses {
    /// None if the address has the most connections that it may have.
    fn place(&mut self, from: IpAddr) -> Option<Arc<()>> {
        self.0.retain(|_, open| Arc::strong_count(open) > 1);
        let from = from.to_canonical();
        let open = self.0.entry(from).or_default();
        (from.is_loopback() || Arc::strong_count(open) <= OF_ONE_ADDRESS_MAX).then(|| open.clone())
    }
}

/// Accepted connections that can be served.
pub(super) struct Connections {
    address: SocketAddr,
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
}

impl Connections {
    /// Accepts connections in the background, until that task is aborted.
    pub(super) fn of(listener: Arc<TcpListener>, address: SocketAddr, access: Arc<Access>) -> (Self, AbortHandle) {
        let (sender, ready) = mpsc::channel(CONNECTIONS_MAX);
        let accepting = tokio::spawn(accept_all(listener, access, sender));
        (Self { address, ready }, accepting.abort_handle())
    }
}

async fn accept_all(listener: Arc<TcpListener>, access: Arc<Access>, ready: mpsc::Sender<(Connection, SocketAddr)>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut addresses = Addresses::default();
    while let Ok(of_all) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, from)) => {
                let Some(of_address) = addresses.place(from.ip()) else {
                    tracing::debug!(%from, "this address has too many connections to --http");
                    continue;
                };
                let place = Place { _of_all: of_all, _of_address: of_address };
                tokio::spawn(open(stream, from, access.clone(), (place, ready.clone())));
            }
            Err(error) => {
                tracing::debug!(%error, "no connection to --http can be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn open(
    stream: TcpStream,
    from: SocketAddr,
    access: Arc<Access>,
    (place, ready): (Place, mpsc::Sender<(Connection, SocketAddr)>),
) {
    // Complete answers and events are written, so delaying them gains nothing.
    let _ = stream.set_nodelay(true);
    let io: Box<dyn Io> = match &access.tls {
        None => Box::new(stream),
        Some(tls) => match timeout(HANDSHAKE_MAX, tls.accept(stream)).await {
            Ok(Ok(accepted)) => Box::new(accepted.stream),
            _ => return,
        },
    };
    let connection = Connection { io, deadline: Box::pin(sleep(REQUEST_MAX)), answered: false, _place: place };
    let _ = ready.send((connection, from)).await;
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The accepting task has ended.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Connection {
    /// The result, or an error after the deadline.
    fn in_time<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            return polled;
        }
        self.deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if polled.is_ready() && mem::take(&mut self.answered) {
            let deadline = self.deadline.deadline().max(Instant::now() + REQUEST_MAX);
            self.deadline.as_mut().reset(deadline);
        }
        self.in_time(polled, cx)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        if polled.is_ready() {
            self.answered = true;
            self.deadline.as_mut().reset(Instant::now() + IDLE_MAX);
        }
        self.in_time(polled, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.in_time(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.in_time(polled, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_a_part_of_the_places() {
        let mut addresses = Addresses::default();
        let mut opened = |from: &str, wanted: usize| -> Vec<Arc<()>> {
            let from: IpAddr = from.parse().expect("an address");
            (0..wanted).filter_map(|_| addresses.place(from)).collect()
        };
        let local = opened("127.0.0.1", CONNECTIONS_MAX);
        let open = opened("192.0.2.1", CONNECTIONS_MAX);
        assert_eq!((local.len(), open.len()), (CONNECTIONS_MAX, OF_ONE_ADDRESS_MAX));
        assert_eq!((opened("::ffff:192.0.2.1", 1).len(), opened("192.0.2.2", 1).len()), (0, 1));
        drop(open);
        assert_eq!(opened("192.0.2.1", 1).len(), 1);
    }
}
