//! A session begins: its client is let in, and both sides speak in frames from here on.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_wire::postgres::frame;

use crate::peer::Peer;
use crate::postgres::Pg;
use crate::postgres::login::{Admitted, admit};
use crate::postgres::session::block::Transaction;
use crate::postgres::session::client_side::ClientSide;
use crate::postgres::session::complete::CompleteFills;
use crate::postgres::session::definitions::Definitions;
use crate::postgres::session::hold::Waiting;
use crate::postgres::session::pipeline::Pipeline;
use crate::postgres::session::prefetch::Prefetch;
use crate::postgres::session::server_connection::ServerConnection;
use crate::postgres::session::unit::Kind;
use crate::postgres::session::watermark::SessionWatermark;
use crate::postgres::session::way::Way;
use crate::postgres::session::{Session, SessionError};
use crate::server::access::Incoming;

/// Serves one connection from its first byte to its end.
pub(crate) async fn serve(socket: Incoming, shared: Arc<Pg>, worker: usize) {
    // In a box of its own: the login's state is large, and gone before the session begins.
    let Some(admitted) = Box::pin(admit(socket, &shared)).await else { return };
    if let Some(counters) = shared.metrics.worker(worker) {
        counters.sessions.fetch_add(1, Relaxed);
    }
    if let Err(error) = converse(admitted, &shared, worker).await {
        tracing::debug!(%error, "session ended");
    }
    if let Some(counters) = shared.metrics.worker(worker) {
        counters.sessions.fetch_sub(1, Relaxed);
    }
}

async fn converse(admitted: Admitted, shared: &Arc<Pg>, worker: usize) -> Result<(), SessionError> {
    let Admitted { client, upstream, replication, user, asked_under } = admitted;
    let _woken = shared.switches.enlist().await;
    // What a replication connection is owed cannot be counted; it may run SQL all the same.
    let kind = if replication { Kind::Raw } else { Kind::Startup };
    // The server's own word replaces the user as soon as it can be asked.
    let server = ServerConnection::new(upstream, user);
    let session = Session::new(client, server, shared.clone(), kind);
    let mut session = Session { worker, ..session };
    if let Some(under) = asked_under {
        session.asked_at_login(under);
    }
    session.run().await
}

impl Session {
    fn new(client: Peer, server: ServerConnection, shared: Arc<Pg>, kind: Kind) -> Self {
        Self {
            shared,
            worker: 0,
            client: ClientSide::new(client),
            server,
            pipeline: Pipeline::new(kind),
            transaction: Transaction::new(),
            watermark: SessionWatermark::default(),
            prefetch: Prefetch::default(),
            complete: CompleteFills::default(),
            definitions: Definitions::default(),
            waiting: Waiting::default(),
            way: Way::default(),
            key: Vec::with_capacity(frame::HEADER_BYTES * 64),
            looked_up_at: 0,
        }
    }
}
