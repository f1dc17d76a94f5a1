//! TABLE_MAP: the table that an id stands for, and its columns.

use crate::mysql::binlog::column::{Column, Form};
use crate::reader::{Malformed, Reader};

/// A table, as row events refer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMap<'a> {
    /// Its id in the row events that follow.
    pub id: u64,
    /// Its database.
    pub schema: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its columns; None if the values of one of them cannot be decoded.
    pub columns: Option<Vec<Column>>,
    /// Their names, under `binlog_row_metadata = FULL`.
    pub names: Option<Vec<&'a str>>,
}

/// The fields of the optional metadata that are read.
const SIGNEDNESS: u8 = 1;
const COLUMN_NAME: u8 = 4;

impl<'a> TableMap<'a> {
    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Malformed> {
        let id = reader.le_u48("table number")?;
        let _flags = reader.le_u16("table flags")?;
        let schema = name(&mut reader, "schema")?;
        let table = name(&mut reader, "table name")?;
        let count = usize::try_from(reader.lenenc("column count")?).unwrap_or(usize::MAX);
        let kinds = reader.bytes(count, "column types")?;
        let metadata = reader.lenenc_bytes("column metadata")?;
        let _nullable = reader.bytes(count.div_ceil(8), "nullable columns")?;
        let mut columns = columns(kinds, metadata)?;
        let mut names = None;
        while !reader.is_empty() {
            let field = reader.u8("table metadata")?;
            let value = reader.lenenc_bytes("table metadata")?;
            match field {
                SIGNEDNESS => sign(kinds, value, columns.as_deref_mut())?,
                COLUMN_NAME => names = Some(column_names(value, count)?),
                // Character sets, members of ENUM and SET, keys, visibility: not needed to decode values.
                _ => {}
            }
        }
        Ok(Self { id, schema, name: table, columns, names })
    }
}

/// A name, with its length before it and a zero behind it.
fn name<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a str, Malformed> {
    let name = reader.lenenc_bytes(what)?;
    if reader.u8(what)? != 0 {
        return Err(Malformed::Invalid(what));
    }
    std::str::from_utf8(name).map_err(|_| Malformed::Invalid(what))
}

fn columns(kinds: &[u8], metadata: &[u8]) -> Result<Option<Vec<Column>>, Malformed> {
    let mut metadata = Reader::new(metadata);
    let mut columns = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let Some(form) = Form::decode(*kind, &mut metadata)? else { return Ok(None) };
        columns.push(Column { form, unsigned: None });
    }
    metadata.finish()?;
    Ok(Some(columns))
}

/// One bit for each column of a numeric type; the first one is the highest bit. YEAR is numeric in some versions (`has_signedess_information_type`)
/// and not in others (MySQL 8.0.15). So behind a YEAR column a sign is used only if it is the same either way.
fn sign(kinds: &[u8], bits: &[u8], columns: Option<&mut [Column]>) -> Result<(), Malformed> {
    const YEAR: u8 = 13;
    let numeric = |kind: u8| matches!(kind, 0..=5 | 8 | 9 | 246);
    let bytes =
        |year: bool| kinds.iter().filter(|kind| numeric(**kind) || (year && **kind == YEAR)).count().div_ceil(8);
    let (with, without) = (bits.len() == bytes(true), bits.len() == bytes(false));
    if !with && !without {
        return Err(Malformed::Invalid("signedness"));
    }
    let mut counted = bits.iter().flat_map(|byte| (0..8).map(move |bit| byte & (0x80 >> bit) != 0));
    let mut uncounted = counted.clone();
    for (column, kind) in columns.into_iter().flatten().zip(kinds) {
        if *kind == YEAR {
            counted.next();
        } else if numeric(*kind) {
            let (a, b) = (counted.next(), uncounted.next());
            column.unsigned = match (with, without) {
                (true, false) => a,
                (false, true) => b,
                _ => a.filter(|_| a == b),
            };
        }
    }
    Ok(())
}

fn column_names(value: &[u8], count: usize) -> Result<Vec<&str>, Malformed> {
    const WHAT: &str = "column name";
    let mut reader = Reader::new(value);
    let mut names = Vec::new();
    while !reader.is_empty() {
        names.push(std::str::from_utf8(reader.lenenc_bytes(WHAT)?).map_err(|_| Malformed::Invalid(WHAT))?);
    }
    if names.len() == count { Ok(names) } else { Err(Malformed::Invalid(WHAT)) }
}
