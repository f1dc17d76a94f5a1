//! Bytes that a walsender of PostgreSQL 18 sent.

use super::*;

const KEEPALIVE: [u8; 18] = *b"k\0\0\0\0\x01\x74\x29\xa0\0\x03\x03\xc3\x44\x92\x30\xac\0";
const BEGIN: [u8; 46] = *b"w\0\0\0\0\x01\x74\x28\xf0\0\0\0\0\x01\x74\x28\xf0\0\x03\x03\xc3\x44\x92\x30\x5e\
    B\0\0\0\0\x01\x74\x29\x70\0\x03\x03\xc3\x44\x92\x2f\x24\0\0\x03\x04";

#[test]
fn messages_of_a_walsender() {
    let sent_us = 0x0003_03c3_4492_30ac;
    let expected = WalMessage::Keepalive { end: Lsn(0x174_29a0), sent_us, reply_requested: false };
    assert_eq!(WalMessage::decode(&KEEPALIVE), Ok(expected));
    let lsn = Lsn(0x174_28f0);
    let sent_us = 0x0003_03c3_4492_305e;
    let expected = WalMessage::Data { start: lsn, server_end: lsn, sent_us, payload: &BEGIN[25..] };
    assert_eq!(WalMessage::decode(&BEGIN), Ok(expected));
}

#[test]
fn cuts_are_errors() {
    for end in 0..KEEPALIVE.len() {
        assert!(WalMessage::decode(&KEEPALIVE[..end]).is_err(), "{end}");
    }
    for end in 0..25 {
        assert!(WalMessage::decode(&BEGIN[..end]).is_err(), "{end}");
    }
    let longer = [KEEPALIVE.as_slice(), &[0]].concat();
    assert_eq!(WalMessage::decode(&longer), Err(Malformed::Trailing(1)));
    let unknown = Malformed::UnknownTag { what: "replication message", tag: b's' };
    assert_eq!(WalMessage::decode(b"s"), Err(unknown));
}

#[test]
fn status_update() {
    let status = StatusUpdate {
        written: Lsn(1),
        flushed: Lsn(2),
        applied: Lsn(0x1_0000_0003),
        sent_us: -4,
        reply_requested: true,
    };
    let bytes = status.encode();
    let expected = b"r\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\x03\xff\xff\xff\xff\xff\xff\xff\xfc\x01";
    assert_eq!(&bytes, expected);
    assert_eq!(bytes.len(), StatusUpdate::BYTES);
}
