//! libpq's rules for whom a certificate is for.

use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;

/// Whether libpq takes a certificate with this common name and these alternative names for the host's.
fn is_for(common_name: &str, alternative: &[&str], host: &str) -> bool {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = workshop::leaf(common_name, alternative).self_signed(&key).unwrap();
    let (_, parsed) = X509Certificate::from_der(certificate.der()).unwrap();
    name::is_for(&parsed, host)
}

#[test]
fn the_common_name_counts_where_there_is_no_alternative_name() {
    assert!(is_for("db.example", &[], "db.example"));
    assert!(is_for("DB.Example", &[], "db.EXAMPLE"));
    assert!(!is_for("db.example", &[], "www.db.example"));
    assert!(is_for("127.0.0.1", &[], "127.0.0.1"));
    assert!(!is_for("db.example", &["other.example"], "db.example"));
    // An address is no name of the host's kind, and the other way round.
    assert!(is_for("db.example", &["127.0.0.1"], "db.example"));
    assert!(is_for("127.0.0.1", &["db.example"], "127.0.0.1"));
    assert!(!is_for("127.0.0.1", &["127.0.0.2"], "127.0.0.1"));
    assert!(!is_for("", &[], "db.example"));
}

#[test]
fn alternative_names_and_addresses() {
    let names = ["a.example", "b.example", "127.0.0.2", "::1"];
    for good in ["a.example", "B.example", "127.0.0.2", "::1", "0:0:0:0:0:0:0:1"] {
        assert!(is_for("other", &names, good), "{good}");
    }
    for bad in ["other", "c.example", "127.0.0.1", "::2", "", "a.example."] {
        assert!(!is_for("other", &names, bad), "{bad}");
    }
}

#[test]
fn a_wildcard_is_the_first_label_and_only_that() {
    let names = ["*.example.org", "f*.example.com"];
    assert!(is_for("", &names, "db.example.org"));
    assert!(is_for("", &names, "DB.Example.ORG"));
    for bad in ["example.org", "a.b.example.org", "db.example.com", "foo.example.com", "org", "*"] {
        assert!(!is_for("", &names, bad), "{bad}");
    }
    assert!(is_for("*.example.net", &[], "db.example.net"));
    assert!(!is_for("*.", &[], "db."));
    assert!(!is_for("*", &[], "db"));
}

#[test]
fn a_zero_byte_in_a_common_name_spoils_it() {
    assert!(!is_for("db.example\0.evil.example", &[], "db.example"));
    assert!(!is_for("db.example\0.evil.example", &[], "db.example\0.evil.example"));
}
