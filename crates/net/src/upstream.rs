//! The upstream: its hosts, how the leg to them is encrypted, and which of them is in use.
//!
//! With several hosts the service connections choose: they try the hosts in the order given, as libpq does, and take
//! the first that is what `target_session_attrs` asks for. Sessions follow that choice, since the changes that keep
//! the cache true come from there; a session on another server would only pass.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::conninfo::{Conninfo, ConninfoError, Environment, Host, TargetSessionAttrs};
use crate::tls::{TlsError, UpstreamTls};

/// An upstream of one or several hosts.
pub struct Upstream {
    conninfo: Conninfo,
    tls: UpstreamTls,
    chosen: AtomicUsize,
}

/// Why an upstream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The connection string.
    #[error("{0}")]
    Conninfo(#[from] ConninfoError),
    /// A file that it names.
    #[error("{0}")]
    Tls(#[from] TlsError),
}

impl Upstream {
    /// Understands a connection string and this process's environment.
    pub fn parse(text: &str) -> Result<Self, UpstreamError> {
        Ok(Self::new(Conninfo::parse(text, &Environment::process())?)?)
    }

    /// Reads the certificates that the connection string names.
    pub fn new(conninfo: Conninfo) -> Result<Self, TlsError> {
        let tls = UpstreamTls::new(&conninfo.tls)?;
        Ok(Self { conninfo, tls, chosen: AtomicUsize::new(0) })
    }

    /// The connection string's parts.
    pub fn conninfo(&self) -> &Conninfo {
        &self.conninfo
    }

    pub(crate) fn tls(&self) -> &UpstreamTls {
        &self.tls
    }

    pub(crate) fn host(&self, at: usize) -> Option<&Host> {
        self.conninfo.hosts.get(at)
    }

    /// A service connection found this host fit.
    pub(crate) fn choose(&self, at: usize) {
        self.chosen.store(at, Relaxed);
    }

    /// The hosts that a session may use: the chosen one, then any other if any will do.
    pub(crate) fn session_hosts(&self) -> impl Iterator<Item = usize> {
        let chosen = self.chosen.load(Relaxed);
        let any = self.conninfo.target_session_attrs == TargetSessionAttrs::Any;
        let others = if any { self.conninfo.hosts.len() } else { 0 };
        std::iter::once(chosen).chain((0..others).filter(move |at| *at != chosen))
    }
}

/// Hosts and database, without user and password.
impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.conninfo.fmt(f)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("conninfo", &self.conninfo).field("chosen", &self.chosen).finish_non_exhaustive()
    }
}
