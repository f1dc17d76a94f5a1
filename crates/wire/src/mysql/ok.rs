//! OK and EOF packets: the end of a result, with the session's state.
//!
//! With [`Capabilities::DEPRECATE_EOF`] there are no EOF packets: an OK packet with the EOF packet's mark ends a
//! result. With [`Capabilities::SESSION_TRACK`] an OK packet reports the changes that the statement made in the
//! session.

use super::capabilities::{Capabilities, Status};
use super::integers::{put_lenenc, put_lenenc_bytes};
use super::packet;
use crate::reader::{Malformed, Reader};

/// The first byte of an OK packet.
pub const OK_MARK: u8 = 0x00;
/// The first byte of an EOF packet and of an OK packet at the end of rows.
pub const EOF_MARK: u8 = 0xfe;

/// An OK packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ok<'a> {
    /// Rows changed (or matched).
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value that the statement generated; 0 if none.
    pub last_insert_id: u64,
    /// The session's state.
    pub status: Status,
    /// How many warnings the statement caused.
    pub warnings: u16,
    /// The server's message.
    pub info: &'a [u8],
    /// Changes of the session, for [`state_changes`].
    pub state: &'a [u8],
}

impl<'a> Ok<'a> {
    /// Reads a payload with either mark.
    pub fn parse(payload: &'a [u8], capabilities: Capabilities) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8("OK mark")? {
            OK_MARK | EOF_MARK => {}
            tag => return Err(Malformed::UnknownTag { what: "OK mark", tag }),
        }
        let mut ok = Self {
            affected_rows: reader.lenenc("affected rows")?,
            last_insert_id: reader.lenenc("last insert id")?,
            status: Status(reader.le_u16("status")?),
            warnings: reader.le_u16("warnings")?,
            ..Self::default()
        };
        if !capabilities.has(Capabilities::SESSION_TRACK) {
            ok.info = reader.rest();
            return Ok(ok);
        }
        // Servers omit both fields if there is neither.
        if !reader.is_empty() {
            ok.info = reader.lenenc_bytes("info")?;
        }
        if ok.status.has(Status::SESSION_STATE_CHANGED) && !reader.is_empty() {
            ok.state = reader.lenenc_bytes("session state")?;
        }
        reader.finish()?;
        Ok(ok)
    }

    /// Appends the packet.
    pub fn put(&self, out: &mut Vec<u8>, sequence: &mut u8, mark: u8, capabilities: Capabilities) {
        let tracks = capabilities.has(Capabilities::SESSION_TRACK);
        // A flag without the fields that it announces has broken clients.
        let promises = tracks && !self.state.is_empty();
        let status = self.status.without(Status::SESSION_STATE_CHANGED);
        let status = if promises { status.with(Status::SESSION_STATE_CHANGED) } else { status };
        packet::put_with(out, sequence, |out| {
            out.push(mark);
            put_lenenc(out, self.affected_rows);
            put_lenenc(out, self.last_insert_id);
            out.extend_from_slice(&status.0.to_le_bytes());
            out.extend_from_slice(&self.warnings.to_le_bytes());
            match tracks {
                true if promises || !self.info.is_empty() => put_lenenc_bytes(out, self.info),
                true => {}
                false => out.extend_from_slice(self.info),
            }
            if promises {
                put_lenenc_bytes(out, self.state);
            }
        });
    }
}

/// An EOF packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eof {
    /// How many warnings the statement caused.
    pub warnings: u16,
    /// The session's state.
    pub status: Status,
}

impl Eof {
    /// The bytes of the longest EOF payload, plus one. A longer payload with its mark is a row or an OK packet
    /// (manual: "EOF_Packet").
    pub const LIMIT_BYTES: usize = 9;

    /// Reads a payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        match reader.u8("EOF mark")? {
            EOF_MARK => {}
            tag => return Err(Malformed::UnknownTag { what: "EOF mark", tag }),
        }
        let eof = Self { warnings: reader.le_u16("warnings")?, status: Status(reader.le_u16("status")?) };
        reader.finish()?;
        Ok(eof)
    }

    /// Appends the packet.
    pub fn put(self, out: &mut Vec<u8>, sequence: &mut u8) {
        packet::put_with(out, sequence, |out| {
            out.push(EOF_MARK);
            out.extend_from_slice(&self.warnings.to_le_bytes());
            out.extend_from_slice(&self.status.0.to_le_bytes());
        });
    }

    /// Appends the packet that ends rows between these two ends: an EOF packet, or an OK packet in its place.
    pub fn put_end_of_rows(self, out: &mut Vec<u8>, sequence: &mut u8, capabilities: Capabilities) {
        if capabilities.has(Capabilities::DEPRECATE_EOF) {
            let ok = Ok { status: self.status, warnings: self.warnings, ..Ok::default() };
            ok.put(out, sequence, EOF_MARK, capabilities);
        } else {
            self.put(out, sequence);
        }
    }
}

/// A change in the session (`enum_session_state_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateChange<'a> {
    /// A system variable has a new value.
    SystemVariable {
        /// Its name.
        name: &'a [u8],
        /// Its value as text.
        value: &'a [u8],
    },
    /// The default database; empty if there is none.
    Schema(&'a [u8]),
    /// Any other state has changed.
    State,
    /// The GTIDs of committed transactions (MySQL).
    Gtids(&'a [u8]),
    /// Statements that would restart the open transaction.
    TransactionCharacteristics(&'a [u8]),
    /// The characteristics of the open transaction, one letter for each.
    TransactionState(&'a [u8]),
    /// An unknown kind.
    Other(u8),
}

/// All changes that [`Ok::state`] reports.
pub fn state_changes(state: &[u8]) -> Result<Vec<StateChange<'_>>, Malformed> {
    let mut changes = Vec::new();
    let mut reader = Reader::new(state);
    while !reader.is_empty() {
        let kind = reader.u8("kind of change")?;
        let mut data = Reader::new(reader.lenenc_bytes("change")?);
        match kind {
            // MySQL reports each change separately, MariaDB all in one.
            0 => {
                while !data.is_empty() {
                    let name = data.lenenc_bytes("variable")?;
                    changes.push(StateChange::SystemVariable { name, value: data.lenenc_bytes("value")? });
                }
            }
            1 => changes.push(StateChange::Schema(data.lenenc_bytes("schema")?)),
            2 => changes.push(StateChange::State),
            3 => {
                data.u8("GTID encoding")?;
                changes.push(StateChange::Gtids(data.lenenc_bytes("GTIDs")?));
            }
            4 => changes.push(StateChange::TransactionCharacteristics(data.lenenc_bytes("characteristics")?)),
            5 => changes.push(StateChange::TransactionState(data.lenenc_bytes("transaction state")?)),
            other => changes.push(StateChange::Other(other)),
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACK: Capabilities = Capabilities::SESSION_TRACK;
    const PLAIN: Capabilities = Capabilities(0);

    #[test]
    fn results_end_in_either_form() {
        let eof = Eof { warnings: 1, status: Status::AUTOCOMMIT };
        let (mut out, mut sequence) = (Vec::new(), 5);
        eof.put_end_of_rows(&mut out, &mut sequence, PLAIN);
        assert_eq!((&out[..], sequence), (&b"\x05\0\0\x05\xfe\x01\0\x02\0"[..], 6));
        assert_eq!(Eof::parse(&out[4..]), Result::Ok(eof));
        out.clear();
        eof.put_end_of_rows(&mut out, &mut sequence, Capabilities::DEPRECATE_EOF.with(TRACK));
        assert_eq!(out, b"\x07\0\0\x06\xfe\0\0\x02\0\x01\0");
        let ok = Ok::parse(&out[4..], TRACK).unwrap();
        assert_eq!((ok.status, ok.warnings, ok.info), (Status::AUTOCOMMIT, 1, &b""[..]));
        assert!(Eof::parse(b"\xfe\0\0\x02").is_err() && Eof::parse(b"\0\0\0\x02\0").is_err());
    }

    #[test]
    fn session_changes_are_read() {
        // MySQL 8.0 to USE test and SET autocommit=0.
        let schema = b"\0\0\0\x02\x40\0\0\0\x07\x01\x05\x04test";
        let ok = Ok::parse(schema, TRACK).unwrap();
        assert_eq!(state_changes(ok.state), Result::Ok(vec![StateChange::Schema(b"test")]));
        let variable = b"\0\0\0\0\x40\0\0\0\x11\x00\x0f\x0aautocommit\x03OFF";
        let ok = Ok::parse(variable, TRACK).unwrap();
        let change = StateChange::SystemVariable { name: b"autocommit", value: b"OFF" };
        assert_eq!(state_changes(ok.state), Result::Ok(vec![change]));
        let (mut out, mut sequence) = (Vec::new(), 1);
        ok.put(&mut out, &mut sequence, OK_MARK, TRACK);
        assert_eq!(&out[4..], variable);
        // A client without the capability must not receive the flag.
        out.clear();
        ok.put(&mut out, &mut sequence, OK_MARK, PLAIN);
        assert_eq!(&out[4..], b"\0\0\0\0\0\0\0");
        let all = b"\x02\x01\x31\x03\x08\x00\x06uuid:1\x04\x01\0\x05\x09\x08T_______\x63\0";
        let kinds = state_changes(all).unwrap();
        assert_eq!(
            kinds,
            [
                StateChange::State,
                StateChange::Gtids(b"uuid:1"),
                StateChange::TransactionCharacteristics(b""),
                StateChange::TransactionState(b"T_______"),
                StateChange::Other(0x63),
            ]
        );
        for end in 1..all.len() {
            let _ = state_changes(&all[..end]);
        }
    }

    #[test]
    fn info_is_kept() {
        let plain = b"\0\x03\x07\x02\0\0\0Rows matched: 3";
        let ok = Ok::parse(plain, PLAIN).unwrap();
        assert_eq!((ok.affected_rows, ok.last_insert_id, ok.info), (3, 7, &b"Rows matched: 3"[..]));
        let (mut out, mut sequence) = (Vec::new(), 1);
        ok.put(&mut out, &mut sequence, OK_MARK, PLAIN);
        assert_eq!(&out[4..], plain);
        out.clear();
        ok.put(&mut out, &mut sequence, OK_MARK, TRACK);
        assert_eq!(Ok::parse(&out[4..], TRACK).unwrap().info, ok.info);
        for end in 0..7 {
            assert!(Ok::parse(&plain[..end], PLAIN).is_err(), "{end}");
        }
    }
}
