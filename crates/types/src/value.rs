//! Values in a normal form: if the database calls two values equal, their normal forms are equal.
//!
//! Tags rely on this rule: if the database finds a = b for a column of this type, then `normalise(a) ==
//! normalise(b)`. The converse need not hold: needless invalidations are allowed, missed ones never. A type for which
//! the rule is not known to hold is [`ValueType::Other`] and has no normal form; a tag over it is any row.
//!
//! MySQL and MariaDB have their own rules to compare different types, and compare texts by collations. The `sql`
//! crate decides which parameters may be compared with which columns.

mod moment;
mod numbers;

use moment::Moment;
pub use moment::civil;
pub(crate) use moment::{floor_to, part_of};

/// How the values of a column compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueType {
    /// `int2`, `int4`, `int8`; the integers of MySQL except `BIGINT UNSIGNED`.
    Int,
    /// `BIGINT UNSIGNED` of MySQL.
    Unsigned,
    /// `numeric`; `DECIMAL` of MySQL.
    Numeric,
    /// `text` and `varchar` under a deterministic collation: equal only if the bytes are.
    Text,
    /// Like [`Self::Text`], under a collation that orders by the bytes of UTF-8: `C` and its kin.
    OrderedText,
    /// `char(n)` under a deterministic collation: trailing blanks do not count.
    PaddedText,
    /// Text of MySQL under a collation that belongs to no language. Values of printable ASCII are equal only if they
    /// are equal in lower case without trailing blanks. Values with any other character have no normal form.
    FoldedText,
    /// Like [`Self::FoldedText`], under `_bin`: case matters. Values with a normal form are ordered by its bytes,
    /// whether the collation pads or not.
    ExactText,
    /// Bytes of MySQL (BINARY, VARBINARY, BLOB). They are equal only if identical, except for trailing zeros, which
    /// the binlog omits from BINARY.
    Bytes,
    /// BIT of MySQL: its bytes as a number, the highest first.
    Bit,
    /// UUID of MariaDB.
    MariadbUuid,
    /// INET4 of MariaDB.
    Inet4,
    /// INET6 of MariaDB.
    Inet6,
    /// `bytea`: equal only if the bytes are.
    Bytea,
    /// An enum: equal only if the label is equal.
    Enum,
    /// `bool`.
    Bool,
    /// `uuid`.
    Uuid,
    /// Anything else that is built in and is not a date or time: no normal form.
    Other,
    /// `float4`; `FLOAT` of MySQL. It compares with other values as a double.
    Float4,
    /// `float8`; `DOUBLE` of MySQL.
    Float8,
    /// `date`; `DATE` of MySQL.
    Date,
    /// `timestamp`; `DATETIME` of MySQL.
    Timestamp,
    /// `timestamptz`; `TIMESTAMP` of MySQL: a moment, shown in the session's zone. Only texts with an offset have
    /// normal forms.
    TimestampTz,
    /// Any other date or time type, also arrays and ranges of dates: no normal form.
    DateTime,
    /// `timetz` and arrays of it: no normal form. A text without an offset takes the offset of the session's zone at
    /// the current date.
    TimeTz,
    /// `TIME` of MySQL: no normal form, since a comparison with a date adds the current date.
    Time,
}

/// A value other than NULL, in normal form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// An integer, also an integral numeric that fits.
    Int(i64),
    /// Any other numeric: sign, digits without leading or trailing zeros, point.
    Decimal(Box<str>),
    /// Text, in UTF-8; or bytes.
    Text(Box<[u8]>),
    /// A truth value.
    Bool(bool),
    /// A uuid.
    Uuid(u128),
    /// A date or time, in microseconds from 1970.
    Moment(i64),
    /// A double, as its [`Value::order_key`].
    Float(u64),
}

impl Value {
    /// A number that never falls as the values of one column rise: by number, or by the bytes of texts. Different
    /// values may have the same key.
    pub fn order_key(&self) -> u64 {
        let of_integer = |integer: i64| integer.cast_unsigned() ^ (1 << 63);
        match self {
            Self::Int(integer) | Self::Moment(integer) => of_integer(*integer),
            // Truncated towards zero. A number that does not fit lies beyond one end.
            Self::Decimal(text) => {
                let whole = text.split_once('.').map_or(&**text, |(whole, _)| whole);
                let end = if text.starts_with('-') { i64::MIN } else { i64::MAX };
                match whole {
                    "" | "-" => of_integer(0),
                    whole => of_integer(whole.parse().unwrap_or(end)),
                }
            }
            Self::Text(bytes) => Self::order_keys_from(bytes).0,
            Self::Bool(value) => u64::from(*value),
            Self::Uuid(bits) => u64::try_from(bits >> 64).unwrap_or(u64::MAX),
            Self::Float(key) => *key,
        }
    }

    /// The double to which a server converts the number.
    pub fn to_float(&self) -> Option<Self> {
        match self {
            Self::Int(integer) => ValueType::Float8.normalise_text(integer.to_string().as_bytes()),
            Self::Decimal(text) => ValueType::Float8.normalise_text(text.as_bytes()),
            Self::Float(_) => Some(self.clone()),
            _ => None,
        }
    }

    /// The value as a double.
    pub fn double(&self) -> Option<f64> {
        const SIGN: u64 = 1 << 63;
        let Self::Float(key) = self else { return None };
        Some(f64::from_bits(if key & SIGN == 0 { !key } else { key ^ SIGN }))
    }

    pub(crate) fn of_double(value: f64) -> Self {
        float(value)
    }

    /// Whether it is a double that single precision represents exactly.
    pub fn is_single(&self) -> bool {
        let Some(value) = self.double() else { return false };
        // The lower bits of its fraction are then zero, and its exponent is in the smaller range.
        let bits = value.to_bits();
        let exponent = bits >> 52 & 0x7FF;
        value == 0.0 || ((1023 - 126..=1023 + 127).contains(&exponent) && bits.trailing_zeros() >= 52 - 23)
    }

    /// The moment so many months and then days later. None if the value is no moment, or the result is out of range.
    pub fn later(&self, months: i64, days: i64) -> Option<Self> {
        match self {
            Self::Moment(micros) => moment::later(*micros, months, days).map(Self::Moment),
            _ => None,
        }
    }

    /// The moment so many microseconds later. None if the value is no moment, or the result is out of range.
    pub fn plus(&self, micros: i64) -> Option<Self> {
        match self {
            Self::Moment(moment) => moment::plus(*moment, micros).map(Self::Moment),
            _ => None,
        }
    }

    /// The microseconds since midnight of a text in the spelling `hh:mm:ss[.ffffff]`.
    pub fn time_of_day(text: &[u8]) -> Option<i64> {
        moment::time_of_day(text)
    }

    /// The lowest and the highest order key of texts with this prefix.
    pub fn order_keys_from(beginning: &[u8]) -> (u64, u64) {
        let key = |filling: u8| {
            let mut first = [filling; 8];
            first.iter_mut().zip(beginning).for_each(|(to, byte)| *to = *byte);
            u64::from_be_bytes(first)
        };
        (key(0), key(u8::MAX))
    }
}

impl ValueType {
    /// Whether its values are or may be dates. A text that is compared with one may be read as a date.
    pub fn is_date(self) -> bool {
        matches!(self, Self::Date | Self::Timestamp | Self::TimestampTz | Self::DateTime | Self::TimeTz)
    }

    /// Whether only MariaDB has the type. Normal forms of these types have no order.
    pub fn is_mariadb(self) -> bool {
        matches!(self, Self::MariadbUuid | Self::Inet4 | Self::Inet6)
    }

    /// The text of a moment that is the normal form of a value of this type; None if there is no text.
    pub fn moment_text(self, micros: i64) -> Option<String> {
        match self {
            Self::Date | Self::Timestamp => Some(moment::text(micros)),
            Self::TimestampTz if matches!(micros, i64::MIN | i64::MAX) => Some(moment::text(micros)),
            Self::TimestampTz => Some(format!("{}+00", moment::text(micros))),
            _ => None,
        }
    }

    /// The normal form of a value in PostgreSQL's text form. None if there is none, or the text is not certainly
    /// canonical: the value must then be taken as equal to anything.
    pub fn normalise_text(self, text: &[u8]) -> Option<Value> {
        match self {
            Self::Int => std::str::from_utf8(text).ok()?.trim_ascii().parse().ok().map(Value::Int),
            Self::Unsigned | Self::Numeric => decimal(std::str::from_utf8(text).ok()?.trim_ascii()),
            Self::Text | Self::OrderedText | Self::Enum => Some(Value::Text(text.into())),
            Self::PaddedText => {
                let blanks = text.iter().rev().take_while(|b| **b == b' ').count();
                text.get(..text.len() - blanks).map(|t| Value::Text(t.into()))
            }
            Self::FoldedText => printable(text).map(|t| Value::Text(t.to_ascii_lowercase().into())),
            Self::ExactText => printable(text).map(|t| Value::Text(t.into())),
            Self::Bytes => {
                let zeros = text.iter().rev().take_while(|b| **b == 0).count();
                text.get(..text.len() - zeros).map(|t| Value::Text(t.into()))
            }
            Self::Bit | Self::MariadbUuid | Self::Inet4 | Self::Inet6 => numbers::of_mysql(self, text),
            Self::Bytea => bytea(text).map(|bytes| Value::Text(bytes.into())),
            Self::Bool => match text {
                b"t" | b"true" => Some(Value::Bool(true)),
                b"f" | b"false" => Some(Value::Bool(false)),
                _ => None,
            },
            Self::Uuid => uuid(text),
            Self::Date | Self::Timestamp | Self::TimestampTz => {
                let Moment { micros, has_offset } = Moment::parse(text)?;
                let fits = has_offset.is_none_or(|offset| offset == (self == Self::TimestampTz));
                let micros = if self == Self::Date { moment::midnight(micros) } else { micros };
                fits.then_some(Value::Moment(micros))
            }
            Self::Float4 => {
                let float: f32 = float_text(text)?.parse().ok()?;
                float_value(float.into(), text)
            }
            Self::Float8 => float_value(float_text(text)?.parse().ok()?, text),
            Self::Other | Self::DateTime | Self::TimeTz | Self::Time => None,
        }
    }

    /// For a MySQL text without a normal form: the prefix of the normal forms of all texts that the server may call
    /// equal to it. This is the text before its first character that is not printable ASCII. The last character
    /// before it is left out, since the two may belong together.
    pub fn beginning(self, text: &[u8]) -> Option<Box<[u8]>> {
        let count = text.iter().take_while(|b| matches!(b, b' '..=b'~')).count();
        let text = text.get(..count.saturating_sub(1))?.trim_ascii_end();
        match self {
            Self::FoldedText => Some(text.to_ascii_lowercase().into()),
            Self::ExactText | Self::Bytes => Some(text.into()),
            _ => None,
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
            Self::Text | Self::OrderedText | Self::Enum | Self::PaddedText => self.normalise_text(bytes),
            Self::Bytea => Some(Value::Text(bytes.into())),
            Self::Float4 => Some(float(f32::from_be_bytes(bytes.try_into().ok()?).into())),
            Self::Float8 => Some(float(f64::from_be_bytes(bytes.try_into().ok()?))),
            Self::Bool => match bytes {
                [0] => Some(Value::Bool(false)),
                [1] => Some(Value::Bool(true)),
                _ => None,
            },
            Self::Uuid => Some(Value::Uuid(u128::from_be_bytes(bytes.try_into().ok()?))),
            Self::Date => moment::of_days(i32::from_be_bytes(bytes.try_into().ok()?)).map(Value::Moment),
            Self::Timestamp | Self::TimestampTz => {
                moment::of_micros(i64::from_be_bytes(bytes.try_into().ok()?)).map(Value::Moment)
            }
            // The bytes of a MariaDB constant.
            Self::MariadbUuid | Self::Inet4 | Self::Inet6 => numbers::of_bytes(self, bytes),
            Self::Numeric
            | Self::Other
            | Self::DateTime
            | Self::TimeTz
            // MySQL parameters have other binary forms.
            | Self::Unsigned
            | Self::FoldedText
            | Self::ExactText
            | Self::Bytes
            | Self::Bit
            | Self::Time => None,
        }
    }

    /// How a column of MySQL or MariaDB compares, by `DATA_TYPE`, `COLUMN_TYPE` and `COLLATION_NAME` of
    /// `information_schema.columns`.
    pub fn of_mysql_column(data_type: &str, column_type: &str, collation: Option<&str>) -> Self {
        let named = |wanted: &[&str]| wanted.iter().any(|name| data_type.eq_ignore_ascii_case(name));
        if named(&["tinyint", "smallint", "mediumint", "int"]) {
            Self::Int
        } else if named(&["bigint"]) {
            let unsigned = column_type.to_ascii_lowercase().contains("unsigned");
            if unsigned { Self::Unsigned } else { Self::Int }
        } else if named(&["decimal"]) {
            Self::Numeric
        } else if named(&["float", "double"]) && !column_type.contains('(') {
            // With a number of digits, they compare slightly different values as equal (`compare_real_fixed`).
            if named(&["float"]) { Self::Float4 } else { Self::Float8 }
        } else if named(&["char", "varchar", "tinytext", "text", "mediumtext", "longtext"]) {
            collation.map_or(Self::Other, of_collation)
        } else if named(&["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"]) {
            Self::Bytes
        } else if named(&["date"]) {
            Self::Date
        } else if named(&["datetime"]) {
            Self::Timestamp
        } else if named(&["timestamp"]) {
            Self::TimestampTz
        } else if named(&["time"]) {
            Self::Time
        } else if named(&["bit"]) {
            Self::Bit
        } else if named(&["uuid"]) {
            Self::MariadbUuid
        } else if named(&["inet4"]) {
            Self::Inet4
        } else if named(&["inet6"]) {
            Self::Inet6
        } else {
            // Floats with a number of digits, years, enums and sets (equal to both label and number), JSON, geometry,
            // plug-in types.
            Self::Other
        }
    }
}

/// How texts compare under a collation of MySQL or MariaDB. Language tailorings have contractions. Character sets
/// that are not listed may map ASCII bytes to other characters. Both have no normal form.
fn of_collation(name: &str) -> ValueType {
    let name = name.to_ascii_lowercase();
    let Some((charset, rules)) = name.split_once('_') else {
        return if name == "binary" { ValueType::Bytes } else { ValueType::Other };
    };
    match (charset, rules) {
        ("utf8" | "utf8mb3" | "utf8mb4" | "latin1" | "ascii", "bin" | "nopad_bin" | "0900_bin") => ValueType::ExactText,
        ("latin1", "swedish_ci" | "swedish_nopad_ci" | "general_ci" | "general_cs")
        | ("ascii", "general_ci" | "general_nopad_ci")
        | (
            "utf8" | "utf8mb3" | "utf8mb4",
            "general_ci"
            | "general_nopad_ci"
            | "general_mysql500_ci"
            | "general1400_as_ci"
            | "unicode_ci"
            | "unicode_nopad_ci"
            | "unicode_520_ci"
            | "unicode_520_nopad_ci"
            | "0900_ai_ci"
            | "0900_as_ci"
            | "0900_as_cs"
            | "uca1400_ai_ci"
            | "uca1400_ai_cs"
            | "uca1400_as_ci"
            | "uca1400_as_cs"
            | "uca1400_nopad_ai_ci"
            | "uca1400_nopad_ai_cs"
            | "uca1400_nopad_as_ci"
            | "uca1400_nopad_as_cs",
        )
        | ("uca1400", "ai_ci" | "ai_cs" | "as_ci" | "as_cs") => ValueType::FoldedText,
        _ => ValueType::Other,
    }
}

/// The text without trailing blanks, if it is printable ASCII.
fn printable(text: &[u8]) -> Option<&[u8]> {
    let blanks = text.iter().rev().take_while(|b| **b == b' ').count();
    let text = text.get(..text.len() - blanks)?;
    text.iter().all(|b| matches!(b, b' '..=b'~')).then_some(text)
}

/// Accepts plain decimal notation only: exponents, `NaN` and `Infinity` have no normal form here.
fn decimal(text: &str) -> Option<Value> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let signed = text.split_once('.').map_or(text, |(signed, _)| signed);
    if fraction.is_empty()
        && let Ok(int) = signed.parse()
    {
        return Some(Value::Int(int));
    }
    let whole = whole.trim_start_matches('0');
    if whole.is_empty() && fraction.is_empty() {
        return Some(Value::Int(0)); // without a digit before the point
    }
    let sign = if negative { "-" } else { "" };
    Some(Value::Decimal(format!("{sign}{whole}.{fraction}").into()))
}

/// A spelling that both families read as the nearest double, as Rust does.
fn float_text(text: &[u8]) -> Option<&str> {
    let number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let named = matches!(text, b"NaN" | b"Infinity" | b"-Infinity");
    (named || text.iter().all(number)).then(|| std::str::from_utf8(text).ok()).flatten()
}

/// A number beyond all doubles is an error, or the largest double.
fn float_value(value: f64, text: &[u8]) -> Option<Value> {
    (!value.is_infinite() || text.ends_with(b"Infinity")).then(|| float(value))
}

/// Orders doubles by number, with one zero, and with all NaNs as one value beyond all others, as in PostgreSQL.
fn float(value: f64) -> Value {
    const SIGN: u64 = 1 << 63;
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    Value::Float(match bits {
        _ if value.is_nan() => u64::MAX,
        bits if bits & SIGN == 0 => bits | SIGN,
        bits => !bits,
    })
}

/// PostgreSQL's spellings of bytes: `\x` and hexadecimal digits, or ASCII characters with escapes. Other characters
/// may stand for several bytes.
fn bytea(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if let Some(digits) = text.strip_prefix(b"\\x") {
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        return digits.chunks(2).map(byte).collect();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'\\', [b'\\', behind @ ..]) => (b'\\', behind),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), behind)
            }
            (b'\\' | 128.., _) => return None,
            (byte, behind) => (*byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    Some(bytes)
}

/// Accepts hexadecimal digits with hyphens and optional braces, at most as leniently as PostgreSQL's `uuid_in`.
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
    fn bytes_have_one_form_in_all_spellings() {
        let form = |text: &[u8]| ValueType::Bytea.normalise_text(text);
        let bytes = |bytes: &[u8]| ValueType::Bytea.normalise_binary(bytes);
        for (text, value) in [
            (&b"\\x00ffAb"[..], &b"\x00\xff\xab"[..]),
            (b"\\x", b""),
            (b"", b""),
            (b"\\000\\377\\253", b"\x00\xff\xab"),
            (b"a\\\\b'", b"a\\b'"),
            (b"a\0", b"a\0"),
        ] {
            assert_eq!(form(text), bytes(value), "{text:?}");
        }
        assert_ne!(bytes(b"a"), bytes(b"a\0"));
        for unclear in [&b"\\x0"[..], b"\\x0g", b"\\x 00", b"\\400", b"\\", b"\\12", "é".as_bytes()] {
            assert_eq!(form(unclear), None, "{unclear:?}");
        }
    }

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
    fn order_keys_never_fall() {
        let rising = |value_type: ValueType, texts: &[&str]| {
            let keys = texts.iter().map(|text| value_type.normalise_text(text.as_bytes()).expect(text).order_key());
            let keys: Vec<u64> = keys.collect();
            assert!(keys.is_sorted(), "{texts:?}: {keys:?}");
            assert!(keys.first() < keys.last());
        };
        rising(ValueType::Int, &["-9223372036854775808", "-2", "-1", "0", "1", "9223372036854775807"]);
        rising(
            ValueType::Numeric,
            &["-99999999999999999999", "-9223372036854775808", "-2", "-1.5", "-0.5", "0", "0.5", "1", "1.5", "2"],
        );
        rising(ValueType::Unsigned, &["0", "9223372036854775807", "9223372036854775808", "18446744073709551615"]);
        rising(ValueType::Text, &["", "a", "ab", "abcdefgh", "abcdefghi", "b", "ß"]);
        let floats =
            ["-Infinity", "-1e30", "-2", "-1.5", "-1e-30", "0", "1e-30", "0.1", "1", "1e30", "Infinity", "NaN"];
        rising(ValueType::Float8, &floats);
        rising(ValueType::Float4, &floats);
        rising(ValueType::ExactText, &["", "  a", "a", "a !", "a b", "a!", "ab", "abcdefgh", "abcdefghi", "b"]);
        rising(ValueType::Date, &["-infinity", "0001-01-01", "1969-12-31", "1970-01-01", "2026-11-22", "infinity"]);
        let moments = ["2026-11-22", "2026-11-22 00:00:00.000001", "2026-11-22 23:59:59", "2026-11-23"];
        rising(ValueType::Timestamp, &moments);
        let moments = ["2026-11-22 00:00:00+00", "2026-11-21 23:00:00-02", "2026-11-22 10:00:00+00:30"];
        rising(ValueType::TimestampTz, &moments);
        let uuids = ["00000000-0000-0000-0000-000000000001", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"];
        rising(ValueType::Uuid, &uuids);
    }

    #[test]
    fn floats_that_are_equal_have_one_form() {
        use ValueType::{Float4, Float8};
        let form = |value_type: ValueType, text: &str| value_type.normalise_text(text.as_bytes());
        for (a, b) in [("0", "-0"), ("1.5", "15e-1"), ("0.1", "0.1000"), ("1e3", "1000."), ("NaN", "NaN")] {
            assert_eq!(form(Float8, a), form(Float8, b), "{a} {b}");
            assert!(form(Float8, a).is_some());
        }
        assert_eq!(form(Float4, "0.5"), form(Float8, "0.5"));
        assert_ne!(form(Float4, "0.1"), form(Float8, "0.1"));
        assert_eq!(form(Float4, "0.1"), Float4.normalise_binary(&0.1f32.to_be_bytes()));
        assert_eq!(form(Float8, "-0.1"), Float8.normalise_binary(&(-0.1f64).to_be_bytes()));
        assert_eq!(form(Float8, "NaN"), Float8.normalise_binary(&(-f64::NAN).to_be_bytes()));
        assert_eq!(form(Float4, "1e39"), None);
        for (text, single) in
            [("0.1", false), ("0.5", true), ("-3", true), ("16777217", false), ("0", true), ("NaN", false)]
        {
            assert_eq!(form(Float8, text).unwrap().is_single(), single, "{text}");
        }
        assert_eq!(form(Float8, "inf"), None);
        assert_eq!(ValueType::Numeric.normalise_text(b"-0.1").unwrap().to_float(), form(Float8, "-0.1"));
        assert_eq!(Value::Int(1 << 60).to_float(), form(Float8, "1152921504606846976"));
    }

    #[test]
    fn moments_need_an_offset_where_they_have_one() {
        use ValueType::{Date, Timestamp, TimestampTz};
        let form = |value_type: ValueType, text: &str| value_type.normalise_text(text.as_bytes());
        let midnight = form(Date, "2026-11-22");
        assert!(midnight.is_some());
        assert_eq!(form(Date, "2026-11-22 10:00:00"), midnight);
        assert_eq!(form(Timestamp, "2026-11-22"), midnight);
        assert_eq!(form(TimestampTz, "2026-11-22 01:00:00+01"), midnight);
        assert_eq!(form(TimestampTz, "2026-11-22"), None);
        assert_eq!(form(Timestamp, "2026-11-22 00:00:00+00"), None);
        assert_eq!(form(Date, "0000-00-00"), None);
        for value_type in [Date, Timestamp, TimestampTz] {
            let Some(Value::Moment(micros)) = midnight else { panic!() };
            let text = value_type.moment_text(micros).unwrap();
            assert_eq!(form(value_type, &text), midnight, "{text}");
            assert_eq!(form(value_type, "infinity"), Some(Value::Moment(i64::MAX)));
        }
        assert_eq!(Date.normalise_binary(&9822i32.to_be_bytes()), midnight);
        assert_eq!(Timestamp.normalise_binary(&(9822 * 86_400_000_000i64).to_be_bytes()), midnight);
    }

    #[test]
    fn text_differs_by_every_byte_unless_padded() {
        assert_ne!(ValueType::Text.normalise_text(b"a"), ValueType::Text.normalise_text(b"a "));
        assert_eq!(ValueType::PaddedText.normalise_text(b"a"), ValueType::PaddedText.normalise_text(b"a  "));
        assert_ne!(ValueType::Text.normalise_text(b"a"), ValueType::Text.normalise_text(b"A"));
    }

    #[test]
    fn mysql_texts_are_folded_if_they_are_printable_ascii() {
        let folded = |t: &str| ValueType::FoldedText.normalise_text(t.as_bytes());
        assert_eq!(folded("Heat  "), folded("hEAT"));
        assert_eq!(folded(""), folded("  "));
        assert_ne!(folded("a"), folded(" a"));
        for other in ["é", "a\tb", "a\u{1}", "\u{7f}"] {
            assert_eq!(folded(other), None, "{other:?}");
        }
        let bytes = |t: &[u8]| ValueType::Bytes.normalise_text(t);
        assert_eq!(bytes(b"\xffa\0\0"), bytes(b"\xffa"));
        assert!(bytes(b"a ") != bytes(b"a") && bytes(b"A") != bytes(b"a") && bytes(b"\0a").is_some());
        let exact = |t: &str| ValueType::ExactText.normalise_text(t.as_bytes());
        assert_eq!(exact("a "), exact("a"));
        assert_ne!(exact("a"), exact("A"));
        assert_eq!(exact("ß"), None);
    }

    #[test]
    fn mysql_texts_without_a_normal_form_have_a_beginning() {
        let folded =
            |t: &str| ValueType::FoldedText.beginning(t.as_bytes()).map(|b| String::from_utf8(b.into()).unwrap());
        for (text, expected) in
            [("The Đà", "the"), ("Cafe\u{301}", "caf"), ("éa", ""), ("ab   \u{0}", "ab"), ("a\t", "")]
        {
            assert_eq!(folded(text).as_deref(), Some(expected), "{text:?}");
        }
        assert_eq!(ValueType::ExactText.beginning("Aß".as_bytes()).as_deref(), Some(&b""[..]));
        assert_eq!(ValueType::Int.beginning(b"1"), None);
    }

    #[test]
    fn mysql_columns() {
        use ValueType::{
            Bit, Bytes, Date, ExactText, Float4, Float8, FoldedText, Inet4, Inet6, Int, MariadbUuid, Numeric, Other,
            Time, Timestamp, TimestampTz, Unsigned,
        };
        let of = ValueType::of_mysql_column;
        for (data_type, column_type, expected) in [
            ("int", "int(11)", Int),
            ("tinyint", "tinyint(1)", Int),
            ("int", "int(5) unsigned zerofill", Int),
            ("bigint", "bigint(20)", Int),
            ("BIGINT", "bigint unsigned", Unsigned),
            ("decimal", "decimal(10,2)", Numeric),
            ("double", "double", Float8),
            ("float", "float unsigned", Float4),
            ("double", "double(10,2)", Other),
            ("bit", "bit(1)", Bit),
            ("year", "year(4)", Other),
            ("date", "date", Date),
            ("datetime", "datetime(6)", Timestamp),
            ("timestamp", "timestamp", TimestampTz),
            ("time", "time", Time),
            ("blob", "blob", Bytes),
            ("uuid", "uuid", MariadbUuid),
            ("inet4", "inet4", Inet4),
            ("inet6", "inet6", Inet6),
        ] {
            assert_eq!(of(data_type, column_type, None), expected, "{column_type}");
        }
        for (collation, expected) in [
            ("utf8mb4_general_ci", FoldedText),
            ("utf8mb4_0900_ai_ci", FoldedText),
            ("utf8mb4_uca1400_nopad_as_cs", FoldedText),
            ("uca1400_ai_ci", FoldedText),
            ("latin1_swedish_ci", FoldedText),
            ("utf8_swedish_ci", Other),
            ("utf8mb4_tr_0900_ai_ci", Other),
            ("utf8mb4_uca1400_swedish_ai_ci", Other),
            ("swe7_swedish_ci", Other),
            ("ucs2_general_ci", Other),
            ("utf8mb4_bin", ExactText),
            ("binary", Bytes),
        ] {
            assert_eq!(of("varchar", "varchar(10)", Some(collation)), expected, "{collation}");
        }
        assert_eq!(of("enum", "enum('a','b')", Some("utf8mb4_general_ci")), Other);
        assert_eq!(of("json", "json", None), Other);
    }

    #[test]
    fn uuids_ignore_case_and_hyphens() {
        let a = ValueType::Uuid.normalise_text(b"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11");
        assert!(a.is_some());
        assert_eq!(a, ValueType::Uuid.normalise_text(b"{a0eebc999c0b4ef8bb6d6bb9bd380a11}"));
        assert_eq!(ValueType::Uuid.normalise_text(b"a0ee"), None);
    }
}
