//! The upstream's address: `mysql://user:password@host:port,host:port/database?name=value`, or `mariadb://…`.
//!
//! The servers' own programs do not take URLs, but drivers do, and they agree on this form. The options after the question mark have the names of the
//! `mysql` program's options. Error messages do not contain the password: in a mistyped URL it may be in any place, so no message quotes more than a
//! name.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::address::Address;
use super::error::ConnectError;
use super::hosts::{Host, Hosts};
use crate::connect_throttle::ConnectThrottle;
use crate::postgres::secret::Secret;
use crate::tls::{RootCert, SslMode, TlsError, TlsOptions, UpstreamTls};

/// The servers' registered port.
const PORT_DEFAULT: u16 = 3306;
/// Time limit of a connection, from the name's resolution to the end of the login.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// A server, or a primary and its replicas, with the account that Freshet uses there. Copies with other accounts have the same choice of a host.
#[derive(Clone)]
pub struct Upstream {
    hosts: Arc<Hosts>,
    user: String,
    password: Secret,
    database: Option<String>,
    mode: SslMode,
    tls: UpstreamTls,
    connect_timeout: Duration,
    connect_throttle: Arc<ConnectThrottle>,
}

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Another scheme.
    #[error("begin with mysql:// or mariadb://, as in mysql://user:password@host:3306/database")]
    Scheme,
    /// `%` without two hexadecimal digits, `%00`, or bytes that are not UTF-8.
    #[error(
        "the URL's {0} holds % without two hexadecimal digits after it, or what is no UTF-8: write % itself as %25"
    )]
    Percent(&'static str),
    /// A character that has a special meaning in URLs.
    #[error("the URL holds a second @: write one that belongs to the password as %40 (and : / ? as %3A %2F %3F)")]
    AtSign,
    /// No user.
    #[error("the URL names no user: write mysql://user:password@host/database")]
    User,
    /// `[` without `]`.
    #[error("the URL's IPv6 address has to stand in brackets: [::1]")]
    Bracket,
    /// A port that is not valid.
    #[error(
        "the URL's port is no number from 1 to 65535; if that was part of the password, write : @ / ? in it as %3A %40 %2F %3F"
    )]
    Port,
    /// Nothing between two commas.
    #[error("the URL's list of hosts has an empty place: write mysql://user:password@host1:3306,host2:3306/database")]
    EmptyHost,
    /// `socket` with a list of hosts.
    #[error("the URL names several hosts and a socket: give either")]
    SocketAndHosts,
    /// An option without a value.
    #[error("the URL's options have the form name=value, joined by &")]
    Query,
    /// An unknown option.
    #[error(
        "the URL's option {0:?} is not known; known are ssl-mode, ssl-ca, ssl-cert, ssl-key, socket and connect-timeout"
    )]
    Option(String),
    /// An unknown value of `ssl-mode`.
    #[error("ssl-mode is one of disabled, preferred, required, verify-ca and verify-identity")]
    SslMode,
    /// A `connect-timeout` that is not valid.
    #[error("connect-timeout is a number of seconds from 1 to 3600")]
    ConnectTimeout,
    /// Verification without root certificates.
    #[error("ssl-mode=verify-ca needs the authority's certificate: ssl-ca=FILE")]
    NoAuthority,
    /// Only one of certificate and key.
    #[error("ssl-cert and ssl-key belong together: give both files")]
    HalfCertificate,
    /// An error in a file that the URL names.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The options of the URL.
#[derive(Default)]
struct Options {
    mode: Option<SslMode>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    socket: Option<PathBuf>,
    connect_timeout: Option<Duration>,
}

impl Upstream {
    /// Whether a text is a URL of this family.
    pub fn is_url(text: &str) -> bool {
        strip_scheme(text).is_some()
    }

    /// Parses a URL and reads the certificates that it names.
    pub fn parse(url: &str) -> Result<Self, UpstreamError> {
        let rest = strip_scheme(url).ok_or(UpstreamError::Scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = authority.split_once('@').unwrap_or(("", authority));
        if hosts.contains('@') || database.contains('@') {
            return Err(UpstreamError::AtSign);
        }
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let user = decode(user, "user")?;
        if user.is_empty() {
            return Err(UpstreamError::User);
        }
        let options = Options::parse(query)?;
        let addresses = match &options.socket {
            Some(_) if hosts.contains(',') => return Err(UpstreamError::SocketAndHosts),
            Some(path) => vec![Address::Unix(path.clone())],
            None if hosts.contains(',') && hosts.split(',').any(str::is_empty) => return Err(UpstreamError::EmptyHost),
            None => hosts.split(',').map(tcp_address).collect::<Result<_, _>>()?,
        };
        let (mode, tls) = options.tls()?;
        let database = Some(decode(database, "database")?).filter(|name| !name.is_empty());
        let password = Secret::new(decode(password, "password")?);
        let connect_timeout = options.connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT);
        let tls = UpstreamTls::new(&tls)?;
        let (hosts, connect_throttle) = (Arc::new(Hosts::new(addresses)), Arc::default());
        Ok(Self { hosts, user, password, database, mode, tls, connect_timeout, connect_throttle })
    }

    /// The account's name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The password; empty for none.
    pub fn password(&self) -> &Secret {
        &self.password
    }

    /// The default database.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Where the host in use listens; the first one, if none has been chosen.
    pub fn address(&self) -> &Address {
        let hosts = self.hosts.list();
        let chosen = self.hosts.chosen().and_then(|at| hosts.get(at)).or(hosts.first());
        chosen.map_or(const { &Address::Tcp { host: String::new(), port: 0 } }, |host| &host.address)
    }

    /// Where all hosts listen, in the given order.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = &Address> {
        self.hosts.list().iter().map(|host| &host.address)
    }

    /// Whether there are several hosts, of which the primary is used.
    pub fn has_several_hosts(&self) -> bool {
        self.hosts.list().len() > 1
    }

    /// The place of the host in use; None: the primary is not known.
    pub fn chosen(&self) -> Option<usize> {
        self.hosts.chosen()
    }

    /// The host was found to be the primary: it is used, unless it is left out, or another one is chosen (false). Only who knows that the change stream
    /// is at this host, or that there is none, may call this.
    pub fn choose(&self, at: usize) -> bool {
        self.hosts.choose(at)
    }

    /// The host was found not to be the primary. Returns whether it was in use.
    pub fn reject(&self, at: usize) -> bool {
        self.hosts.reject(at)
    }

    /// The host does not answer: it is tried behind the others for a while.
    pub fn note_silent(&self, at: usize) {
        self.hosts.note_silent(at);
    }

    /// Leaves a host out of every choice, or no longer. Open connections stay. Returns whether it was in use.
    pub fn leave_out(&self, at: usize, is_out: bool) -> bool {
        self.hosts.leave_out(at, is_out)
    }

    /// Returns once the host to use is known, or with an error after the connect time-out.
    pub(super) async fn wait_for_choice(&self) -> Result<usize, ConnectError> {
        self.hosts.wait(self.connect_timeout).await.ok_or(ConnectError::NoPrimary)
    }

    /// A change stream begins: only it chooses the host from now on.
    pub fn begin_stream(&self) {
        self.hosts.begin_stream();
    }

    /// Does this work with the host in use; None: another one is in use meanwhile, or none.
    pub async fn while_chosen<T>(&self, at: usize, work: impl Future<Output = T>) -> Option<T> {
        self.hosts.while_chosen(at, work).await
    }

    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(super) fn host(&self, at: usize) -> Option<&Host> {
        self.hosts.list().get(at)
    }

    /// The time limit of a connection.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The same server with another account.
    #[must_use]
    pub fn with_user(&self, user: &str, password: Secret, database: Option<&str>) -> Self {
        Self { user: user.to_owned(), password, database: database.map(str::to_owned), ..self.clone() }
    }

    /// Whether a connection to this host is encrypted if the server supports it.
    pub(super) fn accepts_tls(&self, at: usize) -> bool {
        let is_incompatible = || self.host(at).is_some_and(|host| host.tls_incompatible.load(Ordering::Relaxed));
        self.requires_tls() || self.mode != SslMode::Disable && !is_incompatible()
    }

    /// Whether a TCP connection must be encrypted.
    pub fn requires_tls(&self) -> bool {
        self.mode >= SslMode::Require
    }

    /// The throttle of new client sessions.
    pub(super) fn connect_throttle(&self) -> &ConnectThrottle {
        &self.connect_throttle
    }

    pub(super) fn set_tls_settled(&self, at: usize) {
        if let Some(host) = self.host(at) {
            host.tls_settled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it is known of the host in use if connections are encrypted: `ssl-mode` leaves no choice, or a connection was made. A session cannot
    /// change to plain text later, since its client has seen the server's handshake of this connection.
    pub fn tls_is_settled(&self) -> bool {
        let Some(at) = self.chosen() else { return false };
        let Some(host) = self.host(at) else { return true };
        let choice = matches!(host.address, Address::Tcp { .. }) && self.accepts_tls(at) && !self.requires_tls();
        !choice || host.tls_settled.load(Ordering::Relaxed)
    }

    pub(super) fn set_tls_incompatible(&self, at: usize) {
        if let Some(host) = self.host(at) {
            host.tls_incompatible.store(true, Ordering::Relaxed);
        }
        self.set_tls_settled(at);
    }

    pub(super) fn tls(&self) -> &UpstreamTls {
        &self.tls
    }
}

fn strip_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("mysql://").or_else(|| text.strip_prefix("mariadb://"))
}

fn tcp_address(text: &str) -> Result<Address, UpstreamError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (host, after) = inner.split_once(']').ok_or(UpstreamError::Bracket)?;
            let port = if after.is_empty() { "" } else { after.strip_prefix(':').ok_or(UpstreamError::Bracket)? };
            (host, port)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port = match port {
        "" => PORT_DEFAULT,
        digits => digits.parse().ok().filter(|port| *port != 0).ok_or(UpstreamError::Port)?,
    };
    let host = decode(host, "host")?;
    Ok(Address::Tcp { host: if host.is_empty() { "localhost".to_owned() } else { host }, port })
}

impl Options {
    fn parse(query: &str) -> Result<Self, UpstreamError> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(UpstreamError::Query)?;
            let value = decode(value, "options")?;
            let path = || Some(PathBuf::from(&value)).filter(|path| !path.as_os_str().is_empty());
            match name.to_ascii_lowercase().replace('_', "-").as_str() {
                "ssl-mode" => options.mode = Some(ssl_mode(&value)?),
                "ssl-ca" => options.ca = path(),
                "ssl-cert" => options.cert = path(),
                "ssl-key" => options.key = path(),
                "socket" => options.socket = path(),
                "connect-timeout" => options.connect_timeout = Some(seconds(&value)?),
                other => return Err(UpstreamError::Option(showable(other))),
            }
        }
        Ok(options)
    }

    fn tls(&self) -> Result<(SslMode, TlsOptions), UpstreamError> {
        // As in the `mysql` program: an authority without a mode is used to verify.
        let default = if self.ca.is_some() { SslMode::VerifyCa } else { SslMode::Prefer };
        let mode = self.mode.unwrap_or(default);
        if self.cert.is_some() != self.key.is_some() {
            return Err(UpstreamError::HalfCertificate);
        }
        let root_cert = match (&self.ca, mode) {
            (Some(path), _) => Some(RootCert::File(path.clone())),
            (None, SslMode::VerifyCa) => return Err(UpstreamError::NoAuthority),
            (None, SslMode::VerifyFull) => Some(RootCert::System),
            (None, _) => None,
        };
        let (cert, key) = (self.cert.clone(), self.key.clone());
        Ok((mode, TlsOptions { mode, root_cert, cert, key, ..TlsOptions::default() }))
    }
}

fn ssl_mode(value: &str) -> Result<SslMode, UpstreamError> {
    Ok(match value.to_ascii_lowercase().replace('_', "-").as_str() {
        "disabled" => SslMode::Disable,
        "preferred" => SslMode::Prefer,
        "required" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-identity" => SslMode::VerifyFull,
        _ => return Err(UpstreamError::SslMode),
    })
}

fn seconds(value: &str) -> Result<Duration, UpstreamError> {
    let seconds = value.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
    seconds.map(Duration::from_secs).ok_or(UpstreamError::ConnectTimeout)
}

/// A text that has the form of an option's name; anything else may be a password.
fn showable(name: &str) -> String {
    let is_name = name.len() <= 32 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    if is_name { name.to_owned() } else { "…".to_owned() }
}

/// Resolves `%XX`. Unlike in web forms, `+` is itself.
fn decode(part: &str, what: &'static str) -> Result<String, UpstreamError> {
    let mut bytes = part.bytes();
    let mut decoded = Vec::with_capacity(part.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = digit().zip(digit()).ok_or(UpstreamError::Percent(what))?;
        let byte = u8::try_from(high * 16 + low).ok().filter(|byte| *byte != 0);
        decoded.push(byte.ok_or(UpstreamError::Percent(what))?);
    }
    String::from_utf8(decoded).map_err(|_| UpstreamError::Percent(what))
}

/// Addresses and database, without user and password.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.database {
            Some(database) => write!(f, "{}/{database}", self.hosts),
            None => self.hosts.fmt(f),
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Upstream");
        shown.field("hosts", &self.hosts.to_string()).field("user", &self.user).field("database", &self.database);
        shown.field("mode", &self.mode).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
