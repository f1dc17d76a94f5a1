//! The pools in the course of time: idle server connections are closed when their time is over, and missing ones are opened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::mysql::MySql;
use crate::mysql::session::{PooledLogin, ServerConnection};
use crate::pool::PoolKey;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Closes the connections of the pools that have been idle for too long, or are too old, and opens those that a pool lacks for its minimum, for ever.
pub(super) async fn tend_pools(mysql: Arc<MySql>) {
    if !mysql.settings.pool.may_share() {
        return;
    }
    loop {
        sleep(LOOK_EVERY).await;
        let logins = mysql.logins.of_each_pool();
        mysql.pools.close_expired(|key| logins.contains_key(key));
        if mysql.settings.pool.min > 0 && !mysql.sessions.pauses.are_of_all() {
            open_ahead(&mysql, logins).await;
        }
    }
}

/// Opens the connections that pools with clients lack for their minimum.
async fn open_ahead(mysql: &Arc<MySql>, logins: HashMap<Arc<PoolKey>, Arc<PooledLogin>>) {
    for (key, login) in logins {
        while let Some(lease) = mysql.pools.place_below_minimum(&key, &login.group) {
            // The next look tries it again.
            let Ok((peer, thread)) = login.account.log_in_again(login.database.as_deref(), mysql, None).await else {
                break;
            };
            let Some(connection) = ServerConnection::at_rest(peer, thread) else { break };
            lease.give_back(connection);
        }
    }
}
