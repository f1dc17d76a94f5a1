//! Start-up packets: the first bytes that anybody may send.

#![no_main]

use freshet_fuzz::{bounded, cuts};
use freshet_wire::postgres::startup::{
    PACKET_BYTES_MAX, Replication, Session, Startup, packet_bytes, parse, set_minor, with_database,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let length = packet_bytes(data);
    match data.first_chunk() {
        None => assert_eq!(length, Ok(None)),
        Some(field) => {
            let announced = u32::from_be_bytes(*field) as usize;
            let possible = (8..=PACKET_BYTES_MAX).contains(&announced);
            assert_eq!(length.ok(), possible.then_some(Some(announced)));
            assert_eq!(length, packet_bytes(&field[..]), "only the length field counts");
        }
    }
    // An option takes seven bytes at least, its place in the list 16; a list that grows holds three times what is in it.
    let Ok(startup) = bounded(data.len() * 8 + 512, || parse(data)) else { return };
    if let Startup::Session(session) = startup {
        assert_eq!(session, simply(data));
        assert!(!cuts(data).any(|cut| parse(cut).is_ok()), "a cut packet was understood");
        let mut other = data.to_vec();
        set_minor(&mut other, !session.minor);
        assert_eq!(parse(&other), Ok(Startup::Session(Session { minor: !session.minor, ..session.clone() })));
        let other = with_database(data, b"other").expect("a session");
        assert_eq!(parse(&other), Ok(Startup::Session(Session { database: b"other", ..session })));
    }
});

/// The same, written as simply as can be: pairs up to the empty name, of which the last of a name counts.
fn simply(packet: &[u8]) -> Session<'_> {
    let mut strings = packet[8..].split(|byte| *byte == 0);
    let mut pairs = Vec::new();
    while let Some(name) = strings.next().filter(|name| !name.is_empty()) {
        pairs.push((name, strings.next().expect("a name has a value")));
    }
    assert!(strings.eq([b""]), "nothing comes behind the empty name");
    let value = |wanted: &[u8]| pairs.iter().rfind(|(name, _)| *name == wanted).map(|(_, value)| *value);
    Session {
        minor: u16::from_be_bytes([packet[6], packet[7]]),
        user: value(b"user").unwrap_or_default(),
        database: value(b"database").unwrap_or_default(),
        replication: match value(b"replication") {
            None | Some(b"false" | b"off" | b"no" | b"0") => Replication::No,
            Some(b"database") => Replication::Logical,
            Some(_) => Replication::Physical,
        },
        options: pairs.iter().map(|(name, _)| *name).filter(|name| name.starts_with(b"_pq_.")).collect(),
    }
}
