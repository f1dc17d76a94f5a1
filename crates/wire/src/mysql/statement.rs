//! Statements of clients: a text with optional attributes, or the number of a prepared statement with parameters in
//! binary form.

use super::capabilities::Capabilities;
use crate::reader::{Malformed, Reader};

/// Flag of COM_STMT_EXECUTE: the number of parameters is in the message (with attributes among them).
const PARAMETER_COUNT_AVAILABLE: u8 = 0x08;
/// The most attributes or parameters that are decoded; the server has the same limit.
const PARAMETERS_MAX: u64 = 0xffff;

/// A COM_QUERY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The text, in the session's `character_set_client`.
    pub text: &'a [u8],
    /// The statement has attributes, which functions of the server's components can read.
    pub has_attributes: bool,
}

impl<'a> Query<'a> {
    /// Reads a payload, with the command's byte.
    pub fn parse(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        reader.u8("command")?;
        if !capabilities.has(Capabilities::QUERY_ATTRIBUTES) {
            return Ok(Self { text: reader.rest(), has_attributes: false });
        }
        let count = parameter_count(&mut reader)?;
        reader.lenenc("number of parameter sets")?;
        if count > 0 {
            Parameters { reader, count, named: true }.read(None, &mut reader)?;
        }
        Ok(Self { text: reader.rest(), has_attributes: count > 0 })
    }
}

fn parameter_count(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    let count = reader.lenenc("number of parameters")?;
    if count > PARAMETERS_MAX {
        return Err(Malformed::Invalid("number of parameters"));
    }
    Ok(count as usize)
}

/// A COM_STMT_EXECUTE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    /// The statement's number; all ones for the one prepared last (MariaDB).
    pub statement: u32,
    /// Whether a cursor is wanted, and [`PARAMETER_COUNT_AVAILABLE`].
    pub flags: u8,
    /// The rest: the parameters as received.
    pub tail: &'a [u8],
}

/// Parameters as they are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound<'a> {
    /// Two bytes for each parameter: its type, and 0x80 if unsigned. Must be remembered for messages without types.
    pub types: Vec<u8>,
    /// The types were in this message.
    pub has_types: bool,
    /// The values, without attributes.
    pub values: Vec<Value<'a>>,
    /// The statement has attributes.
    pub has_attributes: bool,
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL
    Null,
    /// Of an integer type.
    Integer(i128),
    /// A character string in the session's `character_set_client`.
    Text(&'a [u8]),
    /// Any other value, as received: binary strings, decimals, floating point numbers, dates, JSON.
    Opaque(&'a [u8]),
}

impl<'a> Execute<'a> {
    /// Reads a payload, with the command's byte.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        reader.u8("command")?;
        let (statement, flags) = (reader.le_u32("statement id")?, reader.u8("flags")?);
        reader.le_u32("iterations")?;
        Ok(Self { statement, flags, tail: reader.rest() })
    }

    /// The rows are to be fetched.
    pub fn wants_cursor(&self) -> bool {
        self.flags & !PARAMETER_COUNT_AVAILABLE != 0
    }

    /// Reads the parameters of a statement that has so many; `known_types` are those of an earlier message.
    ///
    /// Values that were sent before by COM_STMT_SEND_LONG_DATA are not in the message, so a statement with them must
    /// not be read. An error means that the message was not understood. It may still be forwarded.
    pub fn bind(
        &self,
        parameters: u16,
        capabilities: Capabilities,
        known_types: Option<&[u8]>,
    ) -> Result<Bound<'a>, Malformed> {
        let mut reader = Reader::new(self.tail);
        let mut count = usize::from(parameters);
        let named = capabilities.has(Capabilities::QUERY_ATTRIBUTES);
        if named && self.flags & PARAMETER_COUNT_AVAILABLE != 0 {
            count = parameter_count(&mut reader)?;
        }
        if count < usize::from(parameters) {
            return Err(Malformed::Invalid("number of parameters"));
        }
        if count == 0 {
            return Ok(Bound { types: Vec::new(), has_types: false, values: Vec::new(), has_attributes: false });
        }
        let mut bound = Parameters { reader, count, named }.read(known_types, &mut reader)?;
        reader.finish()?;
        bound.has_attributes = count > usize::from(parameters);
        bound.values.truncate(usize::from(parameters));
        Ok(bound)
    }
}

/// Parameters or attributes, from the NULL bitmap on.
struct Parameters<'a> {
    reader: Reader<'a>,
    count: usize,
    /// Types are followed by names.
    named: bool,
}

impl<'a> Parameters<'a> {
    fn read(mut self, known_types: Option<&[u8]>, rest: &mut Reader<'a>) -> Result<Bound<'a>, Malformed> {
        let nulls = self.reader.bytes(self.count.div_ceil(8), "NULL bitmap")?;
        let has_types = self.reader.u8("whether types follow")? != 0;
        let types = if has_types { self.types()? } else { known_types.unwrap_or_default().to_vec() };
        if types.len() < self.count * 2 {
            return Err(Malformed::Truncated("parameter types"));
        }
        let mut values = Vec::new();
        for (at, kind) in types.chunks_exact(2).take(self.count).enumerate() {
            let null = nulls.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
            values.push(if null { Value::Null } else { self.value(kind)? });
        }
        *rest = self.reader;
        Ok(Bound { types, has_types, values, has_attributes: false })
    }

    fn types(&mut self) -> Result<Vec<u8>, Malformed> {
        if !self.named {
            return self.reader.bytes(self.count * 2, "parameter types").map(<[u8]>::to_vec);
        }
        let mut types = Vec::new();
        for _ in 0..self.count {
            types.extend_from_slice(self.reader.bytes(2, "parameter type")?);
            self.reader.lenenc_bytes("parameter name")?;
        }
        Ok(types)
    }

    fn value(&mut self, kind: &[u8]) -> Result<Value<'a>, Malformed> {
        let (tag, unsigned) = match *kind {
            [tag, flags] => (tag, flags & 0x80 != 0),
            _ => return Err(Malformed::Truncated("parameter type")),
        };
        let reader = &mut self.reader;
        Ok(match tag {
            types::NULL => Value::Null,
            types::TINY => integer(reader.array::<1>(WHAT)?, unsigned),
            types::SHORT => integer(reader.array::<2>(WHAT)?, unsigned),
            types::LONG => integer(reader.array::<4>(WHAT)?, unsigned),
            types::LONGLONG => integer(reader.array::<8>(WHAT)?, unsigned),
            types::FLOAT => Value::Opaque(reader.bytes(4, WHAT)?),
            types::DOUBLE => Value::Opaque(reader.bytes(8, WHAT)?),
            types::TIMESTAMP | types::DATE | types::TIME | types::DATETIME => {
                let length = usize::from(reader.u8(WHAT)?);
                Value::Opaque(reader.bytes(length, WHAT)?)
            }
            types::VARCHAR | types::VAR_STRING | types::STRING => Value::Text(reader.lenenc_bytes(WHAT)?),
            // A decimal is not a string: it is compared as a number.
            types::DECIMAL | types::NEWDECIMAL | types::JSON | types::TINY_BLOB..=types::BLOB => {
                Value::Opaque(reader.lenenc_bytes(WHAT)?)
            }
            // The servers differ in what they take for these, and no driver sends them.
            _ => return Err(Malformed::UnknownTag { what: "parameter type", tag }),
        })
    }
}

const WHAT: &str = "parameter";

/// A little-endian integer of up to eight bytes.
fn integer<const N: usize>(bytes: [u8; N], unsigned: bool) -> Value<'static> {
    let negative = !unsigned && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut all = if negative { [0xff; 16] } else { [0; 16] };
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = from;
    }
    Value::Integer(i128::from_le_bytes(all))
}

/// Types of columns and parameters (`enum_field_types`).
pub mod types {
    /// Decimal in text form, of old.
    pub const DECIMAL: u8 = 0x00;
    /// One byte.
    pub const TINY: u8 = 0x01;
    /// Two bytes.
    pub const SHORT: u8 = 0x02;
    /// Four bytes.
    pub const LONG: u8 = 0x03;
    /// Four bytes, IEEE 754.
    pub const FLOAT: u8 = 0x04;
    /// Eight bytes, IEEE 754.
    pub const DOUBLE: u8 = 0x05;
    /// No value.
    pub const NULL: u8 = 0x06;
    /// Point in time.
    pub const TIMESTAMP: u8 = 0x07;
    /// Eight bytes.
    pub const LONGLONG: u8 = 0x08;
    /// Four bytes, of which three are used.
    pub const INT24: u8 = 0x09;
    /// Date.
    pub const DATE: u8 = 0x0a;
    /// Span of time.
    pub const TIME: u8 = 0x0b;
    /// Date and time.
    pub const DATETIME: u8 = 0x0c;
    /// Two bytes.
    pub const YEAR: u8 = 0x0d;
    /// Character string.
    pub const VARCHAR: u8 = 0x0f;
    /// JSON text.
    pub const JSON: u8 = 0xf5;
    /// Decimal in text form.
    pub const NEWDECIMAL: u8 = 0xf6;
    /// Binary string; the next two too.
    pub const TINY_BLOB: u8 = 0xf9;
    /// Binary string, the last of four.
    pub const BLOB: u8 = 0xfc;
    /// Character string.
    pub const VAR_STRING: u8 = 0xfd;
    /// Character string.
    pub const STRING: u8 = 0xfe;
}

#[cfg(test)]
#[path = "statement_tests.rs"]
mod tests;
