//! Idle server connections are closed when their time is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::mysql::MySql;
use crate::pool::PoolMode;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Closes the connections of the pools that have been idle for too long, or are too old, for ever.
pub(super) async fn close_idle_connections(mysql: Arc<MySql>) {
    if mysql.settings.pool.mode != PoolMode::Transaction {
        return;
    }
    loop {
        sleep(LOOK_EVERY).await;
        mysql.pools.close_expired();
    }
}
