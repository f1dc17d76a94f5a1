//! Opening a connection: from TCP to the server's handshake, and on to TLS.
//!
//! In this protocol the server sends first, and the client's answer asks for TLS. So a session can be opened at the upstream before anything is known
//! of the client, and the server's handshake can be forwarded to the client.

use std::io;

use bytes::BytesMut;
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::error;
use freshet_wire::mysql::handshake::Handshake;
use rustls::AlertDescription;
use tokio::time::timeout;

use super::address::Address;
use super::error::{ConnectError, Error};
use super::hosts::Host;
use super::packets::Packets;
use super::upstream::Upstream;
use crate::Socket;
use crate::stream::Stream;
use crate::tcp::connect_tcp;

/// A connection on which the server's handshake has arrived.
#[derive(Debug)]
pub struct Opened {
    /// Not encrypted yet.
    pub socket: Socket,
    /// The place of the host that it leads to.
    pub host: usize,
    /// Payload of the server's first packet, a handshake. Its sequence number was 0.
    pub handshake: Vec<u8>,
    /// Bytes behind the handshake; the protocol has none. They must not be taken for bytes received over TLS.
    pub rest: Vec<u8>,
}

/// Connects for a client to the host in use, as soon as there is one: waits for the connect throttle, then connects within the upstream's connect
/// time-out. If another host is chosen meanwhile, starts again there. An ERR packet in place of the handshake is [`ConnectError::Refused`].
pub async fn open(upstream: &Upstream) -> Result<Opened, ConnectError> {
    loop {
        let host = upstream.wait_for_choice().await?;
        if let Some(opened) = upstream.hosts().while_chosen(host, open_at(upstream, host)).await {
            return opened;
        }
    }
}

/// The same to this host.
pub async fn open_at(upstream: &Upstream, host: usize) -> Result<Opened, ConnectError> {
    let limit = upstream.connect_timeout();
    let opened = upstream.connect_throttle().take(limit, open_unbounded(upstream, host)).await;
    opened.unwrap_or(Err(ConnectError::Timeout(limit)))
}

/// The same for Freshet's own sessions, which do not wait for the throttle; the caller bounds the time.
pub(super) async fn open_unbounded(upstream: &Upstream, host: usize) -> Result<Opened, ConnectError> {
    let mut packets = Packets::new(connect(upstream, host).await?, BytesMut::new());
    let handshake = packets.receive().await.map_err(ConnectError::Protocol)?;
    if handshake.first() == Some(&error::MARK) {
        return Err(ConnectError::refused(&handshake));
    }
    let (socket, rest) = packets.into_parts();
    Ok(Opened { socket, host, handshake, rest: rest.to_vec() })
}

async fn connect(upstream: &Upstream, host: usize) -> Result<Socket, ConnectError> {
    let Some(Host { address, .. }) = upstream.host(host) else { return Err(ConnectError::NoPrimary) };
    let connected = match address {
        Address::Unix(path) => Stream::connect_unix(path).await.map(Socket::Unix),
        Address::Tcp { host, port } => connect_tcp(host, None, *port).await.map(Socket::Tcp),
    };
    connected.map_err(|error| ConnectError::Tcp(io::Error::new(error.kind(), format!("{address}: {error}"))))
}

impl Opened {
    /// Reads the handshake.
    pub fn parse(&self) -> Result<Handshake, ConnectError> {
        Handshake::parse(&self.handshake).map_err(|error| ConnectError::Protocol(Error::Malformed(error)))
    }

    /// Whether the upstream's `ssl-mode` encrypts this connection; an error if encryption is required and not possible.
    pub fn wants_tls(&self, upstream: &Upstream) -> Result<bool, ConnectError> {
        let can = self.parse()?.capabilities.has(Capabilities::SSL);
        match self.socket {
            Socket::Tcp(_) if upstream.requires_tls() && !can => Err(ConnectError::NoTls),
            Socket::Tcp(_) => {
                if !can {
                    upstream.set_tls_settled(self.host);
                }
                Ok(can && upstream.accepts_tls(self.host))
            }
            _ => Ok(false),
        }
    }
}

/// The TLS handshake, within the upstream's connect time-out, after the caller has sent an SSLRequest
/// ([`SSL_REQUEST_BYTES`](freshet_wire::mysql::handshake::SSL_REQUEST_BYTES)) over plain TCP.
///
/// Freshet remembers that a server has no cipher in common with it: if `ssl-mode` only prefers TLS, later connections to this server are plain.
/// (MySQL before 8.0.16 was built with an OpenSSL that has no ECDHE; its clients use DHE, which rustls does not have.)
pub async fn start_tls(upstream: &Upstream, host: usize, socket: Socket) -> Result<Socket, ConnectError> {
    let (Socket::Tcp(tcp), Some(Address::Tcp { host: name, .. })) =
        (socket, upstream.host(host).map(|host| &host.address))
    else {
        return Err(ConnectError::NoTls);
    };
    let limit = upstream.connect_timeout();
    let connected =
        timeout(limit, upstream.tls().connect(tcp, name)).await.map_err(|_| ConnectError::Timeout(limit))?;
    if connected.is_ok() {
        upstream.set_tls_settled(host);
    }
    let connected = connected.map_err(|error| {
        let has_none = has_no_cipher(&error);
        if has_none {
            upstream.set_tls_incompatible(host);
        }
        ConnectError::Tls(explain(&error, has_none))
    })?;
    Ok(Socket::Upstream(Box::new(connected.stream)))
}

/// Whether the two sides have no cipher in common, so that another attempt cannot succeed either.
fn has_no_cipher(error: &io::Error) -> bool {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => matches!(
            alert,
            AlertDescription::HandshakeFailure
                | AlertDescription::ProtocolVersion
                | AlertDescription::InsufficientSecurity
        ),
        Some(rustls::Error::PeerIncompatible(_)) => true,
        _ => false,
    }
}

/// The error with this family's names of the options.
fn explain(error: &io::Error, has_no_cipher: bool) -> io::Error {
    let mut text = error.to_string().replace("sslrootcert", "ssl-ca").replace("sslcert", "ssl-cert");
    if has_no_cipher {
        text.push_str(
            ": the server has no TLS 1.2 or 1.3 with ECDHE (MySQL before 8.0.16 has not); set ssl-mode=disabled or preferred",
        );
    }
    io::Error::new(error.kind(), text)
}
