//! One side of a login: a peer and the numbers of its packets.
//!
//! Each side numbers its packets separately, since TLS may add one on either.

use std::io;
use std::task::Poll;

use freshet_wire::mysql::packet::{self, HEADER_BYTES, Header};

use crate::peer::{Peer, READ_BYTES_MAX};

/// Limit of a login's payload. Attributes have at most 64 KiB.
const PAYLOAD_BYTES_MAX: usize = READ_BYTES_MAX - HEADER_BYTES;

/// A peer, and the number of its next packet in either direction.
pub(crate) struct Leg<'a> {
    pub(crate) peer: &'a mut Peer,
    pub(crate) sequence: u8,
}

impl Leg<'_> {
    /// The payload at the start of the received bytes; None if it is incomplete.
    fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let bytes = self.peer.input.bytes();
        let Some(header) = Header::read(bytes) else { return Ok(None) };
        if header.payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a login's packet is too large"));
        }
        let Some(payload) = bytes.get(HEADER_BYTES..header.packet_bytes()).map(<[u8]>::to_vec) else { return Ok(None) };
        // A client that answered before it was asked continues with its own packet number.
        self.sequence = header.sequence.wrapping_add(1);
        self.peer.input.consume(header.packet_bytes());
        Ok(Some(payload))
    }

    /// The next payload; an error if the peer closed the connection before.
    pub(crate) async fn receive(&mut self) -> io::Result<Vec<u8>> {
        self.receive_of(0).await
    }

    /// The next payload. If it is the first packet and has this length, nothing behind it is read: TLS bytes may follow a request for TLS directly.
    pub(crate) async fn receive_of(&mut self, packet_bytes: usize) -> io::Result<Vec<u8>> {
        self.peer.flush().await?;
        loop {
            if let Some(payload) = self.take()? {
                return Ok(payload);
            }
            if self.peer.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let most = match packet_bytes.checked_sub(self.peer.input.bytes().len()) {
                None | Some(0) => usize::MAX,
                Some(missing) => missing,
            };
            std::future::poll_fn(|cx| self.peer.poll_receive_most(cx, most)).await?;
        }
    }

    /// Appends a payload to the output.
    pub(crate) fn put(&mut self, payload: &[u8]) {
        packet::put(self.peer.output.buffer(), &mut self.sequence, payload);
    }
}

/// The sender of a payload.
pub(crate) enum From {
    /// The client's.
    Client(Vec<u8>),
    /// The upstream's.
    Upstream(Vec<u8>),
}

/// The next payload of either side. The end of the client's connection is reported only when the upstream has sent nothing.
pub(crate) async fn receive_either(client: &mut Leg<'_>, upstream: &mut Leg<'_>) -> io::Result<From> {
    client.peer.flush().await?;
    upstream.peer.flush().await?;
    loop {
        if let Some(payload) = upstream.take()? {
            return Ok(From::Upstream(payload));
        }
        if let Some(payload) = client.take()? {
            return Ok(From::Client(payload));
        }
        if client.peer.ended || upstream.peer.ended {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        std::future::poll_fn(|cx| match upstream.peer.poll_receive(cx) {
            Poll::Ready(received) => Poll::Ready(received),
            Poll::Pending => client.peer.poll_receive(cx),
        })
        .await?;
    }
}
