//! TCP as both legs use it.
//!
//! Names are resolved with every connection, so that a name that moves to another server is noticed. Small
//! messages must not wait for Nagle's algorithm, and keepalive probes find a peer that vanished without a reset.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::stream::Stream;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Connects to the first address of the name that accepts, or to `ip` without asking for the name's addresses.
///
/// There is no time-out but the kernel's: the caller sets one.
pub(crate) async fn connect_tcp(name: &str, ip: Option<IpAddr>, port: u16) -> io::Result<Stream> {
    if let Some(ip) = ip {
        return connect_address(SocketAddr::new(ip, port)).await;
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{name} has no address"));
    for address in tokio::net::lookup_host((name, port)).await?.take(ADDRESSES_MAX) {
        match connect_address(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect_address(address: SocketAddr) -> io::Result<Stream> {
    let connect = async {
        let stream = Stream::connect_tcp(address).await?;
        stream.set_options()?;
        Ok(stream)
    };
    connect.await.map_err(|error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}")))
}
