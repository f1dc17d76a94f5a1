//! Notices that the upstream's name leads to another server than the one that sends the change stream.
//!
//! A failover moves a DNS entry or an address to another server. If the old primary stays alive, its connections do not
//! break: the stream goes on, every lease is renewed, and all of it is about a server that nobody means any more. No answer
//! is wrong by that, since a session hits only if its own connection leads to the stream's server; but new sessions never
//! hit. So once per D a *new* connection asks who is there. If it is another, or was started again, the stream is given up
//! at once, and found anew by the name.

use std::sync::Arc;
use std::time::Duration;

use crate::mysql::MySql;
use crate::mysql::service::connection::connect;

/// Least time between looks, if D is shorter: each is a login.
const EVERY_MIN: Duration = Duration::from_millis(500);

/// Looks once per D, for ever.
pub(super) async fn watch_whereabouts(mysql: Arc<MySql>) {
    let every = Duration::from_nanos(mysql.cache.limits().staleness_max).max(EVERY_MIN);
    loop {
        tokio::time::sleep(every).await;
        // While there is no stream, the follower looks by itself.
        let Some(stream) = mysql.identity() else { continue };
        // Who does not answer is not elsewhere.
        let Ok((client, server)) = connect(&mysql).await else { continue };
        client.close().await;
        let unchanged = mysql.identity().is_some_and(|now| *now == *stream);
        if unchanged && server != *stream {
            tracing::warn!(
                "{} leads to another server than the change stream's (or to one that was restarted): starting anew there",
                mysql.own.upstream
            );
            mysql.restart_stream.notify_one();
        }
    }
}
