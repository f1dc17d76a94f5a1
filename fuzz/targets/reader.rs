//! The cursor that all decoders read through, driven by any sequence of reads: what it hands out are the bytes in
//! their order, each once.

#![no_main]

use freshet_fuzz::bounded;
use freshet_wire::reader::{Malformed, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((count, rest)) = data.split_first() else { return };
    let Some((steps, bytes)) = rest.split_at_checked(usize::from(*count)) else { return };
    bounded(256, || drive(steps, bytes));
});

fn drive(steps: &[u8], bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    for step in steps {
        let at = bytes.len() - reader.remaining();
        let ahead = &bytes[at..];
        let taken = match step % 12 {
            0 => reader.u8("").map(|value| assert_eq!([value], ahead[..1])).map(|()| 1),
            1 => reader.u16("").map(|value| assert_eq!(value.to_be_bytes(), ahead[..2])).map(|()| 2),
            2 => reader.i16("").map(|value| assert_eq!(value.to_be_bytes(), ahead[..2])).map(|()| 2),
            3 => reader.u32("").map(|value| assert_eq!(value.to_be_bytes(), ahead[..4])).map(|()| 4),
            4 => reader.i32("").map(|value| assert_eq!(value.to_be_bytes(), ahead[..4])).map(|()| 4),
            5 => reader.u64("").map(|value| assert_eq!(value.to_be_bytes(), ahead[..8])).map(|()| 8),
            6 => reader.i64("").map(|value| assert_eq!(value.to_be_bytes(), ahead[..8])).map(|()| 8),
            7 => reader.cstr("").map(|text| {
                assert_eq!(ahead[..text.len()], *text);
                assert_eq!(ahead[text.len()], 0);
                assert!(!text.contains(&0));
                text.len() + 1
            }),
            8 => reader.cstr_utf8("").map(|text| text.len() + 1),
            9 => reader.sized("").map(|value| {
                assert_eq!(u32::from_be_bytes(*ahead.first_chunk().expect("a length")) as usize, value.len());
                assert_eq!(&ahead[4..4 + value.len()], value);
                value.len() + 4
            }),
            10 => reader.bytes(usize::from(*step), "").map(|value| {
                assert_eq!(&ahead[..usize::from(*step)], value);
                value.len()
            }),
            _ => Ok(reader.rest()).map(|rest| {
                assert_eq!(rest, ahead);
                rest.len()
            }),
        };
        match taken {
            Ok(taken) => assert_eq!(reader.remaining(), ahead.len() - taken),
            Err(Malformed::Truncated(_) | Malformed::Invalid(_)) => assert!(reader.remaining() <= ahead.len()),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(reader.is_empty(), reader.remaining() == 0);
        assert_eq!(reader.finish().is_ok(), reader.is_empty());
    }
}
