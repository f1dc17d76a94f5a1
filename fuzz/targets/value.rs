//! Normal forms of values: what PostgreSQL calls equal must be equal here.

#![no_main]

use freshet_fuzz::bounded;
use freshet_types::{Value, ValueType};
use libfuzzer_sys::fuzz_target;

const ALL: [ValueType; 13] = [
    ValueType::Int,
    ValueType::Unsigned,
    ValueType::Numeric,
    ValueType::Text,
    ValueType::PaddedText,
    ValueType::FoldedText,
    ValueType::ExactText,
    ValueType::Enum,
    ValueType::Bool,
    ValueType::Uuid,
    ValueType::Other,
    ValueType::DateTime,
    ValueType::Time,
];

fuzz_target!(|data: &[u8]| {
    for kind in ALL {
        bounded(data.len() * 4 + 256, || (kind.normalise_text(data), kind.normalise_binary(data)));
    }
    texts(data);
    if let Some(value) = ValueType::Int.normalise_text(data) {
        integer(data, &value);
    }
    if let Some(value) = ValueType::Numeric.normalise_text(data) {
        number(data, &value);
    }
    if let Some(Value::Uuid(bits)) = ValueType::Uuid.normalise_text(data) {
        assert_eq!(ValueType::Uuid.normalise_binary(&bits.to_be_bytes()), Some(Value::Uuid(bits)));
        assert_eq!(ValueType::Uuid.normalise_text(format!("{{{bits:032X}}}").as_bytes()), Some(Value::Uuid(bits)));
    }
});

fn texts(data: &[u8]) {
    assert_eq!(ValueType::Text.normalise_text(data), Some(Value::Text(data.into())));
    assert_eq!(ValueType::Text.normalise_binary(data), Some(Value::Text(data.into())));
    let padded = ValueType::PaddedText.normalise_text(data);
    assert!(padded.is_some());
    assert_eq!(padded, ValueType::PaddedText.normalise_text(&[data, b"  "].concat()));
    for mysql in [ValueType::FoldedText, ValueType::ExactText] {
        let form = mysql.normalise_text(data);
        assert_eq!(form, mysql.normalise_text(&[data, b"  "].concat()));
        assert!(form.is_none() || data.is_ascii());
    }
    let folded = ValueType::FoldedText.normalise_text(data);
    assert_eq!(folded, ValueType::FoldedText.normalise_text(&data.to_ascii_uppercase()));
}

fn integer(data: &[u8], value: &Value) {
    let Value::Int(int) = *value else { panic!("an integer has the form {value:?}") };
    for text in [int.to_string(), format!(" {int}.00 ")] {
        assert_eq!(ValueType::Numeric.normalise_text(text.as_bytes()), Some(Value::Int(int)));
    }
    assert_eq!(ValueType::Numeric.normalise_text(data), Some(Value::Int(int)));
    assert_eq!(ValueType::Int.normalise_binary(&int.to_be_bytes()), Some(Value::Int(int)));
    if let Ok(small) = i32::try_from(int) {
        assert_eq!(ValueType::Int.normalise_binary(&small.to_be_bytes()), Some(Value::Int(int)));
    }
    if let Ok(small) = i16::try_from(int) {
        assert_eq!(ValueType::Int.normalise_binary(&small.to_be_bytes()), Some(Value::Int(int)));
    }
}

/// Zeros and a plus sign change nothing; a digit or the sign does.
fn number(data: &[u8], value: &Value) {
    let form = |text: &str| ValueType::Numeric.normalise_text(text.as_bytes());
    let text = std::str::from_utf8(data).expect("it has a form").trim_ascii();
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (if text.starts_with('-') { "-" } else { "" }, digits),
        None => ("", text),
    };
    let point = if digits.contains('.') { "" } else { "." };
    assert_eq!(form(&format!("{sign}00{digits}")).as_ref(), Some(value));
    assert_eq!(form(&format!("{sign}{digits}{point}000")).as_ref(), Some(value));
    assert_ne!(form(&format!("{sign}{digits}{point}0001")).as_ref(), Some(value));
    let opposite = form(&format!("{}{digits}", if sign.is_empty() { "-" } else { "" }));
    assert_eq!(opposite.as_ref() == Some(value), *value == Value::Int(0));
}
