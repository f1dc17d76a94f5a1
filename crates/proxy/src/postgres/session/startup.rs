//! A session begins: its client is let in, and both sides speak in frames from here on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_cache::Watermark;
use freshet_wire::postgres::{backend, frame};

use crate::peer::Peer;
use crate::postgres::Pg;
use crate::postgres::login::{Admitted, admit};
use crate::postgres::session::prefetch::Prefetch;
use crate::postgres::session::server_connection::ServerConnection;
use crate::postgres::session::unit::{ClientUnit, Kind, Unit};
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
        // The start-up is a unit of the client's: it ends with the first ReadyForQuery.
        let units = VecDeque::from([Unit::Client(ClientUnit { kind, ..ClientUnit::default() })]);
        Self {
            shared,
            worker: 0,
            client,
            server,
            units,
            impure: 1,
            status: backend::STATUS_IDLE,
            watermark: Watermark::default(),
            unflushed: None,
            prefetch: Prefetch::default(),
            passing: None,
            leads: false,
            portals: false,
            absorb_sync: false,
            notified: false,
            reads: false,
            misses_in_row: 0,
            catalog_dirty: false,
            client_rest: 0,
            long_text: None,
            long_defines: false,
            proof: None,
            complete: Vec::new(),
            block: None,
            block_fills: Vec::new(),
            block_fills_due: 0,
            waiting: crate::postgres::session::hold::Waiting::default(),
            defining: None,
            way: super::way::Way::default(),
            redefined: false,
            redefining: None,
            key: Vec::with_capacity(frame::HEADER_BYTES * 64),
            looked_up_at: 0,
            ending: crate::postgres::session::Ending::Open,
        }
    }
}
