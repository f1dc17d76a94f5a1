//! The binlog of MySQL and MariaDB, in files and in a dump's stream (MySQL's source documentation, "Binary log event types"; `libbinlogevents/` and
//! `sql/log_event.h` of MySQL, `sql/log_event.h` of MariaDB).
//!
//! # Difficulties
//!
//! - *A skipped event may be a missed change.* So [`Event::decode`] lists every type, and an unknown type is an error. MariaDB and MySQL use the same
//!   number for different types only rarely: MariaDB's own types begin at 160.
//! - *The last four bytes may be a checksum*, as the format description at the start of the stream says. A rotation comes before it, and nothing says
//!   whether that one has a checksum ([`Checksum::Unknown`]).
//! - *A compressed event announces its size*, which may be wrong. Events are decompressed up to a bound ([`UNPACKED_BYTES_MAX`]). A larger event is
//!   reported as too large, not as an error, because a large transaction is valid.
//!
//! Values are decoded directly to [`Cell`](freshet_types::Cell)s, since the log has no text form of them.

mod column;
mod decimal;
mod dump;
mod event;
mod rows;
mod table;
mod unpack;

pub use column::{Column, Form};
pub use dump::{Packet, dump, dump_gtid};
pub use event::{Event, MariadbGtid, Query};
pub use rows::{Image, Images, Rows, RowsKind};
pub use table::TableMap;
pub use unpack::UNPACKED_BYTES_MAX;

use crate::reader::{Malformed, Reader};

/// The first bytes of a binlog file; events follow them.
pub const MAGIC: [u8; 4] = *b"\xfebin";
/// Bytes of the header at the start of every event.
pub const HEADER_BYTES: usize = 19;

const CHECKSUM_BYTES: usize = 4;
/// `LOG_EVENT_BINLOG_IN_USE_F`: set in the file while the server writes to it, after the checksum was computed.
const FLAG_IN_USE: u16 = 0x1;
/// `LOG_EVENT_ARTIFICIAL_F`
const FLAG_ARTIFICIAL: u16 = 0x20;

/// Whether events end with a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Before the format description: an event has one if its last bytes are the checksum of the bytes before.
    #[default]
    Unknown,
    /// They have none.
    None,
    /// CRC-32, which is verified.
    Crc32,
}

/// The header of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type code.
    pub kind: u8,
    /// `server_id` of the server that wrote the event.
    pub server: u32,
    /// Bytes of the event, with header and checksum.
    pub size: u32,
    /// Offset in the file at which the event ends, its low 32 bits; 0 if the event is in no file.
    pub end: u32,
    /// Flags.
    pub flags: u16,
}

impl Header {
    /// Reads a header.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let _timestamp = reader.le_u32("event time")?;
        let kind = reader.u8("event type")?;
        let server = reader.le_u32("server id")?;
        let size = reader.le_u32("event size")?;
        let end = reader.le_u32("event position")?;
        let flags = reader.le_u16("event flags")?;
        Ok(Self { kind, server, size, end, flags })
    }

    /// The event was made for the dump and is in no file.
    pub fn is_artificial(&self) -> bool {
        self.flags & FLAG_ARTIFICIAL != 0
    }
}

/// Takes the first event off a sequence of events: the part of a file behind [`MAGIC`], or a transaction's payload. None at the end.
pub fn split<'a>(events: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    if events.is_empty() {
        return Ok(None);
    }
    let mut ahead = *events;
    let size = Header::decode(&mut ahead)?.size as usize;
    if size < HEADER_BYTES {
        return Err(Malformed::Invalid("event size"));
    }
    events.bytes(size, "event").map(Some)
}

/// The body of an event without header and checksum. A format description always has a checksum, which it accounts for.
fn body(bytes: &[u8], header: Header, checksum: Checksum) -> Result<&[u8], Malformed> {
    if header.size as usize != bytes.len() {
        return Err(Malformed::Invalid("event size"));
    }
    let (_, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(Malformed::Truncated("event header"))?;
    if checksum == Checksum::None {
        return Ok(rest);
    }
    match rest.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((rest, _)) if checksum_holds(bytes, header) => Ok(rest),
        _ if checksum == Checksum::Unknown => Ok(rest),
        _ => Err(Malformed::Invalid("event checksum")),
    }
}

/// Whether the last four bytes are the checksum of the bytes before.
fn checksum_holds(bytes: &[u8], header: Header) -> bool {
    const FLAGS_AT: usize = 17;
    let Some((event, [a, b, c, d])) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else { return false };
    let (Some(before), Some(after)) = (event.get(..FLAGS_AT), event.get(HEADER_BYTES..)) else { return false };
    let mut crc = flate2::Crc::new();
    crc.update(before);
    crc.update(&(header.flags & !FLAG_IN_USE).to_le_bytes());
    crc.update(after);
    crc.sum() == u32::from_le_bytes([*a, *b, *c, *d])
}

#[cfg(test)]
mod tests;
