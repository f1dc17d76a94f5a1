//! PostgreSQL: logins, sessions and services, and what only they share.

mod console;
pub(crate) mod login;
mod named;
mod on_demand;
pub(crate) mod pooling;
mod question;
mod reloads;
pub mod service;
pub(crate) mod session;

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshet_net::Upstream;
use freshet_types::{CommitId, Nanos, TableId, Visible};
use freshet_wire::postgres::startup::Replication;
use tokio::sync::{Notify, oneshot};

use crate::pool::PoolMode;
use crate::postgres::console::Averages;
use crate::postgres::login::Access;
use crate::postgres::named::Named;
pub use crate::postgres::on_demand::{Earlier, OnDemand, Opener};
use crate::postgres::pooling::Pooling;
use crate::postgres::reloads::Reloads;
use crate::server::access::{AccessError, AccessRules, AccessSettings};
use crate::server::pauses::Pauses;
use crate::server::sessions::{Link, Sessions};
use crate::shared::{ServerIdentity, Shared};

/// The operator's settings for PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgSettings {
    /// The upstream, and the account of the service connections.
    pub upstream: Arc<Upstream>,
    /// Access control.
    pub access: AccessSettings,
    /// Of the entry `*`: it has no stream, but opens databases.
    pub on_demand: Option<Arc<OnDemand>>,
    /// Name of the publication that Freshet adds tables to.
    pub publication: String,
    /// An administrator manages the publication: Freshet neither adds nor removes tables.
    pub prepared: bool,
    /// A query for the state of the event triggers that put DDL into the change stream; no row if they do not exist.
    pub triggers_sql: &'static str,
    /// A query that returns a row if one of them is missing, and the statement that creates them, for a superuser; None: Freshet must not create
    /// them.
    pub triggers_again: Option<(&'static str, String)>,
}

/// The state that all sessions and services of a PostgreSQL upstream share, in addition to that of any upstream.
#[derive(Debug)]
pub struct Pg {
    base: Arc<Shared>,
    /// The operator's settings.
    pub own: PgSettings,
    pub(crate) access: Access,
    pub(crate) reloads: Reloads,
    pub(crate) named: Named,
    pub(crate) sessions: Sessions,
    pub(crate) averages: Averages,
    pub(crate) pooling: Pooling,
    /// The server's major version, as the last service connection saw it; 0: unknown.
    server_version: AtomicU32,
    wal_segment_bytes: AtomicU64,
    /// Notified when tables must be published.
    pub(crate) publication_wanted: Notify,
    wanted: Mutex<HashSet<TableId>>,
    /// Tables that sessions want to have removed from the publication, each with the sender to notify afterwards.
    unwelcome: Mutex<Vec<Unwelcome>>,
    /// Published tables.
    published: Mutex<HashMap<TableId, Published>>,
}

/// A published table.
#[derive(Debug)]
struct Published {
    /// The transaction that wrote the publication's row.
    version: String,
    noted_at: Nanos,
}

/// See [`Pg::take_out`].
pub(crate) type Unwelcome = (Vec<TableId>, oneshot::Sender<()>);

/// Limit of tables that wait for publication.
const WANTED_MAX: usize = 10_000;

impl Deref for Pg {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.base
    }
}

impl Pg {
    /// Reads the files that the settings name.
    pub fn new(
        base: Arc<Shared>,
        own: PgSettings,
        rules: Arc<AccessRules>,
        pauses: Arc<Pauses>,
    ) -> Result<Self, AccessError> {
        let servers = own.upstream.conninfo().hosts.len();
        let pooling = Pooling::new(&base.settings.pool, &base.pool_figures, servers);
        Ok(Self {
            access: Access::new(&own.access, &own.upstream, rules)?,
            own,
            base,
            reloads: Reloads::default(),
            named: Named::default(),
            sessions: Sessions::new(pauses),
            averages: Averages::default(),
            pooling,
            server_version: AtomicU32::new(0),
            wal_segment_bytes: AtomicU64::new(16 << 20),
            publication_wanted: Notify::new(),
            wanted: Mutex::default(),
            unwelcome: Mutex::default(),
            published: Mutex::default(),
        })
    }

    /// How sessions have server connections: those of this user, or of all users without a mode of their own. Freshet must be able to log in again to share
    /// connections.
    pub(crate) fn pool_mode(&self, user: Option<&str>) -> PoolMode {
        let pool = &self.settings.pool;
        if self.own.on_demand.is_some() || !self.access.has_logins() {
            return PoolMode::Session;
        }
        user.map_or(pool.mode, |user| pool.mode_of(user))
    }

    /// Whether the session shares its server connections with others.
    pub(crate) fn shares(&self, link: &Link) -> bool {
        let about = &link.about;
        about.replication == Replication::No && !about.console && self.pool_mode(Some(&about.user)).shares()
    }

    /// Reads certificates and users again. Files that cannot be used are returned, and their previous contents stay in use.
    pub fn reload_access(&self) -> Vec<AccessError> {
        self.access.reload()
    }

    /// The stream is established and comes from this server. See [`Shared::stream_connected`].
    pub fn stream_connected(&self, identity: ServerIdentity, wal_segment_bytes: u64) {
        self.wal_segment_bytes.store(wal_segment_bytes, Relaxed);
        self.base.stream_connected(identity);
        self.publication_wanted.notify_one();
    }

    /// A service connection has reached a server of this major version.
    pub(crate) fn saw_server_version(&self, major: u32) {
        self.server_version.store(major, Relaxed);
    }

    pub(crate) fn server_version(&self) -> u32 {
        self.server_version.load(Relaxed)
    }

    pub(crate) fn wal_segment_bytes(&self) -> u64 {
        self.wal_segment_bytes.load(Relaxed)
    }

    /// Requests that tables be published.
    pub(crate) fn want(&self, tables: &[TableId]) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = wanted.len();
        for table in tables {
            if wanted.len() < WANTED_MAX {
                wanted.insert(*table);
            }
        }
        if wanted.len() > before {
            self.publication_wanted.notify_one();
        }
    }

    /// The tables requested until now.
    pub(crate) fn wanted(&self) -> Vec<TableId> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Withdraws the request for a table (it cannot be published, or was dropped).
    pub(crate) fn unwant(&self, table: TableId) {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).remove(&table);
    }

    /// Requests that tables be removed from the publication for a while; the receiver is notified once this was tried.
    pub(crate) fn take_out(&self, tables: Vec<TableId>) -> oneshot::Receiver<()> {
        let (done, left) = oneshot::channel();
        self.unwelcome.lock().unwrap_or_else(PoisonError::into_inner).push((tables, done));
        self.publication_wanted.notify_one();
        left
    }

    /// Takes the requests for removal.
    pub(crate) fn unwelcome(&self) -> Vec<Unwelcome> {
        std::mem::take(&mut *self.unwelcome.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The publication's name as an SQL literal.
    pub(crate) fn publication_literal(&self) -> String {
        format!("'{}'", self.own.publication.replace('\'', "''"))
    }

    fn published(&self) -> MutexGuard<'_, HashMap<TableId, Published>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These tables are published, with these versions of the publication's rows.
    pub(crate) fn note_published(&self, tables: impl Iterator<Item = (TableId, String)>) {
        let noted_at = self.clock.now();
        self.published().extend(tables.map(|(table, version)| (table, Published { version, noted_at })));
    }

    pub(crate) fn forget_published(&self, tables: &[TableId]) {
        self.published().retain(|table, _| !tables.contains(table));
    }

    /// The tables that were published and are no longer in the publication with the same version; they are forgotten. `now` was requested at
    /// `asked_at`. It may lack tables that came into the publication after the snapshot.
    pub(crate) fn lost_publications(
        &self,
        now: &HashMap<TableId, String>,
        snapshot: &Visible,
        asked_at: Nanos,
    ) -> Vec<TableId> {
        let is_later = |known: &Published| {
            let shown = known.version.parse().is_ok_and(|xid| snapshot.proves(CommitId::Xid(xid)));
            known.noted_at >= asked_at && !shown
        };
        let mut published = self.published();
        let lost: Vec<TableId> = published
            .iter()
            .filter(|(table, known)| now.get(table) != Some(&known.version) && !is_later(known))
            .map(|(table, _)| *table)
            .collect();
        published.retain(|table, _| !lost.contains(table));
        lost
    }
}
