//! Session state in OK packets: what the client is shown tells of no commit that Freshet asked for, and is the same but for
//! that.

#![no_main]

use freshet_fuzz::bounded;
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::ok::{Eof, Ok as OkPacket};
use freshet_wire::mysql::track::{Hidden, commits, shown};
use libfuzzer_sys::fuzz_target;

/// A copy of the packet and of its state, and the commits that one may name: a set names up to 64 in each range.
const MEMORY_PER_BYTE: usize = 1024;

fuzz_target!(|data: &[u8]| {
    let Some((choice, payload)) = data.split_first() else { return };
    let hidden = Hidden { all: choice & 1 == 1, commits: choice & 2 == 2 };
    let (seen, named) = bounded(4096 + MEMORY_PER_BYTE * data.len(), || (shown(payload, hidden), commits(payload)));
    if hidden == Hidden::default() {
        assert!(seen.is_none() || Eof::parse(payload).is_ok(), "changed for nothing");
    }
    assert!(named.is_none_or(|named| named.len() <= 64));
    let Some(seen) = seen else { return };
    if Eof::parse(payload).is_ok() {
        return;
    }
    let before = OkPacket::parse(payload, Capabilities::SESSION_TRACK).expect("it was shown");
    let after = OkPacket::parse(&seen, Capabilities::SESSION_TRACK).expect("the client understands it");
    assert_eq!((before.affected_rows, before.last_insert_id, before.warnings), {
        (after.affected_rows, after.last_insert_id, after.warnings)
    });
    assert_eq!(before.info, after.info);
    assert_eq!(after.status.has(Status::SESSION_STATE_CHANGED), !after.state.is_empty());
    assert!(!hidden.all || after.state.is_empty());
    assert!(commits(&seen).is_none_or(|named| named.is_empty()), "a commit is left");
});
