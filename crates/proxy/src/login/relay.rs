//! Logins that the database decides: it asks the client itself, through Freshet.
//!
//! What cannot be relayed is an exchange that is bound to a TLS channel, since the two legs are different channels:
//! SCRAM-SHA-256-PLUS is not offered on. Where both legs are TLS even SCRAM-SHA-256 fails, because a client that could
//! have bound the channel says so; then the client is asked for its password, and it is handed on. A password in
//! clear text never crosses a leg in the open that the database believes to be encrypted.

use std::sync::Arc;

use freshet_net::pg::scram::SCRAM_PLUS;
use freshet_net::pg::secret::{Credentials, Secret};
use freshet_net::pg::{ConnectError, Relay, SessionLogin};
use freshet_wire::pg::backend;
use freshet_wire::reader::Reader;

use super::exchange::{CLEARTEXT, MD5, SASL, SASL_CONTINUE, receive_answer};
use super::{Refusal, upstream_refusal};
use crate::session::peer::Peer;
use crate::shared::Shared;

/// Authentication messages that the client does not answer: AuthenticationOk, AuthenticationSASLFinal.
const OK: u32 = 0;
const SASL_FINAL: u32 = 12;
/// Messages of one login.
const MESSAGES_MAX: usize = 100;

/// Relays messages up to AuthenticationOk, which is not relayed.
pub(super) async fn relay(
    client: &mut Peer,
    packet: &[u8],
    user: &str,
    shared: &Arc<Shared>,
) -> Result<SessionLogin, Refusal> {
    let upstream = &shared.settings.upstream;
    let failed = |error: ConnectError| upstream_refusal(upstream, error);
    let mut relay = Relay::open(upstream, packet).await.map_err(failed)?;
    for _ in 0..MESSAGES_MAX {
        let encrypted = relay.is_encrypted();
        let (tag, body) = relay.receive().await.map_err(failed)?;
        match tag {
            backend::ERROR => return Err(refused(body)),
            backend::AUTHENTICATION => {}
            _ => {
                backend::put_message(client.output.buffer(), tag, body);
                continue;
            }
        }
        let malformed = |_| Refusal::Say("08006", "the database sent a malformed message".into());
        let method = Reader::new(body).u32("authentication method").map_err(malformed)?;
        if method == OK {
            return Ok(relay.into_session());
        }
        if encrypted && client.socket().is_private() && matches!(method, CLEARTEXT | MD5 | SASL) {
            let password = ask_password(client).await?;
            return relay.hand_on(upstream, user, &Credentials::Password(password)).await.map_err(failed);
        }
        if encrypted && method == CLEARTEXT {
            let message = "the database asks for the password in clear text over TLS: use TLS to Freshet too";
            return Err(Refusal::Say("28000", message.into()));
        }
        let offer = if method == SASL { without_plus(body) } else { body.to_vec() };
        backend::put_message(client.output.buffer(), tag, &offer);
        if method != SASL_FINAL {
            let what = if matches!(method, SASL | SASL_CONTINUE) { "SASL" } else { "password" };
            let answer = receive_answer(client, what).await?;
            relay.answer(&answer).await.map_err(failed)?;
        }
    }
    Err(Refusal::Say("08006", "the database does not end the login".into()))
}

async fn ask_password(client: &mut Peer) -> Result<Secret, Refusal> {
    backend::put_authentication(client.output.buffer(), CLEARTEXT, &[]);
    let mut answer = receive_answer(client, "password").await?;
    answer.truncate(answer.iter().position(|byte| *byte == 0).unwrap_or(answer.len()));
    let password = String::from_utf8(answer).map_err(|_| Refusal::out_of_step("the password is not valid UTF-8"))?;
    Ok(Secret::new(password))
}

fn refused(body: &[u8]) -> Refusal {
    let code = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
    Refusal::Relay(body.into(), String::from_utf8_lossy(code.unwrap_or_default()).into_owned())
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
