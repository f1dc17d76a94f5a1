//! Values of an answer's rows, and the rows that sort no later than a given row.

use freshet_types::{ComparedColumn, Test, Value, ValueType};

use crate::analysis::Order;

/// A value in a row of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field<'a> {
    /// NULL
    Null,
    /// In the server's text form.
    Text(&'a [u8]),
    /// In PostgreSQL's binary form.
    Binary(&'a [u8]),
    /// A value that is not read.
    Other,
}

/// The value of a column in the answer, in its normal form. None if it is NULL or has no normal form. Texts are in UTF-8, or must be ASCII.
pub(crate) fn shown_value(column: &ComparedColumn, field: Field<'_>, utf8: bool) -> Option<Value> {
    let value = match field {
        Field::Null | Field::Other => None,
        Field::Text(text) => column.value_type.normalise_text(text),
        Field::Binary(bytes) => column.value_type.normalise_binary(bytes),
    };
    // Bytes are never converted to another encoding.
    let is_same = utf8 || column.value_type == ValueType::Bytes;
    value.filter(|value| is_same || !matches!(value, Value::Text(text) if !text.is_ascii()))
}

/// Tests of the rows that sort no later than a row with this key; None: any row.
pub(crate) fn up_to(column: &ComparedColumn, order: Order, last: Field<'_>, utf8: bool) -> Option<Vec<Test>> {
    let Order { descending, nulls_first } = order;
    if last == Field::Null {
        return nulls_first.then(|| vec![Test::Null]);
    }
    let key = shown_value(column, last, utf8)?.order_key();
    let (low, high) = if descending { (key, u64::MAX) } else { (0, key) };
    Some(std::iter::once(Test::Within { low, high }).chain(nulls_first.then_some(Test::Null)).collect())
}
