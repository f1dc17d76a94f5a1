//! Plain TCP to the upstream.
//!
//! Names are resolved with every connection, so that a name that moves to another server is noticed. Small
//! messages must not wait for Nagle's algorithm, and keepalive probes find a peer that vanished without a reset.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::UpstreamUrl;

/// Silence after which the kernel probes the peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Pause between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Resolves the upstream's name and connects to the first address that accepts.
///
/// There is no time-out but the kernel's: the caller sets one.
pub async fn connect_tcp(upstream: &UpstreamUrl) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{} has no address", upstream.host));
    let addresses = tokio::net::lookup_host((upstream.host.as_str(), upstream.port)).await?;
    for address in addresses.take(ADDRESSES_MAX) {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                set_keepalive(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// Lets the kernel probe a silent peer.
pub fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
