//! How PostgreSQL reads a parameter of a type so that its normal form can be compared with a column's.

use freshet_types::ValueType;

use crate::allowlist::types::oid;

/// The form in which a parameter of a type is read so that its normal form can be compared with the column's. None: the column's own type.
pub(crate) type Form = fn(ValueType, Option<u32>) -> Option<ValueType>;

/// Whether a cast from one type to the other never changes a value.
pub(crate) fn keeps_value(from: u32, to: u32) -> bool {
    let integer = |oid| matches!(oid, oid::INT2 | oid::INT4 | oid::INT8);
    let text = |oid| matches!(oid, oid::TEXT | oid::VARCHAR | oid::ANYENUM);
    from == to || (integer(from) && (integer(to) || to == oid::NUMERIC)) || (text(from) && text(to))
}

pub(crate) fn normal_form(column: ValueType, parameter: Option<u32>) -> Option<ValueType> {
    use ValueType::{Float4, Float8, Int, Numeric};
    let Some(parameter) = parameter else { return Some(column) };
    match (column, parameter) {
        // Both kinds of float are compared with other numbers as doubles.
        (Int | Numeric | Float4 | Float8, oid::INT2 | oid::INT4 | oid::INT8) => Some(Int),
        (Int | Numeric | Float4 | Float8, oid::NUMERIC) => Some(Numeric),
        (Float4 | Float8, oid::FLOAT4) => Some(Float4),
        (Float4 | Float8, oid::FLOAT8) => Some(Float8),
        // `text = char(n)` compares as text, without the padded side's trailing blanks.
        (ValueType::Text | ValueType::OrderedText, oid::TEXT | oid::VARCHAR) => Some(ValueType::Text),
        (ValueType::PaddedText, oid::TEXT | oid::VARCHAR | oid::BPCHAR) => Some(ValueType::PaddedText),
        (ValueType::Bool, oid::BOOL) => Some(ValueType::Bool),
        (ValueType::Uuid, oid::UUID) | (ValueType::Bytea, oid::BYTEA) | (ValueType::Enum, oid::ANYENUM) => Some(column),
        (ValueType::Date | ValueType::Timestamp, oid::DATE) => Some(ValueType::Date),
        (ValueType::Date | ValueType::Timestamp, oid::TIMESTAMP) => Some(ValueType::Timestamp),
        (ValueType::TimestampTz, oid::TIMESTAMPTZ) => Some(ValueType::TimestampTz),
        _ => None,
    }
}

/// The same for values whose comparison depends on the session's time zone: they are read as if it were UTC.
pub(crate) fn near_form(column: ValueType, parameter: Option<u32>) -> Option<ValueType> {
    match (column, parameter) {
        (ValueType::TimestampTz, None | Some(oid::TIMESTAMP | oid::TIMESTAMPTZ)) => Some(ValueType::Timestamp),
        (ValueType::TimestampTz, Some(oid::DATE)) => Some(ValueType::Date),
        (ValueType::Date | ValueType::Timestamp, Some(oid::TIMESTAMPTZ)) => Some(ValueType::TimestampTz),
        _ => None,
    }
}
