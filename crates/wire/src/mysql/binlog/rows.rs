//! Row events: the columns that they contain, and the rows.

use std::borrow::Cow;

use freshet_types::{Cell, Row};

use crate::mysql::binlog::column::Column;
use crate::mysql::binlog::unpack;
use crate::reader::{Malformed, Reader};

/// The change of the rows of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsKind {
    /// Inserted.
    Write,
    /// Updated.
    Update,
    /// Deleted.
    Delete,
}

/// The format of a row event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// WRITE_ROWS_EVENT_V1 and the like; MariaDB writes only these.
    One,
    /// Version 2 with an extra header, which MySQL writes.
    Two,
    /// Version 1, with compressed rows.
    OneCompressed,
    /// Version 2, with compressed rows.
    TwoCompressed,
}

/// Changed rows of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows<'a> {
    /// The change.
    pub kind: RowsKind,
    /// The table's id.
    pub table: u64,
    /// Number of the table's columns.
    columns: usize,
    /// A bit for each column that the row images contain; in an update, the before image.
    first: &'a [u8],
    /// In an update, the same for the after image.
    second: &'a [u8],
    /// The row images; None if they are too large to decompress.
    data: Option<Cow<'a, [u8]>>,
}

/// One changed row. Columns that the log does not contain are [`Cell::Absent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// Inserted.
    Write(Row),
    /// Updated: before, after.
    Update(Row, Row),
    /// Deleted.
    Delete(Row),
}

impl<'a> Rows<'a> {
    pub(super) fn decode(mut reader: Reader<'a>, kind: RowsKind, version: Version) -> Result<Self, Malformed> {
        let table = reader.le_u48("table number")?;
        let _flags = reader.le_u16("row flags")?;
        if matches!(version, Version::Two | Version::TwoCompressed) {
            // The length includes its own bytes.
            let extra = reader.le_u16("extra row data")?.checked_sub(2).ok_or(Malformed::Invalid("extra row data"))?;
            reader.bytes(usize::from(extra), "extra row data")?;
        }
        let columns = usize::try_from(reader.lenenc("column count")?).unwrap_or(usize::MAX);
        let first = reader.bytes(columns.div_ceil(8), "columns present")?;
        let updated = kind == RowsKind::Update;
        let second = if updated { reader.bytes(columns.div_ceil(8), "columns present")? } else { &[] };
        let rest = reader.rest();
        let packed = matches!(version, Version::OneCompressed | Version::TwoCompressed);
        let data = if packed { unpack::zlib(rest)?.map(Cow::Owned) } else { Some(rest.into()) };
        Ok(Self { kind, table, columns, first, second, data })
    }

    /// Ends the statement and holds no row: `~0` in as many bytes as a table id has, or had in older versions.
    pub fn is_dummy(&self) -> bool {
        matches!(self.table, 0xff_ffff | 0xffff_ffff | 0xffff_ffff_ffff) && self.has_no_data()
    }

    fn has_no_data(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.is_empty())
    }

    /// The rows, for a table with these columns. None if they are unknown: the event is too large, or it contains no column at all (an INSERT of
    /// defaults only, under `binlog_row_image = MINIMAL`).
    pub fn images<'r>(&'r self, table: &'r [Column]) -> Result<Option<Images<'r>>, Malformed> {
        if table.len() != self.columns {
            return Err(Malformed::Invalid("column count"));
        }
        let Some(data) = self.data.as_ref().filter(|data| !data.is_empty()) else { return Ok(None) };
        Ok(Some(Images { rows: self, table, reader: Reader::new(data) }))
    }
}

/// Iterates over the rows of an event.
#[derive(Clone, Debug)]
pub struct Images<'r> {
    rows: &'r Rows<'r>,
    table: &'r [Column],
    reader: Reader<'r>,
}

impl Iterator for Images<'_> {
    type Item = Result<Image, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let before = self.reader.remaining();
        if before == 0 {
            return None;
        }
        let image = self.image();
        if image.is_err() || self.reader.remaining() == before {
            // After an error the rest cannot be decoded.
            self.reader.rest();
        }
        Some(image)
    }
}

impl Images<'_> {
    fn image(&mut self) -> Result<Image, Malformed> {
        let first = self.row(self.rows.first)?;
        Ok(match self.rows.kind {
            RowsKind::Write => Image::Write(first),
            RowsKind::Delete => Image::Delete(first),
            RowsKind::Update => {
                let mut second = self.row(self.rows.second)?;
                // A column that is missing in the after image did not change.
                for (at, (after, before)) in second.iter_mut().zip(&first).enumerate() {
                    match before {
                        _ if bit(self.rows.second, at) => {}
                        Cell::Absent => *after = Cell::Unchanged,
                        known => after.clone_from(known),
                    }
                }
                Image::Update(first, second)
            }
        })
    }

    fn row(&mut self, present: &[u8]) -> Result<Row, Malformed> {
        let carried = (0..self.table.len()).filter(|at| bit(present, *at)).count();
        let nulls = self.reader.bytes(carried.div_ceil(8), "nulls")?;
        let mut nth = 0;
        let mut row = Vec::with_capacity(self.table.len());
        for (at, column) in self.table.iter().enumerate() {
            if !bit(present, at) {
                row.push(Cell::Absent);
                continue;
            }
            row.push(if bit(nulls, nth) { Cell::Null } else { column.cell(&mut self.reader)? });
            nth += 1;
        }
        Ok(row.into())
    }
}

/// A bit of a bitmap; the first column is the lowest bit of the first byte.
fn bit(bitmap: &[u8], at: usize) -> bool {
    bitmap.get(at / 8).is_some_and(|byte| byte & (1 << (at % 8)) != 0)
}
