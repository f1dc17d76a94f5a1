//! What runs beside the sessions, each on an upstream connection of its own, so that none waits for another.
//!
//! Invalidated results are not read again in the background, as PostgreSQL's are. The answer must be the one that a session of
//! the result's context would get, byte for byte. But no connection here can become another account, as a superuser of
//! PostgreSQL can become any role; and the bytes hang on what the client said of itself at its login. So the next reader
//! brings a result back.

mod catalog;
mod connection;
mod failover_watch;
mod join_keys;
mod lease;
mod prober;

use std::sync::Arc;

use crate::mysql::MySql;

pub(crate) use catalog::Redefinitions;

/// Starts all services, for ever.
pub fn start(mysql: &Arc<MySql>) {
    tokio::spawn(lease::keep_lease(mysql.clone()));
    tokio::spawn(prober::prove_commits(mysql.clone()));
    tokio::spawn(catalog::watch_catalog(mysql.clone()));
    join_keys::run_key_queries(mysql);
    tokio::spawn(failover_watch::watch_failover(mysql.clone()));
}
