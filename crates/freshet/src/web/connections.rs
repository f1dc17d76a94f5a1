//! Connections to the web endpoints: bounded in number, closed when nothing moves on them, with TLS if there is a certificate.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::access::Access;

/// Open at once. More wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// A connection on which no byte moves for so long is closed. The dashboard's moves each second.
const IDLE_MAX: Duration = Duration::from_secs(20);
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// After a failure to accept: most likely no more files may be open.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// One connection.
pub(super) struct Connection {
    io: Box<dyn Io>,
    idle: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

/// Those that are ready to be served.
pub(super) struct Connections {
    address: SocketAddr,
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
}

impl Connections {
    /// Accepts in the background.
    pub(super) fn of(listener: TcpListener, address: SocketAddr, access: Arc<Access>) -> Self {
        let (sender, ready) = mpsc::channel(CONNECTIONS_MAX);
        tokio::spawn(accept_all(listener, access, sender));
        Self { address, ready }
    }
}

async fn accept_all(listener: TcpListener, access: Arc<Access>, ready: mpsc::Sender<(Connection, SocketAddr)>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, from)) => _ = tokio::spawn(open(stream, from, access.clone(), (place, ready.clone()))),
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
    (place, ready): (OwnedSemaphorePermit, mpsc::Sender<(Connection, SocketAddr)>),
) {
    // What is written is whole answers and events.
    let _ = stream.set_nodelay(true);
    let io: Box<dyn Io> = match &access.tls {
        None => Box::new(stream),
        Some(tls) => match timeout(HANDSHAKE_MAX, tls.accept(stream)).await {
            Ok(Ok(accepted)) => Box::new(accepted.stream),
            _ => return,
        },
    };
    let connection = Connection { io, idle: Box::pin(sleep(IDLE_MAX)), _place: place };
    let _ = ready.send((connection, from)).await;
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The task that accepts has ended, with the program.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Connection {
    fn moved<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.idle.as_mut().reset(Instant::now() + IDLE_MAX);
            return polled;
        }
        self.idle.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.moved(polled, cx)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.moved(polled, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
