//! Certificates of peers, which nobody may have vouched for yet: their names, and the hash that channel binding signs.

#![no_main]

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/net/src/tls/binding.rs"]
mod binding;
#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/net/src/tls/name.rs"]
mod name;

use freshet_fuzz::bounded;
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

fuzz_target!(|data: &[u8]| {
    let der = CertificateDer::from(data);
    let hash = bounded(data.len() * 64 + (16 << 10), || binding::end_point(&der));
    assert!(hash.is_none_or(|hash| matches!(hash.len(), 28 | 32 | 48 | 64)));
    bounded(data.len() * 256 + (16 << 10), || {
        let Ok((_, certificate)) = X509Certificate::from_der(data) else { return };
        let names = name::all(&certificate);
        if let Some(common) = name::common_name(&certificate) {
            assert!(!common.contains('\0') && names.iter().any(|name| name == common));
        }
        for host in ["localhost", "db.example.com", "127.0.0.1", "::1", ""] {
            if name::is_for(&certificate, host) {
                assert!(!names.is_empty(), "without a name it is for nobody");
            }
        }
    });
});
