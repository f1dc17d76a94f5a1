//! The databases that the entry `*` opens at first use.

use std::sync::Arc;
use std::time::Duration;

use freshet_proxy::postgres::{Earlier, Opener, Pg};
use freshet_proxy::{Database, Family};

use crate::serve::databases::{Served, open_one};
use crate::serve::instance::Instance;
use crate::serve::kinds::{on_demand, takes};

impl Opener for Served {
    fn open(&self, name: &str, earlier: Option<Earlier>) -> Option<Arc<Pg>> {
        let this = self.this.upgrade()?;
        let config = self.state().any.as_ref()?.of(name);
        let instance = Instance { count: self.databases.databases().len() as u64 + 1, ..self.instance.clone() };
        let database = open_one(&config, &instance);
        let database = database.inspect_err(|error| tracing::warn!("{name} is not cached: {error:#}")).ok()?;
        let Family::Postgres(pg) = &database.family else { return None };
        let all = self.databases.databases();
        if let Some(console) = all.first().and_then(|first| first.family.shared().console.get()) {
            // No other call sets it.
            let _ = pg.console.set(console.clone());
        }
        // Meanwhile a reload may have removed the entry, or given the database its own entry.
        let mut is_listed = false;
        self.databases.change(|current| {
            is_listed = current.iter().any(|entry| on_demand(entry).is_some())
                && !current.iter().any(|entry| takes(entry, &database));
            current.iter().cloned().chain(is_listed.then(|| database.clone())).collect()
        });
        if !is_listed {
            return None;
        }
        // Locked until they are set: later rules come later.
        pg.set_rules(&self.state().rules);
        this.begin(&database, &config, earlier);
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
