//! Which certificates are trusted, in which mode.

use std::fs;

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, SerialNumber, date_time_ymd};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use super::*;
use crate::tls::files::{KeyOf, certified_key};

const UNVERIFIED: [SslMode; 4] = [SslMode::Disable, SslMode::Allow, SslMode::Prefer, SslMode::Require];

#[tokio::test]
async fn what_is_verified_in_which_mode() {
    let shop = Workshop::open();
    let (ca, other) = (shop.authority("ca", None), shop.authority("other", None));
    let good = shop.leaf("good", &[HOST], &ca);
    let wrong_name = shop.leaf("wrong", &["other.example"], &ca);
    let foreign = shop.leaf("foreign", &[HOST], &other);
    for mode in UNVERIFIED {
        verdict(&foreign, &upstream(mode, None)).await.unwrap();
    }
    // With a root file also the lesser modes verify, as libpq does.
    for mode in [SslMode::Prefer, SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
        let client = upstream(mode, Some(&ca));
        verdict(&good, &client).await.unwrap();
        let error = verdict(&foreign, &client).await.unwrap_err();
        assert!(error.contains("UnknownIssuer") && error.contains("sslrootcert"), "{error}");
        assert_eq!(verdict(&wrong_name, &client).await.is_ok(), mode != SslMode::VerifyFull, "{mode:?}");
    }
}

#[tokio::test]
async fn addresses_are_verified_like_names() {
    let shop = Workshop::open();
    let ca = shop.authority("ca", None);
    let server = serve(&shop.leaf("server", &["127.0.0.1", "::1"], &ca));
    let client = upstream(SslMode::VerifyFull, Some(&ca));
    shake(&server, &client, "127.0.0.1").await.1.unwrap();
    shake(&server, &client, "::1").await.1.unwrap();
    shake(&server, &client, "127.0.0.2").await.1.unwrap_err();
    let error = shake(&server, &client, "no name at all").await.1.unwrap_err();
    assert!(error.to_string().contains("no host name"), "{error}");
}

#[tokio::test]
async fn time_matters() {
    let shop = Workshop::open();
    let ca = shop.authority("ca", None);
    let (mut past, mut future) = (workshop::leaf("past", &[HOST]), workshop::leaf("future", &[HOST]));
    past.not_after = date_time_ymd(2020, 1, 1);
    future.not_before = date_time_ymd(3000, 1, 1);
    let client = upstream(SslMode::VerifyCa, Some(&ca));
    assert!(verdict(&shop.made("past", &past, Some(&ca)), &client).await.unwrap_err().contains("xpired"));
    assert!(verdict(&shop.made("future", &future, Some(&ca)), &client).await.unwrap_err().contains("not valid yet"));
    // The same where it is its own authority.
    let mut own = workshop::authority(HOST);
    own.not_after = date_time_ymd(2020, 1, 1);
    let own = shop.made("own", &own, None);
    assert!(verdict(&own, &upstream(SslMode::VerifyCa, Some(&own))).await.unwrap_err().contains("xpired"));
}

#[tokio::test]
async fn a_self_signed_certificate_that_is_its_own_root() {
    let shop = Workshop::open();
    let quick = shop.quick("quick", HOST, "");
    let not_ca = shop.made("not_ca", &workshop::leaf(HOST, &[]), None);
    for pair in [&quick, &not_ca] {
        for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
            verdict(pair, &upstream(mode, Some(pair))).await.unwrap();
        }
    }
    let elsewhere = shop.quick("elsewhere", "other.example", "");
    verdict(&elsewhere, &upstream(SslMode::VerifyCa, Some(&elsewhere))).await.unwrap();
    let error = verdict(&elsewhere, &upstream(SslMode::VerifyFull, Some(&elsewhere))).await.unwrap_err();
    assert!(error.contains("\"db.example\"") && error.contains("other.example"), "{error}");
    // The same names are not the same certificate.
    let twin = shop.quick("twin", HOST, "");
    verdict(&twin, &upstream(SslMode::VerifyCa, Some(&quick))).await.unwrap_err();
}

#[tokio::test]
async fn certificates_by_the_manuals_commands() {
    let shop = Workshop::open();
    let root = shop.manual_root("root");
    let leaf = shop.manual_leaf("server", HOST, "root");
    let full = upstream(SslMode::VerifyFull, Some(&root));
    verdict(&leaf, &full).await.unwrap();
    shake_with(config(&leaf, &[&TLS12]), &full, HOST).await.unwrap();
    assert!(verdict(&shop.manual_leaf("wrong", "other.example", "root"), &full).await.unwrap_err().contains("name"));

    // The manual's second recipe: an intermediate authority in the server's file.
    shop.openssl("req -new -nodes -out mid.csr -keyout mid.key -subj /CN=mid.authority");
    let files =
        "-in mid.csr -extfile ca.cnf -extensions v3_ca -CA root.crt -CAkey root.key -CAcreateserial -out mid.crt";
    shop.openssl(&format!("x509 -req -days 1825 {files}"));
    let (below, mid) = (shop.manual_leaf("below", HOST, "mid"), shop.pair("mid"));
    verdict(&shop.chain("below", &[&below, &mid]), &full).await.unwrap();
    assert!(verdict(&below, &full).await.unwrap_err().contains("UnknownIssuer"));

    // Another authority of the same name.
    let forger = Workshop::open();
    forger.manual_root("root");
    let forged = forger.manual_leaf("server", HOST, "root");
    assert!(verdict(&forged, &full).await.unwrap_err().contains("UnknownIssuer"));
    let _ = forger.pair("root");
    let both = forger.chain("both", &[&forged, &forger.pair("root")]);
    assert!(verdict(&both, &full).await.unwrap_err().contains("UnknownIssuer"));
}

/// Whoever has a certificate must not be able to make others, by any path.
#[tokio::test]
async fn only_authorities_sign() {
    let shop = Workshop::open();
    let root = shop.manual_root("root");
    let full = upstream(SslMode::VerifyFull, Some(&root));
    // Version 1, which says nothing about whether it is an authority.
    let (v1, sub) = (shop.manual_leaf("v1", "v1.example", "root"), shop.manual_leaf("sub", HOST, "v1"));
    assert!(verdict(&shop.chain("a", &[&sub, &v1]), &full).await.is_err());

    // Version 3 without CA:TRUE, with CA:TRUE but not for signing, and at the end of its path.
    for (name, extension) in [
        ("plain", "basicConstraints = CA:false"),
        ("signs_nothing", "basicConstraints = critical,CA:true\nkeyUsage = digitalSignature"),
        ("constrained", "basicConstraints = critical,CA:true\nnameConstraints = critical,permitted;DNS:other.example"),
        ("unread", "basicConstraints = critical,CA:true\n1.2.3.4 = critical,ASN1:NULL"),
        ("clients_only", "basicConstraints = critical,CA:true\nextendedKeyUsage = clientAuth"),
    ] {
        shop.write("more.cnf", format!("[more]\n{extension}\n"));
        shop.openssl(&format!("req -new -nodes -out {name}.csr -keyout {name}.key -subj /CN={name}"));
        let files = format!("-in {name}.csr -extfile more.cnf -extensions more -CA root.crt -CAkey root.key");
        shop.openssl(&format!("x509 -req -days 365 -CAcreateserial {files} -out {name}.crt"));
        let below = shop.manual_leaf("below", HOST, name);
        assert!(verdict(&shop.chain("b", &[&below, &shop.pair(name)]), &full).await.is_err(), "{name}");
    }

    let last = {
        shop.write("more.cnf", "[more]\nbasicConstraints = critical,CA:true,pathlen:0\n");
        for (name, by) in [("last", "root"), ("too_low", "last")] {
            shop.openssl(&format!("req -new -nodes -out {name}.csr -keyout {name}.key -subj /CN={name}"));
            let files = format!("-in {name}.csr -extfile more.cnf -extensions more -CA {by}.crt -CAkey {by}.key");
            shop.openssl(&format!("x509 -req -days 365 -CAcreateserial {files} -out {name}.crt"));
        }
        shop.pair("last")
    };
    let below_last = shop.manual_leaf("below_last", HOST, "last");
    verdict(&shop.chain("c", &[&below_last, &last]), &full).await.unwrap();
    let too_low = shop.manual_leaf("lower", HOST, "too_low");
    assert!(verdict(&shop.chain("d", &[&too_low, &shop.pair("too_low"), &last]), &full).await.is_err());
}

/// Certificates with CA:TRUE below a root, as later versions of openssl make them.
#[tokio::test]
async fn a_leaf_that_calls_itself_an_authority() {
    let shop = Workshop::open();
    let ca = shop.authority("ca", None);
    let mut params = workshop::leaf("server", &[HOST]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pair = shop.made("server", &params, Some(&ca));
    verdict(&pair, &upstream(SslMode::VerifyFull, Some(&ca))).await.unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let pair = shop.made("client", &params, Some(&ca));
    verdict(&pair, &upstream(SslMode::VerifyFull, Some(&ca))).await.unwrap_err();
}

/// Whoever shows a certificate must have its key: without this, channel binding would bind to nothing.
#[tokio::test]
async fn the_key_has_to_be_the_certificates_in_every_mode() {
    let shop = Workshop::open();
    let (real, other) = (shop.quick("real", HOST, ""), shop.quick("other", HOST, ""));
    let load = |pair: &Pair| certified_key(&pair.cert, &pair.key, KeyOf::Server, &provider()).unwrap();
    for version in [&TLS12, &TLS13] {
        let stolen = || CertifiedKey::new(load(&real).cert, load(&other).key);
        for client in [upstream(SslMode::Require, None), upstream(SslMode::VerifyFull, Some(&real))] {
            let error = shake_with(config_of(stolen(), &[version]), &client, HOST).await.unwrap_err();
            assert!(error.to_string().contains("BadSignature"), "{error}");
            shake_with(config(&real, &[version]), &client, HOST).await.unwrap();
        }
    }
}

#[tokio::test]
async fn revoked_certificates() {
    let shop = Workshop::open();
    let (ca, mid) = (shop.authority("ca", None), "mid");
    let mid = shop.authority(mid, Some(&ca));
    let numbered = |serial: u8, is_ca: bool, by: &Pair| {
        let mut params = workshop::leaf("server", &[HOST]);
        params.serial_number = Some(SerialNumber::from_slice(&[serial]));
        // Both ways of judging: webpki's and ours.
        params.is_ca = if is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::NoCa };
        shop.made(&format!("leaf{serial}{is_ca}"), &params, Some(by))
    };
    let with = |crl: PathBuf| {
        UpstreamTls::new(&TlsOptions { crl: Some(crl), ..options(SslMode::VerifyCa, Some(&ca)) }).unwrap()
    };
    let client = with(shop.crl("good.crl", &ca, &[7], 3000));
    let late = with(shop.crl("late.crl", &ca, &[7], 2025));
    let foreign = with(shop.crl("foreign.crl", &shop.authority("other", None), &[], 3000));
    for is_ca in [false, true] {
        let (revoked, good) = (numbered(7, is_ca, &ca), numbered(8, is_ca, &ca));
        verdict(&good, &client).await.unwrap();
        assert!(verdict(&revoked, &client).await.unwrap_err().contains("evoked"));
        // A list that is too old, and none of the right authority.
        verdict(&good, &late).await.unwrap_err();
        verdict(&good, &foreign).await.unwrap_err();
        // Each certificate of the chain needs one.
        let below = shop.chain("below", &[&numbered(9, is_ca, &mid), &mid]);
        verdict(&below, &client).await.unwrap_err();
        let of_mid = fs::read_to_string(shop.crl("mid.crl", &mid, &[], 3000)).unwrap();
        let of_ca = fs::read_to_string(shop.path("good.crl")).unwrap();
        verdict(&below, &with(shop.write("both.crl", of_mid + &of_ca))).await.unwrap();
    }
}

#[test]
fn options_that_cannot_be_met_say_what_to_do() {
    let shop = Workshop::open();
    let pair = shop.quick("server", HOST, "");
    let text = |options: &TlsOptions| UpstreamTls::new(options).unwrap_err().to_string();
    for (mode, name) in [(SslMode::VerifyCa, "verify-ca"), (SslMode::VerifyFull, "verify-full")] {
        let text = text(&options(mode, None));
        assert!(text.contains("root certificate file does not exist") && text.contains(name), "{text}");
    }
    let system = |mode| TlsOptions { mode, root_cert: Some(RootCert::System), ..TlsOptions::default() };
    assert!(text(&system(SslMode::VerifyCa)).contains("verify-full"));
    let base = options(SslMode::Require, Some(&pair));
    assert!(text(&TlsOptions { root_cert: Some(RootCert::File(missing())), ..base.clone() }).contains("/nonexistent/"));
    assert!(text(&TlsOptions { crl: Some(pair.cert.clone()), ..base.clone() }).contains("X509 CRL"));
    assert!(text(&TlsOptions { cert: Some(pair.cert.clone()), ..base.clone() }).contains("sslkey"));
    assert!(text(&TlsOptions { cert: Some(missing()), key: Some(pair.key), ..base }).contains("cannot read"));
    // Never used with sslmode=disable, so never read.
    let off = TlsOptions { root_cert: Some(RootCert::File(missing())), ..options(SslMode::Disable, None) };
    UpstreamTls::new(&off).unwrap();
}
