//! Constants of MySQL and MariaDB that may be compared with a column so that "equal for the server" implies "equal here".
//!
//! The servers convert what they compare, mostly to floating point: `5 = '5abc'`, `0 = 'abc'`, and two decimals that differ in the twentieth digit
//! are equal if one of them is a text. So only constants that the server compares exactly have a normal form here: numbers with exact columns; texts
//! of printable ASCII with text columns; texts that are the plain form of an integer with integer columns, for integers that a double represents
//! exactly; texts that are the plain form of a date with date columns; and numbers with columns of doubles, where doubles are compared.

use std::borrow::Cow;
use std::net::IpAddr;

use freshet_types::{Value, ValueType};
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart};

use crate::allowlist::types::oid;
use crate::lex::literal::{Literal, LiteralKind};
use crate::lex::normalize::VIEWS_BASE;
use crate::predicate::Operand;
use crate::predicate::parameters::{Client, ParameterValue, Params};

/// Digits of a decimal constant that the servers keep: they truncate fractions to 30 digits.
const DIGITS_MAX: usize = 30;

/// Integers below this are exact as doubles.
const EXACT_MAX: i64 = 1 << 53;

/// In microseconds.
const DAY: i64 = 86_400_000_000;

/// The normal form of a constant that is compared with a column of this type; None if it may equal anything.
pub(crate) fn normal_form(column: ValueType, operand: Operand, value: ParameterValue<'_>) -> Option<Value> {
    if operand.cast.is_some() {
        return None;
    }
    match value {
        // An index search rounds a fraction, and reads a negative number as one of 64 unsigned bits.
        ParameterValue::Literal(Literal { kind: LiteralKind::Number, text })
            if column == ValueType::Bit && (operand.negated || !text.iter().all(u8::is_ascii_digit)) =>
        {
            None
        }
        ParameterValue::Integer(integer) if column == ValueType::Bit && integer < 0 => None,
        ParameterValue::Literal(Literal { kind: LiteralKind::Number, text }) => {
            let sign: &[u8] = if operand.negated { b"-" } else { b"" };
            let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
            exact(column).filter(|_| digits <= DIGITS_MAX)?.normalise_text(&[sign, text].concat())
        }
        _ if operand.negated => None,
        ParameterValue::Integer(integer) => {
            let form = exact(column)?;
            // MySQL may read a number beyond the signed integers as a negative double.
            let misread = form == ValueType::Float8 && i64::try_from(integer).is_err();
            (!misread).then(|| form.normalise_text(integer.to_string().as_bytes())).flatten()
        }
        ParameterValue::Literal(Literal { kind: LiteralKind::String, text }) => text_form(column, text),
        ParameterValue::Literal(Literal { kind: LiteralKind::Bits, text }) if column == ValueType::Bit => {
            // Also exact as a double.
            Some(text).filter(|bytes| bytes.len() <= 6).and_then(|bytes| column.normalise_text(bytes))
        }
        ParameterValue::Literal(Literal { kind: LiteralKind::Bytes | LiteralKind::Bits, text }) => {
            bytes_form(column, text)
        }
        ParameterValue::Bytes(bytes) => bytes_form(column, bytes),
        ParameterValue::Text(text) => text_form(column, text),
        ParameterValue::Moment(micros) => micros.filter(|micros| holds(column, *micros)).map(Value::Moment),
        _ => None,
    }
}

/// The bytes of a constant that is compared with a column of bytes. The server may convert the text to another character set first, which does not
/// change ASCII unless it is a wide one.
pub(crate) fn bytes<'v>(operand: Operand, value: ParameterValue<'v>, params: Params<'_>) -> Option<Cow<'v, [u8]>> {
    let Client { as_sent, wide, .. } = params.client;
    if let Some(function) = operand.cast {
        let plain = Operand { cast: None, ..operand };
        return made_of(function, plain_text(plain, value).filter(|_| !wide)?).map(Cow::Owned);
    }
    match value {
        _ if operand.negated => None,
        ParameterValue::Bytes(bytes) => Some(bytes),
        ParameterValue::Literal(Literal { kind: LiteralKind::Bytes | LiteralKind::Bits, text }) => Some(&**text),
        value => {
            // MariaDB prints `?` in a view's text for bytes that are not UTF-8, and converts texts of another character set.
            let in_view = operand.parameter > VIEWS_BASE;
            let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !(in_view && *byte == b'?');
            plain_text(operand, value).filter(|text| as_sent && !in_view || !wide && text.iter().all(is_plain))
        }
    }
    .map(Cow::Borrowed)
}

/// A function that returns the bytes of a constant, and the constant.
pub(crate) fn bytes_of(function: &Function) -> Option<(u32, &Expr)> {
    let [ObjectNamePart::Identifier(name)] = &*function.name.0 else { return None };
    let known = match name.value.to_ascii_lowercase().as_str() {
        "unhex" => oid::UNHEX,
        "uuid_to_bin" => oid::UUID_TO_BIN,
        _ => return None,
    };
    match &function.args {
        FunctionArguments::List(list) => match &*list.args {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] => Some((known, of)),
            _ => None,
        },
        _ => None,
    }
}

/// The bytes that a function returns for a text.
fn made_of(function: u32, text: &[u8]) -> Option<Vec<u8>> {
    match function {
        oid::UNHEX => {
            let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let byte = |pair: &[u8]| match pair {
                [high, low] => Some(digit(high)? << 4 | digit(low)?),
                _ => None,
            };
            text.chunks(2).map(byte).collect()
        }
        oid::UUID_TO_BIN => match ValueType::Uuid.normalise_text(text)? {
            Value::Uuid(bits) => Some(bits.to_be_bytes().into()),
            _ => None,
        },
        _ => None,
    }
}

/// For a text without a normal form that is compared with a text column: the beginning of the normal form of each text that may equal it.
pub(crate) fn beginning(column: ValueType, operand: Operand, value: ParameterValue<'_>) -> Option<Box<[u8]>> {
    column.beginning(plain_text(operand, value)?)
}

/// A constant that is compared as text.
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

/// Whether the server's comparison of a column with several constants is exact if it compares all in one way. With a text among them it compares
/// floating-point numbers; MySQL compares the bits of signed and unsigned integers (`-1 IN (1.5, 18446744073709551615)` is true there).
pub(crate) fn exact_together(column: ValueType, values: &[Value], text: bool) -> bool {
    let exact = |value: &Value| match value {
        Value::Int(integer) => {
            let signed = matches!(column, ValueType::Bit | ValueType::Unsigned) && *integer < 0;
            !signed && (!text || (1 - EXACT_MAX..EXACT_MAX).contains(integer))
        }
        Value::Decimal(digits) => !text && (column == ValueType::Numeric || !digits.ends_with('.')),
        _ => true,
    };
    values.iter().all(exact)
}

/// The type in which a number is read that is compared with a numeric column: floats compare as doubles.
fn exact(column: ValueType) -> Option<ValueType> {
    match column {
        ValueType::Bit | ValueType::Int | ValueType::Unsigned | ValueType::Numeric => Some(ValueType::Numeric),
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
        // Longer than the bytes, so that it cannot be the bytes.
        ValueType::MariadbUuid if text.len() >= 32 => column.normalise_text(text),
        ValueType::Inet4 | ValueType::Inet6 => {
            let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
            (address.is_ipv6() == (column == ValueType::Inet6)).then(|| column.normalise_text(text)).flatten()
        }
        _ => None,
    }
}

/// Bytes that are compared with a column of another type.
fn bytes_form(column: ValueType, bytes: &[u8]) -> Option<Value> {
    match column {
        ValueType::MariadbUuid | ValueType::Inet4 | ValueType::Inet6 => column.normalise_binary(bytes),
        _ => None,
    }
}

/// A date, or date and time, in the servers' own form.
fn local_moment(form: ValueType, text: &[u8]) -> Option<Value> {
    let plain = text.iter().all(|byte| byte.is_ascii_digit() || b"-: .".contains(byte));
    form.normalise_text(text).filter(|_| plain)
}

/// Whether a column of this type can have this time, in microseconds. A date column cannot have a time of day.
fn holds(column: ValueType, micros: i64) -> bool {
    match column {
        ValueType::Timestamp => true,
        ValueType::Date => micros.rem_euclid(DAY) == 0,
        _ => false,
    }
}

/// A constant that is compared with a TIMESTAMP, read as if the session's time zone were UTC.
pub(crate) fn moment(column: ValueType, operand: Operand, value: ParameterValue<'_>) -> Option<Value> {
    let text = plain_text(operand, value).filter(|_| column == ValueType::TimestampTz)?;
    local_moment(ValueType::Timestamp, text)
}
