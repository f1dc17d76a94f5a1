//! Errors in certificates, keys and options. Each message names the file and the remedy.

use std::io;
use std::path::PathBuf;

/// Why a TLS configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file has no certificate.
    #[error("{} has no certificate; give a PEM file with -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file has no private key.
    #[error(
        "{} has no private key; give a PEM file with -----BEGIN PRIVATE KEY-----, RSA PRIVATE KEY or EC PRIVATE KEY",
        path.display()
    )]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key is encrypted.
    #[error(
        "the private key in {} is protected by a passphrase; write one without: openssl pkey -in {} -out FILE",
        path.display(), path.display()
    )]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// Others could read the private key (the rule of PostgreSQL and libpq).
    #[error(
        "private key file {} has group or world access; do: chmod 0600 {} (u=rw; 0640 or less if it belongs to root)",
        path.display(), path.display()
    )]
    KeyAccess {
        /// The file.
        path: PathBuf,
    },
    /// The private key belongs to another user.
    #[error(
        "private key file {} must belong to the user that runs Freshet or to root; do: chown and chmod 0600 {}",
        path.display(), path.display()
    )]
    KeyOwner {
        /// The file.
        path: PathBuf,
    },
    /// The private key is a directory or a device.
    #[error("private key file {} is not a regular file", path.display())]
    KeyNotRegular {
        /// The file.
        path: PathBuf,
    },
    /// There is a certificate without a key.
    #[error("there is the certificate {} but no private key; give its key file too (sslkey)", path.display())]
    KeyMissing {
        /// The certificate's file.
        path: PathBuf,
    },
    /// The key is of a kind that is not supported.
    #[error(
        "the private key in {} cannot be used ({reason}); use RSA of 2048 bits or more, ECDSA P-256 or P-384, or Ed25519",
        path.display()
    )]
    KeyUnusable {
        /// The file.
        path: PathBuf,
        /// What rustls says.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error("the private key in {} does not belong to the certificate in {}; give the pair made together", key.display(), cert.display())]
    KeyMismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// A certificate cannot be parsed.
    #[error("a certificate in {} is damaged or of an unknown form: {reason}; look at it: openssl x509 -text -in {}", path.display(), path.display())]
    BadCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A revocation list cannot be parsed.
    #[error("{} has no usable certificate revocation list: {reason}; give a PEM file with -----BEGIN X509 CRL-----", path.display())]
    BadCrl {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The server's certificate must be verified, but there are no root certificates.
    #[error(
        "root certificate file does not exist: sslmode={mode} verifies the server's certificate; give the file of its \
         authority (sslrootcert=FILE, or ~/.postgresql/root.crt), sslrootcert=system for the operating system's, or \
         change sslmode"
    )]
    NoRoot {
        /// The mode's name.
        mode: &'static str,
    },
    /// Anyone can get a certificate of a public authority, so the name must be verified too (libpq's rule).
    #[error("sslrootcert=system needs sslmode=verify-full: with less, any server with a public certificate is trusted")]
    WeakMode,
    /// The operating system has no certificates.
    #[error(
        "the operating system's certificates cannot be loaded ({reason}); install ca-certificates or give a file (sslrootcert)"
    )]
    NoSystemRoots {
        /// What went wrong.
        reason: String,
    },
    /// rustls refuses the configuration.
    #[error("TLS configuration: {0}")]
    Rustls(#[from] rustls::Error),
}
