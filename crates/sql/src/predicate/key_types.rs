//! Which types of columns compare alike, so that values of the one are keys of the other.

use freshet_types::ValueType;

/// Whether a column equals another one only if their normal forms do, whatever third value stands between them.
pub(crate) fn compare_alike(a: ValueType, b: ValueType) -> bool {
    use ValueType::{Bool, Bytea, Bytes, Date, ExactText, OrderedText, Text, Timestamp, Uuid};
    let number = |value_type| matches!(value_type, ValueType::Int | ValueType::Unsigned | ValueType::Numeric);
    let text = |value_type| matches!(value_type, Text | OrderedText);
    let alone = a.is_mariadb() || matches!(a, Bytea | Bytes | ExactText | Uuid | Bool | Date | Timestamp);
    (number(a) && number(b)) || (text(a) && text(b)) || (a == b && alone)
}

/// Whether a column equals another one only if their normal forms do, or one of them has none. Between two that are equal to a third
/// one without a normal form nothing holds, so constants do not travel; but among keys that were read that one is seen.
pub(crate) fn compare_by_keys(a: ValueType, b: ValueType) -> bool {
    a == ValueType::FoldedText && a == b
}

/// Whether nothing is rounded that becomes a key of this type: see `analyze/derived.rs`.
pub(crate) fn is_whole(value_type: ValueType) -> bool {
    use ValueType::{Bool, Bytes, Date, ExactText, FoldedText, Int, Unsigned, Uuid};
    matches!(value_type, Int | Unsigned | Bool | Date | Uuid | FoldedText | ExactText | Bytes)
}
