//! Messages of the change stream: a change misread is a stale answer, so what is decoded must encode to the very
//! bytes it came from.

#![no_main]

use freshet_fuzz::{bounded, cuts, put_count, put_length, put_strings};
use freshet_wire::postgres::pgoutput::{Message, OldTuple, Tuple, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // One byte announces a value, which takes 24; a column takes ten bytes at least.
    let Ok(message) = bounded(data.len() * 32 + 256, || Message::decode(data)) else { return };
    assert_eq!(encode(&message), data);
    assert!(!cuts(data).any(|cut| Message::decode(cut).is_ok()), "a cut message was understood");
    assert!(Message::decode(&[data, &[0]].concat()).is_err(), "a longer message was understood");
});

fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match message {
        Message::Begin(begin) => {
            out.push(b'B');
            out.extend(begin.commit.0.to_be_bytes());
            out.extend(begin.time_us.to_be_bytes());
            out.extend(begin.xid.to_be_bytes());
        }
        Message::Commit(commit) => {
            out.extend(b"C\0");
            out.extend(commit.commit.0.to_be_bytes());
            out.extend(commit.end.0.to_be_bytes());
            out.extend(commit.time_us.to_be_bytes());
        }
        Message::Origin { commit, name } => {
            out.push(b'O');
            out.extend(commit.0.to_be_bytes());
            put_strings(&mut out, [name]);
        }
        Message::Relation(relation) => {
            out.push(b'R');
            out.extend(relation.oid.to_be_bytes());
            put_strings(&mut out, [relation.schema.as_bytes(), relation.name.as_bytes()]);
            out.push(relation.replica_identity);
            put_count(&mut out, relation.columns.len());
            for column in &relation.columns {
                out.push(u8::from(column.key));
                put_strings(&mut out, [column.name.as_bytes()]);
                out.extend(column.type_oid.to_be_bytes());
                out.extend(column.type_modifier.to_be_bytes());
            }
        }
        Message::Type { oid, schema, name } => {
            out.push(b'Y');
            out.extend(oid.to_be_bytes());
            put_strings(&mut out, [schema.as_bytes(), name.as_bytes()]);
        }
        Message::Insert { relation, new } => row(&mut out, b'I', *relation, None, Some(new)),
        Message::Update { relation, old, new } => row(&mut out, b'U', *relation, old.as_ref(), Some(new)),
        Message::Delete { relation, old } => row(&mut out, b'D', *relation, Some(old), None),
        Message::Truncate { relations, cascade, restart_identity } => {
            out.push(b'T');
            put_length(&mut out, relations.len());
            out.push(u8::from(*cascade) | u8::from(*restart_identity) << 1);
            out.extend(relations.iter().flat_map(|oid| oid.to_be_bytes()));
        }
        Message::Logical { transactional, lsn, prefix, content } => {
            out.extend([b'M', u8::from(*transactional)]);
            out.extend(lsn.0.to_be_bytes());
            put_strings(&mut out, [prefix.as_bytes()]);
            put_length(&mut out, content.len());
            out.extend(*content);
        }
    }
    out
}

fn row(out: &mut Vec<u8>, tag: u8, relation: u32, old: Option<&OldTuple<'_>>, new: Option<&Tuple<'_>>) {
    out.push(tag);
    out.extend(relation.to_be_bytes());
    match old {
        Some(OldTuple::Key(values)) => tuple(out, b'K', values),
        Some(OldTuple::Full(values)) => tuple(out, b'O', values),
        None => {}
    }
    if let Some(values) = new {
        tuple(out, b'N', values);
    }
}

fn tuple(out: &mut Vec<u8>, kind: u8, values: &Tuple<'_>) {
    out.push(kind);
    put_count(out, values.len());
    for value in values {
        let (kind, bytes) = match value {
            Value::Null => (b'n', None),
            Value::Unchanged => (b'u', None),
            Value::Text(bytes) => (b't', Some(bytes)),
            Value::Binary(bytes) => (b'b', Some(bytes)),
        };
        out.push(kind);
        if let Some(bytes) = bytes {
            put_length(out, bytes.len());
            out.extend(*bytes);
        }
    }
}
