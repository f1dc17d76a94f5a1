//! Packets of MySQL's logins: what is read and written again reads the same, and takes no more memory than it has bytes.

#![no_main]

use freshet_fuzz::{bounded, cuts};
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::error::ErrorPacket;
use freshet_wire::mysql::handshake::{AuthReply, ChangeUser, ClientHello, Handshake, attributes, set_capabilities};
use freshet_wire::mysql::ok::{self, EOF_MARK, Eof, OK_MARK, state_changes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    server(data);
    client(data);
    let _ = bounded(256, || AuthReply::parse(data));
    for capabilities in [Capabilities(0), Capabilities::SECURE_CONNECTION.with(Capabilities::PLUGIN_AUTH)] {
        let _ = bounded(256, || ChangeUser::parse(data, capabilities));
    }
    ends(data);
});

fn server(data: &[u8]) {
    let Ok(handshake) = bounded(data.len() * 3 + 256, || Handshake::parse(data)) else { return };
    let mut out = Vec::new();
    handshake.put(&mut out);
    // What an odd packet says in more than one way is written in one.
    let again = Handshake::parse(&out).expect("what was written is read");
    assert_eq!((&again.server_version, again.capabilities), (&handshake.server_version, handshake.capabilities));
    assert_eq!((again.connection_id, again.status), (handshake.connection_id, handshake.status));
    let mut twice = Vec::new();
    again.put(&mut twice);
    let third = Handshake::parse(&twice).expect("what was written is read");
    assert!(handshake.nonce.len() > 240 || third.nonce.len() <= again.nonce.len());
}

fn client(data: &[u8]) {
    let Ok(hello) = bounded(256, || ClientHello::parse(data)) else { return };
    let mut patched = data.to_vec();
    match &hello {
        ClientHello::SslRequest(capabilities) => {
            set_capabilities(&mut patched, *capabilities);
            assert_eq!(patched, data);
            assert!(!cuts(data).any(|cut| ClientHello::parse(cut).is_ok()), "a cut request was understood");
        }
        ClientHello::Response(response) => {
            set_capabilities(&mut patched, response.capabilities);
            assert_eq!(patched, data);
            let _ = bounded(response.attributes.len() * 128 + 256, || attributes(response.attributes));
            if response.capabilities.has(Capabilities::PLUGIN_AUTH_LENENC_DATA) {
                let mut out = Vec::new();
                response.put(&mut out);
                let Ok(ClientHello::Response(again)) = ClientHello::parse(&out) else { panic!("not read again") };
                assert_eq!((again.user, again.proof), (response.user, response.proof));
                assert_eq!(again.capabilities, response.capabilities);
                assert_eq!(again.attributes, response.attributes);
            }
        }
    }
}

/// OK, EOF and ERR packets.
fn ends(data: &[u8]) {
    let _ = bounded(256, || ErrorPacket::parse(data));
    let _ = bounded(data.len() * 128 + 256, || state_changes(data).map(|changes| changes.len()));
    if let Ok(eof) = Eof::parse(data) {
        let (mut out, mut sequence) = (Vec::new(), 0);
        eof.put(&mut out, &mut sequence);
        assert_eq!(&out[4..], data);
    }
    for capabilities in [Capabilities(0), Capabilities::SESSION_TRACK] {
        let Ok(packet) = bounded(256, || ok::Ok::parse(data, capabilities)) else { continue };
        for mark in [OK_MARK, EOF_MARK] {
            let (mut out, mut sequence) = (Vec::new(), 0);
            packet.put(&mut out, &mut sequence, mark, capabilities);
            // A payload too large for one packet is split, and no server sends such.
            let again = ok::Ok::parse(&out[4..], capabilities).expect("what was written is read");
            assert_eq!((again.affected_rows, again.last_insert_id), (packet.affected_rows, packet.last_insert_id));
            assert_eq!((again.warnings, again.info, again.state), (packet.warnings, packet.info, packet.state));
        }
    }
}
