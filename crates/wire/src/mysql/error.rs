//! ERR packets, and MariaDB's progress reports, which look like them.

use super::packet;
use crate::reader::{Malformed, Reader};

/// The first byte of an ERR packet.
pub const MARK: u8 = 0xff;
/// In place of an error number: a progress report.
pub const PROGRESS: u16 = 0xffff;
/// The SQLSTATE of errors without a specific one.
pub const GENERAL: &str = "HY000";

/// An ERR packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorPacket<'a> {
    /// The server's number of the error.
    pub code: u16,
    /// Five characters; empty in errors before the login.
    pub sqlstate: &'a [u8],
    /// The text, in the session's `character_set_results`.
    pub message: &'a [u8],
}

impl<'a> ErrorPacket<'a> {
    /// Reads a payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8("error mark")? {
            MARK => {}
            tag => return Err(Malformed::UnknownTag { what: "error mark", tag }),
        }
        let code = reader.le_u16("error code")?;
        let rest = reader.rest();
        let Some(marked) = rest.strip_prefix(b"#") else { return Ok(Self { code, sqlstate: b"", message: rest }) };
        let (sqlstate, message) = marked.split_at_checked(5).ok_or(Malformed::Truncated("SQLSTATE"))?;
        Ok(Self { code, sqlstate, message })
    }
}

/// Appends an ERR packet. `sqlstate` has five characters ([`GENERAL`] if nothing fits better). Without it, the packet
/// has the form that clients understand before the login.
pub fn put_error(out: &mut Vec<u8>, sequence: &mut u8, code: u16, sqlstate: Option<&str>, message: &str) {
    packet::put_with(out, sequence, |out| {
        out.push(MARK);
        out.extend_from_slice(&code.to_le_bytes());
        if let Some(sqlstate) = sqlstate {
            out.push(b'#');
            out.extend_from_slice(sqlstate.as_bytes());
        }
        out.extend_from_slice(message.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_and_written() {
        // MariaDB 10.11 to SELECT * FROM missing.
        let payload = b"\xff\x7a\x04#42S02Table 'freshet.missing' doesn't exist";
        let error = ErrorPacket::parse(payload).unwrap();
        assert_eq!((error.code, error.sqlstate), (1146, &b"42S02"[..]));
        assert_eq!(error.message, b"Table 'freshet.missing' doesn't exist");
        let (mut out, mut sequence) = (Vec::new(), 1);
        put_error(&mut out, &mut sequence, 1146, Some("42S02"), "Table 'freshet.missing' doesn't exist");
        assert_eq!((&out[4..], sequence, out[3]), (&payload[..], 2, 1));
        // Before the login there is no SQLSTATE.
        let early = ErrorPacket::parse(b"\xff\x10\x04Too many connections").unwrap();
        assert_eq!((early.code, early.sqlstate, early.message), (1040, &b""[..], &b"Too many connections"[..]));
        for end in 0..9 {
            let _ = ErrorPacket::parse(&payload[..end]);
        }
        assert!(ErrorPacket::parse(b"\xff\x10").is_err() && ErrorPacket::parse(b"\xff\x10\x04#42").is_err());
        assert!(ErrorPacket::parse(b"\0\0\0").is_err());
    }
}
