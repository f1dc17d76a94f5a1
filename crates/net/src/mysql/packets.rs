//! Packets over a socket, in both directions.
//!
//! A receive may be dropped at any await: received bytes stay in the buffer. The buffer grows with the bytes received, never with the length that a
//! header announces.

use std::borrow::Cow;
use std::io;

use bytes::{Buf, BufMut, BytesMut};
use freshet_wire::mysql::error;
use freshet_wire::mysql::packet::{self, Header, Whole};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::error::Error;
use crate::Socket;

/// Largest payload that is held in memory: the largest that the servers send (`max_allowed_packet`).
const PAYLOAD_BYTES_MAX: usize = (1 << 30) + packet::PACKET_PAYLOAD_MAX;
/// Least free room for one read.
const READ_BYTES: usize = 16 << 10;
/// The most that is read at once: rustls zeroes the free part of the buffer first.
const READ_BYTES_MAX: usize = 64 << 10;
/// An empty buffer of more capacity than this is freed.
const KEEP_BYTES: usize = 1 << 20;

/// The socket with its inbound buffer.
pub(super) struct Packets {
    socket: Socket,
    inbound: BytesMut,
    /// Bytes of `inbound` that are whole packets of an unfinished payload.
    joined: usize,
    /// Number of the next packet of either side.
    sequence: u8,
}

impl Packets {
    /// `rest` holds the bytes received and not yet parsed.
    pub(super) fn new(socket: Socket, rest: BytesMut) -> Self {
        Self { socket, inbound: rest, joined: 0, sequence: 0 }
    }

    /// A socket on which packets of this conversation were already exchanged; `sequence` is the number of the next one.
    pub(super) fn behind(sequence: u8, socket: Socket) -> Self {
        Self { sequence, ..Self::new(socket, BytesMut::new()) }
    }

    /// The socket, and the bytes received and not yet parsed.
    pub(super) fn into_parts(self) -> (Socket, BytesMut) {
        (self.socket, self.inbound)
    }

    pub(super) fn is_private(&self) -> bool {
        self.socket.is_private()
    }

    /// The next payload. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(payload) = self.take()? {
                return Ok(payload);
            }
            self.inbound.reserve(READ_BYTES);
            if self.socket.read_buf(&mut (&mut self.inbound).limit(READ_BYTES_MAX)).await? == 0 {
                return Err(Error::Closed);
            }
        }
    }

    /// The next payload, if all of it has come.
    fn take(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let rest = self.inbound.get(self.joined..).unwrap_or_default();
            let Some(header) = Header::read(rest) else { return Ok(None) };
            let end = self.joined + header.packet_bytes();
            if end > PAYLOAD_BYTES_MAX {
                return Err(Error::TooLarge(PAYLOAD_BYTES_MAX));
            }
            if self.inbound.len() < end {
                return Ok(None);
            }
            let first = rest.get(packet::HEADER_BYTES).copied();
            // An error that the server sends unasked has its own sequence number.
            if header.sequence != self.sequence && first != Some(error::MARK) {
                return Err(Error::Sequence { expected: self.sequence, found: header.sequence });
            }
            self.sequence = header.sequence.wrapping_add(1);
            if header.continues() {
                self.joined = end;
                continue;
            }
            self.joined = 0;
            return Ok(Whole::find(&self.inbound).map(|whole| self.split(whole)));
        }
    }

    fn split(&mut self, whole: Whole) -> Vec<u8> {
        let payload = match whole.payload(&self.inbound) {
            Cow::Borrowed(payload) => payload.to_vec(),
            Cow::Owned(payload) => payload,
        };
        self.inbound.advance(whole.bytes);
        if self.inbound.is_empty() && self.inbound.capacity() > KEEP_BYTES {
            self.inbound = BytesMut::with_capacity(READ_BYTES);
        }
        payload
    }

    /// Whether a receive would return without waiting.
    pub(super) fn has_buffered(&self) -> bool {
        Whole::find(&self.inbound).is_some()
    }

    /// Sends the first packet of a command.
    pub(super) async fn send_command(&mut self, payload: &[u8]) -> io::Result<()> {
        self.sequence = 0;
        self.send(payload).await
    }

    /// Sends the next packet of the conversation.
    pub(super) async fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut packets = Vec::with_capacity(payload.len() + packet::HEADER_BYTES);
        packet::put(&mut packets, &mut self.sequence, payload);
        self.socket.write_all(&packets).await?;
        self.socket.flush().await
    }
}
