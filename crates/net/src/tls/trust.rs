//! Whether a certificate comes from a trusted authority.
//!
//! rustls (webpki) verifies certificates of the web's public authorities. It refuses some forms that are usual around PostgreSQL, because the
//! commands in PostgreSQL's manual create them (chapter "Secure TCP/IP Connections with SSL"):
//!
//! - `openssl req -new -x509`: a self-signed certificate with `CA:TRUE` that is both the server's certificate and the root;
//! - `openssl x509 -req -CA root.crt`: X.509 version 1, as OpenSSL before 3.2 creates it.
//!
//! OpenSSL, and with it libpq, accepts both. So webpki verifies every certificate that it can read, and [`Authorities::judge`] verifies these forms
//! by the same rules: time, signatures up to a configured root, use, revocation.
//!
//! OpenSSL checks the validity period of a root as of any other certificate: an authority retires by expiring. webpki ignores the validity period of
//! a root. So a chain that webpki accepts is verified once more with the valid roots alone, if some roots are not valid now
//! ([`Authorities::judge_again`]).
//!
//! The handshake's signature is checked here too, because webpki reads no key from a certificate of these forms. It is checked in every mode, even
//! where the certificate is not verified: channel binding depends on it, since a certificate alone proves nothing.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore};
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::{
    ASN1Time, CertificateRevocationList, FromDer, ParsedExtension, X509Certificate, X509Version,
};

/// Longest chain from a certificate to its root; webpki allows as many intermediates.
const CHAIN_MAX: usize = 6;

/// The use that a certificate is verified for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// By the server.
    Server,
    /// By the client.
    Client,
}

/// Trusted certificates and their revocation lists.
#[derive(Debug)]
pub(super) struct Authorities {
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) crls: Vec<CertificateRevocationListDer<'static>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl Authorities {
    /// Verifies a certificate of a form that webpki refuses; None if webpki can verify it.
    pub(super) fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        usage: Usage,
        now: UnixTime,
    ) -> Option<Result<(), Error>> {
        let leaf = parse(leaf)?;
        let refused = leaf.version() != X509Version::V3 || leaf.is_ca();
        refused.then(|| self.follow(leaf, intermediates, usage, now).map_err(Error::from))
    }

    /// Verifies again a chain that webpki has accepted, with the roots that are valid now alone.
    pub(super) fn judge_again(
        &self,
        now: UnixTime,
        accepts: impl FnOnce(RootCertStore) -> bool,
    ) -> Result<(), CertificateError> {
        let now = asn1_time(now)?;
        let is_current = |root: &&_| parse(root).is_some_and(|root| self.is_current(&root, now, 0));
        let current: Vec<_> = self.roots.iter().filter(is_current).cloned().collect();
        if current.len() == self.roots.len() {
            return Ok(());
        }
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(current);
        if accepts(store) { Ok(()) } else { Err(CertificateError::Expired) }
    }

    /// Whether a root may be used now: it is within its validity period. If it is not self-signed and a configured certificate signed it, that
    /// certificate must be usable too.
    fn is_current(&self, root: &X509Certificate<'_>, now: ASN1Time, below: usize) -> bool {
        if below > CHAIN_MAX || !root.validity().is_valid_at(now) {
            return false;
        }
        if root.issuer().as_raw() == root.subject().as_raw() {
            return true;
        }
        let mut above = self.roots.iter().filter_map(parse).filter(|above| self.issued(above, root)).peekable();
        above.peek().is_none() || above.any(|above| self.is_current(&above, now, below + 1))
    }

    /// Follows the chain from issuer to issuer up to a root.
    fn follow<'a>(
        &'a self,
        leaf: X509Certificate<'a>,
        intermediates: &'a [CertificateDer<'a>],
        usage: Usage,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let now = asn1_time(now)?;
        let mut certificate = leaf;
        for below in 0..=CHAIN_MAX {
            check_itself(&certificate, usage, now)?;
            let vouches =
                |root: &X509Certificate<'_>| root.as_raw() == certificate.as_raw() || self.issued(root, &certificate);
            let mut roots = self.roots.iter().filter_map(parse).filter(vouches).peekable();
            if roots.peek().is_some() {
                let root = roots.find(|root| self.is_current(root, now, 0)).ok_or(CertificateError::Expired)?;
                return self.check_revoked(&certificate, &root, now);
            }
            let mut candidates = intermediates.iter().take(CHAIN_MAX).filter_map(parse);
            let issuer = candidates.find(|issuer| may_issue(issuer, below) && self.issued(issuer, &certificate));
            let issuer = issuer.ok_or(CertificateError::UnknownIssuer)?;
            self.check_revoked(&certificate, &issuer, now)?;
            certificate = issuer;
        }
        Err(CertificateError::UnknownIssuer)
    }

    fn issued(&self, issuer: &X509Certificate<'_>, certificate: &X509Certificate<'_>) -> bool {
        certificate.issuer().as_raw() == issuer.subject().as_raw()
            && self.signed(certificate.as_raw(), issuer.public_key().raw).is_some()
    }

    /// With revocation lists, each certificate needs a valid list of its issuer (libpq: `X509_V_FLAG_CRL_CHECK_ALL`).
    fn check_revoked(
        &self,
        certificate: &X509Certificate<'_>,
        issuer: &X509Certificate<'_>,
        now: ASN1Time,
    ) -> Result<(), CertificateError> {
        if self.crls.is_empty() {
            return Ok(());
        }
        let mut lists = self.crls.iter().filter_map(|der| Some(CertificateRevocationList::from_der(der).ok()?.1));
        let list = lists.find(|list| {
            list.issuer().as_raw() == issuer.subject().as_raw()
                && self.signed(list.as_raw(), issuer.public_key().raw).is_some()
        });
        let list = list.ok_or(CertificateError::UnknownRevocationStatus)?;
        if list.next_update().is_some_and(|next| next < now) {
            return Err(CertificateError::UnknownRevocationStatus);
        }
        let revoked = list.iter_revoked_certificates().any(|one| one.raw_serial() == certificate.raw_serial());
        if revoked { Err(CertificateError::Revoked) } else { Ok(()) }
    }

    /// Whether a certificate or revocation list is signed with a key, by an algorithm that webpki accepts.
    fn signed(&self, object: &[u8], key: &[u8]) -> Option<()> {
        // SEQUENCE { to be signed, AlgorithmIdentifier, BIT STRING }
        let (_, object) = Any::from_der(object).ok()?;
        let (rest, _) = Any::from_der(object.data).ok()?;
        let message = object.data.get(..object.data.len().checked_sub(rest.len())?)?;
        let (rest, algorithm) = Any::from_der(rest).ok()?;
        let (_, signature) = Any::from_der(rest).ok()?;
        let signature = whole_bytes(signature.data)?;
        let mut fitting = self.algorithms.all.iter().filter(|a| a.signature_alg_id().as_ref() == algorithm.data);
        fitting.any(|algorithm| verify(*algorithm, key, message, signature)).then_some(())
    }
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

fn asn1_time(now: UnixTime) -> Result<ASN1Time, CertificateError> {
    let now = i64::try_from(now.as_secs()).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
    now.ok_or(CertificateError::BadEncoding)
}

/// Checks validity period and use, and that no critical extension is unknown.
fn check_itself(certificate: &X509Certificate<'_>, usage: Usage, now: ASN1Time) -> Result<(), CertificateError> {
    if now < certificate.validity().not_before {
        return Err(CertificateError::NotValidYet);
    }
    if now > certificate.validity().not_after {
        return Err(CertificateError::Expired);
    }
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::ExtendedKeyUsage(uses) => {
                let fits = match usage {
                    Usage::Server => uses.server_auth,
                    Usage::Client => uses.client_auth,
                };
                if !(fits || uses.any) {
                    return Err(CertificateError::InvalidPurpose);
                }
            }
            ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::SubjectAlternativeName(_) => {}
            // Name constraints are not implemented: certificates of these forms do not have them.
            ParsedExtension::NameConstraints(_) => return Err(CertificateError::UnhandledCriticalExtension),
            _ if extension.critical => return Err(CertificateError::UnhandledCriticalExtension),
            _ => {}
        }
    }
    Ok(())
}

/// Whether an intermediate may sign a certificate that has `below` intermediates below it.
fn may_issue(issuer: &X509Certificate<'_>, below: usize) -> bool {
    let constraints = issuer.basic_constraints().ok().flatten();
    let Some(constraints) = constraints.filter(|constraints| constraints.value.ca) else { return false };
    let deep_enough =
        constraints.value.path_len_constraint.is_none_or(|most| usize::try_from(most).is_ok_and(|most| below <= most));
    let signs = match issuer.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    deep_enough && signs
}

/// A BIT STRING's content without unused bits.
fn whole_bytes(content: &[u8]) -> Option<&[u8]> {
    content.split_first().filter(|(unused, _)| **unused == 0).map(|(_, bytes)| bytes)
}

fn verify(algorithm: &dyn SignatureVerificationAlgorithm, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    // SubjectPublicKeyInfo: SEQUENCE { AlgorithmIdentifier, BIT STRING }
    let read = || {
        let (_, key) = Any::from_der(key).ok()?;
        let (rest, kind) = Any::from_der(key.data).ok()?;
        let (_, bits) = Any::from_der(rest).ok()?;
        (kind.data == algorithm.public_key_alg_id().as_ref()).then_some(whole_bytes(bits.data)?)
    };
    read().is_some_and(|key| algorithm.verify_signature(key, message, signature).is_ok())
}

/// Checks the signature of a TLS 1.2 handshake.
pub(super) fn verify_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let certificate = parse(certificate).ok_or(CertificateError::BadEncoding)?;
    let key = certificate.public_key().raw;
    let mut mapped = algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
    if mapped.any(|(_, all)| all.iter().any(|algorithm| verify(*algorithm, key, message, signed.signature()))) {
        return Ok(HandshakeSignatureValid::assertion());
    }
    Err(CertificateError::BadSignature.into())
}

/// Checks the signature of a TLS 1.3 handshake.
pub(super) fn verify_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let certificate = parse(certificate).ok_or(CertificateError::BadEncoding)?;
    let key = SubjectPublicKeyInfoDer::from(certificate.public_key().raw);
    verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
}
