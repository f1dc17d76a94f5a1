//! Start-up and authentication ("Start-up" and "SASL Authentication" in the manual's chapter on message flow).

use std::collections::HashMap;

use freshet_wire::reader::{Malformed, Reader};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

use super::client::Purpose;
use super::error::{ConnectError, Error, ServerError};
use super::frames::{Frames, frame};
use crate::UpstreamUrl;

/// Protocol 3.0.
const PROTOCOL_VERSION: u32 = 3 << 16;
/// Messages of one login, parameter reports included. A server sends some twenty.
const LOGIN_MESSAGES_MAX: usize = 1000;

/// Settings that make answers and row images independent of the role's and the database's own settings.
///
/// `IntervalStyle` to `bytea_output` fix the text form of values in the stream; `wal_sender_timeout` fixes how
/// often the stream must be confirmed.
const SETTINGS: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    ("search_path", "pg_catalog"),
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("row_security", "on"),
];

/// What a login tells.
#[derive(Default)]
pub(super) struct LoggedIn {
    pub(super) parameters: HashMap<String, String>,
    /// Process id and secret for a cancel request.
    pub(super) cancel_key: Option<Vec<u8>>,
}

/// How far the authentication is.
enum Step {
    /// Nothing was asked yet, or a password was sent.
    Plain,
    /// SCRAM: our first message was sent.
    ScramStarted(Box<ScramSha256>),
    /// SCRAM: our proof was sent; the server's is to come.
    ScramProven(Box<ScramSha256>),
    /// SCRAM: the server proved that it knows the password.
    ScramDone,
    /// AuthenticationOk came.
    Accepted,
}

/// Logs in and waits for the first ReadyForQuery.
pub(super) async fn login(
    frames: &mut Frames,
    upstream: &UpstreamUrl,
    purpose: Purpose,
) -> Result<LoggedIn, ConnectError> {
    frames.send(&startup(upstream, purpose)).await.map_err(ConnectError::Tcp)?;
    let mut answer = LoggedIn::default();
    let mut step = Step::Plain;
    for _ in 0..LOGIN_MESSAGES_MAX {
        let (tag, body) = frames.receive().await.map_err(ConnectError::Protocol)?;
        match (tag, &step) {
            (b'R', Step::Accepted) => return Err(protocol(Error::Unexpected(tag))),
            (b'R', _) => {
                let (next, reply) = authenticate(body, step, upstream)?;
                step = next;
                if let Some(reply) = reply {
                    frames.send(&frame(b'p', &reply)).await.map_err(ConnectError::Tcp)?;
                }
            }
            (b'E', _) => return Err(ConnectError::Refused(Box::new(ServerError::decode(body).map_err(malformed)?))),
            (b'N', _) => {}
            (b'S', Step::Accepted) => {
                let (name, value) = parameter_status(body).map_err(malformed)?;
                answer.parameters.insert(name, value);
            }
            (b'K', Step::Accepted) => answer.cancel_key = Some(body.to_vec()),
            (b'Z', Step::Accepted) => return Ok(answer),
            _ => return Err(protocol(Error::Unexpected(tag))),
        }
    }
    Err(protocol(Error::TooLarge(LOGIN_MESSAGES_MAX)))
}

fn protocol(error: Error) -> ConnectError {
    ConnectError::Protocol(error)
}

fn malformed(error: Malformed) -> ConnectError {
    ConnectError::Protocol(Error::Malformed(error))
}

/// Decodes a ParameterStatus.
pub(super) fn parameter_status(body: &[u8]) -> Result<(String, String), Malformed> {
    let mut reader = Reader::new(body);
    let name = reader.cstr("parameter name")?;
    let value = reader.cstr("parameter value")?;
    reader.finish()?;
    Ok((String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned()))
}

fn startup(upstream: &UpstreamUrl, purpose: Purpose) -> Vec<u8> {
    let mut body = PROTOCOL_VERSION.to_be_bytes().to_vec();
    let mut set = |name: &str, value: &str| {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(value.as_bytes());
        body.push(0);
    };
    set("user", &upstream.user);
    set("database", &upstream.database);
    set("application_name", upstream.application_name.as_deref().unwrap_or("freshet"));
    for (name, value) in SETTINGS {
        set(name, value);
    }
    if purpose == Purpose::Replication {
        set("replication", "database");
        set("wal_sender_timeout", "60s");
    }
    body.push(0);
    let mut message = (body.len() as u32 + 4).to_be_bytes().to_vec();
    message.extend_from_slice(&body);
    message
}

/// One step for one Authentication message: what comes next, and what to answer.
fn authenticate(body: &[u8], step: Step, upstream: &UpstreamUrl) -> Result<(Step, Option<Vec<u8>>), ConnectError> {
    let mut reader = Reader::new(body);
    let method = reader.u32("authentication method").map_err(malformed)?;
    let password = || upstream.password.as_deref().ok_or(ConnectError::PasswordMissing);
    match (method, step) {
        (0, Step::Plain | Step::ScramDone) => Ok((Step::Accepted, None)),
        (3, Step::Plain) => Ok((Step::Plain, Some(cstring(password()?)))),
        (5, Step::Plain) => {
            let salt = reader.array::<4>("salt").map_err(malformed)?;
            let hash = md5_hash(upstream.user.as_bytes(), password()?.as_bytes(), salt);
            Ok((Step::Plain, Some(cstring(&hash))))
        }
        (10, Step::Plain) => scram_start(reader, password()?),
        (11, Step::ScramStarted(mut scram)) => {
            scram.update(reader.rest()).map_err(ConnectError::Scram)?;
            let reply = scram.message().to_vec();
            Ok((Step::ScramProven(scram), Some(reply)))
        }
        (12, Step::ScramProven(mut scram)) => {
            scram.finish(reader.rest()).map_err(ConnectError::Scram)?;
            Ok((Step::ScramDone, None))
        }
        (2, _) => Err(ConnectError::Method("Kerberos".into())),
        (7 | 8, _) => Err(ConnectError::Method("GSSAPI".into())),
        (9, _) => Err(ConnectError::Method("SSPI".into())),
        (0 | 3 | 5 | 10..=12, _) => Err(protocol(Error::Unexpected(b'R'))),
        (other, _) => Err(ConnectError::Method(format!("authentication method {other}"))),
    }
}

fn scram_start(mut reader: Reader<'_>, password: &str) -> Result<(Step, Option<Vec<u8>>), ConnectError> {
    const MECHANISM: &str = "SCRAM-SHA-256";
    let mut offered = Vec::new();
    loop {
        let name = reader.cstr("mechanism").map_err(malformed)?;
        if name.is_empty() {
            break;
        }
        offered.push(String::from_utf8_lossy(name).into_owned());
    }
    if !offered.iter().any(|m| m == MECHANISM) {
        return Err(ConnectError::Method(offered.join(", ")));
    }
    let scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    let mut reply = cstring(MECHANISM);
    reply.extend_from_slice(&(scram.message().len() as u32).to_be_bytes());
    reply.extend_from_slice(scram.message());
    Ok((Step::ScramStarted(Box::new(scram)), Some(reply)))
}

fn cstring(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}
