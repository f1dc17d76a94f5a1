//! The server's messages, as far as the proxy decodes them, and the answers that Freshet sends itself.

use crate::postgres::frame::{self, HEADER_BYTES, put, put_cstr};
use crate::reader::{Malformed, Reader};

/// The Authentication messages
pub const AUTHENTICATION: u8 = b'R';
/// `BindComplete`
pub const BIND_COMPLETE: u8 = b'2';
/// `CloseComplete`
pub const CLOSE_COMPLETE: u8 = b'3';
/// `CommandComplete`
pub const COMMAND_COMPLETE: u8 = b'C';
/// `CopyInResponse`
pub const COPY_IN: u8 = b'G';
/// `CopyOutResponse`
pub const COPY_OUT: u8 = b'H';
/// `DataRow`
pub const DATA_ROW: u8 = b'D';
/// `EmptyQueryResponse`
pub const EMPTY_QUERY: u8 = b'I';
/// `ErrorResponse`
pub const ERROR: u8 = b'E';
/// `NegotiateProtocolVersion`
pub const NEGOTIATE: u8 = b'v';
/// `NoData`
pub const NO_DATA: u8 = b'n';
/// `BackendKeyData`
pub const KEY_DATA: u8 = b'K';
/// `NoticeResponse`
pub const NOTICE: u8 = b'N';
/// `NotificationResponse`
pub const NOTIFICATION: u8 = b'A';
/// `ParameterDescription`
pub const PARAMETER_DESCRIPTION: u8 = b't';
/// `ParameterStatus`
pub const PARAMETER_STATUS: u8 = b'S';
/// `ParseComplete`
pub const PARSE_COMPLETE: u8 = b'1';
/// `PortalSuspended`
pub const PORTAL_SUSPENDED: u8 = b's';
/// `ReadyForQuery`
pub const READY: u8 = b'Z';
/// `RowDescription`
pub const ROW_DESCRIPTION: u8 = b'T';

/// A whole `ParseComplete` frame.
pub const PARSE_COMPLETE_FRAME: &[u8] = b"1\0\0\0\x04";
/// A whole `BindComplete` frame.
pub const BIND_COMPLETE_FRAME: &[u8] = b"2\0\0\0\x04";
/// A whole `CloseComplete`.
pub const CLOSE_COMPLETE_FRAME: &[u8] = b"3\0\0\0\x04";
/// A whole `ReadyForQuery` frame outside a transaction block.
pub const READY_IDLE_FRAME: &[u8] = b"Z\0\0\0\x05I";

/// Outside a transaction block.
pub const STATUS_IDLE: u8 = b'I';
/// In a transaction block that has not failed.
pub const STATUS_BLOCK: u8 = b'T';

/// The rows among whole frames, as frames.
pub fn rows(mut frames: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while let Ok(Some(header)) = frame::header(frames) {
            let (frame, rest) = frames.split_at_checked(header.frame_bytes)?;
            frames = rest;
            if header.tag == DATA_ROW {
                return Some(frame);
            }
        }
        None
    })
}

/// The columns of a whole `DataRow` frame, in the requested format; None for NULL.
pub fn data_row(frame: &[u8]) -> Result<Vec<Option<&[u8]>>, Malformed> {
    let mut reader = Reader::new(frame);
    reader.bytes(HEADER_BYTES, "header")?;
    let count = reader.u16("number of columns")?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let length = reader.i32("column length")?;
        columns.push(match usize::try_from(length) {
            Ok(length) => Some(reader.bytes(length, "column")?),
            Err(_) => None,
        });
    }
    reader.finish()?;
    Ok(columns)
}

/// Whether a whole `ErrorResponse` frame announces the end of the connection. Its `V` field is not translated.
pub fn is_fatal(frame: &[u8]) -> bool {
    let fields = frame.get(HEADER_BYTES..).unwrap_or_default();
    fields.split(|byte| *byte == 0).any(|field| matches!(field, b"VFATAL" | b"VPANIC"))
}

/// The SQLSTATE of a whole `ErrorResponse` frame.
pub fn sqlstate(frame: &[u8]) -> Option<&[u8]> {
    let mut fields = frame.get(HEADER_BYTES..)?.split(|byte| *byte == 0);
    fields.find_map(|field| field.strip_prefix(b"C"))
}

/// The setting and its value in a whole `ParameterStatus` frame.
pub fn parameter_status(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = frame.get(HEADER_BYTES..)?.split(|byte| *byte == 0);
    Some((parts.next()?, parts.next()?))
}

/// Appends an `ErrorResponse`.
pub fn put_error(out: &mut Vec<u8>, severity: &str, sqlstate: &str, message: &str) {
    put_detailed_error(out, severity, sqlstate, message, None);
}

/// Appends an `ErrorResponse` that may have a detail.
pub fn put_detailed_error(out: &mut Vec<u8>, severity: &str, sqlstate: &str, message: &str, detail: Option<&str>) {
    put(out, ERROR, |out| {
        let fields = [(b'S', severity), (b'V', severity), (b'C', sqlstate), (b'M', message)];
        for (field, text) in fields.into_iter().chain(detail.map(|detail| (b'D', detail))) {
            out.push(field);
            put_cstr(out, text.as_bytes());
        }
        out.push(0);
    });
}

/// Appends a message whose body is known.
pub fn put_message(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    put(out, tag, |out| out.extend_from_slice(body));
}

/// Appends an Authentication message (manual: "Message Formats"): its kind and its data.
pub fn put_authentication(out: &mut Vec<u8>, method: u32, data: &[u8]) {
    put(out, AUTHENTICATION, |out| {
        out.extend_from_slice(&method.to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// Appends `NegotiateProtocolVersion`: the newest minor version, and the unknown options.
pub fn put_negotiate(out: &mut Vec<u8>, minor: u16, options: &[&[u8]]) {
    put(out, NEGOTIATE, |out| {
        out.extend_from_slice(&(3 << 16 | u32::from(minor)).to_be_bytes());
        out.extend_from_slice(&u32::try_from(options.len()).unwrap_or(u32::MAX).to_be_bytes());
        for option in options {
            put_cstr(out, option);
        }
    });
}

/// Appends `ReadyForQuery` with a transaction status.
pub fn put_ready(out: &mut Vec<u8>, status: u8) {
    out.extend_from_slice(&[READY, 0, 0, 0, 5, status]); // each hit ends with it
}

fn put_row_description(out: &mut Vec<u8>, columns: &[&str]) {
    const TEXT_OID: u32 = 25;
    put(out, ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&count(columns.len()));
        for name in columns {
            put_cstr(out, name.as_bytes());
            out.extend_from_slice(&[0; 6]); // no table, no column number
            out.extend_from_slice(&TEXT_OID.to_be_bytes());
            out.extend_from_slice(&(-1_i16).to_be_bytes()); // variable length
            out.extend_from_slice(&(-1_i32).to_be_bytes()); // no modifier
            out.extend_from_slice(&[0; 2]); // text format
        }
    });
}

fn count(n: usize) -> [u8; 2] {
    u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes()
}

/// Appends the description of a statement without parameters whose columns are text: `ParameterDescription` and
/// `RowDescription`.
pub fn put_text_description(out: &mut Vec<u8>, columns: &[&str]) {
    put(out, PARAMETER_DESCRIPTION, |out| out.extend_from_slice(&[0; 2]));
    put_row_description(out, columns);
}

/// The rows of an answer that ends with `CommandComplete`, by its tag; 0 if it ends otherwise.
pub fn rows_of(frames: &[u8]) -> u64 {
    let [before @ .., 0] = frames else { return 0 };
    let tag = before.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(tag).ok().and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Appends a result of text columns: `RowDescription` if wanted, the rows, `CommandComplete`.
pub fn put_text_result(out: &mut Vec<u8>, columns: &[&str], rows: &[Vec<String>], describe: bool) {
    if describe {
        put_row_description(out, columns);
    }
    for row in rows {
        put(out, DATA_ROW, |out| {
            out.extend_from_slice(&count(row.len()));
            for value in row {
                out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
                out.extend_from_slice(value.as_bytes());
            }
        });
    }
    put(out, COMMAND_COMPLETE, |out| put_cstr(out, format!("SELECT {}", rows.len()).as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let row = b"D\0\0\0\x10\0\x02\0\0\0\x02hi\xff\xff\xff\xff";
        assert_eq!(data_row(row), Ok(vec![Some(&b"hi"[..]), None]));
        for end in 0..row.len() {
            assert!(data_row(&row[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn rows_are_found() {
        let mut out = Vec::new();
        put_text_result(&mut out, &["a"], &[vec!["x".into()], vec!["yz".into()]], true);
        assert_eq!((rows(&out).count(), data_row(rows(&out).last().unwrap())), (2, Ok(vec![Some(&b"yz"[..])])));
        for end in 0..out.len() {
            assert!(rows(&out[..end]).count() <= 2);
        }
        assert_eq!(rows(b"C\0\0\0\x0dSELECT 0\0").next(), None);
    }

    #[test]
    fn answers_are_well_formed() {
        let mut out = Vec::new();
        put_text_result(&mut out, &["a"], &[vec!["x".into()]], true);
        assert_eq!(
            out,
            b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0D\0\0\0\x0b\0\x01\0\0\0\x01xC\0\0\0\x0dSELECT 1\0"
        );
        assert_eq!((rows_of(&out), rows_of(b"s\0\0\0\x04"), rows_of(b"C\0\0\0\x0aBEGIN\0")), (1, 0, 0));
        out.clear();
        put_error(&mut out, "FATAL", "08006", "no");
        assert_eq!(out, b"E\0\0\0\x1eSFATAL\0VFATAL\0C08006\0Mno\0\0");
        assert!(is_fatal(&out));
        out.clear();
        put_error(&mut out, "ERROR", "42601", "VFATAL");
        assert!(!is_fatal(&out));
    }
}
