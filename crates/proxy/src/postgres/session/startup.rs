//! The start of a session: the client logs in, and from then on both sides exchange messages.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};

use freshet_net::Socket;
use freshet_net::postgres::secret::random;
use freshet_types::Reason;
use freshet_wire::postgres::frame;
use freshet_wire::postgres::startup::Replication;

use crate::peer::Peer;
use crate::postgres::Pg;
use crate::postgres::console;
use crate::postgres::login::{Admitted, Entered, Upstreams, admit, admit_carried};
use crate::postgres::session::block::Transaction;
use crate::postgres::session::client_side::ClientSide;
use crate::postgres::session::complete::CompleteFills;
use crate::postgres::session::definitions::Definitions;
use crate::postgres::session::pipeline::Pipeline;
use crate::postgres::session::prefetch::Prefetch;
use crate::postgres::session::server_connection::ServerConnection;
use crate::postgres::session::sharing::Sharing;
use crate::postgres::session::unit::Kind;
use crate::postgres::session::waiting::Waiting;
use crate::postgres::session::watermark::SessionWatermark;
use crate::postgres::session::way::Way;
use crate::postgres::session::{Session, SessionError};
use crate::server::access::Incoming;
use crate::server::carried::CarriedSession;
use crate::server::databases::Databases;
use crate::server::sessions::{About, Link};
use crate::session::last::Last;

/// Serves a connection from its first byte to its end.
pub(crate) async fn serve(socket: Incoming, databases: Arc<Databases>, worker: usize) {
    // In a box of its own: the login's state is large, and is dropped before the session begins.
    if let Some(admitted) = Box::pin(enter(socket, &databases)).await {
        go_on(admitted, &databases, worker).await;
    }
}

/// Serves a session of another process to its end.
pub(crate) async fn take_over(session: CarriedSession, databases: Arc<Databases>, worker: usize) {
    if let Some(admitted) = Box::pin(admit_carried(session, &databases)).await {
        go_on(*admitted, &databases, worker).await;
    }
}

async fn go_on(admitted: Admitted, databases: &Databases, worker: usize) {
    let shared = admitted.shared.clone();
    if let Some(counters) = shared.metrics.worker(worker) {
        counters.sessions.fetch_add(1, Relaxed);
    }
    if let Err(error) = converse(admitted, &shared, databases, worker).await {
        tracing::debug!(%error, "session ended");
    }
    if let Some(counters) = shared.metrics.worker(worker) {
        counters.sessions.fetch_sub(1, Relaxed);
    }
}

/// Logs the client in; None: it has gone, or the console has served it.
async fn enter(socket: Incoming, databases: &Databases) -> Option<Admitted> {
    match admit(socket, databases).await? {
        Entered::Session(admitted) => Some(*admitted),
        Entered::Console(visitor, shared) => {
            console::serve(*visitor, &shared, databases).await;
            None
        }
    }
}

async fn converse(
    admitted: Admitted,
    shared: &Arc<Pg>,
    databases: &Databases,
    worker: usize,
) -> Result<(), SessionError> {
    let listed = shared.sessions.begin(about(&admitted));
    // A reload during the login has not found it in the list.
    if !databases.leads_to(&admitted.names.database, shared) {
        listed.link.dismiss();
    }
    let without_stream = without_stream(&admitted);
    let Admitted { client, upstream, replication, user, names, tenancy: _tenancy, place: _place, .. } = admitted;
    let _woken = shared.switches.enlist().await;
    listed.link.enlist().await;
    // The number of answers on a replication connection is unknown; it may also run SQL.
    let kind = if replication == Replication::No { Kind::Startup } else { Kind::Raw };
    // The user is replaced by the one that the server reports, as soon as it can be asked.
    let connection = |socket: Peer| ServerConnection::new(socket, (user, names.database), without_stream);
    let new = |server, pipeline| Session {
        worker,
        ..Session::new(client, server, shared.clone(), (pipeline, listed.link.clone()))
    };
    let mut session = match upstream {
        Upstreams::Own(peer, asked_under) => {
            let mut session = new(connection(peer), Pipeline::new(kind));
            if let Some(under) = asked_under {
                session.asked_at_login(under);
            }
            session
        }
        Upstreams::Shared(login, first) => {
            let mut session = new(connection(Peer::absent()), Pipeline::empty());
            let key = cancel_key(listed.link.id, first.beginning.origin.cancel_key.len())?;
            let sharing = Sharing::new(login, shared.pooling.cancel_keys.enlist(key, own_waker().await));
            session.begin_shared(sharing, *first);
            session
        }
        Upstreams::Carried(login, key, carried) => {
            let mut session = new(connection(Peer::absent()), Pipeline::empty());
            let sharing = Sharing::new(login, shared.pooling.cancel_keys.enlist(key, own_waker().await));
            session.begin_carried(sharing, &carried);
            session
        }
    };
    let ended = session.run().await;
    session.note_traffic();
    ended
}

/// Why its statements pass as long as its database has no change stream.
fn without_stream(Admitted { tenancy, shared, .. }: &Admitted) -> Reason {
    match (tenancy, &shared.own.on_demand) {
        (_, None) => Reason::NoStream,
        (Some(tenancy), Some(_)) => tenancy.kept_out(),
        (None, Some(_)) => Reason::DatabaseNotOpened,
    }
}

/// A key for cancel requests, as long as the server's: no other session has its first part.
fn cancel_key(session: u64, bytes: usize) -> std::io::Result<Box<[u8]>> {
    let secret: [u8; 32] = random()?;
    let id = (session as u32 & i32::MAX as u32).to_be_bytes();
    let key = [id.as_slice(), &secret].concat();
    Ok(key.get(..bytes.clamp(8, key.len())).unwrap_or_default().into())
}

async fn own_waker() -> Waker {
    std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

fn about(admitted: &Admitted) -> About {
    let client = admitted.client.socket();
    let server = match &admitted.upstream {
        Upstreams::Own(peer, _) => Some(peer.socket()),
        Upstreams::Carried(..) => None,
        Upstreams::Shared(_, first) => first.obtained.as_ref().map(|obtained| &obtained.connection.socket),
    };
    About {
        user: admitted.user.clone(),
        database: admitted.names.database.clone(),
        application_name: admitted.names.application_name.clone(),
        console: false,
        replication: admitted.replication,
        client: client.addresses(),
        server: server.and_then(Socket::addresses),
        tls: (client.is_encrypted(), server.is_some_and(Socket::is_encrypted)),
    }
}

impl Session {
    fn new(client: Peer, server: ServerConnection, shared: Arc<Pg>, (pipeline, link): (Pipeline, Arc<Link>)) -> Self {
        Self {
            shared,
            worker: 0,
            link,
            client: ClientSide::new(client),
            server,
            pipeline,
            transaction: Transaction::new(),
            watermark: SessionWatermark::default(),
            prefetch: Prefetch::default(),
            complete: CompleteFills::default(),
            definitions: Definitions::default(),
            waiting: Waiting::default(),
            way: Way::default(),
            key: Vec::with_capacity(frame::HEADER_BYTES * 64),
            last: Last::default(),
        }
    }
}
