//! Results of Freshet's own whose columns have types: `RowDescription` and `DataRow`.

use crate::postgres::backend::{DATA_ROW, PARAMETER_DESCRIPTION, ROW_DESCRIPTION};
use crate::postgres::frame::{put, put_cstr, put_sized};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `text`
    Text,
    /// `int4`
    Int4,
    /// `int8`
    Int8,
    /// `numeric`, of integers that are not negative
    Numeric,
    /// `bytea`
    Bytes,
}

impl Type {
    /// The type's OID and its size; -1: variable.
    fn oid_and_size(self) -> (u32, i16) {
        match self {
            Self::Text => (25, -1),
            Self::Int4 => (23, 4),
            Self::Int8 => (20, 8),
            Self::Numeric => (1700, -1),
            Self::Bytes => (17, -1),
        }
    }

    /// A value in binary format; None: its text is none of this type.
    fn binary(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Text | Self::Bytes => Some(text.as_bytes().to_vec()),
            Self::Int4 => text.parse().ok().map(|n: i32| n.to_be_bytes().to_vec()),
            Self::Int8 => text.parse().ok().map(|n: i64| n.to_be_bytes().to_vec()),
            Self::Numeric => text.parse().ok().map(numeric),
        }
    }
}

/// `numeric_send`: digits of base 10,000, the weight of the first, no sign and no scale.
fn numeric(mut value: u64) -> Vec<u8> {
    let mut digits = Vec::new();
    while value > 0 {
        digits.push((value % 10_000) as u16);
        value /= 10_000;
    }
    let weight = (digits.len() as u16).saturating_sub(1);
    let head = [digits.len() as u16, weight, 0, 0];
    head.into_iter().chain(digits.into_iter().rev()).flat_map(u16::to_be_bytes).collect()
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
}

/// Appends `RowDescription`. `is_binary`: the formats of the columns.
pub fn put_columns(out: &mut Vec<u8>, columns: &[Column], is_binary: impl Fn(usize) -> bool) {
    put(out, ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&u16::try_from(columns.len()).unwrap_or(u16::MAX).to_be_bytes());
        for (at, column) in columns.iter().enumerate() {
            let (oid, size) = column.kind.oid_and_size();
            put_cstr(out, column.name.as_bytes());
            out.extend_from_slice(&[0; 6]); // no table, no column number
            out.extend_from_slice(&oid.to_be_bytes());
            out.extend_from_slice(&size.to_be_bytes());
            out.extend_from_slice(&(-1_i32).to_be_bytes()); // no modifier
            out.extend_from_slice(&u16::from(is_binary(at)).to_be_bytes());
        }
    });
}

/// Appends `ParameterDescription` of a statement without parameters.
pub fn put_no_parameters(out: &mut Vec<u8>) {
    put(out, PARAMETER_DESCRIPTION, |out| out.extend_from_slice(&[0; 2]));
}

/// Appends `DataRow` of values that are given as text; None: NULL.
pub fn put_row(out: &mut Vec<u8>, columns: &[Column], row: &[Option<String>], is_binary: impl Fn(usize) -> bool) {
    put(out, DATA_ROW, |out| {
        out.extend_from_slice(&u16::try_from(columns.len()).unwrap_or(u16::MAX).to_be_bytes());
        for (at, column) in columns.iter().enumerate() {
            let text = row.get(at).and_then(Option::as_deref);
            let value = match text {
                Some(text) if is_binary(at) => column.kind.binary(text),
                text => text.map(|text| text.as_bytes().to_vec()),
            };
            match value {
                Some(value) => {
                    out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
                    out.extend_from_slice(&value);
                }
                None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            }
        }
    });
}

/// The start-up packet of version 3.0 of a session of this user in this database.
pub fn startup_packet(user: &str, database: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    put_sized(&mut packet, |out| {
        out.extend_from_slice(&(3_u32 << 16).to_be_bytes());
        for text in ["user", user, "database", database] {
            put_cstr(out, text.as_bytes());
        }
        out.push(0);
    });
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::backend::data_row;
    use crate::postgres::startup::{Session, Startup, parse};

    const COLUMNS: [Column; 4] = [
        Column { name: "t", kind: Type::Text },
        Column { name: "i", kind: Type::Int4 },
        Column { name: "q", kind: Type::Int8 },
        Column { name: "n", kind: Type::Numeric },
    ];

    #[test]
    fn values_have_their_formats() {
        let row: Vec<Option<String>> = ["a", "-2", "3", "1234567890123"].map(|text| Some(text.to_owned())).to_vec();
        let mut out = Vec::new();
        put_row(&mut out, &COLUMNS, &row, |_| false);
        assert_eq!(data_row(&out).unwrap(), row.iter().map(|v| v.as_deref().map(str::as_bytes)).collect::<Vec<_>>());
        out.clear();
        put_row(&mut out, &COLUMNS, &row, |_| true);
        let numeric = [0, 4, 0, 3, 0, 0, 0, 0, 0, 1, 9, 41, 0x1a, 0x85, 0, 123];
        let binary: [&[u8]; 4] = [b"a", b"\xff\xff\xff\xfe", b"\0\0\0\0\0\0\0\x03", &numeric];
        assert_eq!(data_row(&out).unwrap(), binary.map(Some).to_vec());
        out.clear();
        put_row(&mut out, &COLUMNS, &[None, Some("x".to_owned())], |at| at == 1);
        assert_eq!(data_row(&out).unwrap(), vec![None; 4], "what is no number, and what is missing");
        assert_eq!(super::numeric(0), [0; 8]);
    }

    #[test]
    fn packets_are_read_again() {
        let session = Session { user: b"me", database: b"db", ..Session::default() };
        assert_eq!(parse(&startup_packet("me", "db")), Ok(Startup::Session(session)));
    }
}
