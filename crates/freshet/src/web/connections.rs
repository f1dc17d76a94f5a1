//! Connections to the web endpoints. Their number and the time between answers are limited. They use TLS if there is a certificate.
//!
//! Only the first bytes received after an answer extend the time limit. So a client that sends its request in many small pieces cannot keep its
//! connection.
//!
//! After a handover to a new process they end: idle ones at once, others after their answer.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
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
struct Connection {
    io: Box<dyn Io>,
    /// Told that a request has begun.
    begun: Arc<Notify>,
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

/// The connections of a socket.
pub(super) struct Connections {
    accepting: AbortHandle,
    ending: watch::Sender<bool>,
}

impl Connections {
    /// Serves them in the background.
    pub(super) fn serve(listener: Arc<TcpListener>, access: Arc<Access>, router: Router) -> Self {
        let (ending, ended) = watch::channel(false);
        let accepting = tokio::spawn(accept_all(listener, Served { access, router, ending: ended }));
        Self { accepting: accepting.abort_handle(), ending }
    }

    /// Accepts no further ones. Those that are open end: a kept connection now, the others after their answer.
    pub(super) fn end(&self) {
        self.accepting.abort();
        self.ending.send_replace(true);
    }
}

/// What each connection needs.
#[derive(Clone)]
struct Served {
    access: Arc<Access>,
    router: Router,
    ending: watch::Receiver<bool>,
}

async fn accept_all(listener: Arc<TcpListener>, served: Served) {
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
                tokio::spawn(serve(stream, served.clone(), place));
            }
            Err(error) => {
                tracing::debug!(%error, "no connection to --http can be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, Served { access, router, mut ending }: Served, place: Place) {
    // Complete answers and events are written, so delaying them gains nothing.
    let _ = stream.set_nodelay(true);
    let io: Box<dyn Io> = match &access.tls {
        None => Box::new(stream),
        Some(tls) => match timeout(HANDSHAKE_MAX, tls.accept(stream)).await {
            Ok(Ok(accepted)) => Box::new(accepted.stream),
            _ => return,
        },
    };
    let begun = Arc::new(Notify::new());
    let deadline = Box::pin(sleep(REQUEST_MAX));
    let connection = Connection { io, begun: begun.clone(), deadline, answered: false, _place: place };
    let http = http1::Builder::new().serve_connection(TokioIo::new(connection), TowerToHyperService::new(router));
    let mut http = pin!(http);
    // A connection without a request is not told: it would be closed without an answer.
    let told = async {
        let _ = ending.wait_for(|ending| *ending).await;
        begun.notified().await;
    };
    tokio::select! {
        biased;
        // An error is the client's, or its time is over.
        _ = http.as_mut() => return,
        () = told => {}
    }
    http.as_mut().graceful_shutdown();
    let _ = http.await;
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
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.begun.notify_one();
        }
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
