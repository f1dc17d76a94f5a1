//! Follows the answer to a command, packet by packet, without keeping any.
//!
//! A packet does not say what it is: the same first byte begins a row, an OK packet or an EOF packet, depending on
//! what was asked, what came before and what both ends can do. A proxy that takes one for the other hands the rest of
//! an answer to the next command. So there is one state machine for all answers, fed with the bytes as they come; it looks
//! at heads and first bytes only, and what is not a status packet may be of any size.
//!
//! Sequence numbers are checked, as drivers do: a number out of order means that the two ends are out of step, and the
//! connection is of no further use.

use std::ops::Range;

use super::capabilities::{Capabilities, Status};
use super::error::{self, ErrorPacket};
use super::ok::{EOF_MARK, Eof, OK_MARK};
use super::packet::{HEADER_BYTES, Header};
use crate::reader::{Malformed, Reader};

use super::answer::Skip;

pub use super::answer::{Answer, EXECUTE_FLAGS, Kind, Upload, patch_status};

/// Status packets up to this size are waited for as a whole, to be shown in [`Done::last`]; of larger ones the
/// head is enough.
const STATUS_PACKET_BYTES_MAX: usize = 64 << 10;
/// Bytes of an OK packet up to and with its warnings, at most.
const OK_HEAD_BYTES: usize = 1 + 9 + 9 + 2 + 2;
/// Places of status words that are told; an answer that may be given again has two at most.
const STATUS_PLACES_MAX: usize = 4;
/// In the place of a column count: the client is to send a file.
const LOCAL_INFILE: u8 = 0xfb;

/// What to do after [`Response::scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The answer goes on: forward what was consumed and read more.
    Continue,
    /// The server waits for a file: forward what was consumed, then the client's packets up to an empty payload, then
    /// go on scanning.
    SendFile,
    /// The answer ends with what was consumed.
    Done(Done),
}

/// An answer that is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The session's state after it. None after ERR and COM_STATISTICS, which do not tell it.
    pub status: Option<Status>,
    /// Warnings of the last result.
    pub warnings: u16,
    /// Rows that the last result says to have changed.
    pub affected_rows: u64,
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
    /// The rows of a result are to be fetched.
    pub cursor: bool,
    /// Where the status words are, counted from the answer's first byte; only the first few of a long answer.
    pub status_places: Vec<u64>,
    /// The prepared statement.
    pub prepared: Option<Prepared>,
    /// The file that was asked for made this answer depend on the client.
    pub sent_file: bool,
    /// Column definitions were left out, since the client is thought to know them.
    pub without_definitions: bool,
    /// Payload of the last packet within the bytes that were given last; empty if it is unusually large.
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

/// How far [`Response::scan`] came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Bytes at the front that belong to the answer. The rest (at most 64 KiB) has to be given again, with what follows.
    pub consumed: usize,
    /// What to do.
    pub step: Step,
    /// Where among them are packets, heads included, that tell of a change in the session; without unusually large ones.
    pub changes: Vec<Range<usize>>,
}

/// The server's packets make no sense here; the connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfStep {
    /// A packet of the wrong number.
    #[error("packet {found} where {expected} was due")]
    Sequence {
        /// The number that was due.
        expected: u8,
        /// The number that came.
        found: u8,
    },
    /// A packet that cannot be here.
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

/// Which packet is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The first of a result.
    First,
    /// So many definitions of columns, and then [`Due::EndOfDefinitions`].
    Definitions(u64),
    /// The EOF packet behind the definitions, of ends that have those.
    EndOfDefinitions,
    /// A row, or the end of rows.
    Row,
    /// So many definitions of a prepared statement, with the one that is due; behind them so many columns'.
    Prepared { left: u16, columns: u16 },
    /// The EOF packet behind definitions of a prepared statement; then so many columns' definitions.
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
    /// The number of the next packet; None if any will do.
    sequence: Option<u8>,
    /// A result of output parameters, of which MySQL says only behind the definitions that more follows
    /// (`Protocol_binary::send_parameters`).
    out_parameters: bool,
    /// The last packet has come, perhaps not all of it.
    ended: bool,
    /// The packet at hand tells of a change in the session.
    changes: bool,
    done: Done,
}

/// What a packet means for the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The answer goes on.
    Pass,
    /// More bytes of it are needed to say.
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

    /// The number of the answer's first packet, where it is not 1: a server goes on from the command's last packet, and a
    /// command of 16 MiB or more has several.
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

    /// Looks at all that has come and was not consumed before.
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
        // An error that the server has to say unasked (a time-out, a shutdown) has the number 0 or 1.
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

    /// Whether a packet that begins with EOF's mark is the end of rows: a row begins so if its first value is larger than
    /// 16 MiB.
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
        // Whatever earlier results said does not hold after an error.
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
        self.done.affected_rows = word.affected_rows;
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

    /// Whether the rows of a result are to be fetched. The flag alone does not say so: it is also set while a procedure has a cursor
    /// of its own open. Results within a procedure's answer come with their rows, and are followed by another packet.
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

    /// So many definitions of a prepared statement are due, and behind them so many columns'.
    fn definitions(&mut self, left: u16, columns: u16) -> Verdict {
        match (left, columns) {
            (0, 0) => return Verdict::Last,
            (0, columns) => return self.definitions(columns, 0),
            // MySQL leaves out the definitions alone, not the EOF packets behind them.
            _ if self.done.without_definitions => return self.end_of_prepared(columns),
            _ => self.due = Due::Prepared { left, columns },
        }
        Verdict::Pass
    }

    /// Behind definitions of a prepared statement; so many columns' follow.
    fn end_of_prepared(&mut self, columns: u16) -> Verdict {
        if self.capabilities.has(Capabilities::DEPRECATE_EOF) {
            return self.definitions(0, columns);
        }
        self.due = Due::EndOfPrepared(columns);
        Verdict::Pass
    }
}

/// Whether enough of a status packet is there: all of it, or of an unusually large one its head.
fn has_status_packet(header: Header, payload: &[u8]) -> bool {
    let enough = if header.payload_bytes > STATUS_PACKET_BYTES_MAX { OK_HEAD_BYTES } else { header.payload_bytes };
    payload.len() >= enough
}

/// The part of an OK or EOF packet that every one has.
struct StatusWord {
    status: Status,
    warnings: u16,
    affected_rows: u64,
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
                return Ok(Self { status, warnings, affected_rows: 0, at: 3 });
            }
            OK_MARK | EOF_MARK => {}
            tag => return Err(Malformed::UnknownTag { what: "OK mark", tag }),
        }
        let affected_rows = reader.lenenc("affected rows")?;
        reader.lenenc("last insert id")?;
        let at = payload.len() - reader.remaining();
        let (status, warnings) = (Status(reader.le_u16("status")?), reader.le_u16("warnings")?);
        Ok(Self { status, warnings, affected_rows, at })
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
