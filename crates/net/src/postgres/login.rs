//! Logins to an upstream ("Start-up" and "SASL Authentication" in the manual's chapter on message flow), with a
//! password or with the proof of a client's own login.

use std::collections::HashMap;

use freshet_wire::reader::{Malformed, Reader};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::error::{ConnectError, Error};
use super::frames::{Frames, frame};
use super::open::{Opened, open};
use super::scram::{SCRAM, SCRAM_PLUS, ScramClient};
use super::secret::{Credentials, Md5Hash};
use crate::conninfo::{Conninfo, TargetSessionAttrs};
use crate::tls::ChannelBinding;
use crate::{Socket, Upstream};

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
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("row_security", "on"),
];

/// How long a transaction of Freshet's may wait for its next statement. The statement follows at once unless this
/// process is stopped. The transaction may hold the lock of a table, and keeps old rows from being removed.
const IDLE_IN_TRANSACTION: &str = "30s";

/// What a service connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Statements.
    Sql,
    /// A walsender bound to the database (`replication=database`): statements by simple protocol, replication
    /// commands and the stream.
    Replication,
}

/// What a login tells.
#[derive(Default)]
pub(super) struct LoggedIn {
    /// The index of the host among the upstream's.
    pub(super) host: usize,
    pub(super) parameters: HashMap<String, String>,
    /// Process id and secret for a cancel request.
    pub(super) cancel_key: Option<Vec<u8>>,
}

/// The state of the authentication.
enum Step {
    /// No request yet, or a password was sent.
    Plain,
    /// SCRAM: our first message was sent.
    ScramStarted(Box<ScramClient>),
    /// SCRAM: our proof was sent; the server's proof is outstanding.
    ScramProven(Box<ScramClient>),
    /// SCRAM: the server proved that it knows the password.
    ScramDone,
    /// AuthenticationOk was received.
    Accepted,
}

/// The user that logs in, and the credentials.
struct Who<'a> {
    user: &'a str,
    credentials: &'a Credentials,
    end_point: Option<&'a [u8]>,
    binding: ChannelBinding,
    /// Messages to send with the last message of the login, if it is known to be the last.
    behind: &'a [u8],
}

/// A logged-in session of a client. AuthenticationOk was consumed, the following messages were not.
pub struct SessionLogin {
    /// The connection.
    pub socket: Socket,
    /// The bytes received behind AuthenticationOk so far.
    pub received: bytes::BytesMut,
    /// The messages behind the login were sent with the last proof.
    pub asked: bool,
}

/// Opens a session for a client, with the client's start-up packet and role. `behind` has messages to send with the
/// last proof, if the server requests one.
pub async fn login_session(
    upstream: &Upstream,
    packet: &[u8],
    user: &str,
    credentials: &Credentials,
    behind: &[u8],
) -> Result<SessionLogin, ConnectError> {
    let opened = open_session(upstream, packet).await?;
    hand_on(upstream, opened, user, credentials, behind).await
}

/// The same, with this host, at once. The upstream's connect time-out holds for the whole login.
pub async fn login_session_at(
    (upstream, host): (&Upstream, usize),
    packet: &[u8],
    (user, credentials): (&str, &Credentials),
    behind: &[u8],
) -> Result<SessionLogin, ConnectError> {
    let limit = upstream.conninfo().connect_timeout;
    let login = async {
        let opened = open(upstream, host, packet).await?;
        hand_on(upstream, opened, user, credentials, behind).await
    };
    timeout(limit, login).await.unwrap_or(Err(ConnectError::Timeout(limit)))
}

/// Opens a session without answering the server's requests. Waits for its turn; the upstream's connect time-out
/// starts then.
pub(super) async fn open_session(upstream: &Upstream, packet: &[u8]) -> Result<Opened, ConnectError> {
    let limit = upstream.conninfo().connect_timeout;
    let mut last = ConnectError::NotWanted(upstream.to_string());
    for host in upstream.session_hosts().await {
        let opened = upstream.connect_throttle().take(limit, open(upstream, host, packet)).await;
        match opened.unwrap_or(Err(ConnectError::Timeout(limit))) {
            Err(error @ (ConnectError::Tcp(_) | ConnectError::Timeout(_))) => last = error,
            other => return other,
        }
    }
    Err(last)
}

/// Answers the server's requests on an opened session.
pub(super) async fn hand_on(
    upstream: &Upstream,
    opened: Opened,
    user: &str,
    credentials: &Credentials,
    behind: &[u8],
) -> Result<SessionLogin, ConnectError> {
    let Opened { mut frames, end_point } = opened;
    let binding = upstream.conninfo().tls.channel_binding;
    let who = Who { user, credentials, end_point: end_point.as_deref(), binding, behind };
    let asked = authenticate(&mut frames, &who).await?;
    let (socket, received) = frames.into_parts();
    Ok(SessionLogin { socket, received, asked })
}

/// Opens a service connection to the first host that satisfies the request, and waits for the first ReadyForQuery.
pub(super) async fn login(upstream: &Upstream, purpose: Purpose) -> Result<(Frames, LoggedIn), ConnectError> {
    upstream.released().await;
    let wanted = upstream.conninfo().target_session_attrs;
    let mut last = None;
    // The second round of `prefer-standby` accepts any host.
    let rounds: &[TargetSessionAttrs] = match wanted {
        TargetSessionAttrs::PreferStandby => &[TargetSessionAttrs::Standby, TargetSessionAttrs::Any],
        _ => &[wanted],
    };
    for wanted in rounds {
        for host in upstream.candidates() {
            match login_in_time(upstream, host, purpose, *wanted).await {
                // It may have been left out meanwhile.
                Ok(done) if upstream.choose(host) => return Ok(done),
                Ok(_) => last = None,
                Err(error) if is_final(&error) => return Err(error),
                Err(error @ ConnectError::NotWanted(_)) => {
                    upstream.reject(host);
                    last = Some(error);
                }
                Err(error) => last = Some(error),
            }
        }
    }
    Err(last.unwrap_or_else(|| ConnectError::NotWanted(upstream.to_string())))
}

/// Opens a service connection to this host, whatever it is.
pub(super) async fn login_at(
    upstream: &Upstream,
    host: usize,
    purpose: Purpose,
) -> Result<(Frames, LoggedIn), ConnectError> {
    login_in_time(upstream, host, purpose, TargetSessionAttrs::Any).await
}

async fn login_in_time(
    upstream: &Upstream,
    host: usize,
    purpose: Purpose,
    wanted: TargetSessionAttrs,
) -> Result<(Frames, LoggedIn), ConnectError> {
    let limit = upstream.conninfo().connect_timeout;
    let login = timeout(limit, login_host(upstream, host, purpose, wanted)).await;
    login.unwrap_or(Err(ConnectError::Timeout(limit)))
}

/// As in libpq, a host that refuses the login ends the search, unless it only cannot take connections now.
fn is_final(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Refused(error) if error.code != "57P03")
}

async fn login_host(
    upstream: &Upstream,
    at: usize,
    purpose: Purpose,
    wanted: TargetSessionAttrs,
) -> Result<(Frames, LoggedIn), ConnectError> {
    let conninfo = upstream.conninfo();
    let opened = open(upstream, at, &startup(conninfo, purpose)).await?;
    let host = upstream.host(at);
    let credentials = match host.and_then(|host| host.password.clone()) {
        Some(password) => Credentials::Password(password),
        None => Credentials::Nothing,
    };
    let Opened { mut frames, end_point } = opened;
    let binding = conninfo.tls.channel_binding;
    let end_point = end_point.as_deref();
    let who = Who { user: &conninfo.user, credentials: &credentials, end_point, binding, behind: &[] };
    authenticate(&mut frames, &who).await?;
    let mut answer = LoggedIn { host: at, ..LoggedIn::default() };
    for _ in 0..LOGIN_MESSAGES_MAX {
        let (tag, body) = frames.receive().await.map_err(ConnectError::Protocol)?;
        match tag {
            b'E' => return Err(ConnectError::refused(body)),
            b'N' => {}
            b'S' => {
                let (name, value) = parameter_status(body).map_err(malformed)?;
                answer.parameters.insert(name, value);
            }
            b'K' => answer.cancel_key = Some(body.to_vec()),
            b'Z' => {
                return if fits(&mut frames, wanted).await? {
                    Ok((frames, answer))
                } else {
                    Err(ConnectError::NotWanted(host.map(|host| host.address.to_string()).unwrap_or_default()))
                };
            }
            _ => return Err(protocol(Error::Unexpected(tag))),
        }
    }
    Err(protocol(Error::TooLarge(LOGIN_MESSAGES_MAX)))
}

/// Whether the server satisfies `target_session_attrs`. Service connections set `default_transaction_read_only`
/// themselves, so a server is read-only exactly if it is a standby.
async fn fits(frames: &mut Frames, wanted: TargetSessionAttrs) -> Result<bool, ConnectError> {
    if wanted == TargetSessionAttrs::Any {
        return Ok(true);
    }
    let sql = b"SELECT pg_catalog.pg_is_in_recovery()\0";
    frames.send(&frame(b'Q', sql)).await.map_err(ConnectError::Tcp)?;
    let mut standby = None;
    for _ in 0..LOGIN_MESSAGES_MAX {
        let (tag, body) = frames.receive().await.map_err(ConnectError::Protocol)?;
        match tag {
            b'D' => standby = Some(body.last() == Some(&b't')),
            b'E' => return Err(ConnectError::refused(body)),
            b'Z' => break,
            _ => {}
        }
    }
    Ok(standby == Some(wanted.is_for_standbys()))
}

/// Whether the server makes no further request after this one, by the message's body. SCRAM has two requests, MD5
/// one.
pub(super) fn is_last_question(body: &[u8]) -> bool {
    Reader::new(body).u32("authentication method").is_ok_and(|method| matches!(method, 5 | 11))
}

/// Answers the server's requests, up to AuthenticationOk. Returns whether the messages behind the login have been
/// sent.
async fn authenticate(frames: &mut Frames, who: &Who<'_>) -> Result<bool, ConnectError> {
    let (mut step, mut asked) = (Step::Plain, false);
    for _ in 0..LOGIN_MESSAGES_MAX {
        let (tag, body) = frames.receive().await.map_err(ConnectError::Protocol)?;
        match tag {
            b'R' => {
                let is_last = is_last_question(body) && !who.behind.is_empty() && !asked;
                let (next, reply) = match step {
                    Step::ScramStarted(scram) => prove(body, scram).await?,
                    other => answer(body, other, who)?,
                };
                step = next;
                if let Some(reply) = reply {
                    let mut message = frame(b'p', &reply);
                    if is_last {
                        message.extend_from_slice(who.behind);
                        asked = true;
                    }
                    frames.send(&message).await.map_err(ConnectError::Tcp)?;
                }
                if matches!(step, Step::Accepted) {
                    return Ok(asked);
                }
            }
            b'E' => return Err(ConnectError::refused(body)),
            // NegotiateProtocolVersion: a session's client was told before; a service connection asks for 3.0.
            b'N' | b'v' => {}
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

fn startup(upstream: &Conninfo, purpose: Purpose) -> Vec<u8> {
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
    if let Some(options) = &upstream.options {
        set("options", options);
    }
    for (name, value) in SETTINGS {
        set(name, value);
    }
    if purpose == Purpose::Replication {
        set("replication", "database");
        set("wal_sender_timeout", "60s");
    }
    set("idle_in_transaction_session_timeout", if purpose == Purpose::Sql { IDLE_IN_TRANSACTION } else { "0" });
    body.push(0);
    let mut message = (body.len() as u32 + 4).to_be_bytes().to_vec();
    message.extend_from_slice(&body);
    message
}

/// Handles one Authentication message: the next step, and the answer.
fn answer(body: &[u8], step: Step, who: &Who<'_>) -> Result<(Step, Option<Vec<u8>>), ConnectError> {
    let mut reader = Reader::new(body);
    let method = reader.u32("authentication method").map_err(malformed)?;
    // With channel_binding=require nothing but SCRAM-SHA-256-PLUS may let us in.
    let bound = who.binding != ChannelBinding::Require || matches!(step, Step::ScramDone);
    match (method, step) {
        (0 | 3 | 5, _) if !bound => Err(ConnectError::NotBound),
        (0, Step::Plain | Step::ScramDone) => Ok((Step::Accepted, None)),
        (3, Step::Plain) => match who.credentials {
            Credentials::Password(password) => Ok((Step::Plain, Some(cstring(password.expose())))),
            Credentials::Nothing => Err(ConnectError::PasswordMissing),
            _ => Err(ConnectError::Method("the password in clear text".into())),
        },
        (5, Step::Plain) => {
            let salt = reader.array::<4>("salt").map_err(malformed)?;
            let hash = match who.credentials {
                Credentials::Password(password) => Md5Hash::of(password.expose(), who.user).answer(salt),
                Credentials::Md5(hash) => hash.answer(salt),
                Credentials::Nothing => return Err(ConnectError::PasswordMissing),
                Credentials::Scram(_) => return Err(ConnectError::OtherVerifier("MD5")),
            };
            Ok((Step::Plain, Some(cstring(&hash))))
        }
        (10, Step::Plain) => scram_start(reader, who),
        (12, Step::ScramProven(scram)) => {
            scram.verify(reader.rest())?;
            Ok((Step::ScramDone, None))
        }
        (2, _) => Err(ConnectError::Method("Kerberos".into())),
        (7 | 8, _) => Err(ConnectError::Method("GSSAPI".into())),
        (9, _) => Err(ConnectError::Method("SSPI".into())),
        (0 | 3 | 5 | 10..=12, _) => Err(protocol(Error::Unexpected(b'R'))),
        (other, _) => Err(ConnectError::Method(format!("authentication method {other}"))),
    }
}

/// Answers AuthenticationSASLContinue. The server determines how long the derivation of keys from a password takes.
/// So it runs on no thread that serves sessions, and not for many logins at once.
async fn prove(body: &[u8], mut scram: Box<ScramClient>) -> Result<(Step, Option<Vec<u8>>), ConnectError> {
    static DERIVING: Semaphore = Semaphore::const_new(1);
    let mut reader = Reader::new(body);
    if reader.u32("authentication method").map_err(malformed)? != 11 {
        return Err(protocol(Error::Unexpected(b'R')));
    }
    let challenge = reader.rest().to_vec();
    let _permit = DERIVING.acquire().await;
    let proven = spawn_blocking(move || scram.proof(&challenge).map(|reply| (scram, reply))).await;
    let (scram, reply) = proven.map_err(|_| protocol(Error::Dead))??;
    Ok((Step::ScramProven(scram), Some(reply)))
}

fn scram_start(mut reader: Reader<'_>, who: &Who<'_>) -> Result<(Step, Option<Vec<u8>>), ConnectError> {
    match who.credentials {
        Credentials::Nothing => return Err(ConnectError::PasswordMissing),
        Credentials::Md5(_) => return Err(ConnectError::OtherVerifier(SCRAM)),
        Credentials::Password(_) | Credentials::Scram(_) => {}
    }
    let mut offered = Vec::new();
    loop {
        let name = reader.cstr("mechanism").map_err(malformed)?;
        if name.is_empty() {
            break;
        }
        offered.push(String::from_utf8_lossy(name).into_owned());
    }
    let offers = |mechanism: &str| offered.iter().any(|name| name == mechanism);
    if !offers(SCRAM) && !offers(SCRAM_PLUS) {
        return Err(ConnectError::Method(offered.join(", ")));
    }
    let (scram, mechanism, first) =
        ScramClient::start(who.credentials, who.end_point, offers(SCRAM_PLUS), who.binding)?;
    let mut reply = cstring(mechanism);
    reply.extend_from_slice(&(first.len() as u32).to_be_bytes());
    reply.extend_from_slice(&first);
    Ok((Step::ScramStarted(Box::new(scram)), Some(reply)))
}

fn cstring(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}
