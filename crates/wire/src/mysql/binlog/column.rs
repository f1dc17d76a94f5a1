//! The encoding of a column's values, and their normal form.
//!
//! The type codes and their metadata are those of `enum_field_types` and of `Table_map_event` (`libbinlogevents/include/rows_event.h`). The encoding
//! of the values is that of `calc_field_size` and `unpack` in the servers.

use freshet_types::{Cell, ValueType};

use crate::mysql::binlog::decimal;
use crate::reader::{Malformed, Reader};

/// The text of a longer BLOB or TEXT value is not stored.
const BLOB_BYTES_MAX: usize = 1024;

/// A column of a table, as the log describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The encoding of its values.
    pub form: Form,
    /// Whether it is unsigned; None if it is not numeric or the log does not say.
    pub unsigned: Option<bool>,
}

/// The encoding of values, which also says whether they have a normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An integer of this many bytes.
    Int(u8),
    /// A decimal.
    Decimal {
        /// Number of all digits.
        precision: u8,
        /// Number of digits behind the point.
        scale: u8,
    },
    /// A string behind a length of this many bytes.
    Text(u8),
    /// A BLOB or TEXT behind a length of this many bytes.
    Blob(u8),
    /// FLOAT or DOUBLE, of this many bytes.
    Float(u8),
    /// DATE.
    Date,
    /// DATETIME, with this many bytes of fraction.
    DateTime(u8),
    /// TIMESTAMP, with this many bytes of fraction.
    Timestamp(u8),
    /// BIT, of this many bytes.
    Bits(u16),
    /// A value without a normal form, behind a length of this many bytes.
    Opaque(u8),
    /// A value without a normal form, of this many bytes.
    Fixed(u16),
}

impl Form {
    /// Reads the metadata of a column of this type. None if the type is unknown or its values have no known length: MariaDB does not state the length
    /// of the date and time types from before MySQL 5.6.
    pub(super) fn decode(kind: u8, metadata: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        const WHAT: &str = "column metadata";
        let fraction = |metadata: &mut Reader<'_>| match metadata.u8(WHAT)? {
            digits @ 0..=6 => Ok(digits.div_ceil(2)),
            _ => Err(Malformed::Invalid(WHAT)),
        };
        let prefix = |metadata: &mut Reader<'_>| match metadata.u8(WHAT)? {
            bytes @ 1..=4 => Ok(bytes),
            _ => Err(Malformed::Invalid(WHAT)),
        };
        let prefix_of = |length: u16| if length > 255 { 2 } else { 1 };
        Ok(Some(match kind {
            1 => Self::Int(1),
            2 => Self::Int(2),
            3 => Self::Int(4),
            8 => Self::Int(8),
            9 => Self::Int(3),
            4 | 5 => match metadata.u8(WHAT)? {
                bytes @ (4 | 8) => Self::Float(bytes),
                bytes => Self::Fixed(u16::from(bytes)),
            },
            6 => Self::Fixed(0),
            10 | 14 => Self::Date,
            13 => Self::Fixed(1),
            15 | 253 => Self::Text(prefix_of(metadata.le_u16(WHAT)?)),
            16 => {
                let (bits, bytes) = (metadata.u8(WHAT)?, metadata.u8(WHAT)?);
                Self::Bits(u16::from(bytes) + u16::from(bits > 0))
            }
            17 => Self::Timestamp(fraction(metadata)?),
            18 => Self::DateTime(fraction(metadata)?),
            19 => Self::Fixed(3 + u16::from(fraction(metadata)?)),
            // MariaDB's COMPRESSED BLOB and VARCHAR, VECTOR; JSON, GEOMETRY
            140 | 242 | 245 | 255 => Self::Opaque(prefix(metadata)?),
            141 => Self::Opaque(prefix_of(metadata.le_u16(WHAT)?)),
            246 => {
                let (precision, scale) = (metadata.u8(WHAT)?, metadata.u8(WHAT)?);
                if scale > precision || precision > decimal::PRECISION_MAX {
                    return Err(Malformed::Invalid(WHAT));
                }
                Self::Decimal { precision, scale }
            }
            247..=248 | 254 => {
                let (real, length) = (metadata.u8(WHAT)?, metadata.u8(WHAT)?);
                string(real, length).ok_or(Malformed::Invalid(WHAT))?
            }
            249..=252 => Self::Blob(prefix(metadata)?),
            _ => return Ok(None),
        }))
    }
}

/// The metadata of CHAR, BINARY, ENUM and SET: the real type. Two of its bits belong to the length unless both are set
/// (`Field_string::do_save_field_metadata`).
fn string(real: u8, length: u8) -> Option<Form> {
    const ENUM: u8 = 247;
    const SET: u8 = 248;
    const STRING: u8 = 254;
    let high = u16::from((real & 0x30) ^ 0x30) << 4;
    match (real | 0x30, high | u16::from(length)) {
        (ENUM | SET, bytes @ 0..=8) => Some(Form::Fixed(bytes)),
        (STRING, length) => Some(Form::Text(if length > 255 { 2 } else { 1 })),
        _ => None,
    }
}

impl Column {
    /// Reads a value that is not NULL.
    pub(super) fn cell(self, reader: &mut Reader<'_>) -> Result<Cell, Malformed> {
        match self.form {
            Form::Int(bytes) => {
                let raw = reader.bytes(usize::from(bytes), "integer")?;
                Ok(self.integer(raw).map_or(Cell::Absent, |value| text(value.to_string().as_bytes())))
            }
            Form::Decimal { precision, scale } => Ok(text(decimal::decode(reader, precision, scale)?.as_bytes())),
            Form::Text(prefix) => Ok(text(prefixed(reader, prefix)?)),
            Form::Blob(prefix) => {
                let value = prefixed(reader, prefix)?;
                Ok(if value.len() <= BLOB_BYTES_MAX { text(value) } else { Cell::Absent })
            }
            Form::Float(bytes) => float(reader, bytes),
            Form::Date => Ok(text(date(little_endian(reader.bytes(3, "date")?)).as_bytes())),
            Form::DateTime(fraction) => {
                let packed = big_endian(reader.bytes(5, "date and time")?) & 0x7F_FFFF_FFFF;
                let micros = micros(reader, fraction)?;
                let (day, time) = (packed >> 17, packed & 0x1_FFFF);
                // A year counts thirteen months, because month 0 exists.
                let (months, day) = (day / 32, day % 32);
                let day = (months / 13) << 9 | (months % 13) << 5 | day;
                let (hours, minutes, seconds) = (time >> 12, time >> 6 & 63, time & 63);
                let shown = format!("{} {hours:02}:{minutes:02}:{seconds:02}.{micros:06}", date(day));
                Ok(text(shown.as_bytes()))
            }
            Form::Timestamp(fraction) => {
                let seconds = big_endian(reader.bytes(4, "timestamp")?);
                let micros = micros(reader, fraction)?;
                // 0 is the zero date, which has no normal form.
                let moment = i64::try_from(seconds * 1_000_000 + micros).ok().filter(|_| seconds > 0);
                let shown = moment.and_then(|moment| ValueType::TimestampTz.moment_text(moment));
                Ok(text(shown.as_deref().unwrap_or("0000-00-00 00:00:00").as_bytes()))
            }
            Form::Bits(bytes) => Ok(text(reader.bytes(usize::from(bytes), "bits")?)),
            Form::Opaque(prefix) => prefixed(reader, prefix).map(|_| Cell::Absent),
            Form::Fixed(bytes) => reader.bytes(usize::from(bytes), "value").map(|_| Cell::Absent),
        }
    }

    /// The value of an integer; None if it depends on an unknown sign.
    fn integer(self, little_endian: &[u8]) -> Option<i128> {
        let unsigned = little_endian.iter().rev().fold(0_i128, |sum, byte| sum << 8 | i128::from(*byte));
        let bits = little_endian.len() * 8;
        let negative = little_endian.last().is_some_and(|byte| byte & 0x80 != 0);
        match self.unsigned {
            _ if !negative => Some(unsigned),
            Some(true) => Some(unsigned),
            Some(false) => Some(unsigned - (1 << bits)),
            None => None,
        }
    }
}

/// `float4get` and `float8get` of the servers: IEEE 754, little-endian.
fn float(reader: &mut Reader<'_>, bytes: u8) -> Result<Cell, Malformed> {
    let raw = reader.bytes(usize::from(bytes), "floating-point number")?;
    let shown = match (<[u8; 4]>::try_from(raw), <[u8; 8]>::try_from(raw)) {
        (Ok(raw), _) => f32::from_le_bytes(raw).to_string(),
        (_, Ok(raw)) => f64::from_le_bytes(raw).to_string(),
        _ => return Ok(Cell::Absent),
    };
    Ok(text(shown.as_bytes()))
}

/// The lowest five bits are the day, the next four the month, the rest the year.
fn date(packed: u64) -> String {
    format!("{:04}-{:02}-{:02}", packed >> 9, packed >> 5 & 15, packed & 31)
}

/// The fraction of a second, two digits a byte (`my_timestamp_from_binary`).
fn micros(reader: &mut Reader<'_>, bytes: u8) -> Result<u64, Malformed> {
    let fraction = big_endian(reader.bytes(usize::from(bytes), "fraction of a second")?);
    Ok(fraction * 100_u64.pow(3_u32.saturating_sub(u32::from(bytes))))
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn text(bytes: &[u8]) -> Cell {
    Cell::Text(bytes.into())
}

/// A value behind a length of this many bytes.
fn prefixed<'a>(reader: &mut Reader<'a>, prefix: u8) -> Result<&'a [u8], Malformed> {
    let length = reader.bytes(usize::from(prefix), "value length")?;
    let length = length.iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    reader.bytes(length, "value")
}
