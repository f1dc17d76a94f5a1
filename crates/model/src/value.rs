//! Values in a normal form in which equality of the database implies equality here.
//!
//! The rule that everything rests on: if the database says a = b for a column of this type, then
//! `normalise(a) == normalise(b)`. The converse need not hold (over-invalidation is fine, under-invalidation
//! never is). Where the rule is not known to hold for a type, the type is [`ValueType::Other`] and has no
//! normal form: a tag over it is any row.

/// How the values of a column compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueType {
    /// `int2`, `int4`, `int8`.
    Int,
    /// `numeric`.
    Numeric,
    /// `text` and `varchar` under a deterministic collation: equal only if the bytes are.
    Text,
    /// `char(n)` under a deterministic collation: trailing blanks do not count.
    PaddedText,
    /// An enum: equal only if the label is.
    Enum,
    /// `bool`.
    Bool,
    /// `uuid`.
    Uuid,
    /// Anything else that is built in and is not a date or time: no normal form.
    Other,
    /// A date or time type: no normal form yet.
    DateTime,
}

/// A value other than NULL, in normal form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// An integer, also an integral numeric that fits.
    Int(i64),
    /// Any other numeric: sign, digits without leading or trailing zeros, point.
    Decimal(Box<str>),
    /// Text, in UTF-8.
    Text(Box<[u8]>),
    /// A truth value.
    Bool(bool),
    /// A uuid.
    Uuid(u128),
}

impl ValueType {
    /// The normal form of a value in PostgreSQL's text form; None if there is none or the text is not canonical
    /// enough to be sure, in which case the value must be taken as equal to anything.
    pub fn normalise_text(self, text: &[u8]) -> Option<Value> {
        match self {
            Self::Int => std::str::from_utf8(text).ok()?.trim_ascii().parse().ok().map(Value::Int),
            Self::Numeric => decimal(std::str::from_utf8(text).ok()?.trim_ascii()),
            Self::Text | Self::Enum => Some(Value::Text(text.into())),
            Self::PaddedText => {
                let blanks = text.iter().rev().take_while(|b| **b == b' ').count();
                text.get(..text.len() - blanks).map(|t| Value::Text(t.into()))
            }
            Self::Bool => match text {
                b"t" | b"true" => Some(Value::Bool(true)),
                b"f" | b"false" => Some(Value::Bool(false)),
                _ => None,
            },
            Self::Uuid => uuid(text),
            Self::Other | Self::DateTime => None,
        }
    }

    /// The normal form of a value in PostgreSQL's binary form, as a parameter of this type carries it.
    pub fn normalise_binary(self, bytes: &[u8]) -> Option<Value> {
        match self {
            Self::Int => match bytes.len() {
                2 => Some(Value::Int(i16::from_be_bytes(bytes.try_into().ok()?).into())),
                4 => Some(Value::Int(i32::from_be_bytes(bytes.try_into().ok()?).into())),
                8 => Some(Value::Int(i64::from_be_bytes(bytes.try_into().ok()?))),
                _ => None,
            },
            Self::Text | Self::Enum | Self::PaddedText => self.normalise_text(bytes),
            Self::Bool => match bytes {
                [0] => Some(Value::Bool(false)),
                [1] => Some(Value::Bool(true)),
                _ => None,
            },
            Self::Uuid => Some(Value::Uuid(u128::from_be_bytes(bytes.try_into().ok()?))),
            Self::Numeric | Self::Other | Self::DateTime => None,
        }
    }
}

/// Plain decimal notation only: an exponent, `NaN` or `Infinity` has no normal form here.
fn decimal(text: &str) -> Option<Value> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let sign = if negative && !(whole.is_empty() && fraction.is_empty()) { "-" } else { "" };
    if fraction.is_empty() {
        let whole = if whole.is_empty() { "0" } else { whole };
        if let Ok(int) = format!("{sign}{whole}").parse() {
            return Some(Value::Int(int));
        }
    }
    Some(Value::Decimal(format!("{sign}{whole}.{fraction}").into()))
}

/// Hexadecimal digits with hyphens anywhere and optional braces, as PostgreSQL's `uuid_in` accepts or stricter.
fn uuid(text: &[u8]) -> Option<Value> {
    let text = text.strip_prefix(b"{").and_then(|t| t.strip_suffix(b"}")).unwrap_or(text);
    let mut bits: u128 = 0;
    let mut digits = 0;
    for byte in text.iter().filter(|b| **b != b'-') {
        let digit = char::from(*byte).to_digit(16)?;
        bits = bits << 4 | u128::from(digit);
        digits += 1;
    }
    (digits == 32).then_some(Value::Uuid(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_have_one_form() {
        let form = |t: &str| ValueType::Numeric.normalise_text(t.as_bytes());
        for (a, b) in [("5", "5.00"), ("0", "-0.0"), ("007.50", "7.5"), (".5", "0.5"), ("1.", "1")] {
            assert_eq!(form(a), form(b), "{a} {b}");
            assert!(form(a).is_some());
        }
        assert_ne!(form("5"), form("-5"));
        assert_ne!(form("0.5"), form("5"));
        assert_eq!(form("1e3"), None);
        assert_eq!(form("NaN"), None);
        assert_eq!(form("9223372036854775808"), Some(Value::Decimal("9223372036854775808.".into())));
        assert_eq!(ValueType::Int.normalise_text(b" 42 "), form("42.0"));
        assert_eq!(ValueType::Int.normalise_binary(&[0, 0, 0, 42]), form("42"));
    }

    #[test]
    fn text_differs_by_every_byte_unless_padded() {
        assert_ne!(ValueType::Text.normalise_text(b"a"), ValueType::Text.normalise_text(b"a "));
        assert_eq!(ValueType::PaddedText.normalise_text(b"a"), ValueType::PaddedText.normalise_text(b"a  "));
        assert_ne!(ValueType::Text.normalise_text(b"a"), ValueType::Text.normalise_text(b"A"));
    }

    #[test]
    fn uuids_ignore_case_and_hyphens() {
        let a = ValueType::Uuid.normalise_text(b"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11");
        assert!(a.is_some());
        assert_eq!(a, ValueType::Uuid.normalise_text(b"{a0eebc999c0b4ef8bb6d6bb9bd380a11}"));
        assert_eq!(ValueType::Uuid.normalise_text(b"a0ee"), None);
    }
}
