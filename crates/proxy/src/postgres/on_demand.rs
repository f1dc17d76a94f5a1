//! The PostgreSQL databases of the entry `*`: opened at first use, closed when idle.
//!
//! A name proves nothing, so nothing is opened for a name. A client logs in by the state of the entry itself, which has no change stream. Once the
//! server has accepted the session, the database exists: it is opened, with a stream and a cache of its own, if the bound permits. The session does not
//! wait for the stream; its statements pass until it is established. Beyond the bound the session stays one of the entry, and all its statements pass
//! ([`freshet_types::Reason::TooManyDatabases`]).
//!
//! A database that is used beyond the bound is not opened as long as it has such sessions: their writes would not wait for its stream.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::postgres::Pg;

/// How often idle databases are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// `NAMEDATALEN` of PostgreSQL without the end of the string.
const NAME_BYTES_MAX: usize = 63;

/// These stay closed: what Freshet creates in a template would be in each new database, and a template that has sessions cannot be copied. A database
/// named `*` would have the name of the entry.
const NEVER_OPENED: [&str; 3] = ["template0", "template1", "*"];

/// Opens and closes databases.
pub trait Opener: fmt::Debug + Send + Sync {
    /// Opens the database of this name at the server, and starts its stream; None: it cannot be opened.
    fn open(&self, name: &str) -> Option<Arc<Pg>>;
    /// Ends its stream. It has no session.
    fn close(&self, database: &Arc<Pg>);
}

/// A database that has sessions, or that is open.
#[derive(Debug)]
struct InUse {
    /// None: beyond the bound.
    opened: Option<Arc<Pg>>,
    sessions: AtomicUsize,
    idle_since: Mutex<Instant>,
}

/// The databases of one entry.
#[derive(Debug)]
pub struct OnDemand {
    /// The most databases that are open at once.
    databases_max: usize,
    /// A database without a session is closed after this time.
    idle_timeout: Duration,
    opener: OnceLock<Arc<dyn Opener>>,
    in_use: Mutex<BTreeMap<String, Arc<InUse>>>,
}

/// A session's share in a database. The database stays open as long as there is one.
#[derive(Debug)]
pub(crate) struct Tenancy {
    of: Arc<OnDemand>,
    name: String,
    in_use: Arc<InUse>,
}

impl OnDemand {
    /// With no database open.
    pub fn new(databases_max: usize, idle_timeout: Duration) -> Arc<Self> {
        Arc::new(Self { databases_max, idle_timeout, opener: OnceLock::new(), in_use: Mutex::default() })
    }

    /// From now on databases can be opened.
    pub fn set_opener(&self, opener: Arc<dyn Opener>) {
        // Nothing else sets it.
        let _ = self.opener.set(opener);
    }

    /// Why a session beyond the bound passes, in words.
    pub fn full(&self) -> String {
        format!("max_databases of the entry \"*\" ({}) are open, and this is another one", self.databases_max)
    }

    fn in_use(&self) -> MutexGuard<'_, BTreeMap<String, Arc<InUse>>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state for a session that the server has accepted in the database of this name; None: that of the entry.
    pub(crate) fn enter(self: &Arc<Self>, name: &str) -> Option<(Option<Arc<Pg>>, Tenancy)> {
        // The server cuts a name, too. What was no UTF-8 is not known any more.
        let name = if name.len() > NAME_BYTES_MAX { name.get(..NAME_BYTES_MAX)? } else { name };
        if name.contains(char::REPLACEMENT_CHARACTER) || NEVER_OPENED.contains(&name) {
            return None;
        }
        let mut all = self.in_use();
        let in_use = if let Some(in_use) = all.get(name) {
            in_use.clone()
        } else {
            let open = all.values().filter(|in_use| in_use.opened.is_some()).count();
            let opener = self.opener.get().filter(|_| open < self.databases_max);
            let opened = opener.and_then(|opener| opener.open(name));
            let in_use = InUse { opened, sessions: AtomicUsize::new(0), idle_since: Mutex::new(Instant::now()) };
            let in_use = Arc::new(in_use);
            all.insert(name.to_owned(), in_use.clone());
            in_use
        };
        in_use.sessions.fetch_add(1, SeqCst);
        let tenancy = Tenancy { of: self.clone(), name: name.to_owned(), in_use };
        Some((tenancy.in_use.opened.clone(), tenancy))
    }

    /// The database is one of the configuration by now: it is not opened here any more while it has sessions.
    pub fn forget(&self, database: &Arc<Pg>) {
        self.in_use().retain(|_, in_use| !in_use.opened.as_ref().is_some_and(|opened| Arc::ptr_eq(opened, database)));
    }

    /// Closes databases that are idle; never returns.
    pub async fn close_idle(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY.min(self.idle_timeout)).await;
            let mut idle = Vec::new();
            self.in_use().retain(|_, in_use| {
                let since = *in_use.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
                let is_used = in_use.sessions.load(SeqCst) > 0 || since.elapsed() < self.idle_timeout;
                idle.extend(in_use.opened.clone().filter(|_| !is_used));
                is_used
            });
            if let Some(opener) = self.opener.get() {
                for database in &idle {
                    opener.close(database);
                }
            }
        }
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let mut all = self.of.in_use();
        *self.in_use.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let was_last = self.in_use.sessions.fetch_sub(1, SeqCst) == 1;
        let is_listed = all.get(&self.name).is_some_and(|listed| Arc::ptr_eq(listed, &self.in_use));
        if was_last && self.in_use.opened.is_none() && is_listed {
            all.remove(&self.name);
        }
    }
}
