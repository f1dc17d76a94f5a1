//! A short form of tags, for the expectations of both families' tests.

use freshet_types::{ComparedColumn, Pattern, Piece, Term, Test, Value, ValueType};

/// `quoted`: texts are in quotation marks.
pub(crate) fn show_terms(terms: &[Term], quoted: bool) -> String {
    let value = |value: &Value| match value {
        Value::Int(int) => int.to_string(),
        Value::Decimal(digits) => digits.to_string(),
        Value::Text(text) if quoted => format!("'{}'", String::from_utf8_lossy(text)),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Uuid(bits) => format!("{bits:032x}"),
        Value::Float(key) => format!("float {key:x}"),
        Value::Moment(micros) => ValueType::Timestamp.moment_text(*micros).unwrap(),
    };
    let number = |column: &ComparedColumn, key: u64| match (key, (key ^ (1 << 63)).cast_signed()) {
        (0 | u64::MAX, _) => String::new(),
        (_, key) => column.value_type.moment_text(key).unwrap_or_else(|| key.to_string()),
    };
    let term = |Term { column, test }: &Term| match test {
        Test::In(values) => format!("{}={}", column.name, values.iter().map(value).collect::<Vec<_>>().join("|")),
        Test::Null => format!("{} null", column.name),
        Test::Within { low, high } => {
            format!("{}={}..{}", column.name, number(column, *low), number(column, *high))
        }
        Test::Begins(beginning) => format!("{}={}*", column.name, String::from_utf8_lossy(beginning)),
        Test::NotNull => format!("{} not null", column.name),
        Test::Row(test) => format!("({})", test.columns.join(" ")),
        Test::OrNull(test) => {
            format!("{}?", show_terms(&[Term { column: column.clone(), test: (**test).clone() }], quoted))
        }
        Test::Not(values) => format!("{}<>{}", column.name, values.iter().map(value).collect::<Vec<_>>().join("|")),
        Test::Like(pattern) => {
            let Pattern { pieces, negated, folded, .. } = &**pattern;
            let piece = |piece: &Piece| match piece {
                Piece::Byte(byte) => char::from(*byte),
                Piece::One => '?',
                Piece::Any => '*',
            };
            let (sign, case) = (if *negated { "!~" } else { "~" }, if *folded { "i" } else { "" });
            format!("{}{sign}{}{case}", column.name, pieces.iter().map(piece).collect::<String>())
        }
    };
    terms.iter().map(term).collect::<Vec<_>>().join(",")
}
