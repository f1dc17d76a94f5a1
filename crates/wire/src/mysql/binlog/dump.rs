//! The requests for the binlog, and the packets of the server's answer.

use freshet_types::GtidSet;

use crate::reader::{Malformed, Reader};

const COM_BINLOG_DUMP: u8 = 0x12;
const COM_BINLOG_DUMP_GTID: u8 = 0x1e;

/// Requests the events from a position on. No server and no other replica may use this `server_id`.
pub fn dump(file: &str, offset: u32, server_id: u32) -> Vec<u8> {
    let mut out = vec![COM_BINLOG_DUMP];
    out.extend(offset.to_le_bytes());
    out.extend([0, 0]);
    out.extend(server_id.to_le_bytes());
    out.extend(file.as_bytes());
    out
}

/// Requests all transactions of MySQL except these.
pub fn dump_gtid(known: &GtidSet, server_id: u32) -> Vec<u8> {
    /// The offset of a file's first event; the server chooses the file.
    const OFFSET: u64 = 4;
    let mut sources: Vec<(u128, Vec<(u64, u64)>)> = Vec::new();
    for (source, first, last) in known.iter() {
        match sources.last_mut() {
            Some((same, ranges)) if *same == source => ranges.push((first, last)),
            _ => sources.push((source, vec![(first, last)])),
        }
    }
    let mut set = (sources.len() as u64).to_le_bytes().to_vec();
    for (source, ranges) in sources {
        set.extend(source.to_be_bytes());
        set.extend((ranges.len() as u64).to_le_bytes());
        for (first, last) in ranges {
            set.extend(first.to_le_bytes());
            // A range's end is the first number behind it.
            set.extend(last.saturating_add(1).to_le_bytes());
        }
    }
    let mut out = vec![COM_BINLOG_DUMP_GTID, 0, 0];
    out.extend(server_id.to_le_bytes());
    // No file name.
    out.extend([0; 4]);
    out.extend(OFFSET.to_le_bytes());
    out.extend((set.len() as u32).to_le_bytes());
    out.extend(set);
    out
}

/// A packet of a dump, other than an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// An event: header, body, checksum.
    Event(&'a [u8]),
    /// The end of the dump.
    End,
}

impl<'a> Packet<'a> {
    /// Decodes one packet.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8("packet of a dump")? {
            0 => Ok(Self::Event(reader.rest())),
            0xfe if payload.len() < 9 => Ok(Self::End),
            tag => Err(Malformed::UnknownTag { what: "packet of a dump", tag }),
        }
    }
}
