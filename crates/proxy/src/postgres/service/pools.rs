//! Idle server connections are closed when their time is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::pool::PoolMode;
use crate::postgres::Pg;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Closes the idle connections of the pools that have been idle for too long, or are too old, for ever.
pub async fn close_idle_connections(shared: Arc<Pg>) {
    if shared.settings.pool.mode == PoolMode::Session {
        return;
    }
    loop {
        sleep(LOOK_EVERY).await;
        shared.pooling.pools.close_expired();
    }
}
