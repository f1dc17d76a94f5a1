//! The configuration of a running Freshet: it is read again, and shown.
//!
//! The file is the truth, and it is read as a whole: a file with any fault changes nothing. Of what it says, the settings
//! in [`RELOADED`] are set at once; the others need a restart and stay as they were. What an operator changes by a
//! statement (`FRESHET MEMORY`, `FRESHET BYPASS`) stays until the setting changes in the file, or until the next start.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshet_proxy::{AccessError, Console, Family, Shared};

use crate::config::fault::{self, Fault};
use crate::config::resolve::{Resolved, Setting, read};
use crate::logging::{self, SetFilter};
use crate::serve::nanos;

/// How a setting is set.
type Set = fn(&Running, &Resolved);

/// The settings that may change while Freshet runs.
pub(crate) const RELOADED: &[(&str, Set)] = &[
    ("admin_users", |running, new| {
        let users = new.args.admin_users_or(running.family.upstream_user());
        *running.shared().settings.admin_users.write().unwrap_or_else(PoisonError::into_inner) = users;
    }),
    ("admission", |running, new| running.shared().cache.set_keep(new.args.admission.into())),
    ("bypass", |running, new| _ = running.shared().switches.set_bypass(new.args.bypass)),
    ("commit_wait", |running, new| running.shared().settings.hold_max.store(nanos(new.args.commit_wait), Relaxed)),
    // The end of the program reads it.
    ("drain_timeout", |_, _| {}),
    ("log", |running, new| {
        // The filter was checked with all other settings.
        if let Err(error) = logging::filter(&new.log).and_then(&running.set_filter) {
            tracing::error!("log: {error:#}");
        }
    }),
    ("login_failures_max", |running, new| running.family.set_login_failures_max(new.args.access.login_failures_max)),
    ("max_staleness", |running, new| running.shared().cache.set_staleness_max(nanos(new.args.max_staleness))),
    ("memory", |running, new| _ = running.shared().set_memory(new.args.memory.0)),
    ("stats_users", |running, new| {
        let users = new.args.stats_users.clone();
        *running.shared().settings.stats_users.write().unwrap_or_else(PoisonError::into_inner) = users;
    }),
    ("verify", |running, new| running.shared().verifier.set_rate(new.args.verify.0)),
];

/// Whether the setting may change while Freshet runs.
pub(crate) fn is_reloaded(key: &str) -> bool {
    RELOADED.iter().any(|(name, _)| *name == key)
}

/// One setting that is another than before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    key: String,
    before: String,
    now: String,
    in_force: bool,
}

/// What is in force.
struct State {
    settings: Vec<Setting>,
    /// What needs a restart to be in force.
    after_restart: Vec<Setting>,
    memory: u64,
    bypass: bool,
    drain_timeout: Duration,
}

/// The configuration of this process.
pub(crate) struct Running {
    arguments: Vec<OsString>,
    /// The file that it is read from.
    pub(crate) path: Option<PathBuf>,
    family: Family,
    set_filter: SetFilter,
    state: Mutex<State>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Running {
    pub(crate) fn new(arguments: Vec<OsString>, config: &Resolved, family: Family, set_filter: SetFilter) -> Self {
        let state = Mutex::new(State {
            settings: config.settings.clone(),
            after_restart: Vec::new(),
            memory: config.args.memory.0,
            bypass: config.args.bypass,
            drain_timeout: config.args.drain_timeout.0,
        });
        Self { arguments, path: config.args.config.clone(), family, set_filter, state }
    }

    fn shared(&self) -> &Shared {
        self.family.shared()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        self.state().drain_timeout
    }

    /// Reads the files of users and certificates again.
    pub(crate) fn reload_access(&self) -> Vec<AccessError> {
        self.family.reload_access()
    }

    /// Reads the configuration again and logs what came of it. `why`: what asked for it.
    pub(crate) fn reload_logged(&self, why: &str) {
        // What is wrong is in the log.
        let _ = self.reload_settings(why);
    }

    /// Reads the configuration again. On any fault all stays as it was.
    fn reload_settings(&self, why: &str) -> Result<Vec<Change>, Vec<Fault>> {
        // Held throughout: of two reloads the later has the last word.
        let mut state = self.state();
        let new = read(&self.arguments).inspect_err(|faults| {
            tracing::error!("{why}: the configuration is not read again, the earlier one stays in use");
            for fault in faults {
                tracing::error!("{fault}");
            }
        })?;
        let changes = self.take(&mut state, &new);
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

    fn take(&self, state: &mut State, new: &Resolved) -> Vec<Change> {
        state.after_restart.clear();
        let mut changes = Vec::new();
        for now in &new.settings {
            let Some(before) = state.settings.iter_mut().find(|before| before.key == now.key) else { continue };
            let set = RELOADED.iter().find(|(key, _)| *key == now.key).map(|(_, set)| set);
            if before.value == now.value {
                before.source = now.source;
                continue;
            }
            let (was, is) = (before.shown(), now.shown());
            changes.push(Change { key: now.key.clone(), before: was, now: is, in_force: set.is_some() });
            match set {
                Some(set) => {
                    set(self, new);
                    *before = now.clone();
                }
                None => state.after_restart.push(now.clone()),
            }
        }
        (state.memory, state.bypass) = (new.args.memory.0, new.args.bypass);
        state.drain_timeout = new.args.drain_timeout.0;
        changes
    }

    /// What was set by a statement, if that is another value than the configuration's.
    fn at_run_time(&self, state: &State, key: &str) -> Option<String> {
        let (memory, bypass) = (self.shared().cache.limits().memory_bytes, self.shared().switches.bypass());
        match key {
            "memory" if memory != state.memory => Some(memory.to_string()),
            "bypass" if bypass != state.bypass => Some(bypass.to_string()),
            _ => None,
        }
    }
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
        state.settings.iter().map(row).collect()
    }

    fn reload(&self, user: &str) -> Result<Vec<[String; 4]>, String> {
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
