//! The packets before the first frame: no tag, a length, a code (manual: "Message Formats", StartupMessage,
//! SSLRequest, GSSENCRequest, CancelRequest).

use thiserror::Error;

use crate::reader::{Malformed, Reader};

/// The largest start-up packet that PostgreSQL takes (`MAX_STARTUP_PACKET_LENGTH` in `libpq/pqcomm.h`).
pub const PACKET_BYTES_MAX: usize = 10_000;

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS_ENC: u32 = 80_877_104;

/// The request of a new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Startup<'a> {
    /// TLS.
    Ssl,
    /// GSSAPI encryption.
    GssEnc,
    /// A cancel request. The packet is forwarded unchanged.
    Cancel,
    /// A session.
    Session(Session<'a>),
}

/// The start-up packet of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session<'a> {
    /// The protocol's minor version.
    pub minor: u16,
    /// `user`; empty if missing.
    pub user: &'a [u8],
    /// `database`; empty if missing: the user's name then.
    pub database: &'a [u8],
    /// `replication`.
    pub replication: Replication,
    /// Names of the protocol's options (`_pq_.…`). No server knows any yet.
    pub options: Vec<&'a [u8]>,
}

/// Whether the connection is one for replication, by the parameter `replication`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// An ordinary session.
    #[default]
    No,
    /// Set to a value that is not false: for physical replication. It belongs to no database, and runs no SQL.
    Physical,
    /// Set to `database`: for logical replication in a database. It runs SQL, too.
    Logical,
}

impl Replication {
    fn of(value: &[u8]) -> Self {
        match value {
            b"false" | b"off" | b"no" | b"0" => Self::No,
            b"database" => Self::Logical,
            _ => Self::Physical,
        }
    }
}

/// Why a start-up packet was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BadStartup {
    /// A length below 8 or above [`PACKET_BYTES_MAX`].
    #[error("invalid length of startup packet")]
    Length,
    /// A protocol other than 3.
    #[error("unsupported frontend protocol {0}.{1}")]
    Protocol(u16, u16),
    /// The parameters are not pairs of strings. PostgreSQL's text for all such errors.
    #[error("invalid startup packet layout: expected terminator as last byte")]
    Layout(#[from] Malformed),
}

impl BadStartup {
    /// TLS is requested where it is not possible. The code then counts as a protocol version.
    pub const SSL_AGAIN: Self = Self::Protocol((SSL >> 16) as u16, SSL as u16);
    /// The same for GSSAPI encryption.
    pub const GSS_AGAIN: Self = Self::Protocol((GSS_ENC >> 16) as u16, GSS_ENC as u16);
}

/// The length of the packet at the start of `bytes`; None if its length field is incomplete.
pub fn packet_bytes(bytes: &[u8]) -> Result<Option<usize>, BadStartup> {
    let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if (8..=PACKET_BYTES_MAX).contains(&length) { Ok(Some(length)) } else { Err(BadStartup::Length) }
}

/// Reads a whole packet.
pub fn parse(packet: &[u8]) -> Result<Startup<'_>, BadStartup> {
    let mut reader = Reader::new(packet);
    reader.u32("length")?;
    match reader.u32("code")? {
        SSL => Ok(Startup::Ssl),
        GSS_ENC => Ok(Startup::GssEnc),
        CANCEL => Ok(Startup::Cancel),
        version if version >> 16 == 3 => Ok(Startup::Session(session(version as u16, &mut reader)?)),
        version => Err(BadStartup::Protocol((version >> 16) as u16, version as u16)),
    }
}

fn session<'a>(minor: u16, reader: &mut Reader<'a>) -> Result<Session<'a>, Malformed> {
    let mut session = Session { minor, ..Session::default() };
    loop {
        let name = reader.cstr("parameter name")?;
        if name.is_empty() {
            reader.finish()?;
            return Ok(session);
        }
        let value = reader.cstr("parameter value")?;
        match name {
            b"user" => session.user = value,
            b"database" => session.database = value,
            b"replication" => session.replication = Replication::of(value),
            _ if name.starts_with(b"_pq_.") => session.options.push(name),
            _ => {}
        }
    }
}

/// The value of a parameter of a session's packet.
pub fn parameter<'a>(packet: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let mut reader = Reader::new(packet);
    reader.bytes(8, "length and version").ok()?;
    loop {
        let (name, value) = (reader.cstr("parameter name").ok()?, reader.cstr("parameter value").ok()?);
        if name == wanted {
            return Some(value);
        }
    }
}

/// Puts another minor version into a session's packet.
pub fn set_minor(packet: &mut [u8], minor: u16) {
    if let Some(field) = packet.get_mut(6..8) {
        field.copy_from_slice(&minor.to_be_bytes());
    }
}

/// The session's packet with another database.
pub fn with_database(packet: &[u8], database: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut reader = Reader::new(packet);
    reader.u32("length")?;
    let code = reader.u32("code")?;
    let mut parameters = Vec::new();
    loop {
        let name = reader.cstr("parameter name")?;
        if name.is_empty() {
            break;
        }
        let value = reader.cstr("parameter value")?;
        if name != b"database" {
            parameters.extend([name, value]);
        }
    }
    parameters.extend([b"database".as_slice(), database]);
    let mut out = vec![0; 4];
    out.extend_from_slice(&code.to_be_bytes());
    for text in parameters {
        out.extend_from_slice(text);
        out.push(0);
    }
    out.push(0);
    let length = u32::try_from(out.len()).unwrap_or(u32::MAX);
    if let Some(field) = out.first_chunk_mut::<4>() {
        *field = length.to_be_bytes();
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_database_is_put_into_a_packet() {
        let named = b"\0\0\0\x20\0\x03\0\x02user\0me\0database\0a\0x\0y\0\0";
        let (of, other) = (|packet: &[u8]| with_database(packet, b"shop").unwrap(), Some(0x23));
        let packet = of(named);
        assert_eq!(packet_bytes(&packet), Ok(other));
        assert_eq!(packet, b"\0\0\0\x23\0\x03\0\x02user\0me\0x\0y\0database\0shop\0\0");
        // Without a name the user's is meant.
        let unnamed = of(b"\0\0\0\x11\0\x03\0\0user\0me\0\0");
        let Ok(Startup::Session(session)) = parse(&unnamed) else { panic!("a session") };
        assert_eq!((session.user, session.database), (b"me".as_slice(), b"shop".as_slice()));
        assert!(with_database(b"\0\0\0\x0c\0\x03\0\0user", b"shop").is_err());
    }

    #[test]
    fn packets_are_told_apart() {
        assert_eq!(parse(b"\0\0\0\x08\x04\xd2\x16\x2f"), Ok(Startup::Ssl));
        assert_eq!(parse(b"\0\0\0\x08\x04\xd2\x16\x30"), Ok(Startup::GssEnc));
        assert_eq!(parse(b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02"), Ok(Startup::Cancel));
        let session = b"\0\0\0\x13\0\x03\0\0user\0me\0\0";
        assert_eq!(parse(session), Ok(Startup::Session(Session { user: b"me", ..Session::default() })));
        let walsender = b"\0\0\0\x24\0\x03\0\0replication\0database\0\0";
        assert_eq!(
            parse(walsender),
            Ok(Startup::Session(Session { replication: Replication::Logical, ..Session::default() }))
        );
        let physical = b"\0\0\0\x20\0\x03\0\0replication\0true\0\0";
        assert_eq!(
            parse(physical),
            Ok(Startup::Session(Session { replication: Replication::Physical, ..Session::default() }))
        );
        let mut newer = b"\0\0\0\x1d\0\x03\0\x02user\0me\0_pq_.x\0y\0\0".to_vec();
        let parsed = Session { minor: 2, user: b"me", options: vec![b"_pq_.x"], ..Session::default() };
        assert_eq!(parse(&newer), Ok(Startup::Session(parsed)));
        set_minor(&mut newer, 0);
        assert!(matches!(parse(&newer), Ok(Startup::Session(Session { minor: 0, .. }))));
        assert_eq!(parse(b"\0\0\0\x08\0\x02\0\0"), Err(BadStartup::Protocol(2, 0)));
        assert!(parse(b"\0\0\0\x0c\0\x03\0\0user").is_err());
        assert_eq!((parameter(session, b"user"), parameter(session, b"me")), (Some(&b"me"[..]), None));
        assert_eq!((parameter(walsender, b"replication"), parameter(b"", b"x")), (Some(&b"database"[..]), None));
        assert_eq!(packet_bytes(b"GET "), Err(BadStartup::Length));
    }
}
