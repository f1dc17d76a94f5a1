//! The state that all sessions and services of one upstream share.

use arc_swap::{ArcSwap, ArcSwapOption};
use freshet_cache::admission::{self, Miss};
use freshet_cache::{Cache, Entry, Keyed};
use freshet_types::{Catalog, CatalogVersion, Change, ChangeSet, Dialect, Nanos, Reason, TableId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use tokio::sync::Notify;

use crate::metrics::Metrics;
use crate::pool::{PoolFigures, PoolSettings};
use crate::rules::RulesInForce;
use crate::server::console::Console;
use crate::server::process_memory::{MemoryBounds, ProcessMemory};
use crate::server::query_log::QueryLog;
use crate::server::scheduling_delay::SchedulingDelay;
use crate::server::stop_request::StopRequest;
use crate::server::switches::Switches;
use crate::server::traces::Traces;
use crate::service::cool_off::CoolOff;
use crate::service::refreshes::Refreshes;
use crate::service::tasks::Tasks;
use crate::session::body::Body;
use crate::session::context::Contexts;
use crate::session::moving::Latest;
use crate::session::verify::Verifier;
use crate::session::wait_queue::Waits;
use crate::statement::registry::{NormalizedQuery, Registry};

pub(crate) mod key_queries;
mod log_end;
mod log_lag;
mod observers;
mod operators_rules;
pub(crate) mod servers;

pub use crate::clock::Clock;
pub use key_queries::KeyQueries;
use log_end::LogEndProbes;
pub use log_lag::LogLag;
pub use servers::{Leader, ReadFigures, Servers};

/// The server and the database that a connection leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// `system_identifier` of `pg_control_system()`.
    pub system_id: String,
    /// `extract(epoch from pg_postmaster_start_time())::text`.
    pub postmaster_start: String,
    /// The database the change stream decodes.
    pub database: String,
}

impl ServerIdentity {
    /// Whether it is the same server, since its last start, whatever the database.
    pub(crate) fn is_same_process(&self, other: &Self) -> bool {
        (&self.system_id, &self.postmaster_start) == (&other.system_id, &other.postmaster_start)
    }
}

/// What the operator chose. What may change while Freshet runs is behind a lock or an atomic.
#[derive(Debug)]
pub struct Settings {
    /// The upstream for messages: hosts and database, without user and password.
    pub upstream: String,
    /// The upstream's dialect.
    pub dialect: Dialect,
    /// The memory limit of the process.
    pub memory: Arc<ProcessMemory>,
    /// Requests for the end of the process.
    pub stop: Arc<StopRequest>,
    /// The slow query log of the process.
    pub query_log: Arc<QueryLog>,
    /// The spans of statements of the process.
    pub traces: Arc<Traces>,
    /// Users who may see other users' statements.
    pub admin_users: RwLock<Vec<String>>,
    /// PostgreSQL: users who may read the statistics of the console.
    pub stats_users: RwLock<Vec<String>>,
    /// Longest commit wait: the acknowledgement of a write waits this long for the change stream to deliver it.
    pub commit_wait_max: AtomicU64,
    /// The share of time that refreshing may use; 0: no refreshing.
    pub refresh_share: f64,
    /// The share of hits that is asked of the database too, between 0 and 1, at the start.
    pub verify: f64,
    /// PostgreSQL: functions in SQL and PL/pgSQL that are declared immutable are trusted.
    pub trust_immutable: bool,
    /// How sessions share server connections.
    pub pool: PoolSettings,
    /// Test switches.
    pub faults: Faults,
}

/// Test switches that each disable one rule of the protocol; see [`freshet_cache::Faults`] for those of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one per rule, independent of each other")]
pub struct Faults {
    /// Tables count as published as soon as they are in the publication.
    pub skip_publication_barrier: bool,
    /// No commit waits.
    pub skip_commit_wait: bool,
    /// Writes do not wait if the tables that they touch are known, whatever depends on these tables.
    pub skip_all_commit_waits: bool,
    /// Transactions read from the cache what they have written themselves.
    pub hits_after_write: bool,
    /// The flushed position is taken for the log end.
    pub flushed_end: bool,
    /// The last proof is used for transactions, whose snapshot may be older.
    pub proves_in_blocks: bool,
    /// Not a rule: one log-end probe serves all waiters, even if they are few.
    pub shares_probes: bool,
    /// Not a rule: the log is not flushed, nor its end read, by timers.
    pub no_timed_flushes: bool,
    /// Not a rule: dropped event triggers are created again at the next check.
    pub triggers_at_once: bool,
    /// The catalogue is checked only on request.
    pub no_timed_looks: bool,
}

/// The shared state.
#[derive(Debug)]
pub struct Shared {
    /// The operator's settings.
    pub settings: Settings,
    /// The configuration, for SHOW CONFIG and RELOAD.
    pub console: OnceLock<Arc<dyn Console>>,
    /// The cache.
    pub cache: Arc<Cache<Body>>,
    /// The clock that the cache's times are read from.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    /// Of server connections that sessions share.
    pub pool_figures: Arc<PoolFigures>,
    /// Delays of threads that wait for a processor.
    pub scheduling_delay: SchedulingDelay,
    /// Hits that are compared with the database.
    pub verifier: Verifier,
    /// Sessions that wait for the stream.
    pub waits: Arc<Waits>,
    /// The switches that can be changed at run time.
    pub switches: Switches,
    /// The services of this database.
    pub tasks: Tasks,
    /// The results to refresh.
    pub refreshes: Refreshes,
    /// The results that wait for their join keys.
    pub key_queries: KeyQueries,
    pub(crate) registry: Registry,
    pub(crate) latest: Latest,
    pub(crate) contexts: Contexts,
    pub(crate) rules: RulesInForce,
    pub(crate) catalog: ArcSwap<Catalog>,
    /// The version of `catalog`, for the hit path.
    catalog_version: AtomicU64,
    /// The server of the change stream; None without a stream.
    identity: ArcSwapOption<ServerIdentity>,
    /// Counts the changes of `identity`.
    identities: AtomicU64,
    /// When [`Self::warn_rarely`] last logged a message.
    warned_at: AtomicU64,
    /// Why there is no stream, in words.
    stream_trouble: Mutex<Option<String>>,
    /// Notified to request the stream's position.
    pub keepalive: Notify,
    /// Notified to establish a new change stream.
    pub restart_stream: Notify,
    /// How far the change stream is behind.
    pub log_lag: LogLag,
    /// The servers of the upstream.
    pub servers: Servers,
    /// The log end, for waiters.
    probes: LogEndProbes,
    /// Sessions that have sent a statement that may define anything and is not yet acknowledged.
    pub(crate) defining: Arc<AtomicUsize>,
    /// PostgreSQL: sessions that have sent definitions that are not in the stream, while these may be visible but not yet found.
    pub(crate) redefining: Arc<AtomicUsize>,
    /// PostgreSQL: running statements that may write, or that end a transaction that did. Their commits flush the log.
    pub(crate) writing: Arc<AtomicUsize>,
    /// Bytes of entries added since the memory was last measured because of them.
    pub(crate) filled: AtomicU64,
    /// Of the part of the memory limit that this database has.
    pub(crate) memory_bounds: MemoryBounds,
    /// Notified when commits wait for a proof.
    pub(crate) proof_wanted: Notify,
    /// See [`Self::naming`].
    naming: Mutex<()>,
    /// Notified to read the catalogue before its time.
    pub(crate) catalog_wanted: Notify,
    /// PostgreSQL: until this time look-ups do not cause a reading of the catalogue.
    pub(crate) catalog_rests: AtomicU64,
    /// Tables in cool-off: [`Reason::InCoolOff`].
    pub(crate) cool_off: ArcSwap<CoolOff>,
    /// Tables that the server refused to publish, with its error.
    refused: Mutex<HashMap<TableId, String>>,
}

impl Shared {
    /// The state for one upstream.
    pub fn new(settings: Settings, cache: Arc<Cache<Body>>, clock: Clock, workers: usize) -> Self {
        Self {
            refreshes: Refreshes::new(settings.refresh_share > 0.0),
            verifier: Verifier::new(settings.verify, settings.dialect),
            registry: Registry::new(cache.limits().memory_bytes, settings.dialect).trusting(settings.trust_immutable),
            latest: Latest::new(cache.limits().memory_bytes),
            rules: RulesInForce::new(settings.dialect),
            log_lag: LogLag::new(settings.dialect),
            servers: Servers::default(),
            settings,
            console: OnceLock::new(),
            clock,
            metrics: Metrics::new(workers),
            pool_figures: Arc::default(),
            scheduling_delay: SchedulingDelay::default(),
            waits: Arc::default(),
            switches: Switches::default(),
            tasks: Tasks::new(),
            key_queries: KeyQueries::default(),
            contexts: Contexts::default(),
            cache,
            catalog: ArcSwap::from_pointee(Catalog::default()),
            catalog_version: AtomicU64::new(0),
            identity: ArcSwapOption::empty(),
            identities: AtomicU64::new(0),
            warned_at: AtomicU64::new(0),
            stream_trouble: Mutex::default(),
            keepalive: Notify::new(),
            restart_stream: Notify::new(),
            probes: LogEndProbes::default(),
            defining: Arc::default(),
            redefining: Arc::default(),
            writing: Arc::default(),
            filled: AtomicU64::new(0),
            memory_bounds: MemoryBounds::default(),
            proof_wanted: Notify::new(),
            naming: Mutex::default(),
            catalog_wanted: Notify::new(),
            catalog_rests: AtomicU64::new(0),
            cool_off: ArcSwap::default(),
            refused: Mutex::default(),
        }
    }

    /// The stream is established and comes from this server.
    ///
    /// Called before the cache begins the new epoch, so that a fill of that epoch finds the new identity.
    pub fn stream_connected(&self, identity: ServerIdentity) {
        self.identity.store(Some(Arc::new(identity)));
        self.identities.fetch_add(1, SeqCst);
        *self.stream_trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.forget_flush();
        self.waits.interrupt();
        self.want_log_end();
    }

    /// There is no stream, with the reason.
    pub fn stream_lost(&self, why: &str) {
        self.log_lag.forget();
        self.identity.store(None);
        self.identities.fetch_add(1, SeqCst);
        self.waits.interrupt();
        *self.stream_trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    /// Err: caching is suspended for the statement.
    pub(crate) fn passes_suspended(&self, query: &NormalizedQuery, miss: Miss<'_>) -> Result<(), Reason> {
        let figures = &query.figures;
        let passes =
            admission::passes_suspended(&self.cache, &figures.worth, miss, || (figures.hits(), self.clock.now()));
        if passes { Err(Reason::NotAdmitted) } else { Ok(()) }
    }

    /// Whether the answer to a miss should be cached.
    pub(crate) fn admits(&self, query: &NormalizedQuery, miss: Miss<'_>) -> Result<(), Reason> {
        let figures = &query.figures;
        let so_far = || (figures.hits(), self.clock.now());
        let admits = admission::admits(&self.cache, &figures.worth, miss, so_far);
        if admits { Ok(()) } else { Err(Reason::NotAdmitted) }
    }

    /// The entry to compare the database's answer with: see [`crate::session::verify`].
    pub(crate) fn expected(&self, key: &[u8]) -> Option<Arc<Entry<Body>>> {
        self.verifier.is_on().then(|| self.cache.peek(key)).flatten()
    }

    /// A commit was delivered that waits for a proof.
    pub fn commit_delivered(&self) {
        self.proof_wanted.notify_one();
    }

    /// Queues entries for refreshing that a change invalidated while they were in use.
    pub fn refresh(&self, invalidated: Vec<Keyed<Body>>) {
        if !self.switches.bypass() {
            let now = self.clock.now();
            for (key, entry) in invalidated {
                self.refreshes.add(key, &entry.payload, now);
            }
        }
    }

    /// The server of the stream.
    pub(crate) fn identity(&self) -> Option<Arc<ServerIdentity>> {
        self.identity.load_full()
    }

    /// Whether an idle connection to this server leads to another one than that of the stream: behind a failover the old primary may live on.
    /// `compared`: what the session found that had the connection last, and under which number of changes of the stream's server.
    pub(crate) fn leads_elsewhere(
        &self,
        server: Option<&ServerIdentity>,
        compared: Option<&(u64, Result<(), Reason>)>,
    ) -> bool {
        let is_compared = compared.is_some_and(|(with, is_same)| *with == self.identities() && is_same.is_ok());
        let differs = |own: &ServerIdentity| self.identity().is_some_and(|stream| !own.is_same_process(&stream));
        !is_compared && server.is_some_and(differs)
    }

    /// Number of changes of the server. Read it before [`Self::identity`]: what was seen then is valid as long as the number is the same.
    pub(crate) fn identities(&self) -> u64 {
        self.identities.load(SeqCst)
    }

    /// The version of the catalogue in use.
    pub(crate) fn catalog_version(&self) -> CatalogVersion {
        CatalogVersion(self.catalog_version.load(SeqCst))
    }

    /// Uses a new catalogue. Sessions read their context again.
    pub(crate) fn use_catalog(&self, catalog: impl Into<Arc<Catalog>>) {
        let catalog = catalog.into();
        let version = catalog.version.0;
        self.catalog.store(catalog);
        self.catalog_version.store(version, SeqCst);
    }

    /// Held while one catalogue replaces another in the cache, and while names are looked up for a redefinition that the cache then applies.
    pub fn naming(&self) -> MutexGuard<'_, ()> {
        self.naming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the relations that a commit redefined those of the same names, in any schema: after a relation was created, renamed or dropped, its name
    /// may mean another one. If the name is also an enum's, a type may be another one.
    pub fn add_namesakes(&self, changes: &mut ChangeSet) {
        let ChangeSet::Rows(rows) = &*changes else { return };
        let catalog = self.catalog.load();
        let names =
            rows.iter().filter_map(|row| if let Change::Redefined { name, .. } = row { Some(name) } else { None });
        if names.clone().any(|name| catalog.enums.contains_key(&**name)) {
            *changes = ChangeSet::Everything;
            return;
        }
        let known: HashSet<TableId> = rows.iter().filter(|row| row.is_whole()).map(Change::table).collect();
        let named: HashSet<TableId> = names.flat_map(|name| catalog.named(name)).collect();
        for table in named.difference(&known) {
            changes.push(Change::AnyRow(*table));
        }
    }

    /// The catalogue in use is out of date: it is read again at once.
    pub fn want_catalog(&self) {
        self.catalog_wanted.notify_one();
    }

    /// A look-up waits for a reading of the catalogue. Clients cause as many as they like, so the interval is bounded.
    pub(crate) fn want_catalog_rarely(&self) {
        if self.clock.now() >= self.catalog_rests.load(Relaxed) {
            self.want_catalog();
        }
    }

    /// Logs a message that clients may cause as often as they like, at most once a second.
    pub(crate) fn warn_rarely(&self, text: impl FnOnce() -> String) {
        const SECOND: Nanos = 1_000_000_000;
        let now = self.clock.now();
        let last = self.warned_at.load(Relaxed);
        if (last == 0 || now >= last + SECOND) && self.warned_at.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
            tracing::warn!("{}", text());
        }
    }

    /// Why nothing is served from the cache, in words; None if the cache is active.
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

    /// The server refused to publish the table.
    pub(crate) fn note_refusal(&self, table: TableId, why: String) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(table, why);
    }

    /// The number of tables in cool-off, since their changes cost more than hits saved.
    pub fn cool_off_count(&self) -> usize {
        self.cool_off.load().len()
    }

    /// The table may be tried again.
    pub(crate) fn forget_refusal(&self, table: TableId) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&table);
    }

    /// Why the table cannot be published, if the server refused it.
    pub(crate) fn refusal(&self, table: TableId) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get(&table).cloned()
    }
}
