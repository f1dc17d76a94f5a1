//! memcached, Redis and the echo server, and servers that violate the protocol.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use super::*;
use crate::driver::keyvalue::{Connection, Memcached};
use crate::target::Kind;

/// Stores a value and gets it back through the connection of a target.
async fn store_and_get(kind: &Kind) {
    let mut connection = Connection::open(kind).await.unwrap();
    let long = vec![b'v'; 900_000];
    for (key, value) in [("7", b"seven".as_slice()), ("text", b"two\r\nEND\r\n\0lines"), ("none", b""), ("long", &long)]
    {
        connection.set(key, value).await.unwrap();
        let asked = if key == "7" { Value::Int(7) } else { Value::from(key) };
        assert_eq!(connection.run(0, std::slice::from_ref(&asked), Rows::Counted).await.unwrap(), 1);
        let mut kept = Vec::new();
        assert_eq!(connection.run(0, &[asked], Rows::Kept(&mut kept)).await.unwrap(), 1);
        assert_eq!(kept, [vec![Some(value.to_vec())]]);
    }
    let missing = connection.run(0, &[Value::Int(8)], Rows::Counted).await.unwrap_err();
    assert!(missing.code == "no value" && missing.usable, "{missing}");
    for wrong in [Value::Null, "a blank".into(), "a\r\nline".into(), "k".repeat(251).into()] {
        let failure = connection.run(0, &[wrong], Rows::Counted).await.unwrap_err();
        assert!(failure.code == "protocol" && failure.usable, "{failure}");
    }
    assert_eq!(connection.run(0, &[Value::Int(7)], Rows::Counted).await.unwrap(), 1);
}

#[test]
fn memcached_stores_gets_and_removes() {
    let Some(peer) = peer::memcached() else { return };
    block(async {
        store_and_get(&Kind::Memcached(peer.place.clone())).await;
        let mut cache = Memcached::open(&peer.place).await.unwrap();
        assert_eq!(cache.get("row").await.unwrap(), None);
        cache.set("row", b"1").await.unwrap();
        assert_eq!(cache.get("row").await.unwrap().as_deref(), Some(b"1".as_slice()));
        cache.delete("row").await.unwrap();
        cache.delete("row").await.unwrap();
        assert_eq!(cache.get("row").await.unwrap(), None);
        let failure = cache.set("big", &vec![0; 2 << 20]).await.unwrap_err();
        assert!(failure.code == "SERVER_ERROR" && failure.usable, "{failure}");
        cache.set("row", b"2").await.unwrap();
        assert_eq!(cache.get("row").await.unwrap().as_deref(), Some(b"2".as_slice()));
    });
}

#[test]
fn redis_stores_and_gets() {
    let Some(peer) = peer::redis(&[]) else { return };
    block(store_and_get(&Kind::Redis(peer.place.clone())));
    let Some(full) = peer::redis(&["--maxmemory", "1"]) else { return };
    block(async {
        let mut connection = Connection::open(&Kind::Redis(full.place.clone())).await.unwrap();
        let failure = connection.set("k", b"v").await.unwrap_err();
        assert!(failure.code == "OOM" && failure.usable, "{failure}");
        let missing = connection.run(0, &[Value::from("k")], Rows::Counted).await.unwrap_err();
        assert!(missing.code == "no value" && missing.usable, "{missing}");
    });
}

/// A server that answers each request of `request` bytes with these pieces and then closes. Returns its `127.0.0.1:port`.
fn answering(request: usize, pieces: &'static [&'static [u8]]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in pieces {
            stream.read_exact(&mut vec![0; request]).unwrap();
            stream.write_all(piece).unwrap();
        }
    });
    place
}

#[test]
fn an_echo_has_the_sizes_of_its_url() {
    let place = answering(5, &[b"123", b"4567"]);
    block(async {
        let mut connection = Connection::open(&Kind::Echo(format!("{place}/5/3"))).await.unwrap();
        let mut kept = Vec::new();
        assert_eq!(connection.run(0, &[], Rows::Kept(&mut kept)).await.unwrap(), 1);
        assert_eq!(kept, [vec![Some(b"123".to_vec())]]);
        let failure = connection.run(0, &[], Rows::Counted).await.unwrap_err();
        assert!(failure.code == "protocol" && !failure.usable, "{failure}");
        for wrong in ["h:1", "h:1/2", "h:1/0/1", "h:1/1/99999999999", "h:1/1/2/3"] {
            let failure = Connection::open(&Kind::Echo(wrong.to_owned())).await.unwrap_err();
            assert!(failure.text.contains("echo://host:port/R/N"), "{failure}");
        }
    });
}

#[test]
fn answers_that_are_none_end_the_connection() {
    let memcached: [&'static [&'static [u8]]; 7] = [
        &[b"VALUE k 0 99999999999\r\n"],
        &[b"VALUE k 0 67108865\r\n"],
        &[b"VALUE other 0 1\r\nx\r\nEND\r\n"],
        &[b"VALUE k 0 1\r\nxy\r\nEND\r\n"],
        &[b"VALUE k 0 1\r\nx\r\nVALUE\r\n"],
        &[b"END\r\nEND\r\n"],
        &[b"\xff\xfe\r\n"],
    ];
    let redis: [&'static [&'static [u8]]; 4] = [&[b"$99999999999\r\n"], &[b"$-2\r\n"], &[b"$1\r\nxyz"], &[b":1\r\n"]];
    let kinds = memcached.map(|pieces| (Kind::Memcached(answering(7, pieces)), "protocol")).into_iter();
    let kinds = kinds.chain(redis.map(|pieces| (Kind::Redis(answering(20, pieces)), "protocol")));
    let cut = [(Kind::Memcached(answering(7, &[b"VALUE k 0 9\r\nx"])), "connection")];
    block(async {
        for (kind, code) in kinds.chain(cut) {
            let mut connection = Connection::open(&kind).await.unwrap();
            let failure = connection.run(0, &[Value::from("k")], Rows::Counted).await.unwrap_err();
            assert!(failure.code == code && !failure.usable, "{failure}");
            assert!(!connection.run(0, &[Value::from("k")], Rows::Counted).await.unwrap_err().usable);
        }
    });
}

#[test]
fn a_request_given_up_leaves_no_answer_for_the_next() {
    let place = answering(5, &[b"123", b"456"]);
    block(async {
        let mut driver = open(&format!("echo://{place}/5/3"), &[], Protocol::Text).await.unwrap();
        give_up(&mut driver, 0, &[]).await;
        let failure = fails(&mut driver, 0, &[]).await;
        assert!(failure.code == "connection" && !failure.usable, "{failure}");
        let failure = open("redis://:secret@127.0.0.1:1", &[], Protocol::Text).await.unwrap_err();
        assert!(!failure.text.contains("secret"), "{failure}");
    });
}
