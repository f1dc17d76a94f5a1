//! Follows the answer to a command, packet by packet, without storing any packet.
//!
//! A packet does not state its kind. The same first byte begins a row, an OK packet or an EOF packet, depending on
//! the command, the previous packets and the capabilities of both ends. A proxy that confuses them hands the rest of
//! an answer to the next command. So one state machine follows all answers and receives their bytes as they arrive.
//! It reads heads and first bytes only, so a packet that is not a status packet may have any size.
//!
//! Sequence numbers are checked, as drivers do. A number out of order means that the two ends are out of step, and
//! the connection cannot be used any longer.

use std::ops::Range;

use super::capabilities::{Capabilities, Status};
use super::error::{self, ErrorPacket};
use super::ok::{EOF_MARK, Eof, OK_MARK};
use super::packet::{HEADER_BYTES, Header};
use crate::reader::{Malformed, Reader};

use super::answer::Skip;

pub use super::answer::{Answer, EXECUTE_FLAGS, Kind, Upload, patch_status};

/// Status packets up to this size are awaited whole, for [`Done::last`]. Of larger ones the head suffices.
const STATUS_PACKET_BYTES_MAX: usize = 64 << 10;
/// The most bytes of an OK packet up to its warnings, included.
const OK_HEAD_BYTES: usize = 1 + 9 + 9 + 2 + 2;
/// The number of status words whose places are reported. An answer that can be cached has two at most.
const STATUS_PLACES_MAX: usize = 4;
/// In place of a column count: the client must send a file.
const LOCAL_INFILE: u8 = 0xfb;

/// What to do after [`Response::scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The answer continues: forward the consumed bytes and read more.
    Continue,
    /// The server waits for a file. Forward the consumed bytes, then the client's packets up to an empty payload,
    /// then continue scanning.
    SendFile,
    /// The answer ends with the consumed bytes.
    Done(Done),
}

/// An answer that is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The session's state afterwards. None after ERR and COM_STATISTICS, which do not report it.
    pub status: Option<Status>,
    /// Warnings of the last result.
    pub warnings: u16,
    /// The changed rows that the last result reports.
    pub affected_rows: u64,
    /// The value that the last result reports as generated or inserted into an AUTO_INCREMENT column; 0: none.
    pub insert_id: u64,
    /// Number of the error that ended it.
    pub error: Option<u16>,
    /// Results, those without rows too.
    pub results: u32,
    /// Results that have columns.
    pub result_sets: u32,
    /// Columns of the last result set.
    pub columns: u64,
    /// Rows of all results.
    pub rows: u64,
    /// Bytes of all packets.
    pub bytes: u64,
    /// The rows of a result remain to be fetched.
    pub cursor: bool,
    /// Where the status words are, counted from the answer's first byte; only the first few of a long answer.
    pub status_places: Vec<u64>,
    /// The prepared statement.
    pub prepared: Option<Prepared>,
    /// The answer depends on the client, who sent a file.
    pub sent_file: bool,
    /// Column definitions were omitted, since the server assumes that the client knows them.
    pub without_definitions: bool,
    /// The payload of the last packet, within the bytes that were passed last. Empty if it is unusually large.
    pub last: Range<usize>,
}

/// Answer to COM_STMT_PREPARE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The statement's number.
    pub statement: u32,
    /// Columns of its result; 0 if it has none.
    pub columns: u16,
    /// Parameters.
    pub parameters: u16,
}

/// The result of [`Response::scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The bytes at the front that belong to the answer. The rest (at most 64 KiB) must be passed again, with the
    /// bytes that follow.
    pub consumed: usize,
    /// What to do.
    pub step: Step,
    /// The places of the packets among them, heads included, that report a change of the session. Unusually large
    /// packets are omitted.
    pub changes: Vec<Range<usize>>,
}

/// The server's packets are invalid here; the connection cannot be used any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfStep {
    /// A packet of the wrong number.
    #[error("packet {found} where {expected} was due")]
    Sequence {
        /// The expected number.
        expected: u8,
        /// The received number.
        found: u8,
    },
    /// A packet that is invalid here.
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

/// The expected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The first of a result.
    First,
    /// This many column definitions, then [`Due::EndOfDefinitions`].
    Definitions(u64),
    /// The EOF packet behind the definitions, if both ends use it.
    EndOfDefinitions,
    /// A row, or the end of rows.
    Row,
    /// This many definitions of a prepared statement, with the current one; then this many column definitions.
    Prepared { left: u16, columns: u16 },
    /// The EOF packet behind definitions of a prepared statement; then this many column definitions.
    EndOfPrepared(u16),
    /// OK or ERR after a file.
    AfterFile,
}

/// The answer to one command.
#[derive(Clone, Debug)]
pub struct Response {
    kind: Kind,
    capabilities: Capabilities,
    due: Due,
    skip: Skip,
    /// The number of the next packet; None if any number is valid.
    sequence: Option<u8>,
    /// A result of output parameters. MySQL reports only behind its definitions that another result follows
    /// (`Protocol_binary::send_parameters`).
    out_parameters: bool,
    /// The last packet has begun to arrive.
    ended: bool,
    /// The current packet reports a change of the session.
    changes: bool,
    done: Done,
}

/// The meaning of a packet for the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The answer goes on.
    Pass,
    /// More of its bytes are needed.
    Wait,
    /// The client's turn.
    SendFile,
    /// It is the last.
    Last,
}

impl Response {
    /// The answer to a command that was sent with these capabilities agreed on.
    pub fn new(kind: Kind, capabilities: Capabilities) -> Self {
        let due = match kind {
            Kind::Fetch | Kind::Fields => Due::Row,
            _ => Due::First,
        };
        let (skip, sequence, done) = (Skip::default(), kind.counts().then_some(1), Done::default());
        Self { kind, capabilities, due, skip, sequence, out_parameters: false, ended: false, changes: false, done }
    }

    /// Sets the number of the answer's first packet if it is not 1. A server continues from the command's last
    /// packet, and a command of 16 MiB or more has several.
    #[must_use]
    pub fn starting_at(mut self, sequence: u8) -> Self {
        self.sequence = self.kind.counts().then_some(sequence);
        self
    }

    /// Bytes of the answer so far.
    pub fn bytes(&self) -> u64 {
        self.done.bytes
    }

    /// Rows of the answer so far.
    pub fn rows(&self) -> u64 {
        self.done.rows
    }

    /// Results that are complete so far.
    pub fn results(&self) -> u32 {
        self.done.results
    }

    /// Scans all bytes that have arrived and were not consumed before.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Scanned, OutOfStep> {
        let mut at = 0;
        let mut last = 0..0;
        let mut changes = Vec::new();
        loop {
            let taken = self.skip.bytes.min(bytes.len() - at);
            self.skip.bytes -= taken;
            self.done.bytes += taken as u64;
            at += taken;
            if self.skip.bytes > 0 {
                break;
            }
            if self.ended && !self.skip.continues {
                let done = Done { last, ..std::mem::take(&mut self.done) };
                return Ok(Scanned { consumed: at, step: Step::Done(done), changes });
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(header) = Header::read(rest) else { break };
            let payload = rest.get(HEADER_BYTES..).unwrap_or_default();
            let payload = payload.get(..header.payload_bytes).unwrap_or(payload);
            let verdict = self.packet(header, payload)?;
            if verdict == Verdict::Wait {
                break;
            }
            self.skip = Skip { bytes: header.packet_bytes(), continues: header.continues() };
            if verdict == Verdict::SendFile {
                self.skip.bytes = 0;
                self.done.bytes += header.packet_bytes() as u64;
                return Ok(Scanned { consumed: at + header.packet_bytes(), step: Step::SendFile, changes });
            }
            let whole = payload.len() == header.payload_bytes && !header.continues();
            if std::mem::take(&mut self.changes) && whole {
                changes.push(at..at + header.packet_bytes());
            }
            if verdict == Verdict::Last {
                self.ended = true;
                last = if whole { at + HEADER_BYTES..at + header.packet_bytes() } else { 0..0 };
            }
        }
        Ok(Scanned { consumed: at, step: Step::Continue, changes })
    }

    fn packet(&mut self, header: Header, payload: &[u8]) -> Result<Verdict, OutOfStep> {
        let first = payload.first().copied();
        if first.is_none() && header.payload_bytes > 0 {
            return Ok(Verdict::Wait);
        }
        let expected = self.sequence.unwrap_or(header.sequence);
        // An unsolicited error of the server (a time-out, a shutdown) has the number 0 or 1.
        if expected != header.sequence && first != Some(error::MARK) {
            return Err(OutOfStep::Sequence { expected, found: header.sequence });
        }
        let verdict = if self.skip.continues { Verdict::Pass } else { self.judge(header, payload, first)? };
        if verdict != Verdict::Wait && self.kind.counts() {
            self.sequence = (verdict != Verdict::SendFile).then_some(header.sequence.wrapping_add(1));
        }
        Ok(verdict)
    }

    fn judge(&mut self, header: Header, payload: &[u8], first: Option<u8>) -> Result<Verdict, Malformed> {
        if first == Some(error::MARK) {
            return self.error(header, payload);
        }
        match self.kind {
            Kind::Status => self.status(header, payload),
            Kind::Text | Kind::Login if !has_status_packet(header, payload) => Ok(Verdict::Wait),
            Kind::Text => Ok(Verdict::Last),
            Kind::Login if first == Some(OK_MARK) => self.status(header, payload),
            Kind::Stream if first == Some(EOF_MARK) && header.payload_bytes < Eof::LIMIT_BYTES => Ok(Verdict::Last),
            Kind::Login | Kind::Stream => Ok(Verdict::Pass),
            Kind::Prepare if self.due == Due::First => self.prepared(header, payload),
            _ => self.result(header, payload, first),
        }
    }

    /// A packet of a result, or of the definitions of a prepared statement.
    fn result(&mut self, header: Header, payload: &[u8], first: Option<u8>) -> Result<Verdict, Malformed> {
        match self.due {
            Due::First => match first {
                Some(OK_MARK) => self.status(header, payload),
                Some(LOCAL_INFILE) => self.file(header, payload),
                _ => self.column_count(header, payload),
            },
            Due::Definitions(left) => {
                self.due = match left {
                    2.. => Due::Definitions(left - 1),
                    _ => self.after_definitions(),
                };
                Ok(Verdict::Pass)
            }
            Due::Row if first == Some(EOF_MARK) && self.ends_rows(header) => self.status(header, payload),
            Due::Row => {
                let counted = if self.kind == Kind::Fields { &mut self.done.columns } else { &mut self.done.rows };
                *counted += 1;
                Ok(Verdict::Pass)
            }
            Due::AfterFile | Due::EndOfDefinitions | Due::EndOfPrepared(_) => self.status(header, payload),
            Due::Prepared { left: 0 | 1, columns } => Ok(self.end_of_prepared(columns)),
            Due::Prepared { left, columns } => Ok(self.definitions(left - 1, columns)),
        }
    }

    /// Whether a packet with EOF's mark is the end of rows. A row has this mark if its first value is larger than 16
    /// MiB.
    fn ends_rows(&self, header: Header) -> bool {
        let deprecated = self.capabilities.has(Capabilities::DEPRECATE_EOF);
        if deprecated { !header.continues() } else { header.payload_bytes < Eof::LIMIT_BYTES }
    }

    fn after_definitions(&self) -> Due {
        if self.capabilities.has(Capabilities::DEPRECATE_EOF) { Due::Row } else { Due::EndOfDefinitions }
    }

    fn error(&mut self, header: Header, payload: &[u8]) -> Result<Verdict, Malformed> {
        if !has_status_packet(header, payload) {
            return Ok(Verdict::Wait);
        }
        let code = ErrorPacket::parse(payload)?.code;
        if code == error::PROGRESS {
            return Ok(Verdict::Pass);
        }
        self.done.error = Some(code);
        // After an error, the flags of earlier results no longer hold.
        self.done.status = None;
        Ok(Verdict::Last)
    }

    /// An OK or EOF packet.
    fn status(&mut self, header: Header, payload: &[u8]) -> Result<Verdict, Malformed> {
        if !has_status_packet(header, payload) {
            return Ok(Verdict::Wait);
        }
        let word = StatusWord::read(payload, header.payload_bytes)?;
        self.done.status = Some(word.status);
        self.done.warnings = word.warnings;
        (self.done.affected_rows, self.done.insert_id) = (word.affected_rows, word.insert_id);
        self.changes = word.status.has(Status::SESSION_STATE_CHANGED);
        if self.done.status_places.len() < STATUS_PLACES_MAX {
            self.done.status_places.push(self.done.bytes + (HEADER_BYTES + word.at) as u64);
        }
        let cursor = self.opens_cursor(word.status);
        self.done.cursor |= cursor;
        match self.due {
            Due::EndOfDefinitions if !cursor => {
                let both = Status::PS_OUT_PARAMS.with(Status::MORE_RESULTS_EXISTS);
                self.out_parameters = word.status.has(both);
                self.due = Due::Row;
            }
            Due::EndOfPrepared(columns) => return Ok(self.definitions(0, columns)),
            _ => {
                self.done.results = self.done.results.saturating_add(1);
                let more = std::mem::take(&mut self.out_parameters) || word.status.has(Status::MORE_RESULTS_EXISTS);
                if !self.kind.has_results() || !more {
                    return Ok(Verdict::Last);
                }
                self.due = Due::First;
            }
        }
        Ok(Verdict::Pass)
    }

    /// Whether the rows of a result remain to be fetched. The flag alone does not show this: it is also set while a
    /// procedure has its own cursor open. Results within a procedure's answer come with their rows, and another
    /// packet follows them.
    fn opens_cursor(&self, status: Status) -> bool {
        self.kind == Kind::Cursor
            && status.has(Status::CURSOR_EXISTS)
            && status.0 & (Status::MORE_RESULTS_EXISTS.0 | Status::PS_OUT_PARAMS.0) == 0
    }

    fn file(&mut self, header: Header, payload: &[u8]) -> Result<Verdict, Malformed> {
        if header.payload_bytes > STATUS_PACKET_BYTES_MAX {
            return Err(Malformed::Invalid("file name"));
        }
        if payload.len() < header.payload_bytes {
            return Ok(Verdict::Wait);
        }
        self.done.sent_file = true;
        self.due = Due::AfterFile;
        Ok(Verdict::SendFile)
    }

    fn column_count(&mut self, header: Header, payload: &[u8]) -> Result<Verdict, Malformed> {
        if header.payload_bytes > STATUS_PACKET_BYTES_MAX {
            return Err(Malformed::Invalid("column count"));
        }
        if payload.len() < header.payload_bytes {
            return Ok(Verdict::Wait);
        }
        let mut reader = Reader::new(payload);
        let columns = reader.lenenc("column count")?;
        if columns == 0 {
            return Err(Malformed::Invalid("column count"));
        }
        let optional = Capabilities::MARIADB_CACHE_METADATA.0 | Capabilities::OPTIONAL_RESULTSET_METADATA.0;
        let follow = self.capabilities.0 & optional == 0 || reader.u8("whether definitions follow")? != 0;
        reader.finish()?;
        self.done.columns = columns;
        self.done.result_sets = self.done.result_sets.saturating_add(1);
        self.done.without_definitions |= !follow;
        self.due = if follow { Due::Definitions(columns) } else { self.after_definitions() };
        Ok(Verdict::Pass)
    }

    /// The first packet of the answer to COM_STMT_PREPARE.
    fn prepared(&mut self, header: Header, payload: &[u8]) -> Result<Verdict, Malformed> {
        if !has_status_packet(header, payload) {
            return Ok(Verdict::Wait);
        }
        let mut reader = Reader::new(payload);
        match reader.u8("OK mark")? {
            OK_MARK => {}
            tag => return Err(Malformed::UnknownTag { what: "OK mark", tag }),
        }
        let statement = reader.le_u32("statement id")?;
        let (columns, parameters) = (reader.le_u16("column count")?, reader.le_u16("parameter count")?);
        reader.u8("filler")?;
        self.done.warnings = reader.le_u16("warnings")?;
        self.done.prepared = Some(Prepared { statement, columns, parameters });
        self.done.columns = u64::from(columns);
        let optional = self.capabilities.has(Capabilities::OPTIONAL_RESULTSET_METADATA);
        self.done.without_definitions = optional && reader.u8("whether definitions follow")? == 0;
        Ok(self.definitions(parameters, columns))
    }

    /// Expects this many definitions of a prepared statement, then this many column definitions.
    fn definitions(&mut self, left: u16, columns: u16) -> Verdict {
        match (left, columns) {
            (0, 0) => return Verdict::Last,
            (0, columns) => return self.definitions(columns, 0),
            // MySQL omits only the definitions, not the EOF packets behind them.
            _ if self.done.without_definitions => return self.end_of_prepared(columns),
            _ => self.due = Due::Prepared { left, columns },
        }
        Verdict::Pass
    }

    /// Behind the definitions of a prepared statement; this many column definitions follow.
    fn end_of_prepared(&mut self, columns: u16) -> Verdict {
        if self.capabilities.has(Capabilities::DEPRECATE_EOF) {
            return self.definitions(0, columns);
        }
        self.due = Due::EndOfPrepared(columns);
        Verdict::Pass
    }
}

/// Whether enough of a status packet has arrived: all of it, or the head of an unusually large one.
fn has_status_packet(header: Header, payload: &[u8]) -> bool {
    let enough = if header.payload_bytes > STATUS_PACKET_BYTES_MAX { OK_HEAD_BYTES } else { header.payload_bytes };
    payload.len() >= enough
}

/// The fields that every OK or EOF packet has.
struct StatusWord {
    status: Status,
    warnings: u16,
    affected_rows: u64,
    insert_id: u64,
    /// Where the status is in the payload.
    at: usize,
}

impl StatusWord {
    fn read(payload: &[u8], payload_bytes: usize) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        // The shortest OK packet has 7 bytes, an EOF packet 5.
        match reader.u8("OK mark")? {
            EOF_MARK if payload_bytes < 7 => {
                let Eof { warnings, status } = Eof::parse(payload)?;
                return Ok(Self { status, warnings, affected_rows: 0, insert_id: 0, at: 3 });
            }
            OK_MARK | EOF_MARK => {}
            tag => return Err(Malformed::UnknownTag { what: "OK mark", tag }),
        }
        let affected_rows = reader.lenenc("affected rows")?;
        let insert_id = reader.lenenc("last insert id")?;
        let at = payload.len() - reader.remaining();
        let (status, warnings) = (Status(reader.le_u16("status")?), reader.le_u16("warnings")?);
        Ok(Self { status, warnings, affected_rows, insert_id, at })
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
