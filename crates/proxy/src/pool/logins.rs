//! Logins of clients that are connected: with them, connections can be opened before a client needs one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::pool::PoolKey;

/// The logins by their pool. A login is known as long as its session has it.
#[derive(Debug)]
pub(crate) struct Logins<L>(Mutex<HashMap<Arc<PoolKey>, Vec<Weak<L>>>>);

impl<L> Default for Logins<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L> Logins<L> {
    /// A client of this pool has logged in.
    pub(crate) fn note(&self, key: &Arc<PoolKey>, login: &Arc<L>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key.clone()).or_default().push(Arc::downgrade(login));
    }

    /// One of each pool that has clients, the latest.
    pub(crate) fn of_each_pool(&self) -> HashMap<Arc<PoolKey>, Arc<L>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = HashMap::new();
        all.retain(|key, logins| {
            logins.retain(|login| login.strong_count() > 0);
            found.extend(logins.iter().rev().find_map(Weak::upgrade).map(|login| (key.clone(), login)));
            !logins.is_empty()
        });
        found
    }
}
