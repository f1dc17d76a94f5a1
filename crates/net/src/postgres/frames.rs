//! Framed messages over a socket, in both directions.
//!
//! A receive may be dropped at any await: received bytes stay in the buffer. A message is borrowed from the buffer and is removed by the next
//! receive. The buffer grows with the bytes received, never with the length that a header announces.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::error::Error;
use crate::Socket;
use freshet_wire::reader::Malformed;

/// Limit of a message's size in memory.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Least free room for one read.
const READ_BYTES: usize = 16 << 10;
/// The most that is read at once: rustls zeroes the free part of the buffer first.
const READ_BYTES_MAX: usize = 64 << 10;
/// An empty buffer of more capacity than this is freed.
const KEEP_BYTES: usize = 1 << 20;
/// Tag and length.
const HEADER_BYTES: usize = 5;

/// The socket with its inbound buffer.
pub(super) struct Frames {
    stream: Socket,
    inbound: BytesMut,
    /// Length of the message at the front that was returned last, with its header.
    lent: usize,
}

impl Frames {
    pub(super) fn new(stream: Socket) -> Self {
        Self { stream, inbound: BytesMut::with_capacity(READ_BYTES), lent: 0 }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.stream.is_encrypted()
    }

    pub(super) fn is_tcp(&self) -> bool {
        !matches!(self.stream, Socket::Unix(_))
    }

    /// The socket, and the bytes received and not yet parsed.
    pub(super) fn into_parts(mut self) -> (Socket, BytesMut) {
        self.inbound.advance(self.lent.min(self.inbound.len()));
        (self.stream, self.inbound)
    }

    /// The next message: its tag and its body.
    pub(super) async fn receive(&mut self) -> Result<(u8, &[u8]), Error> {
        self.wait().await?;
        self.take()
    }

    /// Waits for a whole message; removes the message that was returned last. Cancel-safe.
    pub(super) async fn wait(&mut self) -> Result<(), Error> {
        self.inbound.advance(self.lent.min(self.inbound.len()));
        self.lent = 0;
        if self.inbound.is_empty() && self.inbound.capacity() > KEEP_BYTES {
            self.inbound = BytesMut::with_capacity(READ_BYTES);
        }
        while self.buffered_tag()?.is_none() {
            self.inbound.reserve(READ_BYTES);
            if self.stream.read_buf(&mut (&mut self.inbound).limit(READ_BYTES_MAX)).await? == 0 {
                return Err(Error::Closed);
            }
        }
        Ok(())
    }

    /// The tag of the message at the front.
    pub(super) fn peek_tag(&self) -> Option<u8> {
        self.inbound.get(self.lent).copied()
    }

    /// Returns the message at the front, which [`Self::wait`] has waited for.
    pub(super) fn take(&mut self) -> Result<(u8, &[u8]), Error> {
        let Some((tag, total)) = header(&self.inbound)? else {
            return Err(Malformed::Truncated("message header").into());
        };
        self.lent = total;
        let body = self.inbound.get(HEADER_BYTES..total).ok_or(Malformed::Truncated("message"))?;
        Ok((tag, body))
    }

    /// Puts the message that was returned last back: the caller does not consume it.
    pub(super) fn put_back(&mut self) {
        self.lent = 0;
    }

    /// The tag of the message behind the one returned last, if it has arrived completely.
    pub(super) fn buffered_tag(&self) -> Result<Option<u8>, Error> {
        let unread = self.inbound.get(self.lent..).unwrap_or_default();
        Ok(header(unread)?.and_then(|(tag, total)| (unread.len() >= total).then_some(tag)))
    }

    /// Sends bytes that are already framed.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }
}

/// Tag and total length of the message at the start of `bytes`, if its header has arrived.
fn header(bytes: &[u8]) -> Result<Option<(u8, usize)>, Error> {
    let Some((&[tag, a, b, c, d], _)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length < 4 {
        return Err(Malformed::Invalid("message length").into());
    }
    if length > MESSAGE_BYTES_MAX {
        return Err(Error::TooLarge(MESSAGE_BYTES_MAX));
    }
    Ok(Some((tag, length + 1)))
}

/// One message with its header. The body must be shorter than 2 GiB.
pub(super) fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(body.len() + HEADER_BYTES);
    message.push(tag);
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}
