//! `tls-server-end-point` (RFC 5929, section 4.1): a hash of the server's certificate. SCRAM-SHA-256-PLUS signs it, so that an attacker between
//! client and server cannot use another certificate.

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::signature_algorithm::SignatureAlgorithm;

/// The certificate's hash, by the hash function of its own signature; SHA-256 if that is MD5 or SHA-1.
///
/// None if the signature names no hash function, as with Ed25519. RFC 5929 defines nothing for this case, and PostgreSQL cannot bind either.
pub(super) fn end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let signature = &parsed.signature_algorithm;
    // RSASSA-PSS names its hash function in its parameters.
    let algorithm = match SignatureAlgorithm::try_from(signature) {
        Ok(SignatureAlgorithm::RSASSA_PSS(parameters)) => parameters.hash_algorithm_oid().to_id_string(),
        _ => signature.algorithm.to_id_string(),
    };
    digest(&algorithm, certificate)
}

/// The hash of `bytes`. `algorithm` is the object identifier of a signature algorithm or of a hash function.
fn digest(algorithm: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    match algorithm {
        // MD5 and SHA-1: with RSA, with ECDSA, alone.
        "1.2.840.113549.1.1.4" | "1.2.840.113549.1.1.5" | "1.2.840.10045.4.1" | "1.3.14.3.2.26"
        // SHA-256 likewise.
        | "1.2.840.113549.1.1.11" | "1.2.840.10045.4.3.2" | "2.16.840.1.101.3.4.2.1" => {
            Some(Sha256::digest(bytes).to_vec())
        }
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" | "2.16.840.1.101.3.4.2.2" => {
            Some(Sha384::digest(bytes).to_vec())
        }
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" | "2.16.840.1.101.3.4.2.3" => {
            Some(Sha512::digest(bytes).to_vec())
        }
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" | "2.16.840.1.101.3.4.2.4" => {
            Some(Sha224::digest(bytes).to_vec())
        }
        _ => None,
    }
}
