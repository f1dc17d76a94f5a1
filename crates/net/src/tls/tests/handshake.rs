//! The handshake: protocol, versions, names, client certificates, reloading.

use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;

#[tokio::test]
async fn both_ends_agree_on_the_protocol_and_on_what_channel_binding_binds_to() {
    let shop = Workshop::open();
    let pair = shop.quick("server", HOST, "");
    let (accepted, connected) = shake(&serve(&pair), &upstream(SslMode::Require, None), HOST).await;
    let (mut accepted, mut connected) = (accepted.unwrap(), connected.unwrap());
    assert!(accepted.alpn);
    assert_eq!(accepted.client_name, None);
    assert_eq!(accepted.end_point.as_ref().map(Vec::len), Some(32));
    assert_eq!(accepted.end_point, connected.end_point);
    connected.stream.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    accepted.stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
    assert_eq!(accepted.stream.get_ref().1.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
}

/// A client that offers these application protocols.
async fn offering(server: &ServerTls, protocols: &[&[u8]]) -> io::Result<Accepted<DuplexStream>> {
    let mut config = (*upstream(SslMode::Require, None).config).clone();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let name = rustls::pki_types::ServerName::try_from(HOST).unwrap();
    tokio::join!(server.accept(far), TlsConnector::from(Arc::new(config)).connect(name, near)).0
}

#[tokio::test]
async fn other_application_protocols_are_refused_and_none_is_said() {
    let shop = Workshop::open();
    let server = serve(&shop.quick("server", HOST, ""));
    assert!(!offering(&server, &[]).await.unwrap().alpn);
    assert!(offering(&server, &[b"h2", b"postgresql"]).await.unwrap().alpn);
    let error = offering(&server, &[b"h2", b"http/1.1"]).await.unwrap_err();
    assert!(error.to_string().contains("protocol"), "{error}");
}

#[tokio::test]
async fn direct_tls_needs_a_server_that_names_the_protocol() {
    let shop = Workshop::open();
    let pair = shop.quick("server", HOST, "");
    let direct = TlsOptions { negotiation: SslNegotiation::Direct, ..options(SslMode::Require, None) };
    let direct = UpstreamTls::new(&direct).unwrap();
    shake(&serve(&pair), &direct, HOST).await.1.unwrap();
    let error = shake_with(config(&pair, &[&TLS13]), &direct, HOST).await.unwrap_err();
    assert!(error.to_string().contains("ALPN"), "{error}");
    // By SSLRequest it is no matter: versions before 17 name none.
    shake_with(config(&pair, &[&TLS13]), &upstream(SslMode::Require, None), HOST).await.unwrap();
}

#[tokio::test]
async fn versions_from_1_2_on() {
    let shop = Workshop::open();
    let pair = shop.quick("server", HOST, "");
    let any = upstream(SslMode::VerifyFull, Some(&pair));
    shake_with(config(&pair, &[&TLS12]), &any, HOST).await.unwrap();
    let only_13 = TlsOptions { tls13_only: true, ..options(SslMode::Require, None) };
    let only_13 = UpstreamTls::new(&only_13).unwrap();
    shake_with(config(&pair, &[&TLS13]), &only_13, HOST).await.unwrap();
    shake_with(config(&pair, &[&TLS12]), &only_13, HOST).await.unwrap_err();
}

/// What the server was told as the host's name.
async fn indicated(options: &TlsOptions, name: &str) -> Option<String> {
    let shop = Workshop::open();
    let server = serve(&shop.quick("server", HOST, ""));
    let accepted = shake(&server, &UpstreamTls::new(options).unwrap(), name).await.0.unwrap();
    accepted.stream.get_ref().1.server_name().map(ToOwned::to_owned)
}

#[tokio::test]
async fn names_are_indicated_and_addresses_are_not() {
    let options = options(SslMode::Require, None);
    assert_eq!(indicated(&options, HOST).await.as_deref(), Some(HOST));
    assert_eq!(indicated(&options, "with_underscore.example").await.as_deref(), Some("with_underscore.example"));
    assert_eq!(indicated(&options, "127.0.0.1").await, None);
    assert_eq!(indicated(&options, "::1").await, None);
    assert_eq!(indicated(&options, "no name at all").await, None);
    assert_eq!(indicated(&TlsOptions { no_sni: true, ..options }, HOST).await, None);
}

#[tokio::test]
async fn client_certificates_are_verified_and_not_demanded() {
    let shop = Workshop::open();
    let (ca, other) = (shop.authority("ca", None), shop.authority("other", None));
    let server = serve_with_ca(&shop.leaf("server", &[HOST], &ca), &ca);
    let with = |pair: Option<&Pair>| {
        let (cert, key) = (pair.map(|p| p.cert.clone()), pair.map(|p| p.key.clone()));
        UpstreamTls::new(&TlsOptions { cert, key, ..options(SslMode::Require, None) }).unwrap()
    };
    let ada = with(Some(&shop.leaf("ada", &[], &ca)));
    assert_eq!(shake(&server, &ada, HOST).await.0.unwrap().client_name.as_deref(), Some("ada"));
    assert_eq!(shake(&server, &with(None), HOST).await.0.unwrap().client_name, None);

    let stranger = with(Some(&shop.leaf("eve", &[], &other)));
    let error = shake(&server, &stranger, HOST).await.0.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");

    let mut params = workshop::leaf("late", &[]);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let late = with(Some(&shop.made("late", &params, Some(&ca))));
    let error = shake(&server, &late, HOST).await.0.unwrap_err();
    assert!(error.to_string().contains("xpired"), "{error}");

    // Without authorities nobody is asked, so nothing is known of the client.
    let unasking = serve(&shop.leaf("server2", &[HOST], &ca));
    assert_eq!(shake(&unasking, &ada, HOST).await.0.unwrap().client_name, None);
}

#[tokio::test]
async fn client_certificates_by_the_manuals_commands() {
    let shop = Workshop::open();
    let root = shop.manual_root("root");
    let server = serve_with_ca(&shop.manual_leaf("server", HOST, "root"), &root);
    let ada = shop.manual_leaf("ada", "ada", "root");
    let with = TlsOptions { cert: Some(ada.cert), key: Some(ada.key), ..options(SslMode::VerifyFull, Some(&root)) };
    let (accepted, connected) = shake(&server, &UpstreamTls::new(&with).unwrap(), HOST).await;
    connected.unwrap();
    assert_eq!(accepted.unwrap().client_name.as_deref(), Some("ada"));
}

#[tokio::test]
async fn a_server_certificate_is_no_client_certificate() {
    let shop = Workshop::open();
    let ca = shop.authority("ca", None);
    let server = serve_with_ca(&shop.leaf("server", &[HOST], &ca), &ca);
    let mut params = workshop::leaf("ada", &[]);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let ada = shop.made("ada", &params, Some(&ca));
    let with = TlsOptions { cert: Some(ada.cert), key: Some(ada.key), ..options(SslMode::Require, None) };
    shake(&server, &UpstreamTls::new(&with).unwrap(), HOST).await.0.unwrap_err();
}

#[tokio::test]
async fn reloading_is_for_connections_to_come() {
    let shop = Workshop::open();
    let (old, new) = (shop.quick("old", HOST, ""), shop.quick("new", HOST, ""));
    let (cert, key) = (shop.path("server.crt"), shop.path("server.key"));
    let install = |pair: &Pair| {
        std::fs::copy(&pair.cert, &cert).unwrap();
        std::fs::copy(&pair.key, &key).unwrap();
    };
    install(&old);
    let server = serve(&Pair { cert: cert.clone(), key: key.clone() });
    let (trusts_old, trusts_new) = (upstream(SslMode::VerifyCa, Some(&old)), upstream(SslMode::VerifyCa, Some(&new)));
    let (accepted, connected) = shake(&server, &trusts_old, HOST).await;
    let (mut accepted, mut connected) = (accepted.unwrap(), connected.unwrap());

    install(&new);
    shake(&server, &trusts_old, HOST).await.1.unwrap();
    server.reload().unwrap();
    shake(&server, &trusts_old, HOST).await.1.unwrap_err();
    let (fresh, _) = shake(&server, &trusts_new, HOST).await;
    assert_ne!(fresh.unwrap().end_point, accepted.end_point);

    connected.stream.write_all(b"still here").await.unwrap();
    let mut heard = [0; 10];
    accepted.stream.read_exact(&mut heard).await.unwrap();

    // Half of a change, as when two files are written one after the other.
    std::fs::copy(&old.cert, &cert).unwrap();
    assert!(matches!(server.reload(), Err(TlsError::KeyMismatch { .. })));
    std::fs::write(&cert, "").unwrap();
    assert!(matches!(server.reload(), Err(TlsError::NoCertificate { .. })));
    shake(&server, &trusts_new, HOST).await.1.unwrap();
}
