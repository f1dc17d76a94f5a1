//! Certificates and keys from PEM files, with PostgreSQL's rules for the access rights of a private key.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use super::error::TlsError;

/// The group may write or execute, or others have any right (`S_IWGRP | S_IXGRP | S_IRWXO`).
const MORE_THAN_0640: u32 = 0o037;
/// The group or others have any right (`S_IRWXG | S_IRWXO`).
const MORE_THAN_0600: u32 = 0o077;

/// The owner of a private key: the server's key has one rule more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOf {
    /// `check_ssl_key_file_permissions` of the server.
    Server,
    /// `initialize_SSL` of libpq.
    Client,
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.into(), source })
}

/// All certificates of a file, at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| bad_certificate(path, &error))?;
    if all.is_empty() {
        return Err(TlsError::NoCertificate { path: path.into() });
    }
    Ok(all)
}

/// All revocation lists of a file, at least one.
pub(super) fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let bad = |reason: String| TlsError::BadCrl { path: path.into(), reason };
    let all: Result<Vec<_>, pem::Error> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| bad(error.to_string()))?;
    if all.is_empty() {
        return Err(bad("there is none in it".to_owned()));
    }
    Ok(all)
}

/// A certificate chain with its key. The key is checked to belong to the certificate.
///
/// The check is not rustls's, because rustls refuses X.509 version 1 (see [`super::trust`]).
pub(super) fn certified_key(
    cert: &Path,
    key: &Path,
    whose: KeyOf,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(cert)?;
    let private = private_key(key, whose)?;
    let signing = provider.key_provider.load_private_key(private);
    let signing = signing.map_err(|error| TlsError::KeyUnusable { path: key.into(), reason: error.to_string() })?;
    let leaf = chain.first().ok_or_else(|| TlsError::NoCertificate { path: cert.into() })?;
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|error| bad_certificate(cert, &error))?;
    if signing.public_key().is_some_and(|public| public.as_ref() != parsed.public_key().raw) {
        return Err(TlsError::KeyMismatch { cert: cert.into(), key: key.into() });
    }
    Ok(CertifiedKey::new(chain, signing))
}

fn bad_certificate(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::BadCertificate { path: path.into(), reason: error.to_string() }
}

fn private_key(path: &Path, whose: KeyOf) -> Result<PrivateKeyDer<'static>, TlsError> {
    let meta = fs::metadata(path).map_err(|source| TlsError::Read { path: path.into(), source })?;
    if !meta.is_file() {
        return Err(TlsError::KeyNotRegular { path: path.into() });
    }
    let of_root = meta.uid() == 0;
    if whose == KeyOf::Server && !of_root && meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(TlsError::KeyOwner { path: path.into() });
    }
    if meta.mode() & (if of_root { MORE_THAN_0640 } else { MORE_THAN_0600 }) != 0 {
        return Err(TlsError::KeyAccess { path: path.into() });
    }
    let bytes = Zeroizing::new(read(path)?);
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        // `BEGIN ENCRYPTED PRIVATE KEY` (PKCS#8), `Proc-Type: 4,ENCRYPTED` (the older forms).
        Err(_) if bytes.windows(9).any(|window| window == b"ENCRYPTED") => {
            Err(TlsError::EncryptedKey { path: path.into() })
        }
        Err(_) => Err(TlsError::NoKey { path: path.into() }),
    }
}
