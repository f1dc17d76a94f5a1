//! Notices that the upstream's name leads to another server than that of the change stream.
//!
//! A failover moves a DNS entry or an address to another server. If the old primary stays alive, its connections do not break. The stream continues
//! and every lease is renewed, but for a server that clients no longer use. No answer is wrong, since a session hits only if its own connection leads
//! to the stream's server. But new sessions never hit, and the slot on the old server is useless. So once per D a *new* connection checks the
//! server's identity. If it is another server, the stream ends at once, and a new one is established by the name.
//!
//! A promotion alone does not count: the server keeps its start time, and the stream never came from a standby. A demotion needs a restart, after
//! which the start time differs. So system identifier and start time are sufficient. A standby under this name has another identity, too; otherwise
//! no stream would be established.

use std::fmt::Display;
use std::time::Duration;

use crate::shared::{ServerIdentity, Shared};

/// The shortest interval of checks, used if D is shorter. Each check is a login.
const EVERY_MIN: Duration = Duration::from_millis(500);

/// Checks once per D; never returns. `look` opens a new connection and returns the server's identity. None if no server answers.
pub(crate) async fn watch_failover<L: Future<Output = Option<ServerIdentity>>>(
    shared: &Shared,
    upstream: &impl Display,
    look: impl Fn() -> L,
) {
    loop {
        let every = Duration::from_nanos(shared.cache.limits().staleness_max).max(EVERY_MIN);
        tokio::time::sleep(every).await;
        // Without a stream, the follower connects by itself.
        let Some(stream) = shared.identity() else { continue };
        // No answer does not mean another server.
        let Some(server) = look().await else { continue };
        let unchanged = shared.identity().is_some_and(|now| *now == *stream);
        if unchanged && server != *stream {
            tracing::warn!(
                "{upstream} leads to another server than the change stream's (or to one that was restarted): starting anew there"
            );
            shared.restart_stream.notify_one();
        }
    }
}
