//! Cancel requests: to the session with a key of Freshet's own, or else to the servers.

use std::time::Duration;

use tokio::time::timeout;

use crate::server::databases::Databases;

/// With several servers, a client that cancels waits no longer than this for all of them.
const CANCEL_WAIT: Duration = Duration::from_millis(500);

/// Sends a cancel request to all servers at once: it does not say in words that Freshet could read which session it means, and a server ignores a
/// request whose key is not one of its own. One that hangs delays neither the others nor, for long, the client: its request goes on behind.
pub(super) async fn cancel(databases: &Databases, packet: &[u8]) {
    for pg in databases.all_of_postgres() {
        if pg.pooling.cancel_keys.cancel(packet, &pg.own.upstream).await {
            return;
        }
    }
    let (done, mut all_done) = tokio::sync::mpsc::channel::<()>(1);
    let servers = databases.postgres_servers();
    for pg in &servers {
        let (pg, packet, done) = (pg.clone(), packet.to_vec(), done.clone());
        freshet_net::spawn(async move {
            if let Err(error) = freshet_net::postgres::cancel(&pg.own.upstream, None, &packet).await {
                tracing::debug!(%error, "a cancel request was not delivered");
            }
            drop(done);
        });
    }
    drop(done);
    // It ends once no task has its sender any more.
    let delivered = all_done.recv();
    if servers.len() > 1 {
        let _ = timeout(CANCEL_WAIT, delivered).await;
    } else {
        delivered.await;
    }
}
