//! The databases of one `freshet serve`: each is opened, gets its addresses and its stream, and is ended.
//!
//! A reload may add and remove databases. All that can fail comes first: new databases are opened and their addresses are bound, and only then the
//! list is replaced. A database that is removed gets no new sessions, and its open sessions end as they do at the end of the program. Its stream runs
//! until they have ended, since their writes wait for it.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use freshet_proxy::postgres::Earlier;
use freshet_proxy::{
    Database, Databases, Family, Inherited, ListenAddress, Listener, Member, RuleText, RuleTexts, Target, Workers,
    keep_memory,
};
use tokio::sync::watch;
use tracing::Span;

use crate::allocator::Start;
use crate::config::{DatabaseConfig, Fault, Resolved};
use crate::handover::PredecessorEnd;
use crate::serve::instance::Instance;
use crate::serve::kinds::{is_postgres, on_demand, takes};
use crate::serve::life::{Life, end_strays, live};
use crate::serve::{listen_addresses, mysql, postgres};
use crate::stop;

/// Time limit for the sessions that end after their drain.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The part of the memory that the entry for any database gets for the statements of sessions beyond its bound.
const OF_ANY_BYTES: u64 = 1 << 20;

/// Opens a database without connecting to it.
pub(super) fn open_one(config: &DatabaseConfig, instance: &Instance) -> Result<Database> {
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
    let aliases = config.aliases.clone();
    family.shared().set_memory_bounds(memory);
    Ok(Database { name, aliases, family, takes_others, on_demand: config.at_server.is_some() })
}

/// Opens all databases of the configuration without connecting to them.
pub(crate) fn try_out(config: &Resolved) -> Result<()> {
    let instance = Instance::new(config)?;
    config.databases.iter().try_for_each(|database| open_one(database, &instance).map(drop))
}

/// The state that a reload changes.
#[derive(Default)]
pub(super) struct State {
    lives: Vec<Life>,
    /// Removed databases whose sessions are ending.
    leaving: Vec<Life>,
    listens_for_postgres: bool,
    /// The entry for any database.
    pub(super) any: Option<DatabaseConfig>,
    pub(super) rules: RuleTexts,
    /// No stream begins before it.
    predecessor: PredecessorEnd,
}

/// The databases, while the program runs.
pub(crate) struct Served {
    pub(super) instance: Instance,
    pub(crate) databases: Arc<Databases>,
    pub(crate) workers: Arc<Workers>,
    state: Mutex<State>,
    pub(super) this: Weak<Self>,
}

/// The result of preparing a reload: opened databases with bound addresses, and the databases to remove.
pub(crate) struct Prepared {
    all: Vec<Database>,
    added: Vec<(Database, DatabaseConfig)>,
    removed: Vec<Database>,
    listener: Option<Listener>,
}

impl Prepared {
    /// The databases to add.
    pub(crate) fn added(&self) -> impl Iterator<Item = &Database> {
        self.added.iter().map(|(database, _)| database)
    }
}

impl Served {
    /// Opens all databases of the configuration without connecting to them.
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens, and prints the addresses.
    pub(super) fn listen(&self, config: &Resolved, inherited: &mut Inherited) -> Result<Listener> {
        let databases = self.databases.databases();
        let all: Vec<_> = databases.iter().zip(&config.databases).collect();
        let listener = Listener::bind(&self.targets(config, &all)?, &self.workers, inherited)?;
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

    /// The addresses of databases with their targets. All PostgreSQL databases have the same addresses.
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
    pub(super) fn start(self: &Arc<Self>, config: &Resolved, predecessor: PredecessorEnd) {
        self.know(config);
        self.state().predecessor = predecessor;
        for (database, config) in self.databases.databases().iter().zip(&config.databases) {
            self.begin(database, config, None);
        }
    }

    /// Notes the settings of databases that will be opened later.
    fn know(&self, config: &Resolved) {
        let mut state = self.state();
        let mut any = config.databases.iter().find(|config| config.is_any()).cloned();
        // Sessions of the entry log in with its upstream, which changes only with a restart.
        if let (Some(any), Some(before)) = (&mut any, &state.any) {
            any.args.upstream.clone_from(&before.args.upstream);
            any.args.upstream_password_file.clone_from(&before.args.upstream_password_file);
        }
        state.any = any;
    }

    /// The rules at the start.
    pub(crate) fn begin_rules(&self, rules: RuleTexts) {
        self.state().rules = rules;
    }

    /// The rules that databases get that are opened from now on.
    pub(crate) fn rules(&self) -> RuleTexts {
        self.state().rules.clone()
    }

    /// The rules of the configuration file are these, for databases that are opened from now on.
    pub(crate) fn take_rules(&self, of_file: &[RuleText]) {
        self.state().rules.file = of_file.to_vec();
    }

    /// The rules that SQL has created are these, in all databases.
    pub(crate) fn set_created_rules(&self, sql: Vec<RuleText>) {
        self.state().rules.sql = sql;
        let rules = self.rules();
        for database in self.databases.databases().iter() {
            database.family.shared().set_rules(&rules);
        }
    }

    /// Keeps all caches within the memory limit, in the background.
    pub(super) fn start_memory(&self, start: Start) {
        let databases = self.databases.clone();
        let member = |database: &Database| Member::of(database.family.shared());
        let members = move || databases.databases().iter().map(member).collect();
        tokio::spawn(keep_memory(self.instance.memory.clone(), members, move || start.taken_since()));
    }

    /// Starts the change stream and the services of a database, once an earlier one that excludes it has ended.
    pub(super) fn begin(self: &Arc<Self>, database: &Database, config: &DatabaseConfig, sessions: Option<Earlier>) {
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
        let predecessor = state.predecessor.clone();
        let life = live((database.clone(), config.clone(), span), stopped, predecessor, async move {
            for mut ended in earlier {
                let _ = ended.wait_for(|ended| *ended).await;
            }
            end_strays(&databases, &of, sessions, drain_timeout).await;
        });
        tokio::spawn(async move {
            life.await;
            let _ = end.send(true);
        });
        state.lives.push(Life { database: database.clone(), slot, stop, ended });
    }

    /// Opens and binds the databases that a reload adds. Nothing changes yet.
    pub(crate) fn prepare(&self, before: &[DatabaseConfig], new: &Resolved) -> Result<Prepared, Fault> {
        let current = self.databases.databases();
        // The database at the top comes and goes with a restart, as its upstream does.
        let is_kept = |config: &DatabaseConfig| {
            config.name.is_none() || new.databases.iter().any(|now| now.is_same_entry(config))
        };
        let instance = Instance { count: new.databases.len().max(1) as u64, ..self.instance.clone() };
        let (mut all, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for now in new.databases.iter().filter(|now| now.name.is_some()) {
            let kept = before.iter().zip(current.iter()).find(|(config, _)| config.is_same_entry(now));
            if let Some((_, database)) = kept {
                all.push(Database { aliases: now.aliases.clone(), ..database.clone() });
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
        let bind =
            || anyhow::Ok(Listener::bind(&self.targets(new, &pairs)?, &self.workers, &mut Inherited::default())?);
        let place = added.last().map_or(first, |(_, config)| config);
        let listener =
            if added.is_empty() { None } else { Some(bind().map_err(|error| place.fault("listen", &error))?) };
        Ok(Prepared { all, added, removed, listener })
    }

    /// Serves the prepared databases, and ends the removed ones.
    pub(crate) fn take(self: &Arc<Self>, prepared: Prepared, new: &Resolved, drain_timeout: Duration) {
        let Prepared { all, added, removed, listener } = prepared;
        self.know(new);
        // An entry replaces its database that the entry for any has opened. If that entry is removed, all databases that it has opened are removed
        // too.
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
            self.begin(database, config, None);
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
    pub(super) fn remove(&self, database: &Database, drain_timeout: Duration) {
        let mut state = self.state();
        let is_it = |life: &Life| Arc::ptr_eq(life.database.family.shared(), database.family.shared());
        let Some(at) = state.lives.iter().position(is_it) else { return };
        let life = state.lives.swap_remove(at);
        let (database, stop, mut ended) = (life.database.clone(), life.stop.clone(), life.ended.clone());
        state.leaving.push(life);
        // Its sessions serve no cached results any more: from now on other sessions may write to the same database without waiting for this stream.
        database.family.shared().switches.end_cache();
        database.family.shared().switches.begin_drain();
        tokio::spawn(async move {
            stop::drain_one(&database, drain_timeout, CLOSE_TIMEOUT).await;
            let _ = stop.send(true);
            // An error means that it has ended.
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

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}
