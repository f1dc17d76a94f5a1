//! The upstream: its hosts, how the leg to them is encrypted, and which of them is in use.
//!
//! With several hosts the service connections choose one. They try the hosts in the given order, as libpq does, and
//! take the first that satisfies `target_session_attrs`. Sessions use the same host, since the changes that keep the
//! cache true come from it. A session on another server would only pass. A host that was found to be the wrong one,
//! such as an old primary, is left out until it is found to be another.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::connect_throttle::ConnectThrottle;
use crate::conninfo::{Conninfo, ConninfoError, Environment, Host, TargetSessionAttrs};
use crate::tls::{TlsError, UpstreamTls};

/// An upstream of one or several hosts.
pub struct Upstream {
    conninfo: Conninfo,
    tls: UpstreamTls,
    /// None until a service connection has found a host that is fit.
    chosen: watch::Sender<Option<usize>>,
    /// Hosts that must not be chosen.
    left_out: Mutex<Vec<usize>>,
    /// Hosts that were ever chosen.
    used: Mutex<Vec<usize>>,
    /// Nothing is chosen yet.
    is_held: watch::Sender<bool>,
    connect_throttle: ConnectThrottle,
}

/// Why an upstream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The connection string.
    #[error(transparent)]
    Conninfo(#[from] ConninfoError),
    /// A file that it names.
    #[error(transparent)]
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
        let (chosen, is_held) = (watch::Sender::new(None), watch::Sender::new(false));
        let (left_out, used, connect_throttle) = Default::default();
        Ok(Self { conninfo, tls, chosen, left_out, used, is_held, connect_throttle })
    }

    /// The connection string's parts.
    pub fn conninfo(&self) -> &Conninfo {
        &self.conninfo
    }

    pub(crate) fn tls(&self) -> &UpstreamTls {
        &self.tls
    }

    /// When a client's session may be opened.
    pub(crate) fn connect_throttle(&self) -> &ConnectThrottle {
        &self.connect_throttle
    }

    pub(crate) fn host(&self, at: usize) -> Option<&Host> {
        self.conninfo.hosts.get(at)
    }

    /// A service connection found this host fit. False: it was left out meanwhile.
    pub(crate) fn choose(&self, at: usize) -> bool {
        let left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if left_out.contains(&at) {
            return false;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.contains(&at) {
            used.push(at);
        }
        drop(used);
        self.chosen.send_replace(Some(at));
        true
    }

    /// Whether this host is or was the chosen one.
    pub fn was_in_use(&self, at: usize) -> bool {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).contains(&at)
    }

    /// Service connections wait with their choice.
    pub fn hold(&self) {
        self.is_held.send_replace(true);
    }

    /// Ends [`Self::hold`].
    pub fn release(&self) {
        self.is_held.send_replace(false);
    }

    /// Returns when the choice is not held.
    pub(crate) async fn released(&self) {
        // The sender lives as long as this value.
        let _ = self.is_held.subscribe().wait_for(|is_held| !is_held).await;
    }

    /// A service connection found that this host does not satisfy the request, or no longer does.
    pub(crate) fn reject(&self, at: usize) {
        self.chosen.send_if_modified(|chosen| {
            let was = *chosen == Some(at);
            if was {
                *chosen = None;
            }
            was
        });
    }

    /// Leaves a host out of every choice, or no longer. Open connections stay.
    pub fn leave_out(&self, at: usize, is_out: bool) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.retain(|other| *other != at);
        if is_out {
            left_out.push(at);
            self.reject(at);
        }
    }

    /// The hosts that are not left out, in the given order.
    pub(crate) fn candidates(&self) -> Vec<usize> {
        let left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        (0..self.conninfo.hosts.len()).filter(|at| !left_out.contains(at)).collect()
    }

    /// The hosts that a session may use: the chosen one, then the others if any host is acceptable. Otherwise the
    /// session waits for the choice, since another host may be a standby. Empty if the wait is too long.
    pub(crate) async fn session_hosts(&self) -> Vec<usize> {
        if self.conninfo.target_session_attrs != TargetSessionAttrs::Any {
            let mut chosen = self.chosen.subscribe();
            let found = timeout(self.conninfo.connect_timeout, chosen.wait_for(Option::is_some)).await;
            return found.ok().and_then(|host| *host.ok()?).into_iter().collect();
        }
        let chosen = self.host_in_use();
        let mut hosts = self.candidates();
        hosts.sort_by_key(|at| *at != chosen);
        hosts
    }

    /// The chosen host, or the first.
    pub fn host_in_use(&self) -> usize {
        self.chosen.borrow().unwrap_or(0)
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
        f.debug_struct("Upstream")
            .field("conninfo", &self.conninfo)
            .field("chosen", &self.chosen)
            .finish_non_exhaustive()
    }
}
