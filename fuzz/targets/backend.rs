//! Messages of the server, as far as they are looked into, and the frames that Freshet writes itself.

#![no_main]

use freshet_fuzz::{bounded, cuts, put_count, put_length};
use freshet_wire::postgres::backend::{
    DATA_ROW, data_row, is_fatal, put_error, put_text_description, put_text_result, rows,
};
use freshet_wire::postgres::frame::{HEADER_BYTES, header};
use freshet_wire::postgres::frontend::{put_bind_execute, put_close_statement, put_parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    row(data);
    error(data);
    written(data);
    bounded(256, || rows(data).for_each(|frame| assert_eq!(frame[0], DATA_ROW)));
});

fn row(frame: &[u8]) {
    let Ok(columns) = bounded(frame.len() * 16 + 256, || data_row(frame)) else { return };
    let body = frame.get(HEADER_BYTES..).unwrap_or_default();
    let mut again = Vec::new();
    put_count(&mut again, columns.len());
    for column in columns {
        match column {
            Some(bytes) => {
                put_length(&mut again, bytes.len());
                again.extend_from_slice(bytes);
            }
            None => again.extend_from_slice(body.get(again.len()..again.len() + 4).expect("a length")),
        }
    }
    assert_eq!(again, body);
    assert!(!cuts(frame).any(|cut| data_row(cut).is_ok()), "a cut row was understood");
}

/// A well-formed error is fatal if its field `V` says so.
fn error(frame: &[u8]) {
    let fatal = bounded(256, || is_fatal(frame));
    let Some(fields) = frame.get(HEADER_BYTES..).and_then(|body| body.strip_suffix(b"\0\0")) else { return };
    let fields: Vec<&[u8]> = fields.split(|byte| *byte == 0).collect();
    if fields.iter().all(|field| !field.is_empty()) {
        let severity = fields.iter().filter_map(|field| field.strip_prefix(b"V"));
        assert_eq!(fatal, severity.clone().any(|text| text == b"FATAL" || text == b"PANIC"));
    }
}

/// Whatever texts go in, one well-formed frame each comes out.
fn written(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parts: Vec<&str> = text.split('|').collect();
    let row: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    let mut out = Vec::new();
    put_text_result(&mut out, &parts, std::slice::from_ref(&row), true);
    let frames = frames(&out);
    assert_eq!(frames.iter().map(|frame| frame[0]).collect::<Vec<_>>(), b"TDC");
    let columns = data_row(frames.iter().find(|frame| frame[0] == DATA_ROW).expect("a row")).expect("its own row");
    assert_eq!(columns, row.iter().map(|value| Some(value.as_bytes())).collect::<Vec<_>>());

    let mut out = Vec::new();
    put_text_description(&mut out, &parts);
    put_error(&mut out, parts[0], "08P01", &text);
    put_parse(&mut out, parts[0].as_bytes(), data);
    put_bind_execute(&mut out, data, &parts);
    put_close_statement(&mut out, data);
    assert_eq!(frames_tags(&out), b"tTEPBEC");
}

fn frames_tags(out: &[u8]) -> Vec<u8> {
    frames(out).iter().map(|frame| frame[0]).collect()
}

fn frames(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let head = header(rest).expect("a possible length").expect("a whole head");
        let (frame, tail) = rest.split_at(head.frame_bytes);
        frames.push(frame);
        rest = tail;
    }
    frames
}
