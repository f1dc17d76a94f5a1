//! Services in addition to the sessions. Each has its own upstream connection, so that none waits for another.
//!
//! Unlike on PostgreSQL, invalidated results are not refreshed in the background. The answer must be byte for byte the one that a session of the
//! result's context would get. A superuser of PostgreSQL can become any role, but no connection here can become another account. The bytes also
//! depend on the client's capabilities at its login. So the next reader fills the result.

mod catalog;
mod connection;
mod failover_watch;
mod join_keys;
mod lease;
mod pools;
mod prober;

use std::sync::Arc;

use crate::mysql::MySql;

pub(crate) use catalog::Redefinitions;

/// Has the server cancel what one of its connections runs. Returns when it has.
pub(crate) async fn kill_query(mysql: &Arc<MySql>, thread: u32) -> Result<(), connection::ServiceError> {
    connection::Connection::new(mysql.clone()).query(&format!("KILL QUERY {thread}")).await.map(drop)
}

/// Starts all services.
pub fn start(mysql: &Arc<MySql>) {
    mysql.tasks.spawn(lease::keep_lease(mysql.clone()));
    mysql.tasks.spawn(prober::prove_commits(mysql.clone()));
    mysql.tasks.spawn(catalog::watch_catalog(mysql.clone()));
    join_keys::run_key_queries(mysql);
    mysql.tasks.spawn(pools::tend_pools(mysql.clone()));
    mysql.tasks.spawn(failover_watch::watch_failover(mysql.clone()));
}
