//! The scanner of MySQL's answers: however the bytes are cut into pieces, it comes to the same end, keeps nothing, and
//! consumes whole packets.

#![no_main]

use freshet_fuzz::bounded;
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::packet::Header;
use freshet_wire::mysql::response::{Answer, Done, Kind, OutOfStep, Response, Step, Upload, patch_status};
use libfuzzer_sys::fuzz_target;

/// What the scanner holds on to, and the places of a few status words.
const MEMORY_MAX: usize = 512;

fuzz_target!(|data: &[u8]| {
    let Some(([command, normalized, cut], bytes)) = data.split_first_chunk::<3>() else { return };
    let Answer::Packets(kind) = Answer::to(&[*command, 0, 0, 0, 0, normalized >> 3]) else { return };
    let bits =
        [Capabilities::DEPRECATE_EOF, Capabilities::MARIADB_CACHE_METADATA, Capabilities::OPTIONAL_RESULTSET_METADATA];
    let chosen = bits.iter().enumerate().filter(|(at, _)| normalized >> at & 1 == 1);
    let capabilities = chosen.fold(Capabilities(0), |all, (_, bit)| all.with(*bit));
    let whole = bounded(MEMORY_MAX, || run(kind, capabilities, bytes, bytes.len().max(1)));
    let pieces = bounded(MEMORY_MAX, || run(kind, capabilities, bytes, usize::from(*cut).max(1)));
    assert_eq!(whole, pieces, "the pieces make a difference");
    if let Ok(End { at, done: Some(done), .. }) = &whole {
        assert_eq!(*at, usize::try_from(done.bytes).expect("short"));
        assert_eq!(packets(&bytes[..*at]), *at, "an answer ends within a packet");
        let mut patched = bytes.to_vec();
        patch_status(&mut patched, &done.status_places, Status(0), Status::default());
        assert_eq!(patched, bytes);
        if let (Some(status), Some(place)) = (done.status, done.status_places.last()) {
            let place = usize::try_from(*place).expect("short");
            let word = u16::from_le_bytes([bytes[place], bytes[place + 1]]);
            assert!(done.status_places.len() == 4 || word == status.0);
        }
    }
    upload(bytes, usize::from(*cut).max(1));
});

#[derive(Debug, PartialEq, Eq)]
struct End {
    at: usize,
    files: usize,
    done: Option<Done>,
}

fn run(kind: Kind, capabilities: Capabilities, bytes: &[u8], piece: usize) -> Result<End, OutOfStep> {
    let mut response = Response::new(kind, capabilities);
    let mut end = End { at: 0, files: 0, done: None };
    let mut given = 0;
    loop {
        let scanned = response.scan(&bytes[end.at..given])?;
        assert!(end.at + scanned.consumed <= given, "more consumed than there was");
        end.at += scanned.consumed;
        match scanned.step {
            Step::Done(done) => {
                end.done = Some(Done { last: 0..0, ..done });
                return Ok(end);
            }
            Step::SendFile => end.files += 1,
            Step::Continue if given == bytes.len() => return Ok(end),
            Step::Continue => given = (given + piece).min(bytes.len()),
        }
    }
}

/// Bytes of the whole packets at the front.
fn packets(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(header) = Header::read(&bytes[at..]).filter(|header| header.packet_bytes() <= bytes.len() - at) {
        at += header.packet_bytes();
    }
    at
}

fn upload(bytes: &[u8], piece: usize) {
    let whole = Upload::default().scan(bytes);
    let (mut upload, mut at, mut given) = (Upload::default(), 0, 0);
    let ended = loop {
        let (consumed, ended) = upload.scan(&bytes[at..given]);
        at += consumed;
        if ended || given == bytes.len() {
            break ended;
        }
        given = (given + piece).min(bytes.len());
    };
    assert_eq!(whole, (at, ended));
}
