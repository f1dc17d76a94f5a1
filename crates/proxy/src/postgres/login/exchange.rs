//! The password exchange with Freshet as the server; it yields the credentials for the upstream login.
//!
//! An unknown user gets a SCRAM exchange too, with a verifier that no password matches and that is the same at each attempt, as PostgreSQL does
//! (`mock_scram_secret` in `auth-scram.c`).

use freshet_net::postgres::scram::{SCRAM, SCRAM_PLUS, ScramError, ScramServer};
use freshet_net::postgres::secret::{Credentials, Md5Hash, ScramVerifier, Verifier, random};
use freshet_wire::postgres::backend;
use freshet_wire::reader::Reader;

use super::Refusal;
use super::greet::TlsFacts;
use super::lookup::Found;
use crate::peer::Peer;
use crate::postgres::Pg;

/// The largest message of an unauthenticated client (`PG_MAX_AUTH_TOKEN_LENGTH` in `libpq/auth.h`).
pub(super) const TOKEN_BYTES_MAX: usize = 65_535;
/// PasswordMessage, SASLInitialResponse, SASLResponse
const PASSWORD_MESSAGE: u8 = b'p';

/// The authentication requests (manual: "Message Formats", Authentication…).
pub(super) const CLEARTEXT: u32 = 3;
pub(super) const MD5: u32 = 5;
pub(super) const SASL: u32 = 10;
pub(super) const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// The proven identity of a client.
pub(super) struct Proven {
    /// The credentials for the upstream login.
    pub(super) credentials: Credentials,
    /// The last message before AuthenticationOk: Freshet's own proof.
    pub(super) last_words: Vec<u8>,
}

impl Default for Proven {
    fn default() -> Self {
        Self { credentials: Credentials::Nothing, last_words: Vec::new() }
    }
}

/// Runs the exchange in which the client proves its password.
pub(super) async fn prove(client: &mut Peer, user: &str, tls: &TlsFacts, shared: &Pg) -> Result<Proven, Refusal> {
    let found = client.unless_gone(shared.access.sources.verifier(user)).await.ok_or(Refusal::Gone)?;
    let found = found.ok_or_else(|| Refusal::Say("08006", "Freshet cannot look the user up in the database".into()))?;
    let (known, verifier) = match found {
        Found::Known(verifier) => (true, verifier),
        Found::Unknown(verifier) => (false, verifier),
    };
    let proven = match verifier {
        Verifier::Scram(verifier) => prove_by_scram(client, user, verifier, tls.end_point.as_deref()).await,
        Verifier::Md5(hash) => prove_by_md5(client, user, hash).await,
    }?;
    if known { Ok(proven) } else { Err(Refusal::wrong_password(user)) }
}

async fn prove_by_md5(client: &mut Peer, user: &str, hash: Md5Hash) -> Result<Proven, Refusal> {
    let salt = random()?;
    backend::put_authentication(client.output.buffer(), MD5, &salt);
    let message = receive_answer(client, "password").await?;
    let answer = password_of(&message)?;
    if !hash.check(salt, answer) {
        return Err(Refusal::wrong_password(user));
    }
    Ok(Proven { credentials: Credentials::Md5(hash), last_words: Vec::new() })
}

async fn prove_by_scram(
    client: &mut Peer,
    user: &str,
    verifier: ScramVerifier,
    end_point: Option<&[u8]>,
) -> Result<Proven, Refusal> {
    let mut offer = Vec::new();
    for mechanism in end_point.map(|_| SCRAM_PLUS).into_iter().chain([SCRAM]) {
        offer.extend_from_slice(mechanism.as_bytes());
        offer.push(0);
    }
    offer.push(0);
    backend::put_authentication(client.output.buffer(), SASL, &offer);
    let failed = |error: ScramError| match error {
        ScramError::WrongPassword => Refusal::wrong_password(user),
        error => Refusal::Scram(error),
    };
    let initial = receive_answer(client, "SASL").await?;
    let mut reader = Reader::new(&initial);
    let mechanism = reader.cstr("mechanism").map_err(|_| Refusal::out_of_step("invalid string in message"))?;
    let plus = mechanism == SCRAM_PLUS.as_bytes();
    if !(mechanism == SCRAM.as_bytes() || (plus && end_point.is_some())) {
        return Err(Refusal::out_of_step("client selected an invalid SASL authentication mechanism"));
    }
    let first = if let Some(first) = initial_data(reader)? {
        first.to_vec()
    } else {
        // The client sent the mechanism alone: the server answers with an empty message.
        backend::put_authentication(client.output.buffer(), SASL_CONTINUE, &[]);
        receive_answer(client, "SASL").await?
    };
    let (server, challenge) = ScramServer::start(verifier, plus, end_point, &first).map_err(failed)?;
    backend::put_authentication(client.output.buffer(), SASL_CONTINUE, &challenge);
    let last = receive_answer(client, "SASL").await?;
    let (words, keys) = server.finish(&last).map_err(failed)?;
    let mut last_words = Vec::new();
    backend::put_authentication(&mut last_words, SASL_FINAL, &words);
    Ok(Proven { credentials: Credentials::Scram(keys), last_words })
}

/// The data behind the mechanism in SASLInitialResponse; None without a first message. The errors are PostgreSQL's.
fn initial_data(mut reader: Reader<'_>) -> Result<Option<&[u8]>, Refusal> {
    let short = || Refusal::out_of_step("insufficient data left in message");
    let data = match reader.i32("length").map_err(|_| short())? {
        -1 => None,
        length => {
            let length = usize::try_from(length).map_err(|_| short())?;
            Some(reader.bytes(length, "data").map_err(|_| short())?)
        }
    };
    reader.finish().map_err(|_| Refusal::out_of_step("invalid message format"))?;
    Ok(data)
}

/// The password in PasswordMessage (`recv_password_packet` in `auth.c`).
pub(super) fn password_of(message: &[u8]) -> Result<&[u8], Refusal> {
    match message {
        [0] => Err(Refusal::Failed("28P01", "empty password returned by client".into())),
        [password @ .., 0] if !password.contains(&0) => Ok(password),
        _ => Err(Refusal::out_of_step("invalid password packet size")),
    }
}

/// Sends the output and receives the client's answer.
pub(super) async fn receive_answer(client: &mut Peer, what: &str) -> Result<Vec<u8>, Refusal> {
    client.flush().await?;
    if !client.receive_at_least(1).await? {
        return Err(Refusal::Gone);
    }
    // As PostgreSQL: a message of another kind is refused before its length is read.
    if let Some(tag) = client.input.bytes().first().filter(|tag| **tag != PASSWORD_MESSAGE) {
        return Err(Refusal::out_of_step(format!("expected {what} response, got message type {tag}")));
    }
    let message = client.receive_message(TOKEN_BYTES_MAX).await?;
    message.map(|(_, body)| body).ok_or(Refusal::Gone)
}
