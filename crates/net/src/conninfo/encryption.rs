//! The TLS options of a connection, with libpq's default files in `~/.postgresql`.

use std::path::PathBuf;

use super::settings::Settings;
use super::{ConninfoError, Environment};
use crate::tls::{ChannelBinding, RootCert, SslMode, SslNegotiation, TlsOptions};

const MODES: &[(&str, SslMode)] = &[
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];
const NEGOTIATIONS: &[(&str, SslNegotiation)] =
    &[("postgres", SslNegotiation::Postgres), ("direct", SslNegotiation::Direct)];
const BINDINGS: &[(&str, ChannelBinding)] =
    &[("disable", ChannelBinding::Disable), ("prefer", ChannelBinding::Prefer), ("require", ChannelBinding::Require)];
/// `true` if only TLS 1.3 is allowed. Freshet supports nothing below 1.2, so older minima mean 1.2.
const MIN_VERSIONS: &[(&str, bool)] =
    &[("", false), ("TLSv1", false), ("TLSv1.1", false), ("TLSv1.2", false), ("TLSv1.3", true)];
/// `true` if no client certificate is sent.
const CERT_MODES: &[(&str, bool)] = &[("allow", false), ("disable", true)];

/// Reads the options.
pub(super) fn options(settings: &Settings, environment: &Environment) -> Result<TlsOptions, ConninfoError> {
    let file = |name, default: &str| match settings.get(name) {
        Some(path) => Some(PathBuf::from(path)),
        None => environment.in_home(default).filter(|path| path.exists()),
    };
    let root_cert = match settings.get("sslrootcert") {
        Some("system") => Some(RootCert::System),
        _ => file("sslrootcert", ".postgresql/root.crt").map(RootCert::File),
    };
    let system = root_cert == Some(RootCert::System);
    let mut mode = settings.one_of("sslmode", MODES)?;
    if system && settings.get("sslmode").is_none() {
        mode = SslMode::VerifyFull;
    }
    let negotiation = settings.one_of("sslnegotiation", NEGOTIATIONS)?;
    let weak = |with, needed| Err(ConninfoError::WeakMode { mode: name_of(mode), with, needed });
    if negotiation == SslNegotiation::Direct && mode < SslMode::Require {
        return weak("sslnegotiation=direct", "require, verify-ca or verify-full");
    }
    // Anyone can get a certificate from one of the operating system's authorities, for some name.
    if system && mode != SslMode::VerifyFull {
        return weak("sslrootcert=system", "verify-full");
    }
    let no_cert = settings.one_of("sslcertmode", CERT_MODES)?;
    Ok(TlsOptions {
        mode,
        root_cert,
        crl: file("sslcrl", ".postgresql/root.crl"),
        cert: file("sslcert", ".postgresql/postgresql.crt").filter(|_| !no_cert),
        key: file("sslkey", ".postgresql/postgresql.key").filter(|_| !no_cert),
        negotiation,
        no_sni: settings.get("sslsni").is_some_and(|value| !value.starts_with('1')),
        tls13_only: settings.one_of("ssl_min_protocol_version", MIN_VERSIONS)?,
        channel_binding: settings.one_of("channel_binding", BINDINGS)?,
    })
}

/// The mode as it is written in options.
pub(super) fn name_of(mode: SslMode) -> String {
    MODES.iter().find(|(_, m)| *m == mode).map(|(name, _)| (*name).to_owned()).unwrap_or_default()
}
