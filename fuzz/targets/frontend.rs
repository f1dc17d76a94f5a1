//! Frames, and the messages of clients: what is read says all that the frame said, and no cut of a frame is taken
//! for a frame.

#![no_main]

use freshet_fuzz::{bounded, cuts, put_count, put_length, put_strings};
use freshet_wire::postgres::frame::{HEADER_BYTES, header};
use freshet_wire::postgres::frontend::{Bind, Bound, Execute, Parse, Target, query_text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    loop {
        match header(rest) {
            Ok(Some(head)) => {
                assert_eq!(rest.first(), Some(&head.tag));
                assert!((HEADER_BYTES..=0x4000_0000).contains(&head.frame_bytes));
                let Some((frame, tail)) = rest.split_at_checked(head.frame_bytes) else {
                    // A frame that has only begun: nothing of it may be understood before it is whole, but what is
                    // understood must not panic either.
                    return read(rest);
                };
                read(frame);
                rest = tail;
            }
            Ok(None) => return assert!(rest.len() < HEADER_BYTES),
            Err(_) => return read(rest),
        }
    }
});

fn read(frame: &[u8]) {
    let body = frame.get(HEADER_BYTES..).unwrap_or_default();
    parse(frame, body);
    bind(frame, body);
    if let Ok(text) = query_text(frame) {
        assert_eq!([text, &[0]].concat(), body);
        refuses_cuts(frame, |cut| query_text(cut).is_ok());
    }
    if let Ok(target) = Target::read(frame) {
        assert_eq!([&[target.kind], target.name, &[0]].concat(), body);
        refuses_cuts(frame, |cut| Target::read(cut).is_ok());
    }
    if let Ok(execute) = Execute::read(frame) {
        assert_eq!([execute.portal, &[0], &execute.rows_max.to_be_bytes()].concat(), body);
        refuses_cuts(frame, |cut| Execute::read(cut).is_ok());
    }
}

fn refuses_cuts(frame: &[u8], understood: impl Fn(&[u8]) -> bool) {
    assert!(!cuts(frame).any(understood), "a cut frame was understood");
}

fn parse(frame: &[u8], body: &[u8]) {
    let Ok(parse) = bounded(256, || Parse::read(frame)) else { return };
    let mut again = Vec::new();
    put_strings(&mut again, [parse.name, parse.query]);
    put_count(&mut again, parse.types.len() / 4);
    again.extend_from_slice(parse.types);
    assert_eq!(again, body);
    refuses_cuts(frame, |cut| Parse::read(cut).is_ok());
    for (at, oid) in parse.types.chunks(4).enumerate() {
        assert_eq!(Parse::type_oid(parse.types, at).to_be_bytes(), oid);
    }
    assert_eq!(Parse::type_oid(parse.types, parse.types.len() / 4), 0);
    assert_eq!(Parse::type_oid(parse.types, usize::from(u16::MAX)), 0);
}

fn bind(frame: &[u8], body: &[u8]) {
    let Ok(bind) = bounded(256, || Bind::read(frame)) else { return };
    let mut again = Vec::new();
    put_strings(&mut again, [bind.portal, bind.statement]);
    again.extend_from_slice(bind.tail);
    assert_eq!(again, body);
    // Four bytes announce a parameter, which takes 24; a list that grows holds three times what is in it.
    let Ok(parameters) = bounded(bind.tail.len() * 20 + 256, || Bind::parameters(bind.tail)) else { return };
    let formats = bind.tail.first_chunk().map_or(0, |count| usize::from(u16::from_be_bytes(*count)));
    let head = 2 + formats * 2;
    let mut again = bind.tail.get(..head).unwrap_or_default().to_vec();
    put_count(&mut again, parameters.len());
    for parameter in &parameters {
        match parameter {
            Some(Bound { bytes, .. }) => {
                put_length(&mut again, bytes.len());
                again.extend_from_slice(bytes);
            }
            // Any negative length means NULL.
            None => again.extend_from_slice(bind.tail.get(again.len()..again.len() + 4).expect("a length")),
        }
    }
    assert!(bind.tail.starts_with(&again), "parameters differ from what was sent");
    let results = bind.tail.get(again.len()..).and_then(|rest| rest.split_first_chunk()).expect("result formats");
    assert_eq!(usize::from(u16::from_be_bytes(*results.0)) * 2, results.1.len());
    refuses_cuts(bind.tail, |cut| Bind::parameters(cut).is_ok());
}
