//! The first packets: TLS if the client requests it, then the start-up packet.

use std::io;

use freshet_net::{Socket, Stream};
use freshet_wire::postgres::backend;
use freshet_wire::postgres::startup::{self, BadStartup, PACKET_BYTES_MAX, Startup};

use crate::peer::Peer;
use crate::postgres::Pg;
use crate::server::access::Incoming;
use crate::server::databases::Databases;

/// The first byte of a TLS handshake ("direct" TLS, from version 17 on).
const TLS_HANDSHAKE: u8 = 0x16;
/// The minor protocol version of servers from 18 on.
const NEWEST_MINOR: u16 = 2;

/// Facts about a connection from TLS.
#[derive(Debug, Default)]
pub(super) struct TlsFacts {
    /// The data that SCRAM-SHA-256-PLUS binds to.
    pub(super) end_point: Option<Vec<u8>>,
    /// The common name in the client's certificate.
    pub(super) client_name: Option<String>,
}

/// A client that requests a session.
pub(super) struct Greeted {
    pub(super) client: Peer,
    pub(super) packet: Vec<u8>,
    pub(super) tls: TlsFacts,
}

/// A client's request.
pub(super) enum Hello {
    /// To cancel another session's statement; the client waits for the end of its connection.
    Cancel(Peer, Vec<u8>),
    /// A session.
    Session(Greeted),
}

/// Reads up to the start-up or cancel packet; None if the connection ended before.
pub(super) async fn greet(incoming: Incoming, databases: &Databases) -> Option<Hello> {
    match converse(incoming, databases).await {
        Ok(hello) => hello,
        Err(error) => {
            tracing::debug!(%error, "connection ended during start-up");
            None
        }
    }
}

async fn converse(incoming: Incoming, databases: &Databases) -> io::Result<Option<Hello>> {
    let mut tls = TlsFacts::default();
    let mut client = match incoming {
        Incoming::Unix(unix) => Peer::new(Socket::Unix(Stream::watched(unix)?)),
        Incoming::Tcp(tcp) => {
            tcp.set_nodelay(true)?;
            freshet_net::set_keepalive(&tcp)?;
            let tcp = Stream::watched(tcp)?;
            match &databases.rules.tls {
                Some(_) if starts_with_tls(&tcp).await? => {
                    let (client, facts, alpn) = encrypt(tcp, databases).await?;
                    if !alpn {
                        // As PostgreSQL: without ALPN the handshake may have been meant for another service.
                        return Err(io::Error::new(io::ErrorKind::InvalidData, "direct TLS without ALPN"));
                    }
                    tls = facts;
                    client
                }
                _ => Peer::new(Socket::Tcp(tcp)),
            }
        }
    };
    // Each may be requested once, and neither once TLS is established (`ProcessStartupPacket` in `backend_startup.c`).
    let mut ssl_done = client.socket().is_encrypted();
    let mut gss_done = ssl_done;
    loop {
        let Some(packet) = receive_packet(&mut client).await? else { return Ok(None) };
        match startup::parse(&packet) {
            Ok(Startup::Session(_)) => return Ok(Some(Hello::Session(Greeted { client, packet, tls }))),
            Ok(Startup::Cancel) => return Ok(Some(Hello::Cancel(client, packet))),
            Ok(Startup::Ssl) if ssl_done => return unsupported(&mut client, BadStartup::SSL_AGAIN, databases).await,
            Ok(Startup::GssEnc) if gss_done => return unsupported(&mut client, BadStartup::GSS_AGAIN, databases).await,
            Ok(request @ (Startup::Ssl | Startup::GssEnc)) => {
                ssl_done |= request == Startup::Ssl;
                gss_done |= request == Startup::GssEnc;
                let stuffed = !client.input.bytes().is_empty();
                let accepts = request == Startup::Ssl && databases.rules.tls.is_some();
                if let (true, false, Socket::Tcp(_)) = (accepts, stuffed, client.socket()) {
                    client.output.put(b"S");
                    client.flush().await?;
                    let Socket::Tcp(tcp) = client.into_socket() else { return Ok(None) };
                    (client, tls, _) = encrypt(tcp, databases).await?;
                    (ssl_done, gss_done) = (true, true);
                    continue;
                }
                client.output.put(b"N");
                if stuffed {
                    // It was sent unencrypted and pretends to be encrypted (CVE-2021-23214).
                    let request = if request == Startup::Ssl { "SSL" } else { "GSSAPI encryption" };
                    return reject(&mut client, "08P01", &format!("received unencrypted data after {request} request"))
                        .await;
                }
                client.flush().await?;
            }
            Err(error @ BadStartup::Protocol(..)) => return unsupported(&mut client, error, databases).await,
            Err(error) => return reject(&mut client, "08P01", &error.to_string()).await,
        }
    }
}

/// Whether the client begins with a TLS handshake instead of a packet.
async fn starts_with_tls(tcp: &Stream) -> io::Result<bool> {
    Ok(tcp.first_byte().await? == Some(TLS_HANDSHAKE))
}

async fn encrypt(tcp: Stream, databases: &Databases) -> io::Result<(Peer, TlsFacts, bool)> {
    let Some(tls) = &databases.rules.tls else { return Err(io::ErrorKind::Unsupported.into()) };
    let accepted = tls.accept(tcp).await?;
    let facts = TlsFacts { end_point: accepted.end_point, client_name: accepted.client_name };
    Ok((Peer::new(Socket::Client(Box::new(accepted.stream))), facts, accepted.alpn))
}

async fn receive_packet(client: &mut Peer) -> io::Result<Option<Vec<u8>>> {
    if !client.receive_at_least(4).await? {
        return Ok(None);
    }
    // As PostgreSQL: a client that does not use the protocol gets no answer.
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let bytes = startup::packet_bytes(client.input.bytes()).map_err(invalid)?.unwrap_or(PACKET_BYTES_MAX);
    if !client.receive_at_least(bytes).await? {
        return Ok(None);
    }
    let packet = client.input.bytes().get(..bytes).unwrap_or_default().to_vec();
    client.input.consume(bytes);
    Ok(Some(packet))
}

async fn unsupported(client: &mut Peer, error: BadStartup, databases: &Databases) -> io::Result<Option<Hello>> {
    // The database is not known here.
    let newest = databases.postgres_servers().iter().map(|pg| newest_minor(pg)).max().unwrap_or_default();
    let message = format!("{error}: server supports 3.0 to 3.{newest}");
    reject(client, "0A000", &message).await
}

async fn reject(client: &mut Peer, sqlstate: &str, message: &str) -> io::Result<Option<Hello>> {
    backend::put_error(client.output.buffer(), "FATAL", sqlstate, message);
    client.flush().await?;
    client.shut_down().await?;
    Ok(None)
}

fn newest_minor(shared: &Pg) -> u16 {
    if shared.server_version() >= 18 { NEWEST_MINOR } else { 0 }
}

/// The minor protocol version of the session; the client is told if it is not the one that it requested.
///
/// If Freshet authenticates the client, the version is negotiated before the upstream connection exists. So the version is that of the server that
/// the service connections have seen. Until they have seen one it is 3.0, which every client supports.
pub(super) fn negotiate(client: &mut Peer, session: &startup::Session<'_>, shared: &Pg) -> u16 {
    let minor = session.minor.min(newest_minor(shared));
    if minor != session.minor || !session.options.is_empty() {
        backend::put_negotiate(client.output.buffer(), minor, &session.options);
    }
    minor
}
