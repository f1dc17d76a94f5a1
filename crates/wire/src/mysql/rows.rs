//! The rows of an answer that is stored as received: a column count, definitions, rows, and the end of rows.
//!
//! Rows in binary form do not state their types. The definitions do, but they may be missing; the rows cannot be read
//! then.

use std::borrow::Cow;

use super::capabilities::Capabilities;
use super::packet::{HEADER_BYTES, Header};
use super::result::{Form, text_row};
use super::statement::types;
use crate::reader::{Malformed, Reader};

/// Flag of a column's definition: its integers have no sign.
const UNSIGNED: u16 = 0x20;
/// The NULL bitmap of rows begins at its third bit.
const BITMAP_OFFSET: usize = 2;

/// A value as the server writes it in text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// NULL
    Null,
    /// The text.
    Text(Cow<'a, [u8]>),
    /// A binary value without a text form here: floats and times.
    Other,
}

/// The rows of a whole answer.
#[derive(Debug)]
pub struct Rows<'a> {
    /// The definitions of its columns; None if the answer omits them.
    definitions: Option<Vec<&'a [u8]>>,
    columns: u64,
    packets: Vec<&'a [u8]>,
    capabilities: Capabilities,
    form: Form,
}

impl<'a> Rows<'a> {
    /// Finds them.
    pub fn of(answer: &'a [u8], capabilities: Capabilities, form: Form) -> Result<Self, Malformed> {
        let mut rest = Packets(answer);
        let mut head = Reader::new(rest.next()?);
        let columns = head.lenenc("column count")?;
        let optional = Capabilities::MARIADB_CACHE_METADATA.0 | Capabilities::OPTIONAL_RESULTSET_METADATA.0;
        let follow = capabilities.0 & optional == 0 || head.u8("whether definitions follow")? != 0;
        let mut definitions = Vec::new();
        for _ in 0..if follow { columns } else { 0 } {
            definitions.push(rest.next()?);
        }
        if !capabilities.has(Capabilities::DEPRECATE_EOF) {
            rest.next()?;
        }
        let mut packets = Vec::new();
        let mut packet = rest.next()?;
        // The last packet is the end of rows.
        while !rest.0.is_empty() {
            packets.push(packet);
            packet = rest.next()?;
        }
        Ok(Self { definitions: follow.then_some(definitions), columns, packets, capabilities, form })
    }

    /// The rows as received.
    pub fn packets(&self) -> &[&'a [u8]] {
        &self.packets
    }

    /// The values of one row; empty if it is in binary form and the definitions are missing.
    pub fn values(&self, row: &'a [u8]) -> Result<Vec<Field<'a>>, Malformed> {
        match (self.form, &self.definitions) {
            (Form::Text, _) => {
                let field = |value: Option<_>| value.map_or(Field::Null, |text| Field::Text(Cow::Borrowed(text)));
                Ok(text_row(row, self.columns)?.into_iter().map(field).collect())
            }
            (Form::Binary, None) => Ok(Vec::new()),
            (Form::Binary, Some(definitions)) => binary_row(row, definitions, self.capabilities),
        }
    }
}

/// Packets that are each a whole payload.
struct Packets<'a>(&'a [u8]);

impl<'a> Packets<'a> {
    fn next(&mut self) -> Result<&'a [u8], Malformed> {
        let header = Header::read(self.0).filter(|header| !header.continues()).ok_or(Malformed::Truncated("packet"))?;
        let (packet, rest) = self.0.split_at_checked(header.packet_bytes()).ok_or(Malformed::Truncated("packet"))?;
        self.0 = rest;
        Ok(packet.get(HEADER_BYTES..).unwrap_or_default())
    }
}

fn binary_row<'a>(
    row: &'a [u8],
    definitions: &[&[u8]],
    capabilities: Capabilities,
) -> Result<Vec<Field<'a>>, Malformed> {
    let mut reader = Reader::new(row);
    reader.u8("row's head")?;
    let nulls = reader.bytes((definitions.len() + BITMAP_OFFSET).div_ceil(8), "NULL bitmap")?;
    let mut values = Vec::new();
    for (bit, definition) in (BITMAP_OFFSET..).zip(definitions) {
        let null = nulls.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
        let (column_type, unsigned) = column_type(definition, capabilities)?;
        values.push(if null { Field::Null } else { value(&mut reader, column_type, unsigned)? });
    }
    reader.finish()?;
    Ok(values)
}

/// The type that a definition tells, and whether it is one of integers without a sign.
fn column_type(definition: &[u8], capabilities: Capabilities) -> Result<(u8, bool), Malformed> {
    let mut reader = Reader::new(definition);
    for part in ["catalog", "schema", "table", "original table", "name", "original name"] {
        reader.lenenc_bytes(part)?;
    }
    if capabilities.has(Capabilities::MARIADB_EXTENDED_METADATA) {
        reader.lenenc_bytes("extended metadata")?;
    }
    reader.u8("length of what follows")?;
    reader.le_u16("character set")?;
    reader.le_u32("column length")?;
    let column_type = reader.u8("column type")?;
    Ok((column_type, reader.le_u16("flags")? & UNSIGNED != 0))
}

const WHAT: &str = "value";

fn value<'a>(reader: &mut Reader<'a>, column_type: u8, unsigned: bool) -> Result<Field<'a>, Malformed> {
    Ok(match column_type {
        types::TINY => integer(reader.array::<1>(WHAT)?, unsigned),
        types::SHORT | types::YEAR => integer(reader.array::<2>(WHAT)?, unsigned),
        types::LONG | types::INT24 => integer(reader.array::<4>(WHAT)?, unsigned),
        types::LONGLONG => integer(reader.array::<8>(WHAT)?, unsigned),
        types::FLOAT => reader.bytes(4, WHAT).map(|_| Field::Other)?,
        types::DOUBLE => reader.bytes(8, WHAT).map(|_| Field::Other)?,
        types::DATE | types::DATETIME | types::TIMESTAMP => {
            let length = usize::from(reader.u8(WHAT)?);
            moment(reader.bytes(length, WHAT)?)
        }
        types::TIME => {
            let length = usize::from(reader.u8(WHAT)?);
            reader.bytes(length, WHAT).map(|_| Field::Other)?
        }
        types::NULL => Field::Null,
        _ => Field::Text(Cow::Borrowed(reader.lenenc_bytes(WHAT)?)),
    })
}

/// A little-endian integer of up to eight bytes.
fn integer<const N: usize>(bytes: [u8; N], unsigned: bool) -> Field<'static> {
    let negative = !unsigned && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut all = if negative { [0xff; 16] } else { [0; 16] };
    all.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    Field::Text(Cow::Owned(i128::from_le_bytes(all).to_string().into_bytes()))
}

/// A date, with a time if that is not midnight, with microseconds if there are any.
fn moment(bytes: &[u8]) -> Field<'static> {
    moment_text(bytes).map_or(Field::Other, |text| Field::Text(Cow::Owned(text.into_bytes())))
}

/// A date and time of the binary protocol as text; None: it is of no form that the servers send.
pub fn moment_text(bytes: &[u8]) -> Option<String> {
    Some(match *bytes {
        [] => "0000-00-00".to_owned(),
        [y1, y2, month, day] => format!("{:04}-{month:02}-{day:02}", u16::from_le_bytes([y1, y2])),
        [y1, y2, month, day, hour, minute, second, ref fraction @ ..] => {
            let micros = <[u8; 4]>::try_from(fraction).map_or(0, u32::from_le_bytes);
            let year = u16::from_le_bytes([y1, y2]);
            format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::capabilities::Status;
    use super::super::integers::put_lenenc_bytes;
    use super::super::ok::Eof;
    use super::super::packet;
    use super::super::result::{Shape, put_text_result};
    use super::*;

    fn text(text: &str) -> Field<'_> {
        Field::Text(Cow::Borrowed(text.as_bytes()))
    }

    #[test]
    fn rows_are_found() {
        let rows = [vec![Some("a".into()), None], vec![None, Some("long".repeat(100))]];
        for capabilities in [
            Capabilities::DEPRECATE_EOF,
            Capabilities(0),
            Capabilities::MARIADB_CACHE_METADATA,
            Capabilities::MARIADB_EXTENDED_METADATA,
        ] {
            for form in [Form::Text, Form::Binary] {
                let shape = Shape { capabilities, status: Status(0), form };
                let mut out = Vec::new();
                put_text_result(&mut out, shape, &["x", "y"], &rows);
                let expected =
                    [vec![text("a"), Field::Null], vec![Field::Null, text(rows[1][1].as_deref().unwrap())]].to_vec();
                let read = |bytes| {
                    let rows = Rows::of(bytes, capabilities, form)?;
                    rows.packets().iter().map(|row| rows.values(row)).collect::<Result<Vec<_>, _>>()
                };
                assert_eq!(read(&out[..]), Ok(expected), "{capabilities:?} {form:?}");
                for end in 0..out.len() {
                    let _ = read(&out[..end]);
                }
                out.clear();
                put_text_result(&mut out, shape, &["x"], &[]);
                let rows = Rows::of(&out, capabilities, form).unwrap();
                assert!(rows.packets().is_empty());
            }
        }
    }

    #[test]
    fn binary_values_are_those_of_the_text_form() {
        let columns: [(u8, u16, &[u8], Field<'_>); 14] = [
            (types::TINY, 0, &[0xff], text("-1")),
            (types::TINY, UNSIGNED, &[0xff], text("255")),
            (types::YEAR, UNSIGNED, &[0xea, 0x07], text("2026")),
            (types::SHORT, 0, &[0, 0x80], text("-32768")),
            (types::INT24, 0, &[1, 0, 0, 0], text("1")),
            (types::LONG, UNSIGNED, &[0xff; 4], text("4294967295")),
            (types::LONGLONG, UNSIGNED, &[0xff; 8], text("18446744073709551615")),
            (types::DOUBLE, 0, &[0; 8], Field::Other),
            (types::FLOAT, 0, &[0; 4], Field::Other),
            (types::DATE, 0, &[4, 0xea, 0x07, 11, 22], text("2026-11-22")),
            (types::DATETIME, 0, &[7, 0xea, 0x07, 11, 22, 1, 2, 3], text("2026-11-22 01:02:03.000000")),
            (types::DATETIME, 0, &[11, 0xea, 7, 11, 22, 1, 2, 3, 5, 0, 0, 0], text("2026-11-22 01:02:03.000005")),
            (types::DATETIME, 0, &[0], text("0000-00-00")),
            (types::NEWDECIMAL, 0, &[3, b'1', b'.', b'5'], text("1.5")),
        ];
        let mut out = Vec::new();
        let mut sequence = 1;
        packet::put(&mut out, &mut sequence, &[columns.len() as u8]);
        for (column_type, flags, ..) in &columns {
            packet::put_with(&mut out, &mut sequence, |out| {
                (0..6).for_each(|_| put_lenenc_bytes(out, b"d"));
                out.extend_from_slice(&[0x0c, 63, 0, 0, 0, 0, 0, *column_type]);
                out.extend_from_slice(&flags.to_le_bytes());
                out.extend_from_slice(&[0; 3]);
            });
        }
        packet::put_with(&mut out, &mut sequence, |out| {
            out.extend_from_slice(&[0, 0, 0]);
            for (_, _, value, _) in &columns {
                out.extend_from_slice(value);
            }
        });
        Eof { status: Status(0), warnings: 0 }.put_end_of_rows(&mut out, &mut sequence, Capabilities::DEPRECATE_EOF);
        let expected = columns.into_iter().map(|(.., expected)| expected).collect();
        let rows = Rows::of(&out, Capabilities::DEPRECATE_EOF, Form::Binary).unwrap();
        assert_eq!(rows.values(rows.packets()[0]), Ok(expected));
    }
}
