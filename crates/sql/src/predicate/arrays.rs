//! PostgreSQL's arrays as parameters: text and binary format (`array_in`, `array_recv` in `arrayfuncs.c`).
//!
//! Only arrays of one dimension without explicit bounds are read, as drivers send them. Other arrays are treated as unknown.

use freshet_types::{Value, ValueType};

use crate::allowlist::types::oid;

/// The OID of the elements of a built-in array type whose values have a normal form.
pub(crate) fn element_type(array: u32) -> Option<u32> {
    match array {
        1000 => Some(oid::BOOL),
        1005 => Some(oid::INT2),
        1007 => Some(oid::INT4),
        1009 => Some(oid::TEXT),
        1014 => Some(oid::BPCHAR),
        1015 => Some(oid::VARCHAR),
        1016 => Some(oid::INT8),
        1021 => Some(oid::FLOAT4),
        1022 => Some(oid::FLOAT8),
        1115 => Some(oid::TIMESTAMP),
        1182 => Some(oid::DATE),
        1185 => Some(oid::TIMESTAMPTZ),
        1231 => Some(oid::NUMERIC),
        2951 => Some(oid::UUID),
        _ => None,
    }
}

/// The elements of an array in text format, without NULLs; None if one of them has no normal form.
pub(crate) fn of_text(text: &[u8], form: ValueType) -> Option<Vec<Value>> {
    let inner = trimmed(text).strip_prefix(b"{")?.strip_suffix(b"}")?;
    let mut values = Vec::new();
    if trimmed(inner).is_empty() {
        return Some(values);
    }
    let mut rest = Some(inner);
    while let Some(from) = rest {
        let (element, after) = element(from)?;
        rest = after;
        if let Some(element) = element {
            values.push(form.normalise_text(&element)?);
        }
    }
    Some(values)
}

/// The first element, and the text behind its comma; None for NULL.
type First<'a> = (Option<Vec<u8>>, Option<&'a [u8]>);

fn element(text: &[u8]) -> Option<First<'_>> {
    let after_comma = |at: usize| text.get(at + 1..);
    let text_start = text.iter().position(|byte| !is_blank(*byte))?;
    if text.get(text_start) != Some(&b'"') {
        let end = text.iter().position(|byte| *byte == b',');
        let element = trimmed(text.get(..end.unwrap_or(text.len()))?);
        let plain = !element.is_empty() && !element.iter().any(|byte| matches!(byte, b'{' | b'}' | b'"' | b'\\'));
        let value = (!element.eq_ignore_ascii_case(b"null")).then(|| element.to_vec());
        return plain.then_some((value, end.and_then(after_comma)));
    }
    let mut element = Vec::new();
    let mut bytes = text.iter().enumerate().skip(text_start + 1);
    let end = loop {
        match bytes.next()? {
            (_, b'\\') => element.push(*bytes.next()?.1),
            (at, b'"') => break at,
            (_, byte) => element.push(*byte),
        }
    };
    match bytes.find(|(_, byte)| !is_blank(**byte)) {
        None => Some((Some(element), None)),
        Some((at, b',')) if at > end => Some((Some(element), after_comma(at))),
        Some(_) => None,
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C)
}

fn trimmed(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_blank(*byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_blank(*byte)).map_or(start, |last| last + 1);
    text.get(start..end).unwrap_or_default()
}

/// The same in binary format.
pub(crate) fn of_binary(bytes: &[u8], form: ValueType) -> Option<Vec<Value>> {
    let mut rest = bytes;
    let mut integer = || {
        let (first, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        Some(i32::from_be_bytes(*first))
    };
    let (dimensions, _has_nulls, _element_type) = (integer()?, integer()?, integer()?);
    if dimensions == 0 {
        return Some(Vec::new());
    }
    let (count, _lower_bound) = (integer()?, integer()?);
    let mut values = Vec::new();
    for _ in 0..usize::try_from(count).ok()? {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // -1: NULL
        if let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) {
            let (element, after) = rest.split_at_checked(length)?;
            rest = after;
            values.push(form.normalise_binary(element)?);
        }
    }
    (dimensions == 1 && rest.is_empty()).then_some(values)
}
