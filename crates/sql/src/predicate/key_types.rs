//! Types of columns that compare alike, so that values of one are keys of the other.

use freshet_types::ValueType;

/// Whether two columns are equal only if their normal forms are, also through a third value.
pub(crate) fn compare_alike(a: ValueType, b: ValueType) -> bool {
    use ValueType::{Bool, Bytea, Bytes, Date, ExactText, OrderedText, Text, Timestamp, Uuid};
    let number = |value_type| matches!(value_type, ValueType::Int | ValueType::Unsigned | ValueType::Numeric);
    let text = |value_type| matches!(value_type, Text | OrderedText);
    let alone = a.is_mariadb() || matches!(a, Bytea | Bytes | ExactText | Uuid | Bool | Date | Timestamp);
    (number(a) && number(b)) || (text(a) && text(b)) || (a == b && alone)
}

/// Whether two columns are equal only if their normal forms are, or one of them has none. Two values that equal a third one without a normal form
/// need not be equal, so constants are not propagated. Among keys that were read, a key without a normal form is noticed.
pub(crate) fn compare_by_keys(a: ValueType, b: ValueType) -> bool {
    a == ValueType::FoldedText && a == b
}

/// Whether a key of this type is never rounded: see `analyze/derived.rs`.
pub(crate) fn is_whole(value_type: ValueType) -> bool {
    use ValueType::{Bool, Bytes, Date, ExactText, FoldedText, Int, Unsigned, Uuid};
    matches!(value_type, Int | Unsigned | Bool | Date | Uuid | FoldedText | ExactText | Bytes)
}
