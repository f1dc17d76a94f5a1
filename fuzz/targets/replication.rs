//! The copy data of a walsender, both ways.

#![no_main]

use freshet_fuzz::bounded;
use freshet_types::Lsn;
use freshet_wire::postgres::replication::{StatusUpdate, WalMessage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = bounded(256, || WalMessage::decode(data)) {
        assert_eq!(encode(&message), data);
    }
    if let Some(fields) = data.first_chunk::<33>() {
        let number = |at: usize| u64::from_be_bytes(*fields[at..].first_chunk().expect("eight bytes"));
        let update = StatusUpdate {
            written: Lsn(number(0)),
            flushed: Lsn(number(8)),
            applied: Lsn(number(16)),
            sent_us: number(24).cast_signed(),
            reply_requested: fields[32] & 1 != 0,
        };
        assert_eq!(update.encode()[..], [&b"r"[..], &fields[..32], &[fields[32] & 1]].concat());
    }
});

fn encode(message: &WalMessage<'_>) -> Vec<u8> {
    match message {
        WalMessage::Data { start, server_end, sent_us, payload } => {
            [b"w", &start.0.to_be_bytes()[..], &server_end.0.to_be_bytes(), &sent_us.to_be_bytes(), payload].concat()
        }
        WalMessage::Keepalive { end, sent_us, reply_requested } => {
            [b"k", &end.0.to_be_bytes()[..], &sent_us.to_be_bytes(), &[u8::from(*reply_requested)]].concat()
        }
    }
}
