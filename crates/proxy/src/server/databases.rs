//! The databases of this instance: the names that clients may ask for, and the state behind each of them.
//!
//! Each PostgreSQL database has a change stream, a catalogue and a cache of its own, since a stream decodes one database. A server of MySQL or MariaDB
//! has one of each for all its databases. A session is bound to one of them at its login and never asks here again, so nothing of this is on the path
//! of a hit. A database that fails has no effect on the others: they share the workers, the rules of login and the memory limit, and nothing else.
//!
//! A reload adds and removes databases. The list is replaced as a whole. A database that is not in it any more gets no new session.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::mysql::MySql;
use crate::postgres::Pg;
use crate::server::access::{AccessError, AccessRules};
use crate::server::query_log::QueryLog;
use crate::server::sessions::Sessions;
use crate::server::stop_request::StopRequest;
use crate::server::switches::Switches;
use crate::server::traces::Traces;
use crate::shared::Shared;

/// The state of a database, by the family of its server.
#[derive(Clone, Debug)]
pub enum Family {
    /// PostgreSQL's.
    Postgres(Arc<Pg>),
    /// MySQL's or MariaDB's.
    MySql(Arc<MySql>),
}

impl Family {
    /// The state that the sessions of any upstream share.
    pub fn shared(&self) -> &Arc<Shared> {
        match self {
            Self::Postgres(pg) => pg,
            Self::MySql(mysql) => mysql,
        }
    }

    /// The protocol that its clients speak, as the label of metrics.
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "postgresql",
            Self::MySql(_) => "mysql",
        }
    }

    /// Open sessions by their user at login, those with most first. Beyond so many users the others are counted together.
    pub fn sessions_by_user(&self, max: usize) -> Vec<(String, u64)> {
        match self {
            Self::Postgres(pg) => pg.sessions.by_user(max),
            Self::MySql(mysql) => mysql.sessions.by_user(max),
        }
    }

    fn reload_access(&self) -> Vec<AccessError> {
        match self {
            Self::Postgres(pg) => pg.reload_access(),
            Self::MySql(mysql) => mysql.reload_access(),
        }
    }

    /// Ends the sessions that the drain has not ended: PostgreSQL's at once, those of MySQL and MariaDB where no statement runs.
    pub fn close_sessions(&self) {
        self.shared().switches.close();
        if let Self::Postgres(pg) = self {
            pg.sessions.kill_all(None);
        }
    }

    /// Freshet's own user upstream.
    pub fn upstream_user(&self) -> &str {
        match self {
            Self::Postgres(pg) => &pg.own.upstream.conninfo().user,
            Self::MySql(mysql) => mysql.own.upstream.user(),
        }
    }
}

/// One database of the configuration.
#[derive(Clone, Debug)]
pub struct Database {
    /// The name of the entry: for PostgreSQL what clients ask for.
    pub name: String,
    /// Its state.
    pub family: Family,
    /// PostgreSQL: it takes all names that no other entry has. The server gets the name that the client sent.
    pub takes_others: bool,
    /// It was opened by the entry `*`, and clients reach it by that.
    pub on_demand: bool,
    /// The least part of the memory limit that it has, and the most, in bytes.
    pub memory: (u64, u64),
}

impl Database {
    /// Whether it has a change stream: the entry for any database has none, it opens others.
    pub fn has_stream(&self) -> bool {
        match &self.family {
            Family::Postgres(pg) => pg.own.on_demand.is_none(),
            Family::MySql(_) => true,
        }
    }
}

/// The databases of this instance.
#[derive(Debug)]
pub struct Databases {
    all: ArcSwap<Vec<Database>>,
    changing: Mutex<()>,
    pub(crate) rules: Arc<AccessRules>,
    query_log: Arc<QueryLog>,
    traces: Arc<Traces>,
    stop: Arc<StopRequest>,
    /// Its drain is that of all databases.
    switches: Switches,
}

/// The database that a client has named.
pub(crate) struct Routed {
    pub(crate) state: Arc<Pg>,
    /// The name of the database at the server; None: that which the client sent.
    pub(crate) at_server: Option<String>,
}

fn of_postgres(all: &[Database]) -> impl Iterator<Item = (&Database, &Arc<Pg>)> {
    all.iter().filter_map(|database| match &database.family {
        Family::Postgres(pg) => Some((database, pg)),
        Family::MySql(_) => None,
    })
}

/// The database that takes all other names; but the one that has another name here and this one at the same server, so that writes wait for the
/// stream that updates its cache.
fn by_name_at_server<'a>(all: &'a [Database], name: &[u8]) -> Option<(&'a Database, &'a Arc<Pg>)> {
    let others = of_postgres(all).find(|(database, _)| database.takes_others)?;
    let is_it =
        |pg: &Pg| pg.own.upstream.conninfo().database.as_bytes() == name && addresses(pg) == addresses(others.1);
    if is_it(others.1) {
        Some(others)
    } else {
        of_postgres(all).find(|(database, pg)| !database.on_demand && is_it(pg)).or(Some(others))
    }
}

fn addresses(pg: &Pg) -> Vec<impl PartialEq> {
    pg.own.upstream.conninfo().hosts.iter().map(|host| host.address.clone()).collect()
}

impl Databases {
    /// The names of PostgreSQL databases must differ.
    pub fn new(
        all: Vec<Database>,
        rules: Arc<AccessRules>,
        query_log: Arc<QueryLog>,
        traces: Arc<Traces>,
        stop: Arc<StopRequest>,
    ) -> Self {
        Self {
            all: ArcSwap::from_pointee(all),
            changing: Mutex::default(),
            rules,
            query_log,
            traces,
            stop,
            switches: Switches::default(),
        }
    }

    /// The slow query log of all.
    pub fn query_log(&self) -> &QueryLog {
        &self.query_log
    }

    /// The spans of all.
    pub fn traces(&self) -> &Arc<Traces> {
        &self.traces
    }

    /// All of them, in the order of the configuration.
    pub fn databases(&self) -> Arc<Vec<Database>> {
        self.all.load_full()
    }

    /// Adds and removes databases. A PostgreSQL session of the database that takes all other names ends, once it is at rest, if the list now has its database:
    /// its writes would not wait for the stream that updates that cache.
    pub fn change(&self, change: impl FnOnce(&[Database]) -> Vec<Database>) {
        {
            let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            self.all.store(Arc::new(change(&self.databases())));
        }
        for database in self.databases().iter() {
            self.strays(database, Sessions::dismiss);
        }
    }

    /// The sessions of the PostgreSQL database that takes all other names, by the names of a database that has an entry of its own.
    fn strays(&self, database: &Database, mut each: impl FnMut(&Sessions, &str)) {
        let all = self.databases();
        let Some((_, others)) = of_postgres(&all).find(|(database, _)| database.takes_others) else { return };
        let Family::Postgres(pg) = &database.family else { return };
        if database.takes_others || database.on_demand {
            return;
        }
        let at_server = &pg.own.upstream.conninfo().database;
        let names = [Some(&database.name), Some(at_server).filter(|_| addresses(pg) == addresses(others))];
        let own = &others.own.upstream.conninfo().database;
        names.into_iter().flatten().filter(|name| *name != own).for_each(|name| each(&others.sessions, name));
    }

    /// Whether sessions of this database are still open that began before it had an entry. Their writes do not wait for its stream.
    pub fn has_strays(&self, database: &Database) -> bool {
        let mut has_any = false;
        self.strays(database, |sessions, name| has_any |= sessions.has_any(name));
        has_any
    }

    /// Ends these sessions at once.
    pub fn kill_strays(&self, database: &Database) {
        self.strays(database, |sessions, name| sessions.kill_all(Some(name)));
    }

    /// Whether sessions by this name belong to this state now.
    pub(crate) fn leads_to(&self, name: &str, state: &Arc<Pg>) -> bool {
        let Some(Routed { state: now, .. }) = self.postgres(name.as_bytes()) else { return false };
        let all = self.databases();
        let is_opened = || of_postgres(&all).any(|(database, pg)| database.on_demand && Arc::ptr_eq(pg, state));
        Arc::ptr_eq(&now, state) || (now.own.on_demand.is_some() && is_opened())
    }

    /// The PostgreSQL database that a client names; None: unknown.
    pub(crate) fn postgres(&self, name: &[u8]) -> Option<Routed> {
        let all = self.databases();
        let is_own = |database: &Database| !database.takes_others && !database.on_demand;
        let named = |database: &&Database| is_own(database) && database.name.as_bytes() == name;
        let database = of_postgres(&all).find(|(database, _)| named(database));
        let (database, pg) = database.or_else(|| by_name_at_server(&all, name))?;
        let at_server = (!database.takes_others).then(|| pg.own.upstream.conninfo().database.clone());
        Some(Routed { state: pg.clone(), at_server })
    }

    /// One database of each PostgreSQL server.
    pub(crate) fn postgres_servers(&self) -> Vec<Arc<Pg>> {
        let mut servers: Vec<Arc<Pg>> = Vec::new();
        for (_, pg) in of_postgres(&self.databases()) {
            if !servers.iter().any(|other| addresses(other) == addresses(pg)) {
                servers.push(pg.clone());
            }
        }
        servers
    }

    /// The first PostgreSQL database.
    pub(crate) fn first_of_postgres(&self) -> Option<Arc<Pg>> {
        of_postgres(&self.databases()).next().map(|(_, pg)| pg.clone())
    }

    /// Reads the files of users and certificates again. Returns what cannot be used: the earlier stays in use.
    pub fn reload_access(&self) -> Vec<AccessError> {
        let mut failures: Vec<AccessError> = Vec::new();
        for failure in self.databases().iter().flat_map(|database| database.family.reload_access()) {
            // Files that they share fail for each of them.
            if !failures.iter().any(|other| other.to_string() == failure.to_string()) {
                failures.push(failure);
            }
        }
        failures
    }

    /// Sets how many logins of an address may fail in a minute; 0: no limit.
    pub fn set_login_failures_max(&self, failures_max: u32) {
        self.rules.set_failures_max(failures_max);
    }

    /// The open sessions.
    pub fn sessions(&self) -> u64 {
        self.databases().iter().map(|database| database.family.shared().metrics.sessions()).sum()
    }

    /// Returns when a statement in any database has requested the end of the program; `at_once`: without a drain.
    pub async fn stop_requested(&self, at_once: bool) {
        self.stop.made(at_once).await;
    }

    /// Whether the program is to end at once.
    pub fn stops_at_once(&self) -> bool {
        self.stop.is_at_once()
    }

    /// Begins the drain of all databases: no new connections; each session ends as soon as it is idle.
    pub fn begin_drain(&self) {
        self.switches.begin_drain();
        for database in self.databases().iter() {
            database.family.shared().switches.begin_drain();
        }
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.switches.is_draining()
    }

    /// Returns when the drain begins.
    pub(crate) async fn drained(&self) {
        self.switches.drained().await;
    }
}
