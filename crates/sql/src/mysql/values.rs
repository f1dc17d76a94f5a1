//! Which constants may be compared with which columns, so that "the server says equal" implies "equal here".
//!
//! The servers convert what they compare, mostly to floating point: `5 = '5abc'`, `0 = 'abc'`, two decimals that differ
//! in the twentieth digit are equal if one of them is a text. So only what is compared exactly has a normal form here:
//! numbers with exact columns, texts of printable ASCII with text columns, texts that are the plain form of an
//! integer with integer columns, within the integers that a double holds exactly, and texts that are the plain form of a date
//! with columns of dates; and what is compared as a double with columns of doubles.

use freshet_model::{Value, ValueType};

use crate::footprint::ParameterValue;
use crate::params::Params;
use crate::predicate::Operand;
use crate::{Literal, LiteralKind};

/// Digits of a decimal constant that the servers keep for sure: they cut fractions to 30 digits.
const DIGITS_MAX: usize = 30;
/// Integers below this are doubles.
const EXACT_MAX: i64 = 1 << 53;

/// The normal form of a constant that is compared with a column of this type; None: it may equal anything.
pub(crate) fn normal_form(column: ValueType, operand: Operand, value: ParameterValue<'_>) -> Option<Value> {
    if operand.cast.is_some() {
        return None;
    }
    match value {
        ParameterValue::Literal(Literal { kind: LiteralKind::Number, text }) => {
            let sign: &[u8] = if operand.negated { b"-" } else { b"" };
            let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
            exact(column).filter(|_| digits <= DIGITS_MAX)?.normalise_text(&[sign, text].concat())
        }
        _ if operand.negated => None,
        ParameterValue::Integer(integer) => {
            let form = exact(column)?;
            // MySQL may read one beyond the signed integers as a negative double.
            let misread = form == ValueType::Float8 && i64::try_from(integer).is_err();
            (!misread).then(|| form.normalise_text(integer.to_string().as_bytes())).flatten()
        }
        ParameterValue::Literal(Literal { kind: LiteralKind::String, text }) => text_form(column, text),
        ParameterValue::Text(text) => text_form(column, text),
        _ => None,
    }
}

/// A constant that is compared with a column of bytes, as its bytes. Texts may reach the comparison in another character set, in which
/// those of ASCII are the same if it is not wide.
pub(crate) fn bytes<'v>(operand: Operand, value: ParameterValue<'v>, params: Params<'_>) -> Option<&'v [u8]> {
    let Params { as_sent, wide, .. } = params;
    match value {
        ParameterValue::Bytes(bytes) => Some(bytes).filter(|_| operand.cast.is_none() && !operand.negated),
        value => plain_text(operand, value)
            .filter(|text| as_sent || !wide && text.iter().all(|byte| matches!(byte, b' '..=b'~'))),
    }
}

/// For a text without a normal form that is compared with a column of texts: with what the normal form of each text begins
/// that may equal it.
pub(crate) fn beginning(column: ValueType, operand: Operand, value: ParameterValue<'_>) -> Option<Box<[u8]>> {
    column.beginning(plain_text(operand, value)?)
}

/// A constant that is compared as the text that it is.
pub(crate) fn plain_text(operand: Operand, value: ParameterValue<'_>) -> Option<&[u8]> {
    match value {
        _ if operand.cast.is_some() || operand.negated => None,
        ParameterValue::Literal(Literal { kind: LiteralKind::String, text }) => Some(text),
        ParameterValue::Text(text) => Some(text),
        _ => None,
    }
}

/// Whether a constant is a text.
pub(crate) fn is_text(value: ParameterValue<'_>) -> bool {
    matches!(value, ParameterValue::Text(_) | ParameterValue::Literal(Literal { kind: LiteralKind::String, .. }))
}

/// Whether several constants are compared with a column exactly where the server may compare all in one way. A text among
/// them makes floating-point numbers of all; MySQL compares the bits of integers that differ in sign or not
/// (`-1 IN (1.5, 18446744073709551615)` is true there).
pub(crate) fn exact_together(column: ValueType, values: &[Value], text: bool) -> bool {
    let exact = |value: &Value| match value {
        Value::Int(integer) => {
            let signed = column == ValueType::Unsigned && *integer < 0;
            !signed && (!text || (1 - EXACT_MAX..EXACT_MAX).contains(integer))
        }
        Value::Decimal(digits) => !text && (column == ValueType::Numeric || !digits.ends_with('.')),
        _ => true,
    };
    values.iter().all(exact)
}

/// How a number is read that is compared with a column of numbers: floats compare as doubles.
fn exact(column: ValueType) -> Option<ValueType> {
    match column {
        ValueType::Int | ValueType::Unsigned | ValueType::Numeric => Some(ValueType::Numeric),
        ValueType::Float4 | ValueType::Float8 => Some(ValueType::Float8),
        _ => None,
    }
}

fn text_form(column: ValueType, text: &[u8]) -> Option<Value> {
    match column {
        ValueType::FoldedText | ValueType::ExactText => column.normalise_text(text),
        ValueType::Int | ValueType::Unsigned => {
            let text = std::str::from_utf8(text).ok()?;
            let integer: i64 = text.parse().ok()?;
            let plain = integer.to_string() == text && (1 - EXACT_MAX..EXACT_MAX).contains(&integer);
            plain.then_some(Value::Int(integer))
        }
        ValueType::Float4 | ValueType::Float8 if text.len() <= DIGITS_MAX => ValueType::Float8.normalise_text(text),
        ValueType::Date | ValueType::Timestamp => local_moment(column, text),
        _ => None,
    }
}

/// A date, or date and time, as the servers spell it.
fn local_moment(form: ValueType, text: &[u8]) -> Option<Value> {
    let plain = text.iter().all(|byte| byte.is_ascii_digit() || b"-: .".contains(byte));
    form.normalise_text(text).filter(|_| plain)
}

/// A constant that is compared with a TIMESTAMP, as if the session's zone were UTC.
pub(crate) fn moment(column: ValueType, operand: Operand, value: ParameterValue<'_>) -> Option<Value> {
    let text = plain_text(operand, value).filter(|_| column == ValueType::TimestampTz)?;
    local_moment(ValueType::Timestamp, text)
}
