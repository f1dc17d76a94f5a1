//! The contents of binlog events.

use std::borrow::Cow;

use crate::mysql::binlog::rows::{Rows, RowsKind, Version};
use crate::mysql::binlog::table::TableMap;
use crate::mysql::binlog::{CHECKSUM_BYTES, Checksum, Header, body, checksum_holds, unpack};
use crate::reader::{Malformed, Reader};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The format of the events that follow.
    Format {
        /// The server's version, without trailing zeros.
        server_version: &'a [u8],
        /// Whether events end with a checksum.
        checksum: Checksum,
    },
    /// The log continues in another file.
    Rotate {
        /// The offset in that file.
        offset: u64,
        /// The file's name.
        file: &'a [u8],
    },
    /// A statement.
    Query(Query<'a>),
    /// The end of a transaction.
    Xid,
    /// The table of a table id, for the row events that follow.
    TableMap(TableMap<'a>),
    /// Changed rows.
    Rows(Rows<'a>),
    /// Rows of which parts of JSON values changed (MySQL's PARTIAL_UPDATE_ROWS).
    PartialUpdate {
        /// The table's id.
        table: u64,
    },
    /// MariaDB: a transaction begins.
    MariadbGtid(MariadbGtid),
    /// MySQL: a transaction begins.
    Gtid {
        /// UUID of the server that first committed it.
        source: u128,
        /// Its number at that server.
        number: u64,
    },
    /// MySQL: a transaction without a GTID begins.
    AnonymousGtid,
    /// An XA transaction was prepared; this ends its group of events.
    XaPrepare {
        /// It was committed in one phase.
        one_phase: bool,
    },
    /// MySQL: all events of a transaction in one, decompressed, without checksums; None if they are too large.
    Payload(Option<Cow<'a, [u8]>>),
    /// The server has no event to send; it has sent everything before.
    Heartbeat {
        /// Offset in the current file. It is None if only the event's header has it, with 32 bits.
        offset: Option<u64>,
    },
    /// Something happened that the log may not contain.
    Incident,
    /// The server was stopped.
    Stop,
    /// A part of a statement that changes rows: the log has the statement format here.
    Statement,
    /// An event that changes nothing.
    Information,
    /// An event that this version does not support.
    Unsupported(&'static str),
}

/// A statement in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The default database of the statement; may be empty.
    pub schema: &'a [u8],
    /// Its text, in the client's character set.
    pub sql: Cow<'a, [u8]>,
}

/// The start of a transaction in MariaDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MariadbGtid {
    /// Number within the domain and the server.
    pub sequence: u64,
    /// Replication domain.
    pub domain: u32,
    /// Flags.
    pub flags: u8,
}

impl MariadbGtid {
    /// `FL_STANDALONE`: the group consists of one statement and has no end event.
    pub fn is_standalone(&self) -> bool {
        self.flags & 1 != 0
    }

    /// `FL_PREPARED_XA`: the group ends with [`Event::XaPrepare`].
    pub fn is_prepared_xa(&self) -> bool {
        self.flags & 0x40 != 0
    }
}

impl<'a> Event<'a> {
    /// Decodes one event: header, body, checksum.
    pub fn decode(bytes: &'a [u8], checksum: Checksum) -> Result<(Header, Self), Malformed> {
        let header = Header::decode(&mut Reader::new(bytes))?;
        if header.kind == FORMAT_DESCRIPTION {
            let body = body(bytes, header, Checksum::None)?;
            return Ok((header, format(bytes, header, body)?));
        }
        let body = body(bytes, header, checksum)?;
        Ok((header, Self::of_kind(header.kind, body)?))
    }

    fn of_kind(kind: u8, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        Ok(match kind {
            2 => query(reader, false)?,
            3 => Self::Stop,
            4 => Self::Rotate { offset: reader.le_u64("rotation")?, file: reader.rest() },
            // INTVAR, APPEND_BLOCK, DELETE_FILE, RAND, USER_VAR, BEGIN_LOAD_QUERY, EXECUTE_LOAD_QUERY
            5 | 9 | 11 | 13 | 14 | 17 | 18 => Self::Statement,
            16 => {
                reader.le_u64("xid")?;
                reader.finish()?;
                Self::Xid
            }
            19 => Self::TableMap(TableMap::decode(reader)?),
            23 => rows(reader, RowsKind::Write, Version::One)?,
            24 => rows(reader, RowsKind::Update, Version::One)?,
            25 => rows(reader, RowsKind::Delete, Version::One)?,
            26 => Self::Incident,
            27 => Self::Heartbeat { offset: None },
            // IGNORABLE, ROWS_QUERY, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE; ANNOTATE_ROWS, BINLOG_CHECKPOINT,
            // GTID_LIST
            28 | 29 | 35..=37 | 160 | 161 | 163 => Self::Information,
            30 => rows(reader, RowsKind::Write, Version::Two)?,
            31 => rows(reader, RowsKind::Update, Version::Two)?,
            32 => rows(reader, RowsKind::Delete, Version::Two)?,
            33 => gtid(reader)?,
            34 => Self::AnonymousGtid,
            38 => Self::XaPrepare { one_phase: reader.u8("XA PREPARE")? != 0 },
            39 => Self::PartialUpdate { table: reader.le_u48("table number")? },
            40 => Self::Payload(unpack::payload(reader)?),
            41 => heartbeat(reader)?,
            42 => Self::Unsupported("GTIDs with tags"),
            162 => mariadb_gtid(reader)?,
            164 => Self::Unsupported("an encrypted binlog"),
            165 => query(reader, true)?,
            166 => rows(reader, RowsKind::Write, Version::OneCompressed)?,
            167 => rows(reader, RowsKind::Update, Version::OneCompressed)?,
            168 => rows(reader, RowsKind::Delete, Version::OneCompressed)?,
            169 => rows(reader, RowsKind::Write, Version::TwoCompressed)?,
            170 => rows(reader, RowsKind::Update, Version::TwoCompressed)?,
            171 => rows(reader, RowsKind::Delete, Version::TwoCompressed)?,
            // This includes the events of servers before 5.1.
            tag => return Err(Malformed::UnknownTag { what: "binlog event", tag }),
        })
    }
}

const FORMAT_DESCRIPTION: u8 = 15;

/// Post-header lengths of the event types that are decoded here, in all supported servers.
const LENGTHS: [(usize, u8); 6] = [(2, 13), (4, 8), (19, 8), (23, 8), (24, 8), (25, 8)];

fn format<'a>(bytes: &'a [u8], header: Header, body: &'a [u8]) -> Result<Event<'a>, Malformed> {
    const VERSION_BYTES: usize = 50;
    let mut reader = Reader::new(body);
    if reader.le_u16("binlog version")? != 4 {
        return Err(Malformed::Invalid("binlog version"));
    }
    let version = reader.bytes(VERSION_BYTES, "server version")?;
    let end = version.iter().position(|byte| *byte == 0).unwrap_or(version.len());
    let _created = reader.le_u32("creation time")?;
    if usize::from(reader.u8("header length")?) != super::HEADER_BYTES {
        return Err(Malformed::Invalid("header length"));
    }
    // The rest of the event: a post-header length for each type, the kind of checksum, and space for a checksum even if there is none.
    let lengths_bytes = reader.remaining().checked_sub(1 + CHECKSUM_BYTES).ok_or(Malformed::Truncated("lengths"))?;
    let lengths = reader.bytes(lengths_bytes, "post-header lengths")?;
    if LENGTHS.iter().any(|(kind, length)| lengths.get(kind - 1) != Some(length)) {
        return Err(Malformed::Invalid("post-header lengths"));
    }
    let checksum = match reader.u8("kind of checksum")? {
        0 => Checksum::None,
        1 if checksum_holds(bytes, header) => Checksum::Crc32,
        _ => return Err(Malformed::Invalid("checksum of the format description")),
    };
    Ok(Event::Format { server_version: version.get(..end).unwrap_or_default(), checksum })
}

fn query(mut reader: Reader<'_>, compressed: bool) -> Result<Event<'_>, Malformed> {
    let _thread = reader.le_u32("thread")?;
    let _seconds = reader.le_u32("execution time")?;
    let schema_bytes = usize::from(reader.u8("schema length")?);
    let _error = reader.le_u16("error code")?;
    let status_bytes = usize::from(reader.le_u16("status length")?);
    reader.bytes(status_bytes, "status variables")?;
    let schema = reader.bytes(schema_bytes, "schema")?;
    if reader.u8("schema")? != 0 {
        return Err(Malformed::Invalid("schema"));
    }
    let sql = reader.rest();
    if !compressed {
        return Ok(Event::Query(Query { schema, sql: sql.into() }));
    }
    // A text that is too large is not DDL.
    Ok(unpack::zlib(sql)?.map_or(Event::Statement, |sql| Event::Query(Query { schema, sql: sql.into() })))
}

fn rows(reader: Reader<'_>, kind: RowsKind, version: Version) -> Result<Event<'_>, Malformed> {
    Rows::decode(reader, kind, version).map(Event::Rows)
}

fn gtid(mut reader: Reader<'_>) -> Result<Event<'_>, Malformed> {
    let _flags = reader.u8("GTID flags")?;
    // As a number, in the order in which a UUID is written.
    let source = reader.array("GTID source").map(u128::from_be_bytes)?;
    let number = reader.le_u64("GTID number")?;
    if number == 0 { Err(Malformed::Invalid("GTID number")) } else { Ok(Event::Gtid { source, number }) }
}

fn mariadb_gtid(mut reader: Reader<'_>) -> Result<Event<'_>, Malformed> {
    let (sequence, domain) = (reader.le_u64("GTID sequence")?, reader.le_u32("GTID domain")?);
    Ok(Event::MariadbGtid(MariadbGtid { sequence, domain, flags: reader.u8("GTID flags")? }))
}

/// HEARTBEAT_LOG_EVENT_V2: fields of type, length and value.
fn heartbeat(mut reader: Reader<'_>) -> Result<Event<'_>, Malformed> {
    const END: u64 = 0;
    const POSITION: u64 = 2;
    let mut offset = None;
    loop {
        let field = reader.lenenc("heartbeat field")?;
        if field == END {
            return Ok(Event::Heartbeat { offset });
        }
        let value = reader.lenenc_bytes("heartbeat value")?;
        if field == POSITION {
            offset = Some(Reader::new(value).lenenc("heartbeat position")?);
        }
    }
}
