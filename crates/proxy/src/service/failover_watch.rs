//! Notices that the upstream's name leads to another server than the one that sends the change stream.
//!
//! A failover moves a DNS entry or an address to another server. If the old primary stays alive, its connections do not
//! break: the stream goes on, every lease is renewed, and all of it is about a server that nobody means any more. No answer
//! is wrong by that, since a session hits only if its own connection leads to the stream's server; but new sessions
//! never hit, and the slot on the old server stands for nothing. So once per D a *new* connection asks who is there.
//! If it is another, the stream is given up at once, and found anew by the name.
//!
//! A promotion alone is no move: the server keeps its start time, and the stream never came from a standby. A demotion
//! needs a restart, which is another run. So system identifier and start time tell all; a standby that answers to the
//! name is another server by these too, or the stream would not stand.

use std::fmt::Display;
use std::time::Duration;

use crate::shared::{ServerIdentity, Shared};

/// Least time between looks, if D is shorter: each is a login.
const EVERY_MIN: Duration = Duration::from_millis(500);

/// Looks once per D, for ever. `look` opens a new connection and tells where it leads; None: nobody answers.
pub(crate) async fn watch_failover<L: Future<Output = Option<ServerIdentity>>>(
    shared: &Shared,
    upstream: &impl Display,
    look: impl Fn() -> L,
) {
    let every = Duration::from_nanos(shared.cache.limits().staleness_max).max(EVERY_MIN);
    loop {
        tokio::time::sleep(every).await;
        // While there is no stream, the follower looks by itself.
        let Some(stream) = shared.identity() else { continue };
        // Who does not answer is not elsewhere.
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
