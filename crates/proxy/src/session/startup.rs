//! A session begins: its client is let in, and both sides speak in frames from here on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_cache::Floor;
use freshet_wire::pg::{backend, frame};
use tokio::io::AsyncWriteExt;

use crate::login::{Admitted, Incoming, admit};
use crate::session::peer::Peer;
use crate::session::unit::{ClientUnit, Kind, Unit};
use crate::session::{Known, Session, SessionError};
use crate::shared::Shared;

/// Serves one connection from its first byte to its end.
pub(crate) async fn serve(socket: Incoming, shared: Arc<Shared>, worker: usize) {
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

async fn converse(admitted: Admitted, shared: &Arc<Shared>, worker: usize) -> Result<(), SessionError> {
    let Admitted { mut client, mut upstream, replication } = admitted;
    if !replication {
        return Session::new(client, upstream, shared.clone(), worker).run().await;
    }
    let (from_client, from_upstream) = (client.input.bytes().to_vec(), upstream.input.bytes().to_vec());
    client.output.put(&from_upstream);
    client.flush().await?;
    upstream.output.put(&from_client);
    upstream.flush().await?;
    let (mut client, mut upstream) = (client.into_socket(), upstream.into_socket());
    tokio::io::copy_bidirectional(&mut client, &mut upstream).await?;
    let _ = client.shutdown().await;
    Ok(())
}

impl Session {
    fn new(client: Peer, upstream: Peer, shared: Arc<Shared>, worker: usize) -> Self {
        // The start-up is a unit of the client's: it ends with the first ReadyForQuery.
        let units = VecDeque::from([Unit::Client(ClientUnit { kind: Kind::Startup, ..ClientUnit::default() })]);
        Self {
            shared,
            worker,
            client,
            upstream,
            units,
            impure: 1,
            status: backend::STATUS_IDLE,
            known: Known::Nothing,
            asked_under: freshet_model::CatalogVersion::default(),
            server: None,
            idle_max: None,
            ready_at: 0,
            compared: None,
            user: String::new(),
            statements: crate::session::statements::Statements::default(),
            floor: Floor::default(),
            looked_up: false,
            own: crate::session::own::OwnStatements::default(),
            passing: None,
            absorb_sync: false,
            notified: false,
            had_temporary: false,
            catalog_dirty: false,
            configuration: None,
            client_rest: 0,
            upstream_rest: 0,
            upstream_way: crate::session::upstream::Way::default(),
            proof: None,
            complete: Vec::new(),
            key: Vec::with_capacity(frame::HEADER_BYTES * 64),
            ending: crate::session::Ending::Open,
        }
    }
}
