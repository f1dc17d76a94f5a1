//! Session state that Freshet requested and the client did not.
//!
//! An OK packet can name the commits that it acknowledges. MySQL does so with `session_track_gtids`, MariaDB with
//! `last_gtid` among the tracked variables. Freshet reads the commits and removes them again. So the client receives
//! what it requested of the server, and no flag announces more.
//!
//! Servers write the rest of the packet alike with and without [`Capabilities::SESSION_TRACK`] (`net_send_ok`). The
//! info follows its length; it is omitted if it is empty and no state follows.

use freshet_types::GtidSet;

use super::capabilities::{Capabilities, Status};
use super::integers::{put_lenenc, put_lenenc_bytes};
use super::ok::{Eof, Ok as OkPacket, StateChange, state_changes};
use super::packet::HEADER_BYTES;
use crate::reader::{Malformed, Reader};

/// MariaDB's variable.
const LAST_GTID: &[u8] = b"last_gtid";
/// Kinds of changes (`enum_session_state_type`).
const SYSTEM_VARIABLE: u8 = 0;
const GTIDS: u8 = 3;
/// The most commits read from one packet; a procedure may make more.
const NAMED_MAX: u64 = 64;

/// A commit's identity: of MySQL its source's UUID and its number there, of MariaDB domain and server (32 bits each) and the
/// sequence number.
pub type Gtid = (u128, u64);

/// The state that the client does not receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// All of the session's state: the client did not agree to [`Capabilities::SESSION_TRACK`].
    pub all: bool,
    /// The commits that Freshet requested; and the flag in EOF packets, which cannot carry the state that it
    /// announces.
    pub commits: bool,
}

/// The payload of an OK or EOF packet for the client; None if it is unchanged.
pub fn shown(payload: &[u8], hidden: Hidden) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
    if let Ok(eof) = Eof::parse(payload) {
        let status = eof.status.without(Status::SESSION_STATE_CHANGED);
        Eof { status, ..eof }.put(&mut out, &mut 0);
        return hidden.commits.then(|| out.split_off(HEADER_BYTES));
    }
    let ok = OkPacket::parse(payload, Capabilities::SESSION_TRACK).ok()?;
    let state = match hidden {
        Hidden { all: true, .. } => Vec::new(),
        Hidden { commits: true, .. } => without_commits(ok.state).ok()?,
        _ => return None,
    };
    let mark = *payload.first()?;
    OkPacket { state: &state, ..ok }.put(&mut out, &mut 0, mark, Capabilities::SESSION_TRACK);
    Some(out.split_off(HEADER_BYTES))
}

fn without_commits(state: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(state.len());
    let mut reader = Reader::new(state);
    while !reader.is_empty() {
        let kind = reader.u8("kind of change")?;
        let data = reader.lenenc_bytes("change")?;
        let mut kept = Vec::new();
        if kind == SYSTEM_VARIABLE {
            let mut pairs = Reader::new(data);
            while !pairs.is_empty() {
                let (name, value) = (pairs.lenenc_bytes("variable")?, pairs.lenenc_bytes("value")?);
                if name != LAST_GTID {
                    put_lenenc_bytes(&mut kept, name);
                    put_lenenc_bytes(&mut kept, value);
                }
            }
        } else if kind != GTIDS {
            kept.extend_from_slice(data);
        }
        if !kept.is_empty() || data.is_empty() {
            out.push(kind);
            put_lenenc(&mut out, kept.len() as u64);
            out.extend_from_slice(&kept);
        }
    }
    Ok(out)
}

/// The commits that the payload of an OK packet names. None if some cannot be read; an EOF packet names none.
pub fn commits(payload: &[u8]) -> Option<Vec<Gtid>> {
    if Eof::parse(payload).is_ok() {
        return Some(Vec::new());
    }
    let ok = OkPacket::parse(payload, Capabilities::SESSION_TRACK).ok()?;
    let mut named = Vec::new();
    for change in state_changes(ok.state).ok()? {
        match change {
            StateChange::Gtids(text) => {
                let set = GtidSet::parse(std::str::from_utf8(text).ok()?)?;
                for (source, first, last) in set.iter() {
                    if last - first >= NAMED_MAX {
                        return None;
                    }
                    named.extend((first..=last).map(|number| (source, number)));
                }
            }
            StateChange::SystemVariable { name: LAST_GTID, value } if !value.is_empty() => named.push(mariadb(value)?),
            _ => {}
        }
    }
    (named.len() as u64 <= NAMED_MAX).then_some(named)
}

/// `domain-server-sequence`
fn mariadb(text: &[u8]) -> Option<Gtid> {
    let mut parts = std::str::from_utf8(text).ok()?.splitn(3, '-');
    let (domain, server): (u32, u32) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((mariadb_source(domain, server), parts.next()?.parse().ok()?))
}

/// The source in a [`Gtid`] of MariaDB.
pub fn mariadb_source(domain: u32, server: u32) -> u128 {
    u128::from(domain) << 32 | u128::from(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Hidden = Hidden { all: true, commits: true };
    const COMMITS: Hidden = Hidden { all: false, commits: true };
    /// MySQL 8.0.15 and MariaDB 10.11 to an UPDATE of a row.
    const MYSQL: &[u8] = b"\0\x01\0\x02\x40\0\0(Rows matched: 1  Changed: 1  Warnings: 0\
        +\x03)\0'e0ffdb0d-e669-11f1-8bbd-02fc00000001:55";
    const MARIADB: &[u8] =
        b"\0\x01\0\x02\x40\0\0(Rows matched: 1  Changed: 1  Warnings: 0\x13\0\x11\tlast_gtid\x060-1-88";
    const PLAIN: &[u8] = b"\0\x01\0\x02\0\0\0(Rows matched: 1  Changed: 1  Warnings: 0";

    #[test]
    fn commits_are_named_and_taken_out() {
        let source = 0xe0ff_db0d_e669_11f1_8bbd_02fc_0000_0001;
        assert_eq!(commits(MYSQL), Some(vec![(source, 55)]));
        assert_eq!(commits(MARIADB), Some(vec![(mariadb_source(0, 1), 88)]));
        for ok in [MYSQL, MARIADB] {
            for hidden in [ALL, COMMITS, Hidden { all: true, commits: false }] {
                assert_eq!(shown(ok, hidden).as_deref(), Some(PLAIN));
            }
            assert_eq!(shown(ok, Hidden::default()), None);
            assert_eq!(commits(PLAIN), Some(Vec::new()));
        }
        // To COMMIT, where nothing is left; at the end of rows; of a set of commits.
        let commit = b"\0\0\0\x02\x40\0\0\0\x13\0\x11\tlast_gtid\x060-1-89";
        assert_eq!(shown(commit, COMMITS).unwrap(), b"\0\0\0\x02\0\0\0");
        let end = b"\xfe\0\0\x2a\x40\0\0\0.\x03,\0*e0ffdb0d-e669-11f1-8bbd-02fc00000001:89-90";
        assert_eq!(shown(end, COMMITS).unwrap(), b"\xfe\0\0\x2a\0\0\0");
        assert_eq!(commits(end), Some(vec![(source, 89), (source, 90)]));
        // What MySQL says behind an error that followed a commit.
        assert_eq!(shown(b"\0\0\0\x02\x40\0\0\0\0", COMMITS).unwrap(), b"\0\0\0\x02\0\0\0");
    }

    #[test]
    fn what_the_client_asked_for_stays() {
        let both = b"\0\0\0\0\x40\0\0\0\x23\0\x21\x0aautocommit\x03OFF\tlast_gtid\x070-1-102";
        let rest = b"\0\0\0\0\x40\0\0\0\x11\0\x0f\x0aautocommit\x03OFF";
        assert_eq!(shown(both, COMMITS).unwrap(), rest);
        assert_eq!(shown(rest, COMMITS).unwrap(), rest);
        assert_eq!(shown(rest, ALL).unwrap(), b"\0\0\0\0\0\0\0");
        let state = b"\0\0\0\x02\x40\0\0\0\x0d\x02\x01\x31\x01\x08\x07freshet";
        assert_eq!(shown(state, COMMITS).unwrap(), state);
    }

    #[test]
    fn flags_of_eof_packets() {
        assert_eq!(shown(b"\xfe\0\0\x2a\x40", COMMITS).unwrap(), b"\xfe\0\0\x2a\0");
        // MariaDB sets the flag there for clients that cannot hear more, too.
        assert_eq!(shown(b"\xfe\0\0\x2a\x40", Hidden { all: true, commits: false }), None);
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        let many = b"\0\0\0\x02\x40\0\0\0\x30\x03\x2e\0,e0ffdb0d-e669-11f1-8bbd-02fc00000001:1-99999";
        assert_eq!(commits(many), None);
        assert!(shown(many, COMMITS).is_some());
        for end in 0..MARIADB.len() {
            let (_, _) = (commits(&MARIADB[..end]), shown(&MARIADB[..end], COMMITS));
        }
        assert_eq!((mariadb(b"0-1"), mariadb(b"0-1-x"), mariadb(b"0-1-2-3")), (None, None, None));
    }
}
