//! The binlog of MySQL and MariaDB, in files and in the stream of a dump (MySQL's source documentation, "Binary log event
//! types"; `libbinlogevents/` and `sql/log_event.h` of MySQL, `sql/log_event.h` of MariaDB).
//!
//! # What is hard
//!
//! - *An event that is skipped may be a change that is missed.* So every type is listed in [`Event::decode`], and one that is
//!   not is an error. MariaDB and MySQL give different meanings to few numbers: those from 160 are MariaDB's.
//! - *The last four bytes may be a checksum*, as the format description says that comes first. Before it comes a rotation,
//!   of which nobody says whether it has one ([`Checksum::Unknown`]).
//! - *Compressed events announce their size.* It is not believed: they are unpacked up to a bound ([`UNPACKED_BYTES_MAX`]),
//!   and what is larger is told as such, since a large transaction is no error.
//!
//! Values are decoded straight to [`Cell`](freshet_types::Cell)s, since their text form is made here in any case.

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

/// The first bytes of a binlog file; events follow.
pub const MAGIC: [u8; 4] = *b"\xfebin";
/// Bytes of the header that all events begin with.
pub const HEADER_BYTES: usize = 19;

const CHECKSUM_BYTES: usize = 4;
/// `LOG_EVENT_BINLOG_IN_USE_F`: set in the file as long as it is written, after the checksum was made.
const FLAG_IN_USE: u16 = 0x1;
/// `LOG_EVENT_ARTIFICIAL_F`
const FLAG_ARTIFICIAL: u16 = 0x20;

/// Whether events end with a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Before the format description: they do, if the last bytes are the checksum of those before.
    #[default]
    Unknown,
    /// They do not.
    None,
    /// CRC-32, which is verified.
    Crc32,
}

/// What all events begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type code.
    pub kind: u8,
    /// Number of the server that made the event.
    pub server: u32,
    /// Bytes of the event, header and checksum included.
    pub size: u32,
    /// Offset in the file where the event ends, its low 32 bits; 0 if it is not from the file.
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

    /// It was made for the dump and is in no file.
    pub fn is_artificial(&self) -> bool {
        self.flags & FLAG_ARTIFICIAL != 0
    }
}

/// Takes the first event off a sequence of events, as in a file behind [`MAGIC`] and in a transaction's payload. None at
/// the end.
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

/// The body of an event without header and checksum. A format description has a checksum always, and knows of it.
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

/// Whether the last four bytes are the checksum of those before.
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
