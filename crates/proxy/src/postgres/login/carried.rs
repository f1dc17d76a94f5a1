//! Sessions of another process, which has logged them in.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_net::Socket;
use freshet_wire::postgres::startup::Replication;

use super::{Admitted, Names, Refusal, Upstreams, checks, say};
use crate::peer::Peer;
use crate::postgres::Pg;
use crate::postgres::session::{Carried, TERMINATED, way_of};
use crate::server::carried::CarriedSession;
use crate::server::databases::Databases;

/// What the session goes on with. If it cannot, its client is told what a drain would have told it.
pub(crate) async fn admit_carried(session: CarriedSession, databases: &Databases) -> Option<Box<Admitted>> {
    let CarriedSession { socket, state } = session;
    let client = Peer::new(Socket::inherited(socket).ok()?);
    let entered = match Carried::read(state.expose()) {
        Some(carried) => enter(client, carried, databases),
        None => Err(Box::new(client)),
    };
    match entered {
        Ok(admitted) => Some(Box::new(admitted)),
        Err(mut client) => {
            let (sqlstate, message) = TERMINATED;
            say(&mut client, &Refusal::Say(sqlstate, message.to_owned())).await;
            None
        }
    }
}

/// The client, if its session cannot go on.
fn enter(client: Peer, mut carried: Carried, databases: &Databases) -> Result<Admitted, Box<Peer>> {
    let routed = databases.postgres(carried.database.as_bytes());
    let shared = routed.map(|routed| routed.state).filter(|shared| may_go_on(&client, &carried, shared));
    let (Some(shared), Some(place)) = (shared, databases.rules.clients.enter()) else { return Err(Box::new(client)) };
    shared.metrics.connections.fetch_add(1, Relaxed);
    let names = Names { database: carried.database.clone(), ..Names::of(&carried.packet) };
    let user = carried.user.clone();
    let (login, key) = carried.login();
    let login = Arc::new(login);
    shared.pooling.logins.note(&login.key, &login);
    let upstream = Upstreams::Carried(login, key, Box::new(carried));
    Ok(Admitted { shared, client, upstream, replication: Replication::No, user, names, tenancy: None, place })
}

/// Whether a login of now would lead the client there, in the same way.
fn may_go_on(client: &Peer, carried: &Carried, shared: &Pg) -> bool {
    way_of(shared) == carried.way
        && shared.pool_mode(Some(&carried.user)).shares()
        && shared.access.may_know(&carried.user)
        && !checks::lacks_tls(client, shared)
}
