//! The copy data of a walsender, both ways ("Streaming Replication Protocol" in the manual).

use freshet_types::Lsn;

use crate::reader::{Malformed, Reader};

/// Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's clock starts.
pub const POSTGRES_EPOCH_UNIX_US: i64 = 946_684_800_000_000;

/// The walsender's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalMessage<'a> {
    /// A piece of the stream: one message of the output plugin.
    Data {
        /// The position of the record from which the message was decoded; 0 if there is none.
        start: Lsn,
        /// The end of the server's log when it sent this. Logical walsenders repeat `start` here.
        server_end: Lsn,
        /// The server's clock, in microseconds since 2000.
        sent_us: i64,
        /// The output plugin's message.
        payload: &'a [u8],
    },
    /// A keepalive, sent while the stream has nothing to deliver.
    Keepalive {
        /// The position up to which the walsender has read and sent the log. Everything before was delivered.
        end: Lsn,
        /// The server's clock, in microseconds since 2000.
        sent_us: i64,
        /// Whether the server wants a status update at once.
        reply_requested: bool,
    },
}

impl<'a> WalMessage<'a> {
    /// Decodes one piece of copy data.
    pub fn decode(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(data);
        match reader.u8("replication message")? {
            b'w' => Ok(Self::Data {
                start: Lsn(reader.u64("start")?),
                server_end: Lsn(reader.u64("server end")?),
                sent_us: reader.i64("send time")?,
                payload: reader.rest(),
            }),
            b'k' => {
                let end = Lsn(reader.u64("server end")?);
                let sent_us = reader.i64("send time")?;
                let reply_requested = match reader.u8("reply flag")? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed::Invalid("reply flag")),
                };
                reader.finish()?;
                Ok(Self::Keepalive { end, sent_us, reply_requested })
            }
            tag => Err(Malformed::UnknownTag { what: "replication message", tag }),
        }
    }
}

/// The progress of the subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    /// Last byte received, plus one.
    pub written: Lsn,
    /// The position up to which the slot may discard the log.
    pub flushed: Lsn,
    /// Last byte applied, plus one.
    pub applied: Lsn,
    /// The subscriber's clock, in microseconds since 2000.
    pub sent_us: i64,
    /// Ask the walsender for a keepalive at once.
    pub reply_requested: bool,
}

impl StatusUpdate {
    /// Length of the encoded form.
    pub const BYTES: usize = 34;

    /// The copy data of a standby status update.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let fields = std::iter::once(b'r')
            .chain(self.written.0.to_be_bytes())
            .chain(self.flushed.0.to_be_bytes())
            .chain(self.applied.0.to_be_bytes())
            .chain(self.sent_us.to_be_bytes())
            .chain(std::iter::once(u8::from(self.reply_requested)));
        for (byte, field) in bytes.iter_mut().zip(fields) {
            *byte = field;
        }
        bytes
    }
}

#[cfg(test)]
#[path = "replication_tests.rs"]
mod tests;
