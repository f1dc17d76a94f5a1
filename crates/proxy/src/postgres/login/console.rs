//! Logins to the console: the client proves who it is as for a session, and gets none.
//!
//! Where the database authenticates the clients itself, it does so here, too: the client logs in to the database of the upstream through
//! Freshet, and the connection is closed again. Who has no right to the console is told after the proof, so that nobody else learns who has.

use std::sync::Arc;
use std::sync::PoisonError;

use freshet_wire::postgres::{backend, frontend, startup, table};

use super::exchange::prove;
use super::greet::TlsFacts;
use super::{Method, NAME_BYTES_MAX, Names, Refusal, checks, relay};
use crate::peer::Peer;
use crate::postgres::Pg;

/// The name of PgBouncer's own database.
pub(super) const DATABASE: &str = "pgbouncer";

/// An authenticated client of the console: AuthenticationOk is in its output buffer.
pub(crate) struct Visitor {
    pub(crate) client: Peer,
    pub(crate) user: String,
    /// It may do all that the console can do; or else only see.
    pub(crate) is_admin: bool,
    pub(crate) names: Names,
}

/// Authenticates the client; its name, and whether it is an admin user.
pub(super) async fn log_in(
    client: &mut Peer,
    packet: &[u8],
    tls: &TlsFacts,
    shared: &Arc<Pg>,
) -> Result<(String, bool), Refusal> {
    let session = match startup::parse(packet) {
        Ok(startup::Startup::Session(session)) => session,
        Ok(_) => return Err(Refusal::Gone),
        Err(error) => return Err(Refusal::out_of_step(error.to_string())),
    };
    let user = String::from_utf8_lossy(session.user).into_owned();
    if user.as_bytes() != session.user || user.len() > NAME_BYTES_MAX {
        return Err(Refusal::wrong_password(&user));
    }
    if user.is_empty() {
        return Err(Refusal::Say("28000", "no PostgreSQL user name specified in startup packet".into()));
    }
    checks::leg(client, &session, shared)?;
    checks::rate(client, shared)?;
    if session.minor > 0 || !session.options.is_empty() {
        backend::put_negotiate(client.output.buffer(), 0, &session.options);
    }
    match shared.access.method {
        Method::Trust => {}
        Method::Cert => checks::certificate(&user, tls)?,
        Method::Auto if shared.access.sources.exist() => {
            let proven = prove(client, &user, tls, shared).await?;
            client.output.put(&proven.last_words);
        }
        Method::Auto => relay_login(client, &user, shared).await?,
    }
    let listed =
        |users: &std::sync::RwLock<Vec<String>>| users.read().unwrap_or_else(PoisonError::into_inner).contains(&user);
    let is_admin = listed(&shared.settings.admin_users);
    if !is_admin && !listed(&shared.settings.stats_users) {
        return Err(Refusal::Say("08P01", "not allowed".into()));
    }
    backend::put_authentication(client.output.buffer(), 0, &[]);
    Ok((user, is_admin))
}

/// The database authenticates the client, for a session that ends at once.
async fn relay_login(client: &mut Peer, user: &str, shared: &Arc<Pg>) -> Result<(), Refusal> {
    let packet = table::startup_packet(user, &shared.own.upstream.conninfo().database);
    let login = relay::relay(client, &packet, user, shared, &[]).await?;
    let mut upstream = Peer::new(login.socket);
    upstream.output.put(frontend::TERMINATE_FRAME);
    // It ends with its socket at the latest.
    let _ = upstream.flush().await;
    Ok(())
}
