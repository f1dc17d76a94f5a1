//! Services beside the sessions, each on its own upstream connection, so that none waits for another.
//!
//! Invalidated results are not refreshed in the background, unlike on PostgreSQL. The answer must be byte for byte the one that a session of the
//! result's context would get. But no connection here can become another account, as a superuser of PostgreSQL can become any role, and the bytes
//! depend on the client's capabilities at its login. So the next reader fills the result.

mod catalog;
mod connection;
mod failover_watch;
mod join_keys;
mod lease;
mod prober;

use std::sync::Arc;

use crate::mysql::MySql;

pub(crate) use catalog::Redefinitions;

/// Starts all services.
pub fn start(mysql: &Arc<MySql>) {
    mysql.tasks.spawn(lease::keep_lease(mysql.clone()));
    mysql.tasks.spawn(prober::prove_commits(mysql.clone()));
    mysql.tasks.spawn(catalog::watch_catalog(mysql.clone()));
    join_keys::run_key_queries(mysql);
    mysql.tasks.spawn(failover_watch::watch_failover(mysql.clone()));
}
