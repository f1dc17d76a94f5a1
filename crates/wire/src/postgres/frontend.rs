//! The client's messages, as far as caching decodes them, and the frames that Freshet itself sends upstream.

use crate::postgres::frame::{HEADER_BYTES, Header, put, put_cstr};
use crate::reader::{Malformed, Reader};

/// `Bind`
pub const BIND: u8 = b'B';
/// `Close`
pub const CLOSE: u8 = b'C';
/// `CopyData`
pub const COPY_DATA: u8 = b'd';
/// `CopyDone`
pub const COPY_DONE: u8 = b'c';
/// `CopyFail`
pub const COPY_FAIL: u8 = b'f';
/// `Describe`
pub const DESCRIBE: u8 = b'D';
/// `Execute`
pub const EXECUTE: u8 = b'E';
/// `Flush`
pub const FLUSH: u8 = b'H';
/// `FunctionCall`
pub const FUNCTION_CALL: u8 = b'F';
/// `Parse`
pub const PARSE: u8 = b'P';
/// `PasswordMessage` and its kin
pub const PASSWORD: u8 = b'p';
/// `Query`
pub const QUERY: u8 = b'Q';
/// `Sync`
pub const SYNC: u8 = b'S';
/// `Terminate`
pub const TERMINATE: u8 = b'X';

/// Whether a message of this kind may come after the login. At any other the server ends the session, without reading on.
pub fn is_kind(tag: u8) -> bool {
    b"BCDEFHPQSXcdf".contains(&tag)
}

/// `Terminate`, whole.
pub const TERMINATE_FRAME: &[u8] = b"X\0\0\0\x04";
/// `Close` of the unnamed portal.
pub const CLOSE_UNNAMED_PORTAL: &[u8] = b"C\0\0\0\x06P\0";

/// A `Parse` message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// The statement's name; empty for the unnamed one.
    pub name: &'a [u8],
    /// The text, in the client's encoding.
    pub query: &'a [u8],
    /// Four bytes for each declared type.
    pub types: &'a [u8],
}

impl<'a> Parse<'a> {
    /// Reads a whole frame.
    pub fn read(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = body(frame)?;
        let name = reader.cstr("statement name")?;
        let query = reader.cstr("query")?;
        let types = reader.u16("number of types")?;
        let types = reader.bytes(usize::from(types) * 4, "types")?;
        reader.finish()?;
        Ok(Self { name, query, types })
    }

    /// The declared type OID of parameter `at` (from 0); 0 if the server chooses the type.
    pub fn type_oid(types: &[u8], at: usize) -> u32 {
        types.get(at * 4..).and_then(|t| t.first_chunk()).map_or(0, |oid| u32::from_be_bytes(*oid))
    }
}

/// The text of a whole `Query` frame.
pub fn query_text(frame: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = body(frame)?;
    let text = reader.cstr("query")?;
    reader.finish()?;
    Ok(text)
}

/// A `Bind` message: its names, and the rest, which determines the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// The portal's name.
    pub portal: &'a [u8],
    /// The statement's name.
    pub statement: &'a [u8],
    /// Parameter formats, parameters and result formats, as sent.
    pub tail: &'a [u8],
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound<'a> {
    /// In binary format, else in text format.
    pub binary: bool,
    /// The value.
    pub bytes: &'a [u8],
}

impl<'a> Bind<'a> {
    /// Reads the names of a frame. The frame may be incomplete behind the names.
    #[inline]
    pub fn read(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = body(frame)?;
        let portal = reader.cstr("portal name")?;
        let statement = reader.cstr("statement name")?;
        Ok(Self { portal, statement, tail: reader.rest() })
    }

    /// The parameters of a whole tail; None for NULL.
    pub fn parameters(tail: &'a [u8]) -> Result<Vec<Option<Bound<'a>>>, Malformed> {
        Self::values(tail).map(|(parameters, _)| parameters)
    }

    /// Whether a column of the result is in binary format.
    pub fn shows_binary(tail: &'a [u8], column: usize) -> Result<bool, Malformed> {
        let (_, formats) = Self::values(tail)?;
        let format = if formats.len() == 2 { formats.get(..2) } else { formats.get(column * 2..column * 2 + 2) };
        Ok(format.is_some_and(|format| format != [0, 0]))
    }

    /// The parameters, and the formats of the result.
    fn values(tail: &'a [u8]) -> Result<(Vec<Option<Bound<'a>>>, &'a [u8]), Malformed> {
        let mut reader = Reader::new(tail);
        let formats = reader.u16("number of parameter formats")?;
        let formats = reader.bytes(usize::from(formats) * 2, "parameter formats")?;
        let count = reader.u16("number of parameters")?;
        let mut parameters = Vec::new();
        for at in 0..usize::from(count) {
            let format = if formats.len() == 2 { formats.get(..2) } else { formats.get(at * 2..at * 2 + 2) };
            let binary = format.is_some_and(|f| f != [0, 0]);
            let length = reader.i32("parameter length")?;
            parameters.push(match usize::try_from(length) {
                Ok(length) => Some(Bound { binary, bytes: reader.bytes(length, "parameter")? }),
                Err(_) => None,
            });
        }
        let results = reader.u16("number of result formats")?;
        let formats = reader.bytes(usize::from(results) * 2, "result formats")?;
        reader.finish()?;
        Ok((parameters, formats))
    }
}

/// The object of `Describe` and `Close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// `S` for a statement, `P` for a portal.
    pub kind: u8,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> Target<'a> {
    /// Reads a whole frame.
    pub fn read(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = body(frame)?;
        let target = Self { kind: reader.u8("kind")?, name: reader.cstr("name")? };
        reader.finish()?;
        Ok(target)
    }
}

/// An `Execute` message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    /// The portal's name.
    pub portal: &'a [u8],
    /// The most rows to return; 0 for all.
    pub rows_max: u32,
}

impl<'a> Execute<'a> {
    /// Reads a whole frame.
    pub fn read(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = body(frame)?;
        let execute = Self { portal: reader.cstr("portal name")?, rows_max: reader.u32("row limit")? };
        reader.finish()?;
        Ok(execute)
    }
}

fn body(frame: &[u8]) -> Result<Reader<'_>, Malformed> {
    let mut reader = Reader::new(frame);
    reader.bytes(HEADER_BYTES, "header")?;
    Ok(reader)
}

/// The statement that a `Parse`, `Bind`, `Describe` or `Close` names, and where its name begins. The frame may be incomplete behind it. None: it names
/// none, or the unnamed one.
pub fn statement_name(frame: &[u8]) -> Option<(usize, &[u8])> {
    let mut reader = body(frame).ok()?;
    let before = match frame.first()? {
        &PARSE => 0,
        &BIND => reader.cstr("portal name").ok()?.len() + 1,
        &DESCRIBE | &CLOSE if reader.u8("kind").ok()? == b'S' => 1,
        _ => return None,
    };
    let name = reader.cstr("statement name").ok()?;
    (!name.is_empty()).then_some((HEADER_BYTES + before, name))
}

/// Appends the beginning of such a frame, up to the name, with another name. Returns the number of bytes of the frame for which it stands, or None if
/// the frame names no statement.
pub fn put_renamed(out: &mut Vec<u8>, head: Header, frame: &[u8], name: &[u8]) -> Option<usize> {
    let (at, old) = statement_name(frame)?;
    let before = frame.get(HEADER_BYTES..at)?;
    out.push(head.tag);
    let length = head.frame_bytes - 1 - old.len() + name.len();
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(before);
    put_cstr(out, name);
    Some(at + old.len() + 1)
}

/// What follows the name in a whole `Parse`: the text and the declared types.
pub fn behind_name<'a>(frame: &'a [u8], parse: &Parse<'_>) -> &'a [u8] {
    frame.get(HEADER_BYTES + parse.name.len() + 1..).unwrap_or_default()
}

/// Appends `Parse` of a statement with this text and these types: see [`behind_name`].
pub fn put_parse_again(out: &mut Vec<u8>, name: &[u8], behind_name: &[u8]) {
    put(out, PARSE, |out| {
        put_cstr(out, name);
        out.extend_from_slice(behind_name);
    });
}

/// Appends `Close` of a prepared statement.
pub fn put_close_statement(out: &mut Vec<u8>, name: &[u8]) {
    put(out, CLOSE, |out| {
        out.push(b'S');
        put_cstr(out, name);
    });
}

/// Appends `Parse` of a statement without declared types.
pub fn put_parse(out: &mut Vec<u8>, name: &[u8], query: &[u8]) {
    put(out, PARSE, |out| {
        put_cstr(out, name);
        put_cstr(out, query);
        out.extend_from_slice(&[0, 0]);
    });
}

/// Appends `Parse` of the unnamed statement with its declared types, four bytes each.
pub fn put_parse_typed(out: &mut Vec<u8>, query: &[u8], types: &[u8]) {
    put(out, PARSE, |out| {
        put_cstr(out, b"");
        put_cstr(out, query);
        out.extend_from_slice(&u16::try_from(types.len() / 4).unwrap_or(u16::MAX).to_be_bytes());
        out.extend_from_slice(types);
    });
}

/// Appends an execution of the unnamed statement: `Bind` with this tail, `Describe` if wanted, `Execute`.
pub fn put_execution(out: &mut Vec<u8>, tail: &[u8], describe: bool, rows_max: u32) {
    put(out, BIND, |out| {
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(tail);
    });
    if describe {
        put(out, DESCRIBE, |out| out.extend_from_slice(b"P\0"));
    }
    put(out, EXECUTE, |out| {
        put_cstr(out, b"");
        out.extend_from_slice(&rows_max.to_be_bytes());
    });
}

/// Appends `Describe` of the unnamed statement.
pub fn put_describe_statement(out: &mut Vec<u8>) {
    put(out, DESCRIBE, |out| out.extend_from_slice(b"S\0"));
}

/// Appends `Query`.
pub fn put_query(out: &mut Vec<u8>, text: &[u8]) {
    put(out, QUERY, |out| put_cstr(out, text));
}

/// Appends `Bind` of text parameters to the unnamed portal, text results, and its `Execute`.
pub fn put_bind_execute(out: &mut Vec<u8>, statement: &[u8], parameters: &[&str]) {
    put(out, BIND, |out| {
        put_cstr(out, b"");
        put_cstr(out, statement);
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&u16::try_from(parameters.len()).unwrap_or(u16::MAX).to_be_bytes());
        for parameter in parameters {
            put_sized_value(out, parameter.as_bytes());
        }
        out.extend_from_slice(&[0; 2]);
    });
    put(out, EXECUTE, |out| {
        put_cstr(out, b"");
        out.extend_from_slice(&[0; 4]);
    });
}

fn put_sized_value(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(value);
}

/// Appends `Flush`.
pub fn put_flush(out: &mut Vec<u8>) {
    put(out, FLUSH, |_| {});
}

/// Appends `Sync`.
pub fn put_sync(out: &mut Vec<u8>) {
    put(out, SYNC, |_| {});
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sent by libpq for `PQexecParams("select $1", …)` and a named statement.
    #[test]
    fn messages_are_read() {
        let parse = b"P\0\0\0\x17st\0select $1\0\0\x01\0\0\0\x19";
        let read = Parse::read(parse).unwrap();
        assert_eq!((read.name, read.query, Parse::type_oid(read.types, 0)), (&b"st"[..], &b"select $1"[..], 25));
        assert_eq!(Parse::type_oid(read.types, 1), 0);
        let bind = b"B\0\0\0\x16\0st\0\0\x01\0\x01\0\x01\0\0\0\x02hi\0\0";
        let read = Bind::read(bind).unwrap();
        assert_eq!((read.portal, read.statement), (&b""[..], &b"st"[..]));
        assert_eq!(Bind::parameters(read.tail), Ok(vec![Some(Bound { binary: true, bytes: b"hi" })]));
        let binary = |formats: &[u8], column| Bind::shows_binary(&[b"\0\0\0\0", formats].concat(), column);
        assert_eq!(binary(b"\0\0", 1), Ok(false));
        assert_eq!(binary(b"\0\x01\0\x01", 1), Ok(true));
        assert_eq!(binary(b"\0\x02\0\x01\0\0", 1), Ok(false));
        assert!(binary(b"\0\x02\0\x01", 1).is_err());
        assert_eq!(query_text(b"Q\0\0\0\x0dselect 1\0"), Ok(&b"select 1"[..]));
        assert_eq!(Execute::read(b"E\0\0\0\x09\0\0\0\0\x05").unwrap().rows_max, 5);
        assert_eq!(Target::read(b"D\0\0\0\x06P\0").unwrap(), Target { kind: b'P', name: b"" });
    }

    #[test]
    fn statements_get_other_names() {
        let renamed = |frame: &[u8], whole: usize| {
            let mut out = Vec::new();
            let head = Header { tag: frame[0], frame_bytes: whole };
            let sent = put_renamed(&mut out, head, frame, b"other")?;
            out.extend_from_slice(&frame[sent..]);
            Some(out)
        };
        let parse = b"P\0\0\0\x11a\0select 1\0\0\0";
        assert_eq!(renamed(parse, 18).unwrap(), b"P\0\0\0\x15other\0select 1\0\0\0");
        let bind = b"B\0\0\0\x0ep\0st\0\0\0\0\0\0\0";
        assert_eq!(renamed(bind, 15).unwrap(), b"B\0\0\0\x11p\0other\0\0\0\0\0\0\0");
        assert_eq!(renamed(&bind[..10], 15).unwrap(), b"B\0\0\0\x11p\0other\0");
        assert_eq!(renamed(b"C\0\0\0\x07Sa\0", 8).unwrap(), b"C\0\0\0\x0bSother\0");
        for other in [&b"C\0\0\0\x07Pa\0"[..], b"D\0\0\0\x06S\0", b"E\0\0\0\x09a\0\0\0\0\0", &bind[..8], b""] {
            assert_eq!(statement_name(other), None);
        }
        let mut again = Vec::new();
        put_parse_again(&mut again, b"a", behind_name(parse, &Parse::read(parse).unwrap()));
        assert_eq!(again, parse);
    }

    #[test]
    fn truncated_messages_are_refused() {
        let bind = b"B\0\0\0\x16\0st\0\0\x01\0\x01\0\x01\0\0\0\x02hi\0\0";
        let tail = Bind::read(bind).unwrap().tail;
        for end in 0..tail.len() {
            assert!(Bind::parameters(&tail[..end]).is_err(), "{end}");
        }
        assert!(query_text(b"Q\0\0\0\x0eselect 1\0x").is_err());
        assert!(Parse::read(b"P\0\0\0\x06\0\0").is_err());
    }

    #[test]
    fn own_frames_are_well_formed() {
        let mut out = Vec::new();
        put_parse(&mut out, b"a", b"select 1");
        assert_eq!(out, b"P\0\0\0\x11a\0select 1\0\0\0");
        out.clear();
        put_bind_execute(&mut out, b"a", &[]);
        assert_eq!(out, b"B\0\0\0\x0d\0a\0\0\0\0\0\0\0E\0\0\0\x09\0\0\0\0\0");
        out.clear();
        put_close_statement(&mut out, b"a");
        put_sync(&mut out);
        assert_eq!(out, b"C\0\0\0\x07Sa\0S\0\0\0\x04");
    }
}
