//! libpq's TLS options (manual: "Database Connection Control Functions", parameters `ssl…` and `channel_binding`).

use std::path::PathBuf;

/// `sslmode`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// No TLS.
    Disable,
    /// TLS only if the server refuses a plain connection.
    Allow,
    /// TLS if the server supports it.
    #[default]
    Prefer,
    /// TLS required; the certificate is verified only if there is a root certificate file.
    Require,
    /// TLS required, with a certificate of a trusted authority.
    VerifyCa,
    /// TLS required, with a certificate of a trusted authority for the host's name.
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
    /// The handshake immediately, with ALPN (PostgreSQL 17 and later).
    Direct,
}

/// `channel_binding`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    /// No channel binding.
    Disable,
    /// Channel binding if the server offers it.
    #[default]
    Prefer,
    /// Channel binding required.
    Require,
}

/// How connections to the upstream are encrypted. Paths are resolved: libpq's default files appear here only if they exist.
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
