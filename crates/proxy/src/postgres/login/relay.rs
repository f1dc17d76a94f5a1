//! Logins that the database decides: it authenticates the client itself, through Freshet.
//!
//! An exchange that is bound to a TLS channel cannot be relayed, since the two connections are different channels: Freshet does not offer
//! SCRAM-SHA-256-PLUS. If both connections use TLS, even SCRAM-SHA-256 fails, because the client reports that it supports channel binding. Then the
//! client is asked for its password, which is forwarded. A clear-text password is never sent unencrypted over one connection if the database believes
//! that the connection is encrypted.

use std::sync::Arc;

use freshet_net::postgres::scram::SCRAM_PLUS;
use freshet_net::postgres::secret::{Credentials, Secret};
use freshet_net::postgres::{ConnectError, Relay, SessionLogin};
use freshet_net::tls::ChannelBinding;
use freshet_wire::postgres::backend;
use freshet_wire::reader::Reader;

use super::exchange::{CLEARTEXT, MD5, SASL, SASL_CONTINUE, password_of, receive_answer};
use super::{Refusal, is_failed_proof, upstream_refusal};
use crate::peer::Peer;
use crate::postgres::Pg;

/// Authentication messages that the client does not answer: AuthenticationOk, AuthenticationSASLFinal.
const OK: u32 = 0;
const SASL_FINAL: u32 = 12;
/// Limit of messages of one login.
const MESSAGES_MAX: usize = 100;

/// Relays messages up to AuthenticationOk, which is not relayed. `behind`: the messages to send with the last proof.
pub(super) async fn relay(
    client: &mut Peer,
    packet: &[u8],
    user: &str,
    shared: &Arc<Pg>,
    behind: &[u8],
) -> Result<SessionLogin, Refusal> {
    let upstream = &shared.own.upstream;
    let failed = |error: ConnectError| upstream_refusal(shared, error, false);
    let opened = client.unless_gone(Relay::open(upstream, packet)).await.ok_or(Refusal::Gone)?;
    let mut relay = opened.map_err(failed)?;
    // Whether the client has answered a request: only then is the end of the exchange its success or failure.
    let mut asked = false;
    for _ in 0..MESSAGES_MAX {
        let (encrypted, vouches) = (relay.is_encrypted(), relay.may_vouch_for_freshet(upstream));
        let (tag, body) = relay.receive().await.map_err(failed)?;
        match tag {
            backend::ERROR => return Err(refused(body, asked)),
            backend::AUTHENTICATION => {}
            _ => {
                backend::put_message(client.output.buffer(), tag, body);
                continue;
            }
        }
        let malformed = |_| Refusal::Say("08006", "the database sent a malformed message".into());
        let method = Reader::new(body).u32("authentication method").map_err(malformed)?;
        let hands_on = encrypted && client.socket().is_private() && matches!(method, CLEARTEXT | MD5 | SASL);
        let required = upstream.conninfo().tls.channel_binding == ChannelBinding::Require;
        if required && !(hands_on && method == SASL) {
            let message = "channel binding is required with the database, and this login cannot have it: it takes \
                           SCRAM-SHA-256-PLUS there and TLS on both legs";
            return Err(Refusal::Say("28000", message.into()));
        }
        if method == OK {
            return if asked || !vouches { Ok(relay.into_session()) } else { Err(lent_identity()) };
        }
        if hands_on {
            let password = Credentials::Password(ask_password(client).await?);
            let login = relay.hand_on(upstream, user, &password, behind).await;
            return login.map_err(|error| upstream_refusal(shared, error, true));
        }
        if encrypted && method == CLEARTEXT {
            let message = "the database asks for the password in clear text over TLS: use TLS to Freshet too";
            return Err(Refusal::Say("28000", message.into()));
        }
        let question = body.to_vec();
        let offer = if method == SASL { without_plus(body) } else { question.clone() };
        backend::put_message(client.output.buffer(), tag, &offer);
        if method != SASL_FINAL {
            let what = if matches!(method, SASL | SASL_CONTINUE) { "SASL" } else { "password" };
            let answer = receive_answer(client, what).await?;
            relay.answer(&question, &answer, behind).await.map_err(failed)?;
            asked = true;
        }
    }
    Err(Refusal::Say("08006", "the database does not end the login".into()))
}

/// The upstream has not authenticated this client.
fn lent_identity() -> Refusal {
    let message = "the database let Freshet in without asking this client for its password (trust or peer on a Unix \
                   socket, or Freshet's certificate): use --users or --auth-query, or --auth trust if that is meant";
    Refusal::Say("28000", message.into())
}

async fn ask_password(client: &mut Peer) -> Result<Secret, Refusal> {
    backend::put_authentication(client.output.buffer(), CLEARTEXT, &[]);
    let answer = receive_answer(client, "password").await?;
    let password = String::from_utf8(password_of(&answer)?.to_vec())
        .map_err(|_| Refusal::out_of_step("the password is not valid UTF-8"))?;
    Ok(Secret::new(password))
}

/// LDAP, RADIUS and similar methods fail with 28000, which before a password means only that no rule matches.
fn refused(body: &[u8], asked: bool) -> Refusal {
    let code = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
    let code = std::str::from_utf8(code.unwrap_or_default()).unwrap_or_default();
    Refusal::Relay(body.into(), is_failed_proof(code, asked))
}

/// The list of mechanisms without the one that cannot be relayed.
fn without_plus(body: &[u8]) -> Vec<u8> {
    let (method, names) = body.split_at(body.len().min(4));
    let mut offer = method.to_vec();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty() && *name != SCRAM_PLUS.as_bytes()) {
        offer.extend_from_slice(name);
        offer.push(0);
    }
    offer.push(0);
    offer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_mechanism_is_not_offered_on() {
        let body = b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
        assert_eq!(without_plus(body), b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        assert_eq!(without_plus(b"\0\0\0\x0aSCRAM-SHA-256\0\0"), b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        assert_eq!(without_plus(b""), b"\0");
    }
}
