//! What all sessions and services of one upstream share.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use freshet_cache::Cache;
use freshet_model::{Catalog, CatalogVersion, Nanos, TableId};
use freshet_net::Upstream;
use tokio::sync::Notify;

use crate::body::Body;
use crate::context::Contexts;
use crate::login::{Access, AccessError, AccessSettings};
use crate::metrics::Metrics;
use crate::registry::Registry;

/// The process's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock {
    /// Now; at least 1, since 0 means "never".
    pub fn now(&self) -> Nanos {
        Nanos::try_from(self.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX).max(1)
    }
}

/// Which server and database a connection leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// `system_identifier` of `pg_control_system()`.
    pub system_id: String,
    /// `extract(epoch from pg_postmaster_start_time())::text`.
    pub postmaster_start: String,
    /// The database the change stream decodes.
    pub database: String,
}

/// What the operator chose.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The upstream, and the account of the service connections.
    pub upstream: Arc<Upstream>,
    /// Who is let in.
    pub access: AccessSettings,
    /// Name of the publication that Freshet adds tables to.
    pub publication: String,
    /// Users who may see other users' statements.
    pub admin_users: Vec<String>,
    /// Test switch: tables count as covered as soon as they are published.
    pub skip_coverage_barrier: bool,
}

/// Everything shared.
#[derive(Debug)]
pub struct Shared {
    /// The operator's choices.
    pub settings: Settings,
    /// The cache.
    pub cache: Arc<Cache<Body>>,
    /// The clock that the cache's times are read from.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    pub(crate) access: Access,
    /// The server's major version as the last service connection saw it; 0: not seen.
    server_version: AtomicU32,
    pub(crate) registry: Registry,
    pub(crate) contexts: Contexts,
    pub(crate) catalog: ArcSwap<Catalog>,
    /// The version of `catalog`, for the hit path.
    catalog_version: AtomicU64,
    /// Which server sends the change stream; None without one.
    identity: ArcSwapOption<ServerIdentity>,
    wal_segment_bytes: AtomicU64,
    /// When something was last logged by [`Self::warn_rarely`].
    warned_at: AtomicU64,
    /// Why there is no stream, for people.
    stream_trouble: Mutex<Option<String>>,
    /// Rung to have the stream asked for its position.
    pub keepalive: Notify,
    /// Rung to have the change stream set up anew.
    pub restart_stream: Notify,
    /// Rung when a lease reading is wanted before its time.
    reading_wanted: Notify,
    /// A session has bypassed for want of a later position since the last reading.
    sessions_wait: AtomicBool,
    /// Rung when commits wait for proof.
    pub(crate) proof_wanted: Notify,
    /// Rung when tables are to be covered.
    pub(crate) coverage_wanted: Notify,
    wanted: Mutex<HashSet<TableId>>,
    /// Covered tables, with the version of the publication's row for each.
    published: Mutex<HashMap<TableId, String>>,
    /// Tables that the server refused to publish, and its words.
    refused: Mutex<HashMap<TableId, String>>,
}

/// Tables that may wait for coverage at once.
const WANTED_MAX: usize = 10_000;

impl Shared {
    /// For one upstream. Reads the files that the settings name.
    pub fn new(settings: Settings, cache: Arc<Cache<Body>>, clock: Clock, workers: usize) -> Result<Self, AccessError> {
        Ok(Self {
            access: Access::new(&settings.access, &settings.upstream)?,
            server_version: AtomicU32::new(0),
            settings,
            clock,
            metrics: Metrics::new(workers),
            registry: Registry::new(cache.limits().memory_bytes),
            contexts: Contexts::default(),
            cache,
            catalog: ArcSwap::from_pointee(Catalog::default()),
            catalog_version: AtomicU64::new(0),
            identity: ArcSwapOption::empty(),
            wal_segment_bytes: AtomicU64::new(16 << 20),
            warned_at: AtomicU64::new(0),
            stream_trouble: Mutex::default(),
            keepalive: Notify::new(),
            restart_stream: Notify::new(),
            reading_wanted: Notify::new(),
            sessions_wait: AtomicBool::new(false),
            proof_wanted: Notify::new(),
            coverage_wanted: Notify::new(),
            wanted: Mutex::default(),
            published: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    /// Reads certificates and users again. What cannot be used is returned, and stays as it was.
    pub fn reload_access(&self) -> Vec<AccessError> {
        self.access.reload()
    }

    /// A service connection leads to a server of this major version.
    pub(crate) fn saw_server_version(&self, major: u32) {
        self.server_version.store(major, Relaxed);
    }

    pub(crate) fn server_version(&self) -> u32 {
        self.server_version.load(Relaxed)
    }

    /// The stream stands and comes from this server.
    ///
    /// Called before the cache begins the new epoch, so that a fill of that epoch finds the new identity.
    pub fn stream_connected(&self, identity: ServerIdentity, wal_segment_bytes: u64) {
        self.wal_segment_bytes.store(wal_segment_bytes, Relaxed);
        self.identity.store(Some(Arc::new(identity)));
        *self.stream_trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.reading_wanted.notify_one();
        self.coverage_wanted.notify_one();
    }

    /// There is no stream, for this reason.
    pub fn stream_lost(&self, why: &str) {
        self.identity.store(None);
        *self.stream_trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    /// A commit was delivered that waits for proof.
    pub fn commit_delivered(&self) {
        self.proof_wanted.notify_one();
    }

    /// Which server sends the stream.
    pub(crate) fn identity(&self) -> Option<Arc<ServerIdentity>> {
        self.identity.load_full()
    }

    /// The version of the catalogue in use.
    pub(crate) fn catalog_version(&self) -> CatalogVersion {
        CatalogVersion(self.catalog_version.load(SeqCst))
    }

    /// A catalogue was loaded. Sessions ask for their context again.
    pub(crate) fn use_catalog(&self, catalog: Catalog) {
        let version = catalog.version.0;
        self.catalog.store(Arc::new(catalog));
        self.catalog_version.store(version, SeqCst);
    }

    pub(crate) fn wal_segment_bytes(&self) -> u64 {
        self.wal_segment_bytes.load(Relaxed)
    }

    /// Logs what clients may cause as often as they like, once a second at most.
    pub(crate) fn warn_rarely(&self, text: impl FnOnce() -> String) {
        const SECOND: Nanos = 1_000_000_000;
        let now = self.clock.now();
        let last = self.warned_at.load(Relaxed);
        if (last == 0 || now >= last + SECOND) && self.warned_at.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
            tracing::warn!("{}", text());
        }
    }

    /// Why the cache is not serving, in words; None if it is.
    pub fn trouble(&self) -> Option<String> {
        if let Some(why) = self.stream_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Some(why);
        }
        let levels = self.cache.levels(self.clock.now());
        let oldest = match (levels.stream_age, levels.catalog_age) {
            (Some(stream), Some(catalog)) => stream.max(catalog),
            _ => return Some("the change stream is being set up".to_owned()),
        };
        (oldest > self.cache.limits().staleness_max).then(|| "the change stream is late".to_owned())
    }

    /// A session bypasses until the stream has passed a later position.
    pub(crate) fn want_reading(&self) {
        self.sessions_wait.store(true, Relaxed);
        self.reading_wanted.notify_one();
    }

    /// Whether a session has asked so since the last call.
    pub(crate) fn take_waiting_sessions(&self) -> bool {
        self.sessions_wait.swap(false, Relaxed)
    }

    /// Ends when a reading is wanted before its time.
    pub(crate) async fn reading_wanted(&self) {
        self.reading_wanted.notified().await;
    }

    /// Asks for tables to be covered.
    pub(crate) fn want(&self, tables: &[TableId]) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = wanted.len();
        for table in tables {
            if wanted.len() < WANTED_MAX {
                wanted.insert(*table);
            }
        }
        if wanted.len() > before {
            self.coverage_wanted.notify_one();
        }
    }

    /// The tables asked for so far.
    pub(crate) fn wanted(&self) -> Vec<TableId> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// A table is not asked for any more (it cannot be covered, or is gone).
    pub(crate) fn unwant(&self, table: TableId) {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).remove(&table);
    }

    /// The publication's name as an SQL literal.
    pub(crate) fn publication_literal(&self) -> String {
        format!("'{}'", self.settings.publication.replace('\'', "''"))
    }

    fn published(&self) -> MutexGuard<'_, HashMap<TableId, String>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These tables are covered under these versions of the publication's rows.
    pub(crate) fn note_published(&self, tables: impl Iterator<Item = (TableId, String)>) {
        self.published().extend(tables);
    }

    pub(crate) fn is_published(&self, table: TableId) -> bool {
        self.published().contains_key(&table)
    }

    pub(crate) fn forget_published(&self, tables: &[TableId]) {
        self.published().retain(|table, _| !tables.contains(table));
    }

    /// The tables that were covered and are not in the publication as they were; they are forgotten.
    pub(crate) fn lost_publications(&self, now: &HashMap<TableId, String>) -> Vec<TableId> {
        let mut published = self.published();
        let lost: Vec<TableId> = published
            .iter()
            .filter(|(table, version)| now.get(table) != Some(version))
            .map(|(table, _)| *table)
            .collect();
        published.retain(|table, _| !lost.contains(table));
        lost
    }

    /// The server refused to publish the table.
    pub(crate) fn note_refusal(&self, table: TableId, why: String) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(table, why);
    }

    /// The table may be tried again.
    pub(crate) fn forget_refusal(&self, table: TableId) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&table);
    }

    /// Why the table cannot be published, if the server said so.
    pub(crate) fn refusal(&self, table: TableId) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get(&table).cloned()
    }
}
