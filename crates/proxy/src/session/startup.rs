//! The first packets of a connection, until both sides speak in frames.
//!
//! Authentication is relayed: the upstream asks the client itself, so the session has the client's own role there
//! and Freshet holds no password. That works for every method that does not bind to a TLS channel, on a plain leg.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use freshet_cache::Floor;
use freshet_net::connect_tcp;
use freshet_wire::pg::startup::{self, PACKET_BYTES_MAX, Startup};
use freshet_wire::pg::{backend, frame};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::session::peer::Peer;
use crate::session::unit::{ClientUnit, Kind, Unit};
use crate::session::{Known, Session, SessionError};
use crate::shared::Shared;

/// As PostgreSQL's `authentication_timeout`.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Encryption requests before the start-up packet: PostgreSQL allows one of each kind.
const REFUSALS_MAX: usize = 2;

/// Serves one connection from its first byte to its end.
pub(crate) async fn serve(socket: TcpStream, shared: Arc<Shared>, worker: usize) {
    let _ = socket.set_nodelay(true);
    let _ = freshet_net::set_keepalive(&socket);
    let mut client = Peer::new(socket);
    let packet = match timeout(STARTUP_TIMEOUT, read_startup(&mut client)).await {
        Ok(Ok(Some(packet))) => packet,
        Ok(Ok(None)) | Err(_) => return,
        Ok(Err(error)) => {
            tracing::debug!(%error, "connection ended during start-up");
            return;
        }
    };
    let upstream = match connect_tcp(&shared.settings.upstream).await {
        Ok(socket) => socket,
        Err(error) => {
            refuse(&mut client, &shared, &error).await;
            return;
        }
    };
    if let Some(counters) = shared.metrics.worker(worker) {
        counters.sessions.fetch_add(1, Relaxed);
    }
    if let Err(error) = converse(client, upstream, &packet, &shared, worker).await {
        tracing::debug!(%error, "session ended");
    }
    if let Some(counters) = shared.metrics.worker(worker) {
        counters.sessions.fetch_sub(1, Relaxed);
    }
}

/// Refuses encryption and returns the start-up or cancel packet; None if the client went away or was refused.
async fn read_startup(client: &mut Peer) -> Result<Option<Vec<u8>>, SessionError> {
    for _ in 0..=REFUSALS_MAX {
        if !client.receive_at_least(4).await? {
            return Ok(None);
        }
        let bytes = match startup::packet_bytes(client.input.bytes()) {
            Ok(bytes) => bytes.unwrap_or(PACKET_BYTES_MAX),
            Err(error) => return reject(client, &error.to_string()).await,
        };
        if !client.receive_at_least(bytes).await? {
            return Ok(None);
        }
        let packet = client.input.bytes().get(..bytes).unwrap_or_default().to_vec();
        client.input.consume(bytes);
        match startup::parse(&packet) {
            Ok(Startup::Ssl | Startup::GssEnc) => {
                client.output.put(b"N");
                client.flush().await?;
            }
            Ok(Startup::Cancel | Startup::Session { .. }) => return Ok(Some(packet)),
            Err(error) => return reject(client, &error.to_string()).await,
        }
    }
    Ok(None)
}

async fn reject(client: &mut Peer, message: &str) -> Result<Option<Vec<u8>>, SessionError> {
    backend::put_error(client.output.buffer(), "FATAL", "08P01", message);
    client.flush().await?;
    Ok(None)
}

async fn refuse(client: &mut Peer, shared: &Shared, error: &std::io::Error) {
    let upstream = &shared.settings.upstream;
    let message = format!("Freshet cannot reach the database at {}:{}: {error}", upstream.host, upstream.port);
    backend::put_error(client.output.buffer(), "FATAL", "08006", &message);
    let _ = client.flush().await;
}

async fn converse(
    client: Peer,
    mut upstream: TcpStream,
    packet: &[u8],
    shared: &Arc<Shared>,
    worker: usize,
) -> Result<(), SessionError> {
    upstream.write_all(packet).await?;
    match startup::parse(packet) {
        Ok(Startup::Cancel) => {
            // The server closes once it has the packet; only then may the client learn that it was taken.
            let mut end = [0; 1];
            let _ = timeout(STARTUP_TIMEOUT, tokio::io::AsyncReadExt::read(&mut upstream, &mut end)).await;
            Ok(())
        }
        Ok(Startup::Session { replication: true }) => {
            let rest = client.input.bytes().to_vec();
            upstream.write_all(&rest).await?;
            tokio::io::copy_bidirectional(&mut client.into_socket(), &mut upstream).await?;
            Ok(())
        }
        _ => Session::new(client, Peer::new(upstream), shared.clone(), worker).run().await,
    }
}

impl Session {
    fn new(client: Peer, upstream: Peer, shared: Arc<Shared>, worker: usize) -> Self {
        // The start-up is a unit of the client's: it ends with the first ReadyForQuery.
        let units = VecDeque::from([Unit::Client(ClientUnit { kind: Kind::Startup, ..ClientUnit::default() })]);
        Self {
            shared,
            worker,
            client,
            upstream,
            units,
            impure: 1,
            status: backend::STATUS_IDLE,
            known: Known::Nothing,
            asked_under: freshet_model::CatalogVersion::default(),
            server: None,
            compared: None,
            user: String::new(),
            statements: crate::session::statements::Statements::default(),
            floor: Floor::default(),
            own: crate::session::own::OwnStatements::default(),
            passing: None,
            absorb_sync: false,
            catalog_dirty: false,
            configuration: None,
            client_rest: 0,
            upstream_rest: 0,
            upstream_way: crate::session::upstream::Way::default(),
            proof: None,
            complete: Vec::new(),
            key: Vec::with_capacity(frame::HEADER_BYTES * 64),
            ending: crate::session::Ending::Open,
        }
    }
}
