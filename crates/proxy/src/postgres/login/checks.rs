//! What a client must fulfil beside its proof: its address, its leg, its certificate.

use freshet_wire::postgres::startup;

use super::{Refusal, database_of, greet};
use crate::peer::Peer;
use crate::postgres::Pg;

/// Refuses clients whose address has failed too often.
pub(super) fn rate(client: &Peer, shared: &Pg) -> Result<(), Refusal> {
    let allowed = shared.access.rules.login_rate.allowed(client.socket().peer_ip(), shared.clock.now());
    allowed.map_err(|seconds| {
        Refusal::Say("28000", format!("too many failed logins from this address; try again in {seconds} s"))
    })
}

/// Whether TLS is required of this client, over TCP, and it has none.
pub(super) fn lacks_tls(client: &Peer, shared: &Pg) -> bool {
    shared.access.rules.tls_required && !client.socket().is_private()
}

/// Refuses clients that lack TLS.
pub(super) fn leg(client: &Peer, session: &startup::Session<'_>, shared: &Pg) -> Result<(), Refusal> {
    if !lacks_tls(client, shared) {
        return Ok(());
    }
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let database = database_of(session);
    let (user, database) = (text(session.user), text(database));
    Err(Refusal::Say(
        "28000",
        format!("Freshet accepts only TLS: user \"{user}\", database \"{database}\", no encryption"),
    ))
}

/// The wording is that of PostgreSQL's `cert` method.
pub(super) fn certificate(user: &str, tls: &greet::TlsFacts) -> Result<(), Refusal> {
    match &tls.client_name {
        None => Err(Refusal::Say("28000", "connection requires a valid client certificate".into())),
        Some(name) if name == user => Ok(()),
        Some(_) => Err(Refusal::Failed("28000", format!("certificate authentication failed for user \"{user}\""))),
    }
}
