//! Results that Freshet itself sends, with text columns, in text or binary form; and the reading of rows in text
//! form.

use super::capabilities::{Capabilities, Status};
use super::integers::{NULL, put_lenenc, put_lenenc_bytes};
use super::ok::{Eof, OK_MARK};
use super::packet;
use super::statement::types;
use crate::reader::{Malformed, Reader};

/// `utf8mb4_general_ci`, which both servers number alike.
const UTF8MB4: u16 = 45;
/// The longest value that a column is declared to hold, in bytes.
const COLUMN_BYTES: u32 = 4 * 1024;

/// Bytes at the end of a column definition from the number of its collation on.
const DEFINITION_TAIL_BYTES: usize = 12;

/// The number of the collation that a column definition bears.
pub fn collation_of(definition: &[u8]) -> Option<u16> {
    let tail = definition.get(definition.len().checked_sub(DEFINITION_TAIL_BYTES)?..)?;
    tail.first_chunk().map(|number| u16::from_le_bytes(*number))
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As COM_QUERY answers.
    Text,
    /// As COM_STMT_EXECUTE answers.
    Binary,
}

/// The session's properties that shape an answer besides its content.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The capabilities that both ends agreed on.
    pub capabilities: Capabilities,
    /// The session's state, as the end of the answer reports it.
    pub status: Status,
    /// Text or binary.
    pub form: Form,
}

/// Appends a whole answer of text columns, from sequence number 1.
pub fn put_text_result(out: &mut Vec<u8>, shape: Shape, columns: &[&str], rows: &[Vec<Option<String>>]) {
    let mut sequence = 1;
    let capabilities = shape.capabilities;
    let optional = Capabilities::MARIADB_CACHE_METADATA.0 | Capabilities::OPTIONAL_RESULTSET_METADATA.0;
    packet::put_with(out, &mut sequence, |out| {
        put_lenenc(out, columns.len() as u64);
        if capabilities.0 & optional != 0 {
            out.push(1);
        }
    });
    put_definitions(out, &mut sequence, shape, columns);
    for row in rows {
        packet::put_with(out, &mut sequence, |out| match shape.form {
            Form::Text => put_text_row(out, row),
            Form::Binary => put_binary_row(out, row),
        });
    }
    Eof { status: shape.status, warnings: 0 }.put_end_of_rows(out, &mut sequence, capabilities);
}

/// Appends the answer to COM_STMT_PREPARE of a statement without parameters whose columns are text.
pub fn put_prepared(out: &mut Vec<u8>, shape: Shape, statement: u32, columns: &[&str]) {
    let mut sequence = 1;
    packet::put_with(out, &mut sequence, |out| {
        out.push(OK_MARK);
        out.extend_from_slice(&statement.to_le_bytes());
        out.extend_from_slice(&u16::try_from(columns.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&[0; 5]); // no parameters, filler, no warnings
        if shape.capabilities.has(Capabilities::OPTIONAL_RESULTSET_METADATA) {
            out.push(1);
        }
    });
    if !columns.is_empty() {
        put_definitions(out, &mut sequence, shape, columns);
    }
}

fn put_definitions(out: &mut Vec<u8>, sequence: &mut u8, shape: Shape, columns: &[&str]) {
    for name in columns {
        packet::put_with(out, sequence, |out| put_definition(out, shape.capabilities, name));
    }
    if !shape.capabilities.has(Capabilities::DEPRECATE_EOF) {
        Eof { status: shape.status, warnings: 0 }.put(out, sequence);
    }
}

/// A column that belongs to no table.
fn put_definition(out: &mut Vec<u8>, capabilities: Capabilities, name: &str) {
    put_lenenc_bytes(out, b"def");
    for _schema_and_tables in 0..3 {
        put_lenenc_bytes(out, b"");
    }
    put_lenenc_bytes(out, name.as_bytes());
    put_lenenc_bytes(out, b"");
    if capabilities.has(Capabilities::MARIADB_EXTENDED_METADATA) {
        put_lenenc_bytes(out, b"");
    }
    out.push(0x0c); // bytes that follow
    out.extend_from_slice(&UTF8MB4.to_le_bytes());
    out.extend_from_slice(&COLUMN_BYTES.to_le_bytes());
    out.push(types::VAR_STRING);
    out.extend_from_slice(&[0, 0, 0x1f, 0, 0]); // no flags, decimals of a string, filler
}

fn put_text_row(out: &mut Vec<u8>, row: &[Option<String>]) {
    for value in row {
        match value {
            Some(value) => put_lenenc_bytes(out, value.as_bytes()),
            None => out.push(NULL),
        }
    }
}

/// The NULL bitmap of rows begins at its third bit.
const BITMAP_OFFSET: usize = 2;

fn put_binary_row(out: &mut Vec<u8>, row: &[Option<String>]) {
    out.push(0);
    let mut bitmap = vec![0_u8; (row.len() + BITMAP_OFFSET).div_ceil(8)];
    for at in row.iter().enumerate().filter(|(_, value)| value.is_none()).map(|(at, _)| at + BITMAP_OFFSET) {
        if let Some(byte) = bitmap.get_mut(at / 8) {
            *byte |= 1 << (at % 8);
        }
    }
    out.extend_from_slice(&bitmap);
    for value in row.iter().flatten() {
        put_lenenc_bytes(out, value.as_bytes());
    }
}

/// The values of a row in text form; None is NULL.
pub fn text_row(payload: &[u8], columns: u64) -> Result<Vec<Option<&[u8]>>, Malformed> {
    let mut reader = Reader::new(payload);
    let mut row = Vec::new();
    for _ in 0..columns {
        row.push(reader.lenenc_value("value")?);
    }
    reader.finish()?;
    Ok(row)
}

/// The name of the column that a definition describes.
pub fn column_name(payload: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = Reader::new(payload);
    for part in ["catalog", "schema", "table", "original table"] {
        reader.lenenc_bytes(part)?;
    }
    reader.lenenc_bytes("name")
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
