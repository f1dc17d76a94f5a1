//! The databases of this instance: the names that clients may ask for, and the state behind each of them.
//!
//! Each PostgreSQL database has its own change stream, catalogue and cache, since a stream decodes one database. A server of MySQL or MariaDB has one
//! of each for all its databases. A session is bound to a database at its login, so nothing of this is on the path of a hit. A failing database does
//! not affect the others: they share only the workers, the rules of login and the memory limit.
//!
//! A reload adds and removes databases. The list is replaced as a whole. A database that was removed gets no new session.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use crate::mysql::MySql;
use crate::postgres::Pg;
use crate::server::access::{AccessError, AccessRules};
use crate::server::carried::CarriedSession;
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

    fn reload_access(&self) -> Vec<AccessError> {
        match self {
            Self::Postgres(pg) => pg.reload_access(),
            Self::MySql(mysql) => mysql.reload_access(),
        }
    }

    /// Ends the sessions that the drain has not ended: those of PostgreSQL at once, those of MySQL and MariaDB when no statement runs.
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
    /// The name of the entry. For PostgreSQL it is the name that clients request.
    pub name: String,
    /// PostgreSQL: what else clients may ask for.
    pub aliases: Vec<String>,
    /// Its state.
    pub family: Family,
    /// PostgreSQL: whether the entry takes all names that no other entry has. The server gets the name that the client sent.
    pub takes_others: bool,
    /// Whether the entry `*` opened it. Clients reach it through that entry.
    pub on_demand: bool,
}

impl Database {
    /// Whether clients may ask for it by this name.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        self.name.as_bytes() == name || self.aliases.iter().any(|alias| alias.as_bytes() == name)
    }

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
    /// Used for the drain of all databases.
    switches: Switches,
    retired: AtomicBool,
}

/// The database for a client's name.
pub(crate) struct Routed {
    pub(crate) state: Arc<Pg>,
    /// Name of the database at the server. None: the name that the client sent.
    pub(crate) at_server: Option<String>,
}

fn of_postgres(all: &[Database]) -> impl Iterator<Item = (&Database, &Arc<Pg>)> {
    all.iter().filter_map(|database| match &database.family {
        Family::Postgres(pg) => Some((database, pg)),
        Family::MySql(_) => None,
    })
}

/// The database that takes all other names. But if a database of the same server has this name there, then that one, so that writes wait for the
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
            retired: AtomicBool::new(false),
        }
    }

    /// The slow query log of all databases.
    pub fn query_log(&self) -> &QueryLog {
        &self.query_log
    }

    /// The spans of all databases.
    pub fn traces(&self) -> &Arc<Traces> {
        &self.traces
    }

    /// All databases in the order of the configuration.
    pub fn databases(&self) -> Arc<Vec<Database>> {
        self.all.load_full()
    }

    /// Adds and removes databases. A PostgreSQL session of the entry for other names ends at rest if the list now has its database: its writes would
    /// not wait for the stream that updates this database's cache.
    pub fn change(&self, change: impl FnOnce(&[Database]) -> Vec<Database>) {
        {
            let _alone = self.alone();
            self.all.store(Arc::new(change(&self.databases())));
            self.tell_retired();
        }
        self.databases().iter().for_each(|database| self.dismiss_strays(database));
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sessions of the entry for other names whose database now has an entry of its own.
    fn strays(&self, database: &Database, mut each: impl FnMut(&Sessions, &str)) {
        let all = self.databases();
        let Some((_, others)) = of_postgres(&all).find(|(database, _)| database.takes_others) else { return };
        let Family::Postgres(pg) = &database.family else { return };
        if database.takes_others {
            return;
        }
        let at_server = Some(&pg.own.upstream.conninfo().database);
        let at_server = at_server.filter(|_| addresses(pg) == addresses(others));
        let names = database.aliases.iter().chain([&database.name]).chain(at_server);
        let own = &others.own.upstream.conninfo().database;
        names.filter(|name| *name != own).for_each(|name| each(&others.sessions, name));
    }

    /// Ends these sessions, each once it is at rest. Some may have been within their login when the list was changed.
    pub fn dismiss_strays(&self, database: &Database) {
        self.strays(database, Sessions::dismiss);
    }

    /// Whether sessions of this database are still open that began before it had an entry, or before it was opened. Their writes do not wait for its
    /// stream.
    pub fn has_strays(&self, database: &Database) -> bool {
        let mut has_any = false;
        self.strays(database, |sessions, name| has_any |= sessions.has_any(name));
        has_any
    }

    /// Ends those of these sessions that are connections for replication.
    pub fn kill_replication_strays(&self, database: &Database) {
        self.strays(database, Sessions::kill_replication);
    }

    /// Ends these sessions at once.
    pub fn kill_strays(&self, database: &Database) {
        self.strays(database, |sessions, name| sessions.kill_all(Some(name)));
    }

    /// Whether sessions with this name now belong to this state.
    pub(crate) fn leads_to(&self, name: &str, state: &Arc<Pg>) -> bool {
        let Some(Routed { state: now, .. }) = self.postgres(name.as_bytes()) else { return false };
        let all = self.databases();
        let is_opened = || of_postgres(&all).any(|(database, pg)| database.on_demand && Arc::ptr_eq(pg, state));
        Arc::ptr_eq(&now, state) || (now.own.on_demand.is_some() && is_opened())
    }

    /// The PostgreSQL database for a client's name. None if it is unknown.
    pub(crate) fn postgres(&self, name: &[u8]) -> Option<Routed> {
        let all = self.databases();
        let is_own = |database: &Database| !database.takes_others && !database.on_demand;
        let database = of_postgres(&all).find(|(database, _)| is_own(database) && database.has_name(name));
        let (database, pg) = database.or_else(|| by_name_at_server(&all, name))?;
        let at_server = (!database.takes_others).then(|| pg.own.upstream.conninfo().database.clone());
        Some(Routed { state: pg.clone(), at_server })
    }

    /// All PostgreSQL databases.
    pub(crate) fn all_of_postgres(&self) -> Vec<Arc<Pg>> {
        of_postgres(&self.databases()).map(|(_, pg)| pg.clone()).collect()
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

    /// Reads the files of users and certificates again. Returns the errors; a file with an error stays in use in its earlier form.
    pub fn reload_access(&self) -> Vec<AccessError> {
        let mut failures: Vec<AccessError> = Vec::new();
        for failure in self.databases().iter().flat_map(|database| database.family.reload_access()) {
            // A file that several databases share fails for each of them.
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

    /// Number of open sessions.
    pub fn sessions(&self) -> u64 {
        self.databases().iter().map(|database| database.family.shared().metrics.sessions()).sum()
    }

    /// Returns when a statement in any database has requested the end of the program. `at_once`: without a drain.
    pub async fn stop_requested(&self, at_once: bool) {
        self.stop.made(at_once).await;
    }

    /// Whether the program is to end at once.
    pub fn stops_at_once(&self) -> bool {
        self.stop.is_at_once()
    }

    /// Serves nothing from the cache any more (true), in these databases or in one that is added: another process takes over. Or undoes that.
    /// Returns the previous state.
    pub fn set_retired(&self, retired: bool) -> bool {
        let _alone = self.alone();
        let before = self.retired.swap(retired, SeqCst);
        self.tell_retired();
        before
    }

    /// While nothing else changes the list or the state.
    fn tell_retired(&self) {
        for database in self.databases().iter() {
            database.family.shared().switches.set_retired(self.is_retired());
        }
    }

    /// Whether another process takes over, or has done so.
    pub fn is_retired(&self) -> bool {
        self.retired.load(SeqCst)
    }

    /// Another process takes over the sessions that can go on there.
    pub fn begin_handover(&self, successor: &mpsc::Sender<CarriedSession>) {
        for database in self.databases().iter() {
            database.family.shared().switches.begin_handover(successor.clone());
        }
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::server::access::AccessSettings;

    #[test]
    fn a_change_of_the_list_does_not_undo_that_the_cache_is_on_again() {
        let rules = AccessRules::new(&AccessSettings::default()).expect("no files");
        let databases = Databases::new(Vec::new(), rules, Arc::default(), Arc::default(), Arc::default());
        thread::scope(|scope| {
            let changes = scope.spawn(|| {
                while !databases.is_draining() {
                    databases.change(<[Database]>::to_vec);
                }
            });
            let wrong = (0..10_000).filter(|_| {
                databases.set_retired(true);
                databases.set_retired(false);
                thread::yield_now();
                databases.is_retired()
            });
            let wrong = wrong.count();
            databases.begin_drain();
            changes.join().expect("the changes");
            assert_eq!(wrong, 0);
        });
    }
}
