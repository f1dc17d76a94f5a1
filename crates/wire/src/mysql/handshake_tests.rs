//! Packets of logins, as servers and clients sent them.

use super::*;

/// MariaDB 10.11.19 of Debian 12.
const MARIADB: &[u8] =
    b"\n5.5.5-10.11.19-MariaDB-0+deb12u1\x00\x04\x00\x00\x00GllZ^K9y\x00\xfe\xf7-\x02\x00\xff\x81\x15\
    \x00\x00\x00\x00\x00\x00\x1d\x00\x00\x00zvbigIx?q=zo\x00mysql_native_password\x00";
/// MySQL 8.0.15.
const MYSQL: &[u8] =
    b"\n8.0.15\x00\x08\x00\x00\x00j_d\x06\x1d7e,\x00\xff\xff\xff\x02\x00\xff\xc3\x15\x00\x00\x00\x00\x00\x00\
    \x00\x00\x00\x00\"\x12%!M\x1b%88Di\x03\x00caching_sha2_password\x00";

#[test]
fn handshakes_are_read_and_written() {
    let mariadb = Handshake::parse(MARIADB).unwrap();
    assert_eq!((mariadb.connection_id, mariadb.character_set, mariadb.status), (4, 45, Status::AUTOCOMMIT));
    assert_eq!((&mariadb.nonce[..], &mariadb.plugin[..]), (&b"GllZ^K9yzvbigIx?q=zo"[..], NATIVE));
    assert!(mariadb.capabilities.has(Capabilities::MARIADB_CACHE_METADATA | Capabilities::MARIADB_PROGRESS));
    assert!(!mariadb.capabilities.has(Capabilities::MYSQL) && !mariadb.capabilities.has(Capabilities::SSL));
    assert_eq!(mariadb.capabilities.extended(), 0x1d);
    let mysql = Handshake::parse(MYSQL).unwrap();
    assert_eq!((mysql.connection_id, mysql.nonce.len(), &mysql.plugin[..]), (8, NONCE_BYTES, CACHING_SHA2));
    assert!(
        mysql.capabilities.has(Capabilities::MYSQL | Capabilities::SSL | Capabilities::OPTIONAL_RESULTSET_METADATA)
    );
    assert_eq!(mysql.capabilities.extended(), 0);
    for (payload, handshake) in [(MARIADB, mariadb), (MYSQL, mysql)] {
        let mut out = Vec::new();
        handshake.put(&mut out);
        assert_eq!(out.escape_ascii().to_string(), payload.escape_ascii().to_string());
        // Up to the plugin's name nothing can be missing.
        for end in 0..payload.len() - handshake.plugin.len() - 1 {
            assert!(Handshake::parse(&payload[..end]).is_err(), "{end}");
        }
        let fewer = Handshake { capabilities: handshake.capabilities.without(Capabilities::SSL), ..handshake };
        out.clear();
        fewer.put(&mut out);
        assert_eq!(Handshake::parse(&out), Ok(fewer));
    }
    assert!(Handshake::parse(b"\xff\x10\x04Too many connections").is_err());
    assert!(Handshake::parse(b"\x09 3.22").is_err());
}

/// As the mariadb program of 10.11 sends it, with fewer attributes.
const RESPONSE: &[u8] =
    b"\x8c\xa6\xff\x00\x00\x00\x00\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x1c\0\0\0root\0\x14\
    01234567890123456789freshet\0mysql_native_password\0\x1d\x03_os\x05Linux\x0c_client_name\x05maria";

#[test]
fn responses_are_read_and_written() {
    let Ok(ClientHello::Response(response)) = ClientHello::parse(RESPONSE) else { panic!("no response") };
    assert_eq!((response.user, response.database), (&b"root"[..], Some(&b"freshet"[..])));
    assert_eq!((response.proof, response.plugin), (&b"01234567890123456789"[..], Some(NATIVE)));
    assert_eq!((response.packet_bytes_max, response.character_set), (1 << 24, 45));
    assert!(response.capabilities.has(Capabilities::MARIADB_STMT_BULK.with(Capabilities::SESSION_TRACK)));
    let pairs = attributes(response.attributes).unwrap();
    assert_eq!(pairs, [(&b"_os"[..], &b"Linux"[..]), (b"_client_name", b"maria")]);
    let mut block = Vec::new();
    put_attribute(&mut block, "_os", "Linux");
    put_attribute(&mut block, "_client_name", "maria");
    assert_eq!(block, response.attributes);
    let mut out = Vec::new();
    response.put(&mut out);
    assert_eq!(out, RESPONSE);
    let mut without = RESPONSE.to_vec();
    let fewer = response.capabilities.without(Capabilities::COMPRESS.with(Capabilities::SESSION_TRACK));
    set_capabilities(&mut without, fewer);
    let Ok(ClientHello::Response(patched)) = ClientHello::parse(&without) else { panic!("no response") };
    assert_eq!(patched, HandshakeResponse { capabilities: fewer, ..response });
    // Behind the proof it may end.
    for end in 0..58 {
        assert!(ClientHello::parse(&RESPONSE[..end]).is_err(), "{end}");
    }
}

#[test]
fn responses_may_end_early() {
    let capabilities = Capabilities::PROTOCOL_41
        .with(Capabilities::SECURE_CONNECTION)
        .with(Capabilities::CONNECT_WITH_DB)
        .with(Capabilities::PLUGIN_AUTH)
        .with(Capabilities::CONNECT_ATTRS)
        .with(Capabilities::ZSTD_COMPRESSION)
        .with(Capabilities::MYSQL);
    let (user, proof) = (&b"me"[..], &b"abc"[..]);
    let (database, plugin, attributes) = (Some(&b"d"[..]), Some(SHA256), &b"\x01a\x01b"[..]);
    let response = HandshakeResponse { capabilities, user, proof, database, plugin, attributes, ..Default::default() };
    let response = HandshakeResponse { zstd_level: Some(3), ..response };
    let mut out = Vec::new();
    response.put(&mut out);
    assert_eq!(ClientHello::parse(&out), Ok(ClientHello::Response(response.clone())));
    let ends = [out.len() - 1, out.len() - 6, out.len() - 6 - SHA256.len() - 1, 32 + 3 + 4];
    for end in ends {
        assert!(matches!(ClientHello::parse(&out[..end]), Ok(ClientHello::Response(_))), "{end}");
    }
    // Without its zero, the plugin's name goes to the end.
    let Ok(ClientHello::Response(short)) = ClientHello::parse(&out[..out.len() - 7]) else { panic!("no response") };
    assert_eq!((short.plugin, short.attributes), (Some(SHA256), &b""[..]));
}

#[test]
fn tls_is_asked_for() {
    let with_tls = Capabilities::PROTOCOL_41.with(Capabilities::SSL).with(Capabilities::MYSQL);
    let response = HandshakeResponse { capabilities: with_tls, character_set: 45, ..HandshakeResponse::default() };
    let mut out = Vec::new();
    response.put_ssl_request(&mut out);
    assert_eq!(out.len(), SSL_REQUEST_BYTES);
    assert_eq!(ClientHello::parse(&out), Ok(ClientHello::SslRequest(with_tls)));
    set_capabilities(&mut out, Capabilities::PROTOCOL_41);
    assert!(ClientHello::parse(&out).is_err(), "neither a request nor a login");
    assert!(ClientHello::parse(&[0; 64]).is_err(), "older than 4.1");
}

#[test]
fn authentication_goes_on() {
    assert_eq!(AuthReply::parse(b"\0\0\0\x02\0\0\0"), Ok(AuthReply::Ok));
    assert_eq!(AuthReply::parse(b"\xff\x15\x04#28000no"), Ok(AuthReply::Error));
    let mut out = Vec::new();
    put_auth_switch(&mut out, ED25519, &[7; 32]);
    let Ok(AuthReply::Switch(switch)) = AuthReply::parse(&out) else { panic!("no switch") };
    assert_eq!((switch.plugin, switch.nonce(), switch.data.len()), (ED25519, &[7; 32][..], 33));
    let old = AuthSwitch { plugin: b"", data: b"" };
    assert_eq!(AuthReply::parse(b"\xfe"), Ok(AuthReply::Switch(old)));
    out.clear();
    put_more_data(&mut out, b"\x04");
    assert_eq!((&out[..], AuthReply::parse(&out)), (&b"\x01\x04"[..], Ok(AuthReply::MoreData(b"\x04"))));
    // MariaDB marks data only that would be mistaken for something else: PAM's question.
    assert_eq!(AuthReply::parse(b"\x04Password: "), Ok(AuthReply::MoreData(b"\x04Password: ")));
    assert!(AuthReply::parse(b"").is_err() && AuthReply::parse(b"\xfemysql").is_err());
}

#[test]
fn users_change() {
    let capabilities = Capabilities::SECURE_CONNECTION.with(Capabilities::PLUGIN_AUTH);
    let payload = b"\x11me\0\x03abcdata\0\x2d\0mysql_native_password\0\0";
    let change = ChangeUser::parse(payload, capabilities).unwrap();
    assert_eq!((change.user, change.proof, change.database), (&b"me"[..], &b"abc"[..], &b"data"[..]));
    assert_eq!(change.plugin, Some(NATIVE));
    assert_eq!(ChangeUser::parse(b"\x11me\0\0\0", capabilities).unwrap().plugin, None);
    assert!(ChangeUser::parse(b"\x11me\0\x09abc", capabilities).is_err());
}

#[test]
fn a_nonce_of_ed25519_may_end_in_zero() {
    let data = [&[7; 31][..], &[0]].concat();
    let switch = |plugin| AuthSwitch { plugin, data: &data };
    assert_eq!((switch(ED25519).nonce().len(), switch(NATIVE).nonce().len()), (32, 31));
}
