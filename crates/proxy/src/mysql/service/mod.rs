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
mod servers;

use std::sync::Arc;

use freshet_net::mysql::Client;

use crate::mysql::MySql;
use crate::mysql::kills::Thread;

pub(crate) use catalog::Redefinitions;

/// Has the server cancel what one of its connections runs. Returns when it has.
pub(crate) async fn kill_query(mysql: &Arc<MySql>, thread: Thread) -> Result<(), connection::ServiceError> {
    let sql = format!("KILL QUERY {}", thread.number);
    if !mysql.own.upstream.has_several_hosts() {
        return connection::Connection::new(mysql.clone()).query(&sql).await.map(drop);
    }
    let mut client = Client::connect_to(&mysql.own.upstream, thread.host).await?;
    client.query_timeout(&sql, connection::ANSWER_TIMEOUT).await?;
    client.close().await;
    Ok(())
}

/// Starts all services.
pub fn start(mysql: &Arc<MySql>) {
    mysql.tasks.spawn(lease::keep_lease(mysql.clone()));
    mysql.tasks.spawn(prober::prove_commits(mysql.clone()));
    mysql.tasks.spawn(catalog::watch_catalog(mysql.clone()));
    join_keys::run_key_queries(mysql);
    mysql.tasks.spawn(pools::tend_pools(mysql.clone()));
    servers::watch_servers(mysql);
    mysql.tasks.spawn(failover_watch::watch_failover(mysql.clone()));
}
