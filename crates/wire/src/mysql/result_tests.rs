//! Freshet's own results, byte by byte and as the scanner sees them.

use super::*;
use crate::mysql::packet::Whole;
use crate::mysql::response::{Kind, Response, Step};

fn rows() -> Vec<Vec<Option<String>>> {
    vec![vec![Some("x".into()), None], vec![Some(String::new()), Some("y".repeat(300))]]
}

fn shape(capabilities: Capabilities, form: Form) -> Shape {
    Shape { capabilities, status: Status::AUTOCOMMIT.with(Status::IN_TRANS), form }
}

#[test]
fn results_are_well_formed() {
    let mut out = Vec::new();
    put_text_result(&mut out, shape(Capabilities(0), Form::Text), &["a"], &[vec![Some("x".into())]]);
    assert_eq!(
        out.escape_ascii().to_string(),
        b"\x01\0\0\x01\x01\x17\0\0\x02\x03def\0\0\0\x01a\0\x0c\x2d\0\0\x10\0\0\xfd\0\0\x1f\0\0\x05\0\0\x03\xfe\0\0\x03\0\
          \x02\0\0\x04\x01x\x05\0\0\x05\xfe\0\0\x03\0"
            .escape_ascii()
            .to_string()
    );
    out.clear();
    put_text_result(&mut out, shape(Capabilities::DEPRECATE_EOF, Form::Binary), &["a"], &[vec![None]]);
    assert!(out.ends_with(b"\x02\0\0\x03\0\x04\x07\0\0\x04\xfe\0\0\x03\0\0\0"), "{}", out.escape_ascii());
}

#[test]
fn every_form_is_followed() {
    let bits = [
        Capabilities::DEPRECATE_EOF,
        Capabilities::SESSION_TRACK,
        Capabilities::MARIADB_CACHE_METADATA,
        Capabilities::MARIADB_EXTENDED_METADATA,
        Capabilities::OPTIONAL_RESULTSET_METADATA,
    ];
    for set in 0..1 << bits.len() {
        let chosen = bits.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let capabilities = chosen.fold(Capabilities(0), |all, (_, bit)| all.with(*bit));
        for (form, kind) in [(Form::Text, Kind::Query), (Form::Binary, Kind::Execute)] {
            let mut out = Vec::new();
            put_text_result(&mut out, shape(capabilities, form), &["a", "b"], &rows());
            let Step::Done(done) = Response::new(kind, capabilities).scan(&out).unwrap().step else { panic!("no end") };
            assert_eq!((done.rows, done.columns, done.bytes), (2, 2, out.len() as u64));
            assert_eq!(done.status, Some(shape(capabilities, form).status));
        }
        for columns in [&["a", "b"][..], &[]] {
            let mut out = Vec::new();
            put_prepared(&mut out, shape(capabilities, Form::Binary), 9, columns);
            let scanned = Response::new(Kind::Prepare, capabilities).scan(&out).unwrap();
            let Step::Done(done) = scanned.step else { panic!("no end") };
            assert_eq!(done.prepared.map(|p| (p.statement, usize::from(p.columns))), Some((9, columns.len())));
        }
    }
}

#[test]
fn rows_are_read() {
    assert_eq!(text_row(b"\x03abc\xfb\0", 3), Ok(vec![Some(&b"abc"[..]), None, Some(b"")]));
    for end in 0..5 {
        assert!(text_row(&b"\x03abc\xfb\0"[..end], 3).is_err(), "{end}");
    }
    assert!(text_row(b"\x01a\x01b", 1).is_err() && text_row(b"", u64::MAX).is_err());
    let mut out = Vec::new();
    put_text_result(&mut out, shape(Capabilities(0), Form::Text), &["name"], &[]);
    let first = Whole::find(&out).unwrap();
    let definition = Whole::find(&out[first.bytes..]).unwrap().payload(&out[first.bytes..]);
    assert_eq!(column_name(&definition), Ok(&b"name"[..]));
}
