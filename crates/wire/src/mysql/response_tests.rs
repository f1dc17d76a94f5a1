//! Answers as servers send them, whole and in pieces. What each server does in fact is tested with real ones
//! (`net/tests/mysql`).

use super::*;
use crate::mysql::{command, packet};

const EOF_STYLE: Capabilities = Capabilities(0);
const OK_STYLE: Capabilities = Capabilities::DEPRECATE_EOF;

fn packets(payloads: &[&[u8]]) -> Vec<u8> {
    let (mut out, mut sequence) = (Vec::new(), 1);
    for payload in payloads {
        packet::put(&mut out, &mut sequence, payload);
    }
    out
}

const DEFINITION: &[u8] = b"\x03def\0\0\0\x011\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0";
const OK: &[u8] = b"\0\x01\0\x02\0\0\0";
const OK_MORE: &[u8] = b"\0\x01\0\x0a\0\0\0";
const EOF: &[u8] = b"\xfe\0\0\x02\0";
const EOF_MORE: &[u8] = b"\xfe\0\0\x0a\0";
const END: &[u8] = b"\xfe\0\0\x02\0\x01\0";

/// Scans an answer whole, then byte by byte; both have to end at the last byte with the same outcome.
fn scan(kind: Kind, capabilities: Capabilities, bytes: &[u8]) -> Done {
    let behind = [bytes, b"\x01\0\0\x01\x0e"].concat();
    let whole = Response::new(kind, capabilities).scan(&behind).unwrap();
    assert_eq!(whole.consumed, bytes.len(), "{:?}", whole.step);
    let Step::Done(done) = whole.step else { panic!("{:?}", whole.step) };
    let (mut response, mut at) = (Response::new(kind, capabilities), 0);
    for end in 0..=bytes.len() {
        let scanned = response.scan(&bytes[at..end]).unwrap();
        at += scanned.consumed;
        if let Step::Done(piecewise) = scanned.step {
            assert_eq!((at, end), (bytes.len(), bytes.len()));
            assert_eq!(Done { last: 0..0, ..piecewise }, Done { last: 0..0, ..done.clone() });
            return done;
        }
    }
    panic!("no end in pieces");
}

fn words(bytes: &[u8], done: &Done) -> Vec<u16> {
    let word = |at: &u64| u16::from_le_bytes([bytes[*at as usize], bytes[*at as usize + 1]]);
    done.status_places.iter().map(word).collect()
}

#[test]
fn result_sets_end() {
    let bytes = packets(&[b"\x01", DEFINITION, EOF, b"\x011", b"\xfb", EOF]);
    let done = scan(Kind::Query, EOF_STYLE, &bytes);
    assert_eq!((done.rows, done.columns, done.results, done.result_sets), (2, 1, 1, 1));
    assert_eq!((done.status, words(&bytes, &done)), (Some(Status::AUTOCOMMIT), vec![2, 2]));
    assert_eq!(&bytes[done.last], EOF);
    let bytes = packets(&[b"\x01", DEFINITION, b"\x011", END]);
    let done = scan(Kind::Query, OK_STYLE, &bytes);
    assert_eq!((done.rows, done.warnings, words(&bytes, &done)), (1, 1, vec![2]));
    assert_eq!(done.bytes, bytes.len() as u64);
    let bytes = packets(&[OK]);
    let done = scan(Kind::Query, EOF_STYLE, &bytes);
    assert_eq!((done.results, done.result_sets, words(&bytes, &done)), (1, 0, vec![2]));
}

#[test]
fn several_results_follow_each_other() {
    let bytes = packets(&[b"\x01", DEFINITION, EOF_MORE, b"\x011", EOF_MORE, OK_MORE, OK]);
    let done = scan(Kind::Query, EOF_STYLE, &bytes);
    assert_eq!((done.results, done.result_sets, done.rows, words(&bytes, &done)), (3, 1, 1, vec![10, 10, 10, 2]));
    let error = b"\xff\x7a\x04#42S02Table";
    let bytes = packets(&[OK_MORE, b"\x01", DEFINITION, b"\x011", error]);
    let done = scan(Kind::Query, OK_STYLE, &bytes);
    assert_eq!((done.error, done.status, done.results), (Some(1146), None, 1));
    assert_eq!(&bytes[done.last], error);
}

#[test]
fn output_parameters_are_followed_by_ok() {
    // MySQL says so behind the definitions alone.
    let bytes = packets(&[b"\x01", DEFINITION, b"\xfe\0\0\x0a\x10", b"\0\0\x07\0\0\0", EOF, OK]);
    assert_eq!(scan(Kind::Execute, EOF_STYLE, &bytes).results, 2);
}

#[test]
fn cursors_have_no_rows_at_first() {
    let bytes = packets(&[b"\x01", DEFINITION, b"\xfe\0\0\x42\0"]);
    let done = scan(Kind::Cursor, EOF_STYLE, &bytes);
    assert_eq!((done.cursor, done.rows, done.results), (true, 0, 1));
    let bytes = packets(&[b"\x01", DEFINITION, b"\xfe\0\0\x42\0\0\0"]);
    assert!(scan(Kind::Cursor, OK_STYLE, &bytes).cursor);
    let bytes = packets(&[b"\0\0\x01\0\0\0", b"\xfe\0\0\x82\0"]);
    assert_eq!(scan(Kind::Fetch, EOF_STYLE, &bytes).rows, 1);
}

#[test]
fn a_procedure_s_own_cursor_is_none_of_the_client_s() {
    // `CALL`, whose procedure has a cursor open while it selects a row: MySQL says so in its last packet, too.
    let (eof, end) = (b"\xfe\0\0\x4a\0", b"\xfe\0\0\x4a\0\0\0");
    for kind in [Kind::Execute, Kind::Cursor] {
        for ok in [OK, b"\0\0\0\x42\0\0\0"] {
            let done = scan(kind, EOF_STYLE, &packets(&[b"\x01", DEFINITION, eof, b"\0\0\x05\0\0\0", eof, ok]));
            assert_eq!((done.rows, done.results), (1, 2));
            let done = scan(kind, OK_STYLE, &packets(&[b"\x01", DEFINITION, b"\0\0\x05\0\0\0", end, ok]));
            assert_eq!((done.rows, done.results), (1, 2));
        }
    }
    let [plain, asked] = [0, 1].map(|flags| Answer::to(&[command::STMT_EXECUTE, 1, 0, 0, 0, flags]));
    assert_eq!((plain, asked), (Answer::Packets(Kind::Execute), Answer::Packets(Kind::Cursor)));
}

#[test]
fn statements_are_prepared() {
    let head = b"\0\x05\0\0\0\x01\0\x02\0\0\0\0";
    let bytes = packets(&[head, DEFINITION, DEFINITION, EOF, DEFINITION, EOF]);
    let done = scan(Kind::Prepare, EOF_STYLE, &bytes);
    assert_eq!(done.prepared, Some(Prepared { statement: 5, columns: 1, parameters: 2 }));
    scan(Kind::Prepare, OK_STYLE, &packets(&[head, DEFINITION, DEFINITION, DEFINITION]));
    scan(Kind::Prepare, EOF_STYLE, &packets(&[b"\0\x05\0\0\0\0\0\0\0\0\0\0"]));
    scan(Kind::Prepare, EOF_STYLE, &packets(&[b"\0\x05\0\0\0\0\0\x01\0\0\0\0", DEFINITION, EOF]));
    let optional = Capabilities::OPTIONAL_RESULTSET_METADATA;
    let bare = b"\0\x05\0\0\0\x01\0\x02\0\0\0\0\0";
    assert!(scan(Kind::Prepare, optional, &packets(&[bare, EOF, EOF])).without_definitions);
    scan(Kind::Prepare, optional.with(OK_STYLE), &packets(&[bare]));
    assert_eq!(scan(Kind::Prepare, OK_STYLE, &packets(&[b"\xff\x28\x04#42000no"])).error, Some(1064));
}

#[test]
fn definitions_may_be_left_out() {
    let cached = Capabilities::MARIADB_CACHE_METADATA;
    let bytes = packets(&[b"\x02\0", EOF, b"\0\0", EOF]);
    let done = scan(Kind::Execute, cached, &bytes);
    assert_eq!((done.without_definitions, done.columns, done.rows), (true, 2, 1));
    let bytes = packets(&[b"\x01\x01", DEFINITION, b"\x011", END]);
    assert!(!scan(Kind::Query, cached.with(OK_STYLE), &bytes).without_definitions);
}

#[test]
fn progress_is_no_end() {
    let report = b"\xff\xff\xff\x01\x01\x02\x10\x27\0\x04copy";
    let bytes = packets(&[report, report, OK]);
    assert_eq!(scan(Kind::Query, EOF_STYLE, &bytes).error, None);
}

#[test]
fn single_packets_are_answers() {
    assert_eq!(scan(Kind::Status, EOF_STYLE, &packets(&[OK])).results, 1);
    assert_eq!(scan(Kind::Status, OK_STYLE, &packets(&[END])).warnings, 1);
    assert_eq!(scan(Kind::Status, EOF_STYLE, &packets(&[EOF])).status, Some(Status::AUTOCOMMIT));
    assert_eq!(scan(Kind::Text, EOF_STYLE, &packets(&[b"Uptime: 1"])).status, None);
    assert_eq!(scan(Kind::Text, EOF_STYLE, &packets(&[b""])).bytes, 4);
    assert_eq!(scan(Kind::Fields, EOF_STYLE, &packets(&[DEFINITION, DEFINITION, EOF])).columns, 2);
    scan(Kind::Login, EOF_STYLE, &packets(&[b"\xfemysql_native_password\0abc\0", b"\x01\x03", OK]));
    scan(Kind::Stream, EOF_STYLE, &packets(&[b"\0event", b"\0event", b"\xff\xd4\x04#HY000gone"]));
    assert_eq!((Answer::to(&[command::QUIT]), Answer::to(&[0x99])), (Answer::None, Answer::Packets(Kind::Status)));
}

#[test]
fn great_rows_are_not_kept() {
    // A value of 16 MiB begins with EOF's mark, and its row's second packet may begin with anything.
    for length in [packet::PACKET_PAYLOAD_MAX - 9, 1 << 24, 2 * packet::PACKET_PAYLOAD_MAX - 9] {
        let row = [&[0xfe][..], &(length as u64).to_le_bytes(), &vec![0xfe; length]].concat();
        for (capabilities, payloads) in [
            (EOF_STYLE, [&b"\x01"[..], DEFINITION, EOF, &row, EOF].as_slice()),
            (OK_STYLE, &[b"\x01", DEFINITION, &row, END]),
        ] {
            let bytes = packets(payloads);
            let (mut response, mut at, mut given) = (Response::new(Kind::Query, capabilities), 0, 0);
            loop {
                given = (given + 1_000_003).min(bytes.len());
                let scanned = response.scan(&bytes[at..given]).unwrap();
                at += scanned.consumed;
                assert!(given - at < 100, "{} bytes are left", given - at);
                if let Step::Done(done) = scanned.step {
                    assert_eq!((done.rows, at), (1, bytes.len()));
                    break;
                }
            }
        }
    }
}

#[test]
fn files_are_asked_for() {
    let mut response = Response::new(Kind::Query, EOF_STYLE);
    let request = packets(&[b"\xfb/etc/motd"]);
    assert_eq!(response.scan(&request[..8]).unwrap().consumed, 0);
    assert_eq!(
        response.scan(&request),
        Ok(Scanned { consumed: request.len(), step: Step::SendFile, changes: Vec::new() })
    );
    // The client's packets have been numbers 2 and 3.
    let Step::Done(done) = response.scan(b"\x07\0\0\x04\0\x01\0\x02\0\0\0").unwrap().step else { panic!("no end") };
    assert!(done.sent_file && done.bytes == request.len() as u64 + 11);
    let file = [&b"\x03\0\0\x02abc"[..], b"\0\0\0\x03", b"\x01\0\0\0\x0e"].concat();
    let mut upload = Upload::default();
    assert_eq!(upload.scan(&file), (11, true));
    let mut upload = Upload::default();
    assert_eq!(
        (upload.scan(&file[..5]), upload.scan(&file[5..7]), upload.scan(b"\0\0\0\x03")),
        ((5, false), (2, false), (4, true))
    );
    // An empty packet behind a full one ends that payload, not the file.
    let mut full = packets(&[&vec![7; packet::PACKET_PAYLOAD_MAX]]);
    let mut upload = Upload::default();
    assert_eq!(upload.scan(&full), (full.len(), false));
    full.extend_from_slice(b"\0\0\0\x03");
    assert_eq!(Upload::default().scan(&full), (full.len(), true));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |kind, capabilities, payloads: &[&[u8]]| {
        let outcome = Response::new(kind, capabilities).scan(&packets(payloads));
        assert!(outcome.is_err(), "{outcome:?}");
    };
    refused(Kind::Query, EOF_STYLE, &[b"\x01", DEFINITION, b"\x011"]);
    refused(Kind::Query, EOF_STYLE, &[b""]);
    refused(Kind::Query, EOF_STYLE, &[b"\xfe"]);
    refused(Kind::Query, EOF_STYLE, &[b"\x01\x01"]);
    refused(Kind::Status, EOF_STYLE, &[b"\x05"]);
    refused(Kind::Status, EOF_STYLE, &[b"\0\0"]);
    refused(Kind::Prepare, EOF_STYLE, &[b"\x01"]);
    refused(Kind::Query, EOF_STYLE, &[b"\xff\x01"]);
    let mut out_of_step = Response::new(Kind::Query, EOF_STYLE);
    assert_eq!(out_of_step.scan(b"\x07\0\0\x02\0"), Err(OutOfStep::Sequence { expected: 1, found: 2 }));
    let behind_two = Response::new(Kind::Status, EOF_STYLE).starting_at(2).scan(b"\x07\0\0\x02\0\x01\0\x02\0\0\0");
    assert!(matches!(behind_two, Ok(Scanned { step: Step::Done(_), .. })), "the command had two packets");
    // But for errors that the server has to say unasked.
    let unasked = Response::new(Kind::Query, EOF_STYLE).scan(b"\x09\0\0\0\xff\xbf\x0f#HY000");
    assert!(matches!(unasked, Ok(Scanned { step: Step::Done(Done { error: Some(4031), .. }), .. })));
}

#[test]
fn flags_are_this_sessions() {
    let mut bytes = packets(&[b"\x01", DEFINITION, EOF, b"\x011", EOF]);
    let done = scan(Kind::Query, EOF_STYLE, &bytes);
    let own = Status::IN_TRANS.with(Status::NO_INDEX_USED);
    patch_status(&mut bytes, &done.status_places, own, Status::IN_TRANS.with(Status::AUTOCOMMIT));
    assert_eq!(words(&bytes, &done), [1, 1]);
    let last = bytes.len() as u64 - 1;
    patch_status(&mut bytes, &[u64::MAX, last], own, own);
}
