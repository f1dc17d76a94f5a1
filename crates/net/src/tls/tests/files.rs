//! Keys and certificates from files, and what channel binding binds to.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::*;
use crate::tls::files::{KeyOf, certified_key};

fn load(pair: &Pair) -> Result<(), TlsError> {
    load_as(pair, KeyOf::Server)
}

fn load_as(pair: &Pair, whose: KeyOf) -> Result<(), TlsError> {
    certified_key(&pair.cert, &pair.key, whose, &provider()).map(drop)
}

/// Loading fails with a text that names the file and has these words.
#[track_caller]
fn refused(outcome: Result<(), TlsError>, path: &Path, words: &str) {
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains(words) && text.contains(&*path.to_string_lossy()), "{text}");
}

#[test]
fn keys_of_every_encoding() {
    let shop = Workshop::open();
    let rsa = shop.quick("rsa", HOST, "");
    load(&rsa).unwrap();
    shop.openssl("pkey -in rsa.key -traditional -out pkcs1.key");
    assert!(fs::read_to_string(shop.path("pkcs1.key")).unwrap().contains("BEGIN RSA PRIVATE KEY"));
    load(&Pair { cert: rsa.cert, key: shop.path("pkcs1.key") }).unwrap();

    shop.openssl("ecparam -genkey -name secp384r1 -out ec.key");
    shop.openssl("req -new -x509 -key ec.key -subj /CN=ec -out ec.crt");
    assert!(fs::read_to_string(shop.path("ec.key")).unwrap().contains("BEGIN EC PARAMETERS"));
    load(&shop.pair("ec")).unwrap();

    load(&shop.quick("ed", HOST, "-newkey ed25519")).unwrap();
    // The manual's commands put the certificate in words before it.
    load(&shop.quick("text", HOST, "-text")).unwrap();
}

#[test]
fn keys_that_cannot_be_used_say_why() {
    let shop = Workshop::open();
    let pair = shop.quick("server", HOST, "");
    let of = |key: &Path| load(&Pair { cert: pair.cert.clone(), key: key.into() });

    shop.openssl("pkey -in server.key -aes128 -passout pass:secret -out locked.key");
    refused(of(&shop.path("locked.key")), &shop.path("locked.key"), "passphrase");
    shop.openssl("rsa -in server.key -traditional -aes128 -passout pass:secret -out older.key");
    refused(of(&shop.path("older.key")), &shop.path("older.key"), "passphrase");
    let other = shop.quick("other", HOST, "");
    refused(of(&other.key), &other.key, "does not belong to the certificate");
    refused(of(&shop.write("empty", "")), &shop.path("empty"), "no private key");
    refused(of(&pair.cert), &pair.cert, "group or world access");
    refused(of(&missing()), &missing(), "cannot read");
    refused(of(&std::env::temp_dir()), &std::env::temp_dir(), "not a regular file");
    let short = shop.quick("short", HOST, "-newkey rsa:1024");
    refused(load(&short), &short.key, "2048");
    let without = Pair { cert: shop.write("none", "nothing"), key: pair.key.clone() };
    refused(load(&without), &without.cert, "no certificate");
    let der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let damaged = Pair { cert: shop.write("damaged", der), key: pair.key };
    refused(load(&damaged), &damaged.cert, "damaged");
}

/// As PostgreSQL and libpq: 0600, or 0640 of root.
#[test]
fn keys_that_others_can_read_are_refused() {
    let shop = Workshop::open();
    let pair = shop.quick("server", HOST, "");
    let mode = |mode| fs::set_permissions(&pair.key, fs::Permissions::from_mode(mode)).unwrap();
    let root = rustix::process::geteuid().is_root();
    for whose in [KeyOf::Server, KeyOf::Client] {
        for good in [0o600, 0o400, 0o700] {
            mode(good);
            load_as(&pair, whose).unwrap();
        }
        for bad in [0o604, 0o660, 0o650, 0o644, 0o777] {
            mode(bad);
            refused(load_as(&pair, whose), &pair.key, "chmod 0600");
        }
        mode(0o640);
        assert_eq!(load_as(&pair, whose).is_ok(), root);
    }
    if root {
        chown(&pair.key, Some(12_345), None).unwrap();
        refused(load_as(&pair, KeyOf::Client), &pair.key, "chmod 0600");
        mode(0o600);
        load_as(&pair, KeyOf::Client).unwrap();
        refused(load(&pair), &pair.key, "chown");
    }
}

/// Against openssl's own hash of the certificate.
#[test]
fn the_end_point_is_hashed_as_the_certificate_was() {
    let shop = Workshop::open();
    let pss = "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1";
    for (signature, hash) in [
        ("-sha256", Some("sha256")),
        ("-sha384", Some("sha384")),
        ("-sha512", Some("sha512")),
        ("-sha224", Some("sha224")),
        ("-sha1", Some("sha256")),
        ("-md5", Some("sha256")),
        (&format!("-sha384 {pss}"), Some("sha384")),
        (&format!("-sha256 {pss}"), Some("sha256")),
        ("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -sha256", Some("sha256")),
        ("-newkey ec -pkeyopt ec_paramgen_curve:P-384 -sha384", Some("sha384")),
        ("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -sha512", Some("sha512")),
        ("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -sha1", Some("sha256")),
        ("-newkey ed25519", None),
    ] {
        let pair = shop.quick("bound", HOST, signature);
        let certificate = CertificateDer::from_pem_file(&pair.cert).unwrap();
        let bound = binding::end_point(&certificate);
        let bound = bound.map(|bytes| bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")));
        let expected = hash.map(|hash| {
            shop.openssl("x509 -in bound.crt -outform der -out bound.der");
            shop.openssl(&format!("dgst -{hash} -r bound.der")).split(' ').next().unwrap().to_owned()
        });
        assert_eq!(bound, expected, "{signature}");
    }
}
