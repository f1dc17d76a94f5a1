//! The messages of PostgreSQL's output plugin `pgoutput`, protocol version 1 ("Logical Replication Message Formats"
//! in the manual; `src/backend/replication/logical/proto.c`).
//!
//! Decoding borrows from the message. Anything unknown is an error, since a skipped message may be a missed change.
//! Version 1 has neither streamed nor prepared transactions, so a transaction is always Begin, its changes, Commit.

use freshet_types::Lsn;

use crate::reader::{Malformed, Reader};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A transaction starts.
    Begin(Begin),
    /// A transaction is complete.
    Commit(Commit),
    /// The transaction came from another server.
    Origin {
        /// Its commit position there.
        commit: Lsn,
        /// The origin's name.
        name: &'a [u8],
    },
    /// The columns of a table, sent before its first row and again after a change.
    Relation(Relation<'a>),
    /// The name of a column type that is not built in.
    Type {
        /// `pg_type.oid`.
        oid: u32,
        /// Its schema, empty for `pg_catalog`.
        schema: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// A row was inserted.
    Insert {
        /// `pg_class.oid`.
        relation: u32,
        /// The row.
        new: Tuple<'a>,
    },
    /// A row was updated.
    Update {
        /// `pg_class.oid`.
        relation: u32,
        /// The row before, if it was sent.
        old: Option<OldTuple<'a>>,
        /// The row after.
        new: Tuple<'a>,
    },
    /// A row was deleted.
    Delete {
        /// `pg_class.oid`.
        relation: u32,
        /// The row.
        old: OldTuple<'a>,
    },
    /// Tables were truncated.
    Truncate {
        /// `pg_class.oid` of each.
        relations: Vec<u32>,
        /// CASCADE was given.
        cascade: bool,
        /// RESTART IDENTITY was given.
        restart_identity: bool,
    },
    /// `pg_logical_emit_message`.
    Logical {
        /// It belongs to the transaction.
        transactional: bool,
        /// Its position.
        lsn: Lsn,
        /// The recipient's prefix.
        prefix: &'a str,
        /// Its content.
        content: &'a [u8],
    },
}

/// The start of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The start of its commit record: the `commit` of its [`Commit`].
    pub commit: Lsn,
    /// Commit time, in microseconds since 2000.
    pub time_us: i64,
    /// The top-level transaction.
    pub xid: u32,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The start of the commit record.
    pub commit: Lsn,
    /// The end of the commit record.
    pub end: Lsn,
    /// Commit time, in microseconds since 2000.
    pub time_us: i64,
}

/// The columns of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation<'a> {
    /// `pg_class.oid`.
    pub oid: u32,
    /// Its schema, empty for `pg_catalog`.
    pub schema: &'a str,
    /// Its name.
    pub name: &'a str,
    /// `pg_class.relreplident`: `d`, `n`, `f` or `i`.
    pub replica_identity: u8,
    /// The columns that are sent.
    pub columns: Vec<Column<'a>>,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// It belongs to the replica identity. Under FULL every column does.
    pub key: bool,
    /// Its name.
    pub name: &'a str,
    /// `pg_type.oid`.
    pub type_oid: u32,
    /// `pg_attribute.atttypmod`.
    pub type_modifier: i32,
}

/// The columns of an old row that were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OldTuple<'a> {
    /// The replica identity; the other columns are sent as NULL.
    Key(Tuple<'a>),
    /// All columns.
    Full(Tuple<'a>),
}

/// The values of a row.
pub type Tuple<'a> = Vec<Value<'a>>;

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A TOAST value that the update did not change; it is not in the log.
    Unchanged,
    /// The text form.
    Text(&'a [u8]),
    /// The binary form, which is sent only if asked for.
    Binary(&'a [u8]),
}

impl<'a> Message<'a> {
    /// Decodes one message.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let message = match reader.u8("pgoutput message")? {
            b'B' => Self::Begin(Begin {
                commit: Lsn(reader.u64("commit position")?),
                time_us: reader.i64("commit time")?,
                xid: reader.u32("xid")?,
            }),
            b'C' => {
                zero_flags(&mut reader)?;
                Self::Commit(Commit {
                    commit: Lsn(reader.u64("commit position")?),
                    end: Lsn(reader.u64("end position")?),
                    time_us: reader.i64("commit time")?,
                })
            }
            b'O' => Self::Origin { commit: Lsn(reader.u64("commit position")?), name: reader.cstr("origin")? },
            b'R' => Self::Relation(Relation::decode(&mut reader)?),
            b'Y' => Self::Type {
                oid: reader.u32("type")?,
                schema: reader.cstr_utf8("type schema")?,
                name: reader.cstr_utf8("type name")?,
            },
            b'I' => {
                let relation = reader.u32("relation")?;
                expect(&mut reader, b'N')?;
                Self::Insert { relation, new: tuple(&mut reader)? }
            }
            b'U' => update(&mut reader)?,
            b'D' => {
                let relation = reader.u32("relation")?;
                let tag = reader.u8("tuple kind")?;
                Self::Delete { relation, old: OldTuple::decode(tag, &mut reader)? }
            }
            b'T' => truncate(&mut reader)?,
            b'M' => Self::Logical {
                transactional: match reader.u8("message flags")? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed::Invalid("message flags")),
                },
                lsn: Lsn(reader.u64("message position")?),
                prefix: reader.cstr_utf8("message prefix")?,
                content: reader.sized("message content")?,
            },
            tag => return Err(Malformed::UnknownTag { what: "pgoutput message", tag }),
        };
        reader.finish()?;
        Ok(message)
    }
}

impl<'a> Relation<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let oid = reader.u32("relation")?;
        let schema = reader.cstr_utf8("relation schema")?;
        let name = reader.cstr_utf8("relation name")?;
        let replica_identity = reader.u8("replica identity")?;
        if !matches!(replica_identity, b'd' | b'n' | b'f' | b'i') {
            return Err(Malformed::Invalid("replica identity"));
        }
        let count = reader.u16("column count")?;
        let mut columns = Vec::new();
        for _ in 0..count {
            let key = match reader.u8("column flags")? {
                0 => false,
                1 => true,
                _ => return Err(Malformed::Invalid("column flags")),
            };
            columns.push(Column {
                key,
                name: reader.cstr_utf8("column name")?,
                type_oid: reader.u32("column type")?,
                type_modifier: reader.i32("type modifier")?,
            });
        }
        Ok(Self { oid, schema, name, replica_identity, columns })
    }
}

impl<'a> OldTuple<'a> {
    fn decode(tag: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        match tag {
            b'K' => Ok(Self::Key(tuple(reader)?)),
            b'O' => Ok(Self::Full(tuple(reader)?)),
            _ => Err(Malformed::UnknownTag { what: "tuple kind", tag }),
        }
    }
}

fn update<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, Malformed> {
    let relation = reader.u32("relation")?;
    let tag = reader.u8("tuple kind")?;
    if tag == b'N' {
        return Ok(Message::Update { relation, old: None, new: tuple(reader)? });
    }
    let old = Some(OldTuple::decode(tag, reader)?);
    expect(reader, b'N')?;
    Ok(Message::Update { relation, old, new: tuple(reader)? })
}

fn truncate<'a>(reader: &mut Reader<'a>) -> Result<Message<'a>, Malformed> {
    let count = reader.u32("relation count")?;
    let flags = reader.u8("truncate flags")?;
    if flags > 3 {
        return Err(Malformed::Invalid("truncate flags"));
    }
    // The count does not size an allocation: each relation must be present.
    let mut relations = Vec::new();
    for _ in 0..count {
        relations.push(reader.u32("relation")?);
    }
    Ok(Message::Truncate { relations, cascade: flags & 1 != 0, restart_identity: flags & 2 != 0 })
}

fn tuple<'a>(reader: &mut Reader<'a>) -> Result<Tuple<'a>, Malformed> {
    let count = reader.u16("value count")?;
    let mut values = Vec::with_capacity(usize::from(count).min(reader.remaining()));
    for _ in 0..count {
        values.push(match reader.u8("value kind")? {
            b'n' => Value::Null,
            b'u' => Value::Unchanged,
            b't' => Value::Text(reader.sized("value")?),
            b'b' => Value::Binary(reader.sized("value")?),
            tag => return Err(Malformed::UnknownTag { what: "value kind", tag }),
        });
    }
    Ok(values)
}

fn expect(reader: &mut Reader<'_>, wanted: u8) -> Result<(), Malformed> {
    let tag = reader.u8("tuple kind")?;
    if tag == wanted { Ok(()) } else { Err(Malformed::UnknownTag { what: "tuple kind", tag }) }
}

/// Commit flags are unused. A server that sets one means something unknown.
fn zero_flags(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    if reader.u8("commit flags")? == 0 { Ok(()) } else { Err(Malformed::Invalid("commit flags")) }
}

#[cfg(test)]
#[path = "pgoutput_tests.rs"]
mod tests;
