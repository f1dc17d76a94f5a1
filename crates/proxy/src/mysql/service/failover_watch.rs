//! Notices that the upstream's name leads to another server: see [`crate::service::failover_watch`].

use std::sync::Arc;

use crate::mysql::MySql;
use crate::mysql::service::connection::connect;
use crate::service::failover_watch;

/// Checks once per D; never returns.
pub(super) async fn watch_failover(mysql: Arc<MySql>) {
    let look = || async {
        let (client, server) = connect(&mysql).await.ok()?;
        client.close().await;
        Some(server)
    };
    failover_watch::watch_failover(&mysql, &mysql.own.upstream, look).await;
}
