//! Bytes of PostgreSQL 18, read by `pg_logical_slot_get_binary_changes(…, 'proto_version', '1', 'messages', 'true')`.
//! PostgreSQL 15 sends the same but for the ids.

use super::*;

const BEGIN: &str = "42000000000173fbf8000303c34431fd06000002f7";
const TYPE: &str = "59000040017075626c6963006d6f6f6400";
const RELATION_PK: &str =
    "52000040057075626c696300706b006400030169640000000017ffffffff00760000000019ffffffff006d0000004001ffffffff";
const INSERT: &str = "49000040054e000374000000013174000000017874000000026f6b";
const COMMIT: &str = "4300000000000173fbf8000000000173fc28000303c34431fd06";
const UPDATE_NO_OLD: &str = "55000040054e00037400000001316e74000000026f6b";
const UPDATE_KEY: &str = "55000040054b00037400000001316e6e4e00037400000001326e74000000026f6b";
const DELETE_KEY: &str = "44000040054b00037400000001326e6e";
const RELATION_FULL: &str = "520000400d7075626c69630066756c6c5f740066000201610000000017ffffffff01620000000019ffffffff";
const INSERT_NULL: &str = "490000400d4e00027400000001316e";
const UPDATE_FULL: &str = "550000400d4f00027400000001316e4e00027400000001317400000002c3a9";
const DELETE_FULL: &str = "440000400d4f00027400000001317400000002c3a9";
const UPDATE_TOAST: &str = "55000040124e000374000000013174000000013275";
const TRUNCATE: &str = "540000000203000040050000400d";
const LOGICAL: &str = "4d0100000000017424c06672657368657400000000026869";
const ORIGIN: &str = "4f0000000100000023656c7365776865726500";

const ALL: [&str; 16] = [
    BEGIN,
    TYPE,
    RELATION_PK,
    INSERT,
    COMMIT,
    UPDATE_NO_OLD,
    UPDATE_KEY,
    DELETE_KEY,
    RELATION_FULL,
    INSERT_NULL,
    UPDATE_FULL,
    DELETE_FULL,
    UPDATE_TOAST,
    TRUNCATE,
    LOGICAL,
    ORIGIN,
];

/// The bytes that hexadecimal digits mean.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).expect("a digit") as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn check(hex: &str, expected: &Message<'_>) {
    assert_eq!(Message::decode(&bytes(hex)).as_ref(), Ok(expected));
}

#[test]
fn transactions() {
    let commit = Lsn::parse("0/173FBF8").expect("an LSN");
    let time_us = 0x0003_03c3_4431_fd06;
    check(BEGIN, &Message::Begin(Begin { commit, time_us, xid: 0x2f7 }));
    check(COMMIT, &Message::Commit(Commit { commit, end: Lsn(0x173_fc28), time_us }));
    check(ORIGIN, &Message::Origin { commit: Lsn(0x1_0000_0023), name: b"elsewhere" });
    check(LOGICAL, &Message::Logical { transactional: true, lsn: Lsn(0x174_24c0), prefix: "freshet", content: b"hi" });
}

#[test]
fn descriptions() {
    let column = |key, name, type_oid| Column { key, name, type_oid, type_modifier: -1 };
    let columns = vec![column(true, "id", 23), column(false, "v", 25), column(false, "m", 16385)];
    let relation = Relation { oid: 16389, schema: "public", name: "pk", replica_identity: b'd', columns };
    check(RELATION_PK, &Message::Relation(relation));
    let columns = vec![column(true, "a", 23), column(true, "b", 25)];
    let relation = Relation { oid: 16397, schema: "public", name: "full_t", replica_identity: b'f', columns };
    check(RELATION_FULL, &Message::Relation(relation));
    check(TYPE, &Message::Type { oid: 16385, schema: "public", name: "mood" });
}

#[test]
fn rows() {
    let text = |t: &'static str| Value::Text(t.as_bytes());
    let null = Value::Null;
    check(INSERT, &Message::Insert { relation: 16389, new: vec![text("1"), text("x"), text("ok")] });
    check(INSERT_NULL, &Message::Insert { relation: 16397, new: vec![text("1"), null] });
    let new = vec![text("1"), null, text("ok")];
    check(UPDATE_NO_OLD, &Message::Update { relation: 16389, old: None, new });
    let old = Some(OldTuple::Key(vec![text("1"), null, null]));
    check(UPDATE_KEY, &Message::Update { relation: 16389, old, new: vec![text("2"), null, text("ok")] });
    check(DELETE_KEY, &Message::Delete { relation: 16389, old: OldTuple::Key(vec![text("2"), null, null]) });
    let old = Some(OldTuple::Full(vec![text("1"), null]));
    check(UPDATE_FULL, &Message::Update { relation: 16397, old, new: vec![text("1"), text("é")] });
    check(DELETE_FULL, &Message::Delete { relation: 16397, old: OldTuple::Full(vec![text("1"), text("é")]) });
    let new = vec![text("1"), text("2"), Value::Unchanged];
    check(UPDATE_TOAST, &Message::Update { relation: 16402, old: None, new });
    check(TRUNCATE, &Message::Truncate { relations: vec![16389, 16397], cascade: true, restart_identity: true });
}

#[test]
fn every_cut_and_every_extra_byte_is_an_error() {
    for hex in ALL {
        let whole = bytes(hex);
        for end in 0..whole.len() {
            assert!(Message::decode(&whole[..end]).is_err(), "{hex} cut at {end}");
        }
        let longer = [whole.as_slice(), &[0]].concat();
        assert_eq!(Message::decode(&longer), Err(Malformed::Trailing(1)), "{hex}");
    }
}

#[test]
fn no_byte_makes_it_panic() {
    for hex in ALL {
        let whole = bytes(hex);
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff, b'n', b'u', b't', b'b', b'K', b'O', b'N'] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = Message::decode(&changed);
            }
        }
    }
}

#[test]
fn unknown_tags_are_named() {
    let unknown = |what, tag| Err(Malformed::UnknownTag { what, tag });
    // Stream Start of protocol version 2, which is not asked for.
    assert_eq!(Message::decode(b"S\0\0\x02\xdb\x01"), unknown("pgoutput message", b'S'));
    let mut insert = bytes(INSERT);
    insert[5] = b'K';
    assert_eq!(Message::decode(&insert), unknown("tuple kind", b'K'));
    insert[5] = b'N';
    insert[8] = b'x';
    assert_eq!(Message::decode(&insert), unknown("value kind", b'x'));
    insert[8] = b'b';
    let binary = vec![Value::Binary(b"1"), Value::Text(b"x"), Value::Text(b"ok")];
    assert_eq!(Message::decode(&insert), Ok(Message::Insert { relation: 16389, new: binary }));
}
