//! The form of a command's answer, the patching of a cached answer, and the client's packets in between.

use super::capabilities::Status;
use super::command;
use super::packet::{HEADER_BYTES, Header};

/// The position of COM_STMT_EXECUTE's flags in its payload.
pub const EXECUTE_FLAGS: usize = 5;
/// The flag that both servers read.
const CURSOR_READ_ONLY: u8 = 1;

/// How a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No answer.
    None,
    /// Packets that [`Response`](super::response::Response) follows.
    Packets(Kind),
}

/// The forms of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// OK, ERR, or EOF: one packet.
    Status,
    /// A string, or ERR: one packet.
    Text,
    /// Results in text form.
    Query,
    /// Results in binary form.
    Execute,
    /// Results in binary form, for a command that requests a cursor: the rows of a result with a cursor come later.
    Cursor,
    /// The statement's number and definitions.
    Prepare,
    /// Rows of a cursor.
    Fetch,
    /// Column definitions alone.
    Fields,
    /// A login: packets in both directions until OK or ERR. This machine follows only the server's packets, and each
    /// of them as a whole.
    Login,
    /// Packets without end, until ERR or EOF.
    Stream,
}

impl Answer {
    /// The answer's form for the command with this payload. The first few bytes suffice. Servers answer unknown commands with ERR.
    pub fn to(payload: &[u8]) -> Self {
        let first_byte = payload.first().copied().unwrap_or_default();
        Self::Packets(match first_byte {
            command::QUIT | command::STMT_CLOSE | command::STMT_SEND_LONG_DATA => return Self::None,
            command::QUERY | command::PROCESS_INFO => Kind::Query,
            command::STMT_EXECUTE => Kind::of_execute(payload.get(EXECUTE_FLAGS).copied().unwrap_or_default()),
            command::STMT_BULK_EXECUTE => Kind::Execute,
            command::STMT_PREPARE => Kind::Prepare,
            command::STMT_FETCH => Kind::Fetch,
            command::FIELD_LIST => Kind::Fields,
            command::STATISTICS => Kind::Text,
            command::CHANGE_USER => Kind::Login,
            command::BINLOG_DUMP
            | command::BINLOG_DUMP_GTID
            | command::TABLE_DUMP
            | command::CLONE
            | command::SUBSCRIBE_GROUP_REPLICATION_STREAM => Kind::Stream,
            _ => Kind::Status,
        })
    }
}

impl Kind {
    /// The form for COM_STMT_EXECUTE with these flags.
    pub fn of_execute(flags: u8) -> Self {
        if flags & CURSOR_READ_ONLY == 0 { Self::Execute } else { Self::Cursor }
    }

    /// Whether packets are numbered from 1. Logins continue the client's numbers, and streams have no end.
    pub(super) fn counts(self) -> bool {
        !matches!(self, Self::Login | Self::Stream)
    }

    /// Whether several results may follow each other.
    pub(super) fn has_results(self) -> bool {
        matches!(self, Self::Query | Self::Execute | Self::Cursor)
    }
}

/// Puts a session's own flags into an answer, at the places of
/// [`Done::status_places`](super::response::Done::status_places). The flags in `mask` are taken from `status`.
pub fn patch_status(answer: &mut [u8], places: &[u64], status: Status, mask: Status) {
    for place in places {
        let at = usize::try_from(*place).unwrap_or(usize::MAX);
        if let Some(word) = answer.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
            let patched = u16::from_le_bytes(*word) & !mask.0 | status.0 & mask.0;
            *word = patched.to_le_bytes();
        }
    }
}

/// Bytes that follow and are not decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Skip {
    /// The rest of the current packet.
    pub(super) bytes: usize,
    /// The payload continues in the next packet.
    pub(super) continues: bool,
}

/// Follows the client's packets after [`Step::SendFile`](super::response::Step::SendFile). The last one has an empty
/// payload.
#[derive(Clone, Debug, Default)]
pub struct Upload {
    skip: Skip,
}

impl Upload {
    /// How many bytes at the front belong to the file, and whether the file ends with them.
    pub fn scan(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        loop {
            let taken = self.skip.bytes.min(bytes.len() - at);
            self.skip.bytes -= taken;
            at += taken;
            let Some(header) = Header::read(bytes.get(at..).unwrap_or_default()) else { return (at, false) };
            if self.skip.bytes > 0 {
                return (at, false);
            }
            if header.payload_bytes == 0 && !self.skip.continues {
                return (at + HEADER_BYTES, true);
            }
            self.skip = Skip { bytes: header.packet_bytes(), continues: header.continues() };
        }
    }
}
