//! The PostgreSQL databases of the entry `*`: opened at first use, closed when idle.
//!
//! A name proves nothing, so nothing is opened for a name. A client logs in by the state of the entry itself, which has no change stream. Once the
//! server has accepted the session, the database exists: it is opened, with a stream and a cache of its own, if the bound permits. The session does not
//! wait for the stream; its statements pass until it is established. Beyond the bound the session stays one of the entry, and all its statements pass
//! ([`Reason::TooManyDatabases`]); as those do whose database could not be opened ([`Reason::DatabaseNotOpened`]).
//!
//! A database that has such sessions is tried again every few seconds. When it is opened they end, each once it is at rest, as when a reload gives
//! their database an entry. Its stream starts when all of them have ended: their writes would not wait for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use freshet_types::Reason;

use crate::postgres::Pg;

/// How often idle databases are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A database that has sessions but could not be opened, or was one too many, is tried again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// `NAMEDATALEN` of PostgreSQL without the end of the string.
const NAME_BYTES_MAX: usize = 63;

/// These stay closed: what Freshet creates in a template would be in each new database, and a template that has sessions cannot be copied. A database
/// named `*` would have the name of the entry.
const NEVER_OPENED: [&str; 3] = ["template0", "template1", "*"];

/// Opens and closes databases.
pub trait Opener: fmt::Debug + Send + Sync {
    /// Opens the database of this name at the server, and starts its stream, after these sessions have ended. None: it cannot be opened; the log says
    /// why.
    fn open(&self, name: &str, earlier: Option<Earlier>) -> Option<Arc<Pg>>;
    /// Ends its stream. It has no session.
    fn close(&self, database: &Arc<Pg>);
}

/// What became of a database that has sessions.
#[derive(Clone, Debug)]
enum Opened {
    As(Arc<Pg>),
    /// The bound is reached.
    TooMany,
    Failed,
}

/// A database that has sessions, or that is open.
#[derive(Debug)]
struct InUse {
    opened: Opened,
    sessions: AtomicUsize,
    /// Open: since its last session ended. Not open: since it was tried, or refused.
    since: Mutex<Instant>,
    /// Its sessions from before it was opened.
    earlier: Option<Earlier>,
}

impl InUse {
    fn new(opened: Opened, earlier: Option<Earlier>) -> Arc<Self> {
        Arc::new(Self { opened, sessions: AtomicUsize::new(0), since: Mutex::new(Instant::now()), earlier })
    }

    fn is_open(&self) -> bool {
        matches!(self.opened, Opened::As(_))
    }

    fn has_sessions(&self) -> bool {
        self.sessions.load(SeqCst) > 0
    }

    fn since(&self) -> MutexGuard<'_, Instant> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sessions of a database that began before it was opened.
#[derive(Clone, Debug)]
pub struct Earlier(Arc<InUse>);

impl Earlier {
    /// Whether all of them have ended.
    pub fn have_ended(&self) -> bool {
        !self.0.has_sessions()
    }
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

    /// The place of a session that the server has accepted in the database of this name; None: the database is never opened.
    pub(crate) fn enter(self: &Arc<Self>, name: &str) -> Option<Tenancy> {
        // The server cuts a name, too. What was no UTF-8 is not known any more.
        let name = if name.len() > NAME_BYTES_MAX { name.get(..NAME_BYTES_MAX)? } else { name };
        if name.contains(char::REPLACEMENT_CHARACTER) || NEVER_OPENED.contains(&name) {
            return None;
        }
        let mut all = self.in_use();
        let in_use = if let Some(in_use) = all.get(name) {
            in_use.clone()
        } else {
            let opened = if self.has_place(&all) { self.open(name, None) } else { Opened::TooMany };
            let in_use = InUse::new(opened, None);
            all.insert(name.to_owned(), in_use.clone());
            in_use
        };
        in_use.sessions.fetch_add(1, SeqCst);
        Some(Tenancy { of: self.clone(), name: name.to_owned(), in_use })
    }

    /// Whether one more may be open.
    fn has_place(&self, all: &BTreeMap<String, Arc<InUse>>) -> bool {
        all.values().filter(|in_use| in_use.is_open()).count() < self.databases_max
    }

    fn open(&self, name: &str, earlier: Option<Earlier>) -> Opened {
        let opened = self.opener.get().and_then(|opener| opener.open(name, earlier));
        opened.map_or(Opened::Failed, Opened::As)
    }

    /// The database is one of the configuration by now: it is not opened here any more while it has sessions.
    pub fn forget(&self, database: &Arc<Pg>) {
        self.in_use()
            .retain(|_, in_use| !matches!(&in_use.opened, Opened::As(opened) if Arc::ptr_eq(opened, database)));
    }

    /// Closes databases that are idle, and opens those that had to wait; never returns.
    pub async fn look_after(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY.min(self.idle_timeout)).await;
            self.close_idle();
            self.open_waiting();
        }
    }

    fn close_idle(&self) {
        let mut idle = Vec::new();
        self.in_use().retain(|_, in_use| {
            let waits = in_use.earlier.as_ref().is_some_and(|earlier| !earlier.have_ended());
            let is_used = in_use.has_sessions() || waits || in_use.since().elapsed() < self.idle_timeout;
            if let Opened::As(database) = &in_use.opened
                && !is_used
            {
                idle.push(database.clone());
            }
            is_used
        });
        if let Some(opener) = self.opener.get() {
            for database in &idle {
                opener.close(database);
            }
        }
    }

    /// Opens a database that has sessions but is not open, if there is a place.
    fn open_waiting(&self) {
        let mut all = self.in_use();
        if !self.has_place(&all) {
            return;
        }
        let waits =
            |in_use: &InUse| !in_use.is_open() && in_use.has_sessions() && in_use.since().elapsed() > AGAIN_AFTER;
        let waiting = all.iter().find(|(_, in_use)| waits(in_use));
        let Some((name, before)) = waiting.map(|(name, in_use)| (name.clone(), in_use.clone())) else { return };
        let earlier = Earlier(before.clone());
        match self.open(&name, Some(earlier.clone())) {
            Opened::As(database) => _ = all.insert(name, InUse::new(Opened::As(database), Some(earlier))),
            Opened::TooMany | Opened::Failed => *before.since() = Instant::now(),
        }
    }
}

impl Tenancy {
    /// The state of the database; None: it is not open.
    pub(crate) fn opened(&self) -> Option<&Arc<Pg>> {
        match &self.in_use.opened {
            Opened::As(database) => Some(database),
            Opened::TooMany | Opened::Failed => None,
        }
    }

    /// The name of the database, as the server has read it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Why its statements pass as long as there is no change stream.
    pub(crate) fn kept_out(&self) -> Reason {
        match self.in_use.opened {
            Opened::As(_) => Reason::NoStream,
            Opened::TooMany => Reason::TooManyDatabases,
            Opened::Failed => Reason::DatabaseNotOpened,
        }
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let mut all = self.of.in_use();
        if self.in_use.is_open() {
            *self.in_use.since() = Instant::now();
        }
        let was_last = self.in_use.sessions.fetch_sub(1, SeqCst) == 1;
        let is_listed = all.get(&self.name).is_some_and(|listed| Arc::ptr_eq(listed, &self.in_use));
        if was_last && !self.in_use.is_open() && is_listed {
            all.remove(&self.name);
        }
    }
}
