//! The databases that one `freshet serve` serves: opened, listened for, followed, and ended one by one.
//!
//! A reload may add and remove databases. All that can fail comes first: what is new is opened and its addresses are bound, and only then the list is
//! replaced. A database that is removed gets no new sessions, and its open sessions end as they do at the end of the program. Its stream runs until
//! they have ended, since their writes wait for it.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use freshet_proxy::postgres::{OnDemand, Opener, Pg};
use freshet_proxy::{
    Database, Databases, Family, ListenAddress, Listener, Member, RuleText, Target, Workers, keep_memory,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::Span;

use crate::allocator::Start;
use crate::config::{DatabaseConfig, Fault, Resolved};
use crate::serve::instance::Instance;
use crate::serve::{Following, listen_addresses, mysql, postgres};
use crate::stop;

/// How long the change stream may take to end, after everything else has ended.
const FOLLOWER_END_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the remaining sessions are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the sessions may take to end that were told that the time for their drain is over.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The part of the memory that the entry for any database has for the statements of sessions beyond its bound.
const OF_ANY_BYTES: u64 = 1 << 20;

/// Opens one database, but no connection.
fn open_one(config: &DatabaseConfig, instance: &Instance) -> Result<Database> {
    let name = config.label();
    let family = if config.args.is_mysql() {
        mysql::open(config, instance).map(Family::MySql)
    } else {
        postgres::open(config, instance).map(Family::Postgres)
    };
    let family = family.with_context(|| format!("database {name}"))?;
    // The entry for any database caches nothing itself.
    let memory = if config.is_any() { (0, OF_ANY_BYTES) } else { (config.memory_min, config.memory_max) };
    let takes_others = config.name.is_none() || config.is_any();
    Ok(Database { name, family, takes_others, on_demand: config.at_server.is_some(), memory })
}

/// Opens what the configuration names, but no connection.
pub(crate) fn try_out(config: &Resolved) -> Result<()> {
    let instance = Instance::new(config)?;
    config.databases.iter().try_for_each(|database| open_one(database, &instance).map(drop))
}

/// The services and the change stream of one database.
struct Life {
    database: Database,
    /// Two entries for one slot must not run at the same time, nor two for one database: writes of either wait for their own stream only.
    slot: String,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
}

impl Life {
    fn excludes(&self, database: &Database, slot: &str) -> bool {
        let same_slot = !slot.is_empty() && self.slot == slot;
        same_slot || upstream(&self.database) == upstream(database)
    }
}

/// What changes with each reload.
#[derive(Default)]
struct State {
    lives: Vec<Life>,
    /// Removed databases, which have sessions that end.
    leaving: Vec<Life>,
    listens_for_postgres: bool,
    /// The entry for any database.
    any: Option<DatabaseConfig>,
    rules: Vec<RuleText>,
}

/// The databases, while the program runs.
pub(crate) struct Served {
    instance: Instance,
    pub(crate) databases: Arc<Databases>,
    workers: Arc<Workers>,
    state: Mutex<State>,
    this: Weak<Self>,
}

/// What a reload adds, opened and bound, and what it removes.
pub(crate) struct Prepared {
    all: Vec<Database>,
    added: Vec<(Database, DatabaseConfig)>,
    removed: Vec<Database>,
    listener: Option<Listener>,
}

impl Prepared {
    /// The databases that it adds.
    pub(crate) fn added(&self) -> impl Iterator<Item = &Database> {
        self.added.iter().map(|(database, _)| database)
    }
}

impl Served {
    /// Opens what the configuration names, but no connection.
    pub(super) fn open(config: &Resolved) -> Result<Arc<Self>> {
        let instance = Instance::new(config)?;
        let all = config.databases.iter().map(|config| open_one(config, &instance)).collect::<Result<_>>()?;
        let (rules, query_log, traces) = (instance.rules.clone(), instance.query_log.clone(), instance.traces.clone());
        let databases = Arc::new(Databases::new(all, rules, query_log, traces, instance.stop.clone()));
        let workers = Workers::start(config.args.workers())?;
        let new =
            |this: &Weak<Self>| Self { instance, databases, workers, state: Mutex::default(), this: this.clone() };
        Ok(Arc::new_cyclic(new))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens, and prints the addresses.
    pub(super) fn listen(&self, config: &Resolved) -> Result<Listener> {
        let databases = self.databases.databases();
        let all: Vec<_> = databases.iter().zip(&config.databases).collect();
        let listener = Listener::bind(&self.targets(config, &all)?, &self.workers)?;
        let addresses = listener.addresses()?;
        let mut stdout = std::io::stdout();
        for address in &addresses {
            match address {
                ListenAddress::Tcp(tcp) => writeln!(stdout, "listening on {tcp}")?,
                ListenAddress::Unix(path) => writeln!(stdout, "listening on {}", path.display())?,
            }
        }
        stdout.flush()?;
        self.state().listens_for_postgres = databases.iter().any(is_postgres);
        for Database { name, family, .. } in databases.iter() {
            let upstream = &family.shared().settings.upstream;
            tracing::info!(database = name, upstream, ?addresses, workers = config.args.workers(), "serving");
        }
        Ok(listener)
    }

    /// The addresses of databases, and where each of them leads. All PostgreSQL databases have the same.
    fn targets(
        &self,
        config: &Resolved,
        databases: &[(&Database, &DatabaseConfig)],
    ) -> Result<Vec<(ListenAddress, Target)>> {
        let at_top = |default: &str| {
            let texts = config.args.listen.clone();
            if texts.is_empty() { vec![default.to_owned()] } else { texts }
        };
        let mut all = Vec::new();
        if databases.iter().any(|(database, _)| is_postgres(database)) && !self.state().listens_for_postgres {
            let addresses = listen_addresses(&at_top("127.0.0.1:6432"), false)?;
            all.extend(addresses.into_iter().map(|address| (address, Target::Postgres(self.databases.clone()))));
        }
        for (Database { family, .. }, config) in databases {
            let Family::MySql(mysql) = family else { continue };
            let texts = if config.listen.is_empty() { at_top("127.0.0.1:3307") } else { config.listen.clone() };
            let addresses = listen_addresses(&texts, true)?;
            all.extend(addresses.into_iter().map(|address| (address, Target::MySql(mysql.clone()))));
        }
        Ok(all)
    }

    /// Starts the change streams and services of all databases.
    pub(super) fn start(self: &Arc<Self>, config: &Resolved) {
        self.know(config);
        for (database, config) in self.databases.databases().iter().zip(&config.databases) {
            self.begin(database, config);
        }
    }

    /// What databases have that are opened from now on.
    fn know(&self, config: &Resolved) {
        let mut state = self.state();
        let mut any = config.databases.iter().find(|config| config.is_any()).cloned();
        // Its sessions log in by the entry, whose upstream needs a restart.
        if let (Some(any), Some(before)) = (&mut any, &state.any) {
            any.args.upstream.clone_from(&before.args.upstream);
            any.args.upstream_password_file.clone_from(&before.args.upstream_password_file);
        }
        state.any = any;
        state.rules.clone_from(&config.rules);
    }

    /// Keeps all caches within the memory limit, in the background.
    pub(super) fn start_memory(&self, start: Start) {
        let databases = self.databases.clone();
        let member = |Database { family, memory: (floor, ceiling), .. }: &Database| Member {
            shared: family.shared().clone(),
            floor: *floor,
            ceiling: *ceiling,
        };
        let members = move || databases.databases().iter().map(member).collect();
        tokio::spawn(keep_memory(self.instance.memory.clone(), members, move || start.taken_since()));
    }

    /// Starts the change stream and the services of a database, once an earlier one that excludes it has ended.
    fn begin(self: &Arc<Self>, database: &Database, config: &DatabaseConfig) {
        if let Some(on_demand) = on_demand(database) {
            on_demand.set_opener(self.clone());
        }
        let mut state = self.state();
        state.leaving.retain(|life| !*life.ended.borrow());
        let slot = config.setting("slot").map(|slot| slot.value.clone()).unwrap_or_default();
        let earlier = state.leaving.iter().filter(|life| life.excludes(database, &slot));
        let earlier: Vec<_> = earlier.map(|life| life.ended.clone()).collect();
        let ((stop, stopped), (end, ended)) = (watch::channel(false), watch::channel(false));
        let is_alone = config.name.is_none() && self.databases.databases().len() == 1;
        let span = if is_alone { Span::none() } else { tracing::info_span!("database", name = database.name) };
        let (databases, drain_timeout) = (self.databases.clone(), config.args.drain_timeout.0);
        let of = database.clone();
        let life = live((database.clone(), config.clone(), span), stopped, async move {
            for mut ended in earlier {
                let _ = ended.wait_for(|ended| *ended).await;
            }
            end_strays(&databases, &of, drain_timeout).await;
        });
        tokio::spawn(async move {
            life.await;
            let _ = end.send(true);
        });
        state.lives.push(Life { database: database.clone(), slot, stop, ended });
    }

    /// Opens and binds what a reload adds. Nothing has changed yet.
    pub(crate) fn prepare(&self, before: &[DatabaseConfig], new: &Resolved) -> Result<Prepared, Fault> {
        let current = self.databases.databases();
        // That of the top comes and goes with a restart, as its upstream does.
        let is_kept = |config: &DatabaseConfig| {
            config.name.is_none() || new.databases.iter().any(|now| now.is_same_entry(config))
        };
        let instance = Instance { count: new.databases.len().max(1) as u64, ..self.instance.clone() };
        let (mut all, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for now in new.databases.iter().filter(|now| now.name.is_some()) {
            let kept = before.iter().zip(current.iter()).find(|(config, _)| config.is_same_entry(now));
            if let Some((_, database)) = kept {
                all.push(database.clone());
                continue;
            }
            let database = open_one(now, &instance).map_err(|error| now.fault("name", &error))?;
            all.push(database.clone());
            added.push((database, now.clone()));
        }
        for (config, database) in before.iter().zip(current.iter()) {
            if !is_kept(config) {
                removed.push(database.clone());
            } else if config.name.is_none() {
                all.push(database.clone());
            }
        }
        let [first, ..] = new.databases.as_slice() else { return Ok(Prepared { all, added, removed, listener: None }) };
        if all.is_empty() {
            let why = anyhow::anyhow!("no database would be left: stop Freshet instead, or keep one");
            return Err(first.fault("upstream", &why));
        }
        let pairs: Vec<_> = added.iter().map(|(database, config)| (database, config)).collect();
        let bind = || anyhow::Ok(Listener::bind(&self.targets(new, &pairs)?, &self.workers)?);
        let place = added.last().map_or(first, |(_, config)| config);
        let listener =
            if added.is_empty() { None } else { Some(bind().map_err(|error| place.fault("listen", &error))?) };
        Ok(Prepared { all, added, removed, listener })
    }

    /// Serves what was prepared, and ends what was removed.
    pub(crate) fn take(self: &Arc<Self>, prepared: Prepared, new: &Resolved, drain_timeout: Duration) {
        let Prepared { all, added, removed, listener } = prepared;
        self.know(new);
        // An entry takes its database from the entry for any; and with that entry all go that it has opened.
        let mut removed = removed;
        let keeps_any = all.iter().any(|database| on_demand(database).is_some());
        self.databases.change(|current| {
            let is_taken = |one: &Database| all.iter().any(|entry| takes(entry, one));
            let opened = current.iter().filter(|database| database.on_demand).cloned();
            let (gone, stay): (Vec<_>, Vec<_>) = opened.partition(|one| !keeps_any || is_taken(one));
            removed.extend(gone);
            all.iter().cloned().chain(stay).collect()
        });
        for database in removed {
            for on_demand in self.databases.databases().iter().filter_map(on_demand) {
                if let Family::Postgres(pg) = &database.family {
                    on_demand.forget(pg);
                }
            }
            self.remove(&database, drain_timeout);
        }
        for (database, config) in &added {
            self.begin(database, config);
        }
        let Some(listener) = listener else { return };
        self.state().listens_for_postgres |= added.iter().any(|(database, _)| is_postgres(database));
        let addresses = listener.addresses().unwrap_or_default();
        listener.run();
        for (Database { name, family, .. }, _) in &added {
            let upstream = &family.shared().settings.upstream;
            tracing::info!(database = name, upstream, ?addresses, "serving");
        }
    }

    /// Ends a database: its sessions first, then its services and its stream.
    fn remove(&self, database: &Database, drain_timeout: Duration) {
        let mut state = self.state();
        let is_it = |life: &Life| Arc::ptr_eq(life.database.family.shared(), database.family.shared());
        let Some(at) = state.lives.iter().position(is_it) else { return };
        let life = state.lives.swap_remove(at);
        let (database, stop, mut ended) = (life.database.clone(), life.stop.clone(), life.ended.clone());
        state.leaving.push(life);
        // Its sessions read no results any more: from now on others may write to the same database without waiting for this stream.
        database.family.shared().switches.set_bypass(true);
        database.family.shared().switches.begin_drain();
        tokio::spawn(async move {
            stop::drain_one(&database, drain_timeout, CLOSE_TIMEOUT).await;
            let _ = stop.send(true);
            // Err: it has ended.
            let _ = ended.wait_for(|ended| *ended).await;
            tracing::info!(database = database.name, "removed");
        });
    }

    /// Ends all services and streams.
    pub(super) async fn end(&self) {
        let (lives, leaving) = {
            let mut state = self.state();
            (std::mem::take(&mut state.lives), std::mem::take(&mut state.leaving))
        };
        let all: Vec<Life> = lives.into_iter().chain(leaving).collect();
        for life in &all {
            let _ = life.stop.send(true);
        }
        for mut life in all {
            let _ = life.ended.wait_for(|ended| *ended).await;
        }
    }
}

impl Opener for Served {
    fn open(&self, name: &str) -> Option<Arc<Pg>> {
        let this = self.this.upgrade()?;
        let config = self.state().any.as_ref()?.of(name);
        let instance = Instance { count: self.databases.databases().len() as u64 + 1, ..self.instance.clone() };
        let database = open_one(&config, &instance);
        let database = database.inspect_err(|error| tracing::warn!("{name} is not cached: {error:#}")).ok()?;
        let Family::Postgres(pg) = &database.family else { return None };
        let all = self.databases.databases();
        if let Some(console) = all.first().and_then(|first| first.family.shared().console.get()) {
            // Nothing else sets it.
            let _ = pg.console.set(console.clone());
        }
        // A reload may have removed the entry meanwhile, or have given the database one of its own.
        let mut is_listed = false;
        self.databases.change(|current| {
            is_listed = current.iter().any(|entry| on_demand(entry).is_some())
                && !current.iter().any(|entry| takes(entry, &database));
            current.iter().cloned().chain(is_listed.then(|| database.clone())).collect()
        });
        if !is_listed {
            return None;
        }
        pg.set_rules(self.state().rules.clone());
        this.begin(&database, &config);
        // A reload between the two has found nothing to end.
        if !self.databases.databases().iter().any(|one| Arc::ptr_eq(one.family.shared(), pg)) {
            self.remove(&database, Duration::ZERO);
        }
        tracing::info!(database = name, "opened by the entry \"*\"");
        Some(pg.clone())
    }

    fn close(&self, closed: &Arc<Pg>) {
        let is_it = |database: &&Database| Arc::ptr_eq(database.family.shared(), closed);
        let all = self.databases.databases();
        let Some(database) = all.iter().find(is_it) else { return };
        self.databases.change(|current| current.iter().filter(|other| !is_it(other)).cloned().collect());
        self.remove(database, Duration::ZERO);
    }
}

/// The databases that it opens, if it is the entry for any.
fn on_demand(database: &Database) -> Option<&Arc<OnDemand>> {
    match &database.family {
        Family::Postgres(pg) => pg.own.on_demand.as_ref(),
        Family::MySql(_) => None,
    }
}

/// Whether an entry has the database that the entry for any has opened.
fn takes(entry: &Database, opened: &Database) -> bool {
    let is_entry = is_postgres(entry) && !entry.on_demand && on_demand(entry).is_none();
    is_entry && (entry.name == opened.name || upstream(entry) == upstream(opened))
}

/// Hosts and database.
fn upstream(database: &Database) -> &str {
    &database.family.shared().settings.upstream
}

fn is_postgres(database: &Database) -> bool {
    matches!(database.family, Family::Postgres(_))
}

/// Waits for the sessions of a database that began before it had an entry; those that are left after `drain_timeout` are ended.
async fn end_strays(databases: &Databases, database: &Database, drain_timeout: Duration) {
    let ended = async {
        while databases.has_strays(database) {
            sleep(LOOK_EVERY).await;
        }
    };
    if timeout(drain_timeout, ended).await.is_err() {
        tracing::warn!(database = database.name, "earlier sessions not ended within --drain-timeout: closed");
        databases.kill_strays(database);
    }
}

/// Runs the services and the stream of a database until it is stopped. `begins`: what must have ended before.
async fn live(
    (database, config, span): (Database, DatabaseConfig, Span),
    mut stopped: watch::Receiver<bool>,
    begins: impl Future<Output = ()>,
) {
    tokio::select! {
        () = begins => {}
        _ = stopped.wait_for(|stop| *stop) => return,
    }
    let shared = database.family.shared();
    if let (Family::Postgres(pg), Some(on_demand)) = (&database.family, on_demand(&database)) {
        postgres::start_on_demand(pg, on_demand);
        let _ = stopped.wait_for(|stop| *stop).await;
        return shared.tasks.end();
    }
    let watched = shared.clone();
    shared.tasks.spawn(async move { watched.scheduling_delay.watch().await });
    let Following { control, follower } = match &database.family {
        Family::MySql(mysql) => mysql::start_services(mysql, &span),
        Family::Postgres(pg) => postgres::start_services(pg, &config.args, &span),
    };
    // Err: the program ends.
    let _ = stopped.wait_for(|stop| *stop).await;
    // Nothing is served from the cache without its stream.
    shared.switches.set_bypass(true);
    control.shutdown();
    // A persistent slot is dropped.
    timeout(FOLLOWER_END_TIMEOUT, follower).await.ok();
    shared.tasks.end();
    shared.cache.disconnected();
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}
