//! The pools in the course of time: idle server connections are closed when their time is over, and missing ones are opened.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::postgres::Pg;
use crate::postgres::pooling::open_ahead;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Closes the idle connections of the pools that have been idle for too long, or are too old, and opens those that a pool lacks for its minimum, for
/// ever.
pub async fn tend_pools(shared: Arc<Pg>) {
    if !shared.settings.pool.may_share() {
        return;
    }
    loop {
        sleep(LOOK_EVERY).await;
        let logins = shared.pooling.logins.of_each_pool();
        shared.pooling.pools.close_expired(|key| logins.contains_key(key));
        // Those to replicas have no minimum: they are opened when they are needed.
        shared.pooling.replicas.iter().for_each(|pools| pools.close_expired(|_| false));
        if shared.settings.pool.min > 0 {
            open_ahead(&shared, logins).await;
        }
    }
}
