//! libpq's TLS options (manual: "Database Connection Control Functions", parameters `ssl…` and `channel_binding`).

use std::path::PathBuf;

/// `sslmode`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// Never.
    Disable,
    /// Only if the server refuses a plain connection.
    Allow,
    /// If the server can.
    #[default]
    Prefer,
    /// Always; the certificate is verified only if a root certificate file is there.
    Require,
    /// Always, with a certificate of a trusted authority.
    VerifyCa,
    /// Always, with a certificate of a trusted authority for the host's name.
    VerifyFull,
}

/// `sslrootcert`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootCert {
    /// The operating system's authorities.
    System,
    /// A PEM file.
    File(PathBuf),
}

/// `sslnegotiation`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslNegotiation {
    /// `SSLRequest` first.
    #[default]
    Postgres,
    /// The handshake at once, with ALPN (PostgreSQL 17 and later).
    Direct,
}

/// `channel_binding`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If the server offers it.
    #[default]
    Prefer,
    /// Always.
    Require,
}

/// How the upstream leg is encrypted. Paths are resolved: libpq's default files appear here only if they exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `sslmode`
    pub mode: SslMode,
    /// `sslrootcert`, or `~/.postgresql/root.crt` if that exists.
    pub root_cert: Option<RootCert>,
    /// `sslcrl`, or `~/.postgresql/root.crl` if that exists.
    pub crl: Option<PathBuf>,
    /// `sslcert`, or `~/.postgresql/postgresql.crt` if that exists.
    pub cert: Option<PathBuf>,
    /// `sslkey`, or `~/.postgresql/postgresql.key` if that exists.
    pub key: Option<PathBuf>,
    /// `sslnegotiation`
    pub negotiation: SslNegotiation,
    /// `sslsni` is 0: the host's name is not sent.
    pub no_sni: bool,
    /// `ssl_min_protocol_version` is `TLSv1.3`; the default is 1.2.
    pub tls13_only: bool,
    /// `channel_binding`
    pub channel_binding: ChannelBinding,
}
