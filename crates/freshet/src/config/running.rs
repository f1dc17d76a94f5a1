//! The configuration of a running Freshet: reloading and showing it.
//!
//! The file is the truth and is read as a whole: a file with any fault changes nothing. Settings in [`RELOADED`] are set at once. The others need a
//! restart and stay as they were. A change by a statement (`FRESHET MEMORY`, `FRESHET BYPASS`) stays until the setting changes in the file, or until
//! the next start.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use freshet_proxy::{AccessError, AdminError, Console, Database, Databases, Family, NewCache, RuleTexts};

use crate::config::databases::{DatabaseConfig, TABLE};
use crate::config::fault::{self, Fault};
use crate::config::resolve::{Resolved, read};
use crate::config::rule_warnings::Unexamined;
use crate::config::rules;
use crate::config::setting::{Setting, Source};
use crate::config::state_file;
use crate::logging::{self, SetFilter};
use crate::serve::databases::{Prepared, Served};
use crate::serve::{ServeArgs, nanos};
use crate::stop::Times;

/// How a setting is set.
#[derive(Clone, Copy)]
pub(crate) enum Set {
    /// Once, for all databases.
    Once(fn(&Running, &Resolved)),
    /// For each database, to its own value.
    Each(fn(&Family, &ServeArgs)),
}

/// The settings that may change while Freshet runs.
pub(crate) const RELOADED: &[(&str, Set)] = &[
    (
        "admin_users",
        Set::Each(|database, new| {
            let users = new.admin_users_or(database.upstream_user());
            *database.shared().settings.admin_users.write().unwrap_or_else(PoisonError::into_inner) = users;
        }),
    ),
    ("admission", Set::Each(|database, new| database.shared().cache.set_keep(new.admission.into()))),
    ("bypass", Set::Each(|database, new| _ = database.shared().switches.set_bypass(new.bypass))),
    (
        "commit_wait",
        Set::Each(|database, new| database.shared().settings.commit_wait_max.store(nanos(new.commit_wait), Relaxed)),
    ),
    // It is read at the end of the program.
    ("drain_timeout", Set::Once(|_, _| {})),
    (
        "log",
        Set::Once(|running, new| {
            // The filter was checked together with all other settings.
            if let Err(error) = logging::filter(&new.log).and_then(&running.set_filter) {
                tracing::error!("log: {error:#}");
            }
        }),
    ),
    ("hints", Set::Each(|database, new| database.shared().set_hints(new.hints))),
    (
        "login_failures_max",
        Set::Once(|running, new| running.databases.set_login_failures_max(new.args.access.login_failures_max)),
    ),
    ("max_staleness", Set::Each(|database, new| database.shared().cache.set_staleness_max(nanos(new.max_staleness)))),
    (
        "memory",
        Set::Once(|running, new| {
            if let Some(database) = running.databases.databases().first() {
                database.family.shared().set_memory(new.args.memory.0);
            }
        }),
    ),
    ("otlp_sample", Set::Once(|running, new| running.databases.traces().set_share(new.args.otlp.otlp_sample.0))),
    ("query_log_min_duration", Set::Once(set_query_log)),
    ("query_log_sample", Set::Once(set_query_log)),
    (
        "stats_users",
        Set::Each(|database, new| {
            let users = new.stats_users.clone();
            *database.shared().settings.stats_users.write().unwrap_or_else(PoisonError::into_inner) = users;
        }),
    ),
    ("upgrade_grace", Set::Once(|_, _| {})),
    ("verify", Set::Each(|database, new| database.shared().verifier.set_rate(new.verify.0))),
];

fn set_query_log(running: &Running, new: &Resolved) {
    running.databases.query_log().set(nanos(new.args.query_log_min_duration), new.args.query_log_sample.0);
}

/// Whether the setting may change while Freshet runs.
pub(crate) fn is_reloaded(key: &str) -> bool {
    set_of(key).is_some()
}

fn set_of(key: &str) -> Option<Set> {
    RELOADED.iter().find(|(name, _)| *name == key).map(|(_, set)| *set)
}

/// A setting that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    key: String,
    before: String,
    now: String,
    in_force: bool,
}

/// What is in force.
pub(super) struct State {
    settings: Vec<Setting>,
    /// Settings that come into force at a restart.
    after_restart: Vec<Setting>,
    /// In the order of [`Running::databases`].
    databases: Vec<DatabaseConfig>,
    memory: u64,
    times: Times,
    /// Number of rules.
    rules: usize,
    unexamined: Unexamined,
}

/// The configuration of this process.
pub(crate) struct Running {
    arguments: Vec<OsString>,
    /// The file of the configuration.
    pub(crate) path: Option<PathBuf>,
    pub(super) state_file: Option<PathBuf>,
    databases: Arc<Databases>,
    pub(super) served: Arc<Served>,
    set_filter: SetFilter,
    state: Mutex<State>,
    /// For the console of a database that is added.
    this: Weak<Self>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Running {
    /// Sets the configuration before the first session.
    pub(crate) fn start(
        arguments: Vec<OsString>,
        config: &Resolved,
        served: Arc<Served>,
        set_filter: SetFilter,
    ) -> Arc<Self> {
        let state_file = config.args.state_file.clone();
        let created = state_file.as_deref().map(state_file::read).unwrap_or_default();
        served.begin_rules(RuleTexts { sql: created, file: config.rules.clone() });
        let mut unexamined = Unexamined::default();
        unexamined.begin(config, &served.databases);
        let state = Mutex::new(State {
            settings: config.settings.clone(),
            after_restart: Vec::new(),
            databases: config.databases.clone(),
            memory: config.args.memory.0,
            times: config.args.times(),
            rules: config.rules.len(),
            unexamined,
        });
        let (path, databases) = (config.args.config.clone(), served.databases.clone());
        let running = Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            Self { arguments, path, state_file, databases, served, set_filter, state, this }
        });
        running.reach(running.databases.databases().iter());
        running
    }

    /// Gives databases what all of them have.
    fn reach<'a>(&self, databases: impl Iterator<Item = &'a Database>) {
        let rules = self.served.rules();
        for database in databases {
            let shared = database.family.shared();
            shared.set_rules(&rules);
            if let Some(this) = self.this.upgrade() {
                // A database that has it already has the same.
                let _ = shared.console.set(this);
            }
        }
    }

    /// The files of users of all databases.
    pub(crate) fn users_files(&self) -> Vec<PathBuf> {
        self.state().databases.iter().filter_map(|database| database.args.access.users.clone()).collect()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// During and after a handover, changes would be made in the wrong process.
    pub(super) fn check_in_charge(&self) -> Result<(), String> {
        match (self.databases.is_retired(), self.served.workers.is_handed_over()) {
            (false, _) => Ok(()),
            (true, true) => Err("a new process has taken over from this one: connect again".to_owned()),
            (true, false) => {
                Err("a new process was asked to take over, and has not yet done so: connect again; if the log \
                says that it has failed, restart Freshet"
                    .to_owned())
            }
        }
    }

    pub(crate) fn times(&self) -> Times {
        self.state().times
    }

    /// Warns of rules that have matched nothing for a long time.
    pub(crate) fn examine_rules(&self) {
        self.state().unexamined.examine(&self.databases);
    }

    /// Reads the files of users and certificates again.
    pub(crate) fn reload_access(&self) -> Vec<AccessError> {
        self.databases.reload_access()
    }

    /// Reads the configuration again and logs the result. `why` is the cause.
    pub(crate) fn reload_logged(&self, why: &str) {
        // Faults are in the log.
        let _ = self.reload_settings(why);
    }

    /// Reads the configuration again. If there is a fault, nothing changes.
    fn reload_settings(&self, why: &str) -> Result<Vec<Change>, Vec<Fault>> {
        self.databases.query_log().reopen();
        // Locked throughout, so that the later of two reloads wins.
        let mut state = self.state();
        let prepared = read(&self.arguments).and_then(|new| {
            let prepared = self.served.prepare(&state.databases, &new).map_err(|fault| vec![fault])?;
            Ok((new, prepared))
        });
        let (new, prepared) = prepared.inspect_err(|faults| {
            tracing::error!("{why}: the configuration is not read again, the earlier one stays in use");
            for fault in faults {
                tracing::error!("{fault}");
            }
        })?;
        let changes = self.take(&mut state, &new, prepared);
        for Change { key, before, now, in_force } in &changes {
            if *in_force {
                tracing::info!("{why}: {key} is {now:?}, it was {before:?}");
            } else {
                tracing::warn!("{why}: {key} stays {before:?}: {now:?} needs a restart");
            }
        }
        if self.path.is_some() && changes.is_empty() {
            tracing::info!("{why}: the configuration was read again, no setting has changed");
        }
        Ok(changes)
    }

    fn take(&self, state: &mut State, new: &Resolved, prepared: Prepared) -> Vec<Change> {
        state.after_restart.clear();
        let mut changes = Vec::new();
        for now in &new.settings {
            let Some(before) = state.settings.iter_mut().find(|before| before.key == now.key) else { continue };
            if before.value == now.value {
                before.source = now.source;
                continue;
            }
            let set = set_of(&now.key);
            let (was, is) = (before.shown(), now.shown());
            changes.push(Change { key: now.key.clone(), before: was, now: is, in_force: set.is_some() });
            match set {
                Some(set) => {
                    if let Set::Once(set) = set {
                        set(self, new);
                    }
                    *before = now.clone();
                }
                None => state.after_restart.push(now.clone()),
            }
        }
        state.times = new.args.times();
        self.take_list(state, new, prepared, &mut changes);
        self.take_databases(state, new, &mut changes);
        let rules = self.served.rules();
        let is_new = |database: &Database| database.family.shared().set_rules(&rules);
        // Each is told.
        let is_new = self.databases.databases().iter().map(is_new).fold(false, |any, is_new| any | is_new);
        if is_new {
            let (before, now) = (state.rules.to_string(), new.rules.len().to_string());
            changes.push(Change { key: rules::KEY.to_owned(), before, now, in_force: true });
            state.rules = new.rules.len();
            state.unexamined.begin(new, &self.databases);
        }
        state.memory = new.args.memory.0;
        changes
    }

    /// Sets the list of databases. The database at the top needs a restart.
    fn take_list(&self, state: &mut State, new: &Resolved, prepared: Prepared, changes: &mut Vec<Change>) {
        let names = |all: &[DatabaseConfig]| {
            all.iter().filter_map(|database| database.name.clone()).collect::<Vec<_>>().join(", ")
        };
        let (was, is) = (names(&state.databases), names(&new.databases));
        self.served.take_rules(&new.rules);
        self.reach(prepared.added());
        let is_changed = was != is || prepared.added().next().is_some();
        self.served.take(prepared, new, state.times.drain);
        if is_changed {
            changes.push(Change { key: TABLE.to_owned(), before: was, now: is, in_force: true });
        }
        // In the order of the list.
        let before = std::mem::take(&mut state.databases);
        let of_entry =
            |now: &DatabaseConfig| before.iter().find(|before| before.is_same_entry(now)).unwrap_or(now).clone();
        state.databases = new.databases.iter().filter(|now| now.name.is_some()).map(of_entry).collect();
        state.databases.extend(before.iter().filter(|before| before.name.is_none()).cloned());
    }

    /// Sets the settings of each database.
    fn take_databases(&self, state: &mut State, new: &Resolved, changes: &mut Vec<Change>) {
        let databases = self.databases.databases();
        for (before, Database { family, .. }) in state.databases.iter_mut().zip(databases.iter()) {
            // Databases that the entry for any database has opened have its settings.
            let opened = databases.iter().filter(|database| before.is_any() && database.on_demand);
            let families: Vec<&Family> = std::iter::once(family).chain(opened.map(|one| &one.family)).collect();
            let Some(now) = new.databases.iter().find(|now| now.is_same_entry(before)) else { continue };
            let own: Vec<String> = before.own.iter().chain(&now.own).cloned().collect();
            for setting in &now.settings {
                let Some(was) = before.settings.iter_mut().find(|was| was.key == setting.key) else { continue };
                if was.value == setting.value {
                    continue;
                }
                let set = set_of(&setting.key);
                if let (Some(name), true) = (&now.name, own.contains(&setting.key)) {
                    let key = format!("{TABLE}.{name}.{}", setting.key);
                    let (was, is) = (was.shown(), setting.shown());
                    changes.push(Change { key, before: was, now: is, in_force: set.is_some() });
                }
                if let Some(Set::Each(set)) = set {
                    for family in &families {
                        set(family, &now.args);
                    }
                    *was = setting.clone();
                }
            }
            let of_entry = of_entry(before).into_iter().zip(of_entry(now)).filter(|((_, was), (_, is))| was != is);
            changes.extend(of_entry.map(|((key, was), (_, is))| {
                let in_force = is_reloaded_of_entry(key);
                Change { key: format!("{TABLE}.{}.{key}", now.label()), before: was, now: is, in_force }
            }));
            if (before.memory_min, before.memory_max) != (now.memory_min, now.memory_max) {
                (before.memory_min, before.memory_max) = (now.memory_min, now.memory_max);
                // The entry for any database has none itself.
                for family in families.iter().skip(usize::from(before.is_any())) {
                    family.shared().set_memory_bounds((now.memory_min, now.memory_max));
                }
            }
            before.aliases.clone_from(&now.aliases);
            before.own.clone_from(&now.own);
            before.args.bypass = now.args.bypass;
        }
    }

    /// The value that a statement has set, if it differs from the configuration's.
    fn at_run_time(&self, state: &State, key: &str) -> Option<String> {
        let databases = self.databases.databases();
        let Database { family, .. } = databases.first()?;
        let memory = family.shared().settings.memory.bytes();
        match key {
            "memory" if memory != state.memory => Some(memory.to_string()),
            "bypass" => at_run_time(state.databases.first()?, family).filter(|_| state.databases.len() == 1),
            _ => None,
        }
    }

    /// The rows of databases with their own settings, and the values that statements have set.
    fn rows_of_databases(&self, state: &State) -> Vec<[String; 6]> {
        let mut rows = Vec::new();
        for (config, Database { family, .. }) in state.databases.iter().zip(self.databases.databases().iter()) {
            let Some(name) = &config.name else { continue };
            for setting in &config.settings {
                let by_statement = Some(setting).filter(|setting| setting.key == "bypass");
                let by_statement = by_statement.and_then(|_| at_run_time(config, family));
                if by_statement.is_none() && !config.own.contains(&setting.key) {
                    continue;
                }
                let source = if by_statement.is_some() { "run time" } else { setting.source.label() };
                let changeable = if is_reloaded(&setting.key) { "yes" } else { "no" };
                let value = by_statement.unwrap_or_else(|| setting.shown());
                let texts = [setting.default.as_str(), changeable, source, ""].map(str::to_owned);
                let [default, changeable, source, later] = texts;
                rows.push([format!("{TABLE}.{name}.{}", setting.key), value, default, changeable, source, later]);
            }
            rows.extend(rows_of_memory(name, config, family));
        }
        rows
    }
}

/// Whether a change of this key of a `[[database]]`, which is no setting, is in force after a reload. Another name is another entry.
pub(crate) fn is_reloaded_of_entry(key: &str) -> bool {
    ["name", "aliases", "memory_min", "memory_max"].contains(&key)
}

/// The keys of a `[[database]]` that are no settings, sizes in bytes; empty: not there.
fn of_entry(config: &DatabaseConfig) -> [(&'static str, String); 6] {
    let size = |bytes: u64, absent: u64| if bytes == absent { String::new() } else { bytes.to_string() };
    [
        ("aliases", config.aliases.join(",")),
        ("listen", config.listen.join(",")),
        ("memory_min", size(config.memory_min, 0)),
        ("memory_max", size(config.memory_max, u64::MAX)),
        ("max_databases", config.max_databases.to_string()),
        ("idle_timeout", format!("{}s", config.idle_timeout.as_secs_f64())),
    ]
}

/// The memory of a database, if the file or a statement has set it.
fn rows_of_memory(name: &str, config: &DatabaseConfig, family: &Family) -> Vec<[String; 6]> {
    let (min, max) =
        if config.is_any() { (config.memory_min, config.memory_max) } else { family.shared().memory_bounds() };
    let keys = [("memory_min", min, config.memory_min, 0), ("memory_max", max, config.memory_max, u64::MAX)];
    let shown = keys.into_iter().filter(|(_, now, configured, absent)| now != absent || configured != absent);
    let row = |(key, now, configured, absent): (&str, u64, u64, u64)| {
        let value = if now == absent { String::new() } else { now.to_string() };
        let source = if now == configured { Source::File.label() } else { "run time" };
        [format!("{TABLE}.{name}.{key}"), value, String::new(), "yes".to_owned(), source.to_owned(), String::new()]
    };
    shown.map(row).collect()
}

/// The bypass, if a statement has switched it.
fn at_run_time(config: &DatabaseConfig, family: &Family) -> Option<String> {
    let bypass = family.shared().switches.is_bypass_asked();
    (bypass != config.args.bypass).then(|| bypass.to_string())
}

impl Console for Running {
    fn settings(&self) -> Vec<[String; 6]> {
        let state = self.state();
        let row = |setting: &Setting| {
            let later = state.after_restart.iter().find(|later| later.key == setting.key).map(Setting::shown);
            let (value, source) = match self.at_run_time(&state, &setting.key) {
                Some(value) => (value, "run time"),
                None => (setting.shown(), setting.source.label()),
            };
            let changeable = if is_reloaded(&setting.key) { "yes" } else { "no" };
            let (key, default) = (setting.key.clone(), setting.default.clone());
            [key, value, default, changeable.to_owned(), source.to_owned(), later.unwrap_or_default()]
        };
        state.settings.iter().map(row).chain(self.rows_of_databases(&state)).collect()
    }

    fn reload(&self, user: &str) -> Result<Vec<[String; 4]>, String> {
        self.check_in_charge()?;
        let changes =
            self.reload_settings(&format!("RELOAD by user \"{user}\"")).map_err(|faults| fault::lines(&faults))?;
        let failures: Vec<String> = self.reload_access().iter().map(ToString::to_string).collect();
        if !failures.is_empty() {
            let failures = failures.join("\n");
            tracing::error!("RELOAD: not read again, the earlier one stays in use: {failures}");
            return Err(failures);
        }
        let row = |change: Change| {
            let effect = if change.in_force { "in force" } else { "needs a restart" };
            [change.key, change.before, change.now, effect.to_owned()]
        };
        Ok(changes.into_iter().map(row).collect())
    }

    fn create_cache(&self, user: &str, new: NewCache) -> Result<String, AdminError> {
        self.create_cache(user, &new)
    }

    fn drop_caches(&self, user: &str, called: Option<&str>) -> Result<Vec<(String, Option<String>)>, AdminError> {
        self.drop_caches(user, called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::definition::{command, key, settings};

    #[test]
    fn what_is_reloaded_is_a_setting() {
        let settings = settings(&command());
        assert!(RELOADED.iter().all(|(name, _)| settings.iter().any(|arg| key(arg) == *name)));
        assert!(!is_reloaded("upstream"));
    }
}
