//! The opening of a connection up to the server's first message: TLS as `sslmode` requests it, then the start-up
//! packet.
//!
//! The rules are libpq's (manual: "SSL Support", "Database Connection Control Functions"): `prefer` falls back to a
//! plain connection when the server cannot do TLS, when the handshake fails or when the server refuses the encrypted
//! session with its first word; `allow` the other way round; over a Unix socket there is no TLS.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::error::ConnectError;
use super::frames::Frames;
use crate::conninfo::Address;
use crate::stream::Stream;
use crate::tcp::connect_tcp;
use crate::tls::{SslMode, SslNegotiation};
use crate::{Socket, Upstream};

/// SSLRequest ("Message Formats" in the manual).
const SSL_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";

/// A connection on which the start-up packet was sent and the first answer has come.
pub(super) struct Opened {
    pub(super) frames: Frames,
    /// The data that SCRAM-SHA-256-PLUS binds to.
    pub(super) end_point: Option<Vec<u8>>,
}

/// How one attempt is encrypted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leg {
    Plain,
    /// TLS if the server can.
    Opportunistic,
    Tls,
}

/// Opens a session with one of the upstream's hosts. The caller bounds the time.
pub(super) async fn open(upstream: &Upstream, host: usize, packet: &[u8]) -> Result<Opened, ConnectError> {
    let legs = legs(upstream, host);
    let mut last = None;
    for leg in legs {
        match start(upstream, host, *leg, packet).await {
            Ok(mut opened) => {
                let refused = opened.frames.peek_tag() == Some(b'E');
                let was_plain = *leg == Leg::Opportunistic && !opened.frames.is_encrypted();
                if !refused || was_plain || leg == legs.last().unwrap_or(leg) {
                    return Ok(opened);
                }
                // Should the other way fail before the server speaks, its refusal says more.
                last = Some(match opened.frames.take() {
                    Ok((_, body)) => ConnectError::refused(body),
                    Err(error) => ConnectError::Protocol(error),
                });
            }
            Err(error @ ConnectError::Tcp(_)) => return Err(last.unwrap_or(error)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| ConnectError::Tcp(io::ErrorKind::NotFound.into())))
}

fn legs(upstream: &Upstream, host: usize) -> &'static [Leg] {
    let unix = matches!(upstream.host(host).map(|host| &host.address), Some(Address::Unix { .. }));
    match upstream.conninfo().tls.mode {
        _ if unix => &[Leg::Plain],
        SslMode::Disable => &[Leg::Plain],
        SslMode::Allow => &[Leg::Plain, Leg::Tls],
        SslMode::Prefer => &[Leg::Opportunistic, Leg::Plain],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Leg::Tls],
    }
}

async fn start(upstream: &Upstream, host: usize, leg: Leg, packet: &[u8]) -> Result<Opened, ConnectError> {
    let (mut socket, end_point) = connect(upstream, host, leg).await?;
    socket.write_all(packet).await.map_err(ConnectError::Tcp)?;
    let mut frames = Frames::new(socket);
    frames.wait().await.map_err(ConnectError::Protocol)?;
    Ok(Opened { frames, end_point })
}

/// Sends a CancelRequest to this host, or to the host in use, and waits until the server has taken it.
pub async fn cancel(upstream: &Upstream, host: Option<usize>, packet: &[u8]) -> Result<(), ConnectError> {
    let limit = upstream.conninfo().connect_timeout;
    let host = host.unwrap_or_else(|| upstream.host_in_use());
    let send = async { send_cancel(upstream, host, packet).await };
    timeout(limit, send).await.unwrap_or(Err(ConnectError::Timeout(limit)))
}

pub(super) async fn send_cancel(upstream: &Upstream, host: usize, packet: &[u8]) -> Result<(), ConnectError> {
    let leg = *legs(upstream, host).first().unwrap_or(&Leg::Plain);
    let (mut socket, _) = match connect(upstream, host, leg).await {
        Err(ConnectError::Tls(_)) if leg == Leg::Opportunistic => connect(upstream, host, Leg::Plain).await?,
        other => other?,
    };
    socket.write_all(packet).await.map_err(ConnectError::Tcp)?;
    // The server closes once it has the packet; how it does is of no interest.
    let _ = socket.read(&mut [0; 1]).await;
    Ok(())
}

async fn connect(upstream: &Upstream, host: usize, leg: Leg) -> Result<(Socket, Option<Vec<u8>>), ConnectError> {
    let Some(host) = upstream.host(host) else { return Err(ConnectError::Tcp(io::ErrorKind::NotFound.into())) };
    let named =
        |error: io::Error| ConnectError::Tcp(io::Error::new(error.kind(), format!("{}: {error}", host.address)));
    let mut tcp = match &host.address {
        Address::Unix { .. } => {
            let path = host.address.socket_path().unwrap_or_default();
            let unix = Stream::connect_unix(path).await.map_err(named)?;
            return Ok((Socket::Unix(unix), None));
        }
        Address::Tcp { name, ip, port } => connect_tcp(name, *ip, *port).await.map_err(named)?,
    };
    if leg == Leg::Plain {
        return Ok((Socket::Tcp(tcp), None));
    }
    let direct = upstream.conninfo().tls.negotiation == SslNegotiation::Direct;
    if !direct && !accepts_tls(&mut tcp).await? {
        return if leg == Leg::Opportunistic { Ok((Socket::Tcp(tcp), None)) } else { Err(ConnectError::NoTls) };
    }
    let connected = upstream.tls().connect(tcp, host.address.server_name()).await.map_err(ConnectError::Tls)?;
    Ok((Socket::Upstream(Box::new(connected.stream)), connected.end_point))
}

/// Asks whether the server does TLS. Nothing but the one byte may come before the handshake (CVE-2021-23222).
async fn accepts_tls(tcp: &mut Stream) -> Result<bool, ConnectError> {
    tcp.write_all(SSL_REQUEST).await.map_err(ConnectError::Tcp)?;
    match tcp.read_u8().await.map_err(ConnectError::Tcp)? {
        b'S' => Ok(true),
        b'N' => Ok(false),
        other => Err(ConnectError::Protocol(super::Error::Unexpected(other))),
    }
}
