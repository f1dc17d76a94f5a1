//! Notices that the upstream's name leads to another server: see [`crate::service::failover_watch`].

use std::sync::Arc;

use crate::postgres::Pg;
use crate::postgres::service::connection::connect;
use crate::service::failover_watch;

/// Checks once per D; never returns.
pub async fn watch_failover(pg: Arc<Pg>) {
    let look = || async {
        let noticed = pg.reloads.noticed();
        let (client, server) = connect(&pg).await.ok()?;
        pg.reloads.settle(noticed, pg.clock.now());
        client.close().await;
        Some(server)
    };
    failover_watch::watch_failover(&pg, &pg.own.upstream, look).await;
}
