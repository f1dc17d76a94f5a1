//! Which databases are paused: said once for all PostgreSQL databases of the instance, so that one that is opened during a pause is paused, too.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Paused {
    all: bool,
    by_name: BTreeSet<String>,
}

/// The pauses.
#[derive(Debug, Default)]
pub struct Pauses {
    paused: Mutex<Paused>,
    resumed: Notify,
}

impl Pauses {
    fn paused(&self) -> MutexGuard<'_, Paused> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses a database, or all.
    pub(crate) fn begin(&self, database: Option<&str>) {
        let mut paused = self.paused();
        match database {
            Some(database) => _ = paused.by_name.insert(database.to_owned()),
            None => paused.all = true,
        }
    }

    /// Ends the pause of a database, or of all; false: there was none. Those that were paused by name stay so, as in PgBouncer.
    pub(crate) fn end(&self, database: Option<&str>) -> bool {
        let mut paused = self.paused();
        let was_paused = match database {
            Some(database) => paused.by_name.remove(database),
            None => std::mem::take(&mut paused.all),
        };
        drop(paused);
        self.resumed.notify_waiters();
        was_paused
    }

    /// Whether all databases are paused.
    pub(crate) fn are_of_all(&self) -> bool {
        self.paused().all
    }

    /// Whether the database is paused.
    pub(crate) fn include(&self, database: &str) -> bool {
        let paused = self.paused();
        paused.all || paused.by_name.contains(database)
    }

    /// Returns when the database is not paused.
    pub(crate) async fn resumed(&self, database: &str) {
        loop {
            let mut resumed = std::pin::pin!(self.resumed.notified());
            resumed.as_mut().enable();
            if !self.include(database) {
                return;
            }
            resumed.await;
        }
    }
}
