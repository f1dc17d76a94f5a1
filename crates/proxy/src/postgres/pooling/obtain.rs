//! How a session gets a server connection: an idle one of its pool, or a new one.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use freshet_net::postgres::secret::Credentials;
use freshet_net::postgres::{ConnectError, Error, SessionLogin, login_session, login_session_at};
use freshet_types::CatalogVersion;
use freshet_wire::postgres::frame::{self, HEADER_BYTES};
use freshet_wire::postgres::{backend, frontend};
use thiserror::Error;
use tokio::time::timeout;

use crate::peer::Peer;
use crate::pool::{Group, Lease, Patience, PoolKey, WaitTimeout};
use crate::postgres::Pg;
use crate::postgres::pooling::connection::{Facts, Origin, PooledConnection, UnderLabels};
use crate::postgres::pooling::labels::SetThere;
use crate::postgres::pooling::prepared::PreparedThere;
use crate::postgres::pooling::rest_question::{self, Lives, LoginSettings};
use crate::postgres::question::Answer;
use crate::postgres::session::first_question;
use crate::postgres::session::own_statements::OwnStatements;
use crate::shared::ServerIdentity;

/// As a login's.
const OPENING_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest message that belongs to a login.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// How a session logs in to the server, each time it needs a new connection.
pub(crate) struct Login {
    pub(crate) packet: Vec<u8>,
    pub(crate) user: String,
    pub(crate) credentials: Credentials,
    pub(crate) key: Arc<PoolKey>,
    pub(crate) group: Group,
    /// The settings of the connection that the session began with.
    pub(crate) began: OnceLock<LoginSettings>,
}

impl Login {
    /// `packet`: the start-up packet, of which nothing but the parameters' order is without effect. `who`: user and database.
    pub(crate) fn new(packet: Vec<u8>, (user, database): (String, &str), credentials: Credentials) -> Self {
        let key = Arc::new(PoolKey { database: database.to_owned(), user: user.clone() });
        let group = Group::of(&packet);
        Self { packet, user, credentials, key, group, began: OnceLock::new() }
    }
}

impl Login {
    /// Whether a connection has the login's settings that the session began with.
    pub(super) fn has_begun_with(&self, origin: &Origin) -> bool {
        self.began.get().is_some_and(|began| *began == origin.lives.login_settings())
    }

    /// Takes an idle connection to this thread, unless it is of no use: the server has closed it, or it has other settings than the session began with.
    pub(super) fn use_of(&self, connection: Box<PooledConnection>) -> Option<Box<PooledConnection>> {
        if self.has_begun_with(&connection.origin) { connection.wake() } else { None }
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A connection, with the right to have it.
#[derive(Debug)]
pub(crate) struct Obtained {
    pub(crate) lease: Lease<Box<PooledConnection>>,
    pub(crate) connection: Box<PooledConnection>,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum NotObtained {
    #[error("query_wait_timeout")]
    WaitTimeout,
    #[error("{0}")]
    Connect(#[from] ConnectError),
    #[error("the settings of the role or the database have changed: connect again")]
    OtherSettings,
    #[error("a setting of the application has another value on another connection: connect again")]
    NameRefused,
    #[error("a setting of the session cannot be set on another connection: connect again")]
    SettingRefused,
    #[error("the database sent an invalid answer to a login")]
    Invalid,
}

impl NotObtained {
    /// The server has ended the connection.
    fn closed() -> Self {
        Self::Connect(ConnectError::Protocol(Error::Closed))
    }
}

impl From<WaitTimeout> for NotObtained {
    fn from(_: WaitTimeout) -> Self {
        Self::WaitTimeout
    }
}

impl From<std::io::Error> for NotObtained {
    fn from(error: std::io::Error) -> Self {
        Self::Connect(ConnectError::Tcp(error))
    }
}

/// An idle connection where this is set, if there is one and nobody waits.
pub(crate) fn obtain_at_once(shared: &Pg, login: &Login, set: &SetThere) -> Option<Obtained> {
    let group = login.group.with(&set.names, &set.label);
    while let Some(mut lease) = shared.pooling.pools.try_check_out_same(&login.key, &group) {
        let connection = lease.take()?;
        if !connection.leads_elsewhere(shared)
            && let Some(connection) = login.use_of(connection)
        {
            return Some(Obtained { lease, connection });
        }
    }
    None
}

/// An idle connection or a new one, where this is set; waits for it if need be. Dropping the future leaves the queue.
pub(crate) async fn obtain(shared: Arc<Pg>, login: Arc<Login>, set: SetThere) -> Result<Obtained, NotObtained> {
    // A client that logs in takes no idle connection: only a login shows whether the server lets its user in now, and with which settings.
    let is_login = login.began.get().is_none();
    let group = if is_login { Group::default() } else { login.group.with(&set.names, &set.label) };
    let patience = Patience::of(shared.settings.pool.failover_timeout);
    let mut lease = shared.pooling.pools.check_out(&login.key, &group).await?;
    let idle = lease.take().filter(|connection| !connection.leads_elsewhere(&shared));
    match idle.and_then(|connection| login.use_of(connection)) {
        Some(connection) if connection.set == set => {
            lease.regroup(group);
            Ok(Obtained { lease, connection })
        }
        // Apart from all who only wait: it is rare, and large.
        idle => Box::pin(change_or_open((shared, login), set, (lease, idle), patience)).await,
    }
}

/// The idle connection with these settings, or a new one.
async fn change_or_open(
    (shared, login): (Arc<Pg>, Arc<Login>),
    set: SetThere,
    (mut lease, idle): (Lease<Box<PooledConnection>>, Option<Box<PooledConnection>>),
    patience: Patience,
) -> Result<Obtained, NotObtained> {
    if let Some(connection) = idle
        && let Ok(Ok(Some(connection))) = timeout(OPENING_TIMEOUT, change(&shared, connection, &set)).await
    {
        lease.regroup(login.group.with(&set.names, &set.label));
        return Ok(Obtained { lease, connection });
    }
    // At its login a session has begun with nothing yet.
    let is_login = login.began.get().is_none();
    let connection = open_once_possible(&shared, &login, &mut lease, patience).await?;
    if !is_login && !login.has_begun_with(&connection.origin) {
        return Err(NotObtained::OtherSettings);
    }
    let refused = if set.label.is_empty() { NotObtained::NameRefused } else { NotObtained::SettingRefused };
    let changed = timeout(OPENING_TIMEOUT, change(&shared, connection, &set)).await;
    let connection = changed.unwrap_or(Err(ConnectError::Timeout(OPENING_TIMEOUT).into()))?.ok_or(refused)?;
    lease.regroup(login.group.with(&set.names, &set.label));
    Ok(Obtained { lease, connection })
}

/// A new connection in place of the one of the lease. While no server takes any, tries again: nothing of the session has been sent.
async fn open_once_possible(
    shared: &Pg,
    login: &Login,
    lease: &mut Lease<Box<PooledConnection>>,
    mut patience: Patience,
) -> Result<Box<PooledConnection>, NotObtained> {
    let (pauses, limit) = (&shared.sessions.pauses, shared.settings.pool.failover_timeout);
    let mut most = OPENING_TIMEOUT;
    loop {
        lease.renew();
        lease.regroup(login.group.clone());
        let opened = timeout(most, open(shared, login, None)).await;
        let error = match opened.unwrap_or(Err(ConnectError::Timeout(most).into())) {
            Err(NotObtained::Connect(error)) if error.is_absence() => error,
            opened => return opened,
        };
        lease.forget();
        if pauses.include(&login.key.database) && !shared.switches.is_draining() {
            pauses.resumed(&login.key.database).await;
            patience = Patience::of(limit);
        }
        most = patience.next().await.ok_or(error)?;
        shared.warn_rarely(|| {
            format!("no server of {} takes connections: sessions wait for up to {limit:?}", shared.own.upstream)
        });
    }
}

/// Sets on a connection what a session has set; None: the server does not set it so.
async fn change(
    shared: &Pg,
    mut connection: Box<PooledConnection>,
    set: &SetThere,
) -> Result<Option<Box<PooledConnection>>, NotObtained> {
    if connection.set == *set {
        return Ok(Some(connection));
    }
    shared.pooling.pools.note_changed();
    let mut peer = Peer::new(connection.socket);
    frontend::put_query(peer.output.buffer(), connection.set.change_to(set).as_bytes());
    peer.flush().await?;
    let row = read_row(&mut peer).await?;
    if !row.is_some_and(|row| backend::data_row(&row).is_ok_and(|columns| set.is_shown(&columns))) {
        return Ok(None);
    }
    connection.socket = peer.into_socket();
    connection.note_set(set.clone());
    Ok(Some(connection))
}

/// Opens the connections that pools with clients lack for their minimum.
pub(crate) async fn open_ahead(shared: &Arc<Pg>, logins: HashMap<Arc<PoolKey>, Arc<Login>>) {
    for (key, login) in logins {
        while !shared.sessions.pauses.include(&key.database)
            && let Some(lease) = shared.pooling.pools.place_below_minimum(&key, &login.group)
        {
            // The next look tries it again.
            let Ok(Ok(mut connection)) = timeout(OPENING_TIMEOUT, open(shared, &login, None)).await else { break };
            if connection.socket.rest().is_err() {
                break;
            }
            lease.give_back(connection);
        }
    }
}

/// Logs in at this server, or at the one in use, and reads what a session must know of the connection.
pub(super) async fn open(shared: &Pg, login: &Login, at: Option<usize>) -> Result<Box<PooledConnection>, NotObtained> {
    let under = shared.catalog_version();
    let mut questions = first_question(&shared.named.names());
    frontend::put_parse(&mut questions, b"_freshet_rest", rest_question::question().as_bytes());
    frontend::put_bind_execute(&mut questions, b"_freshet_rest", &["{}"]);
    frontend::put_sync(&mut questions);
    let upstream = &shared.own.upstream;
    let Login { packet, user, credentials, .. } = login;
    let SessionLogin { socket, received, asked } = match at {
        Some(at) => login_session_at((upstream, at), packet, (user, credentials), &questions).await?,
        None => login_session(upstream, packet, user, credentials, &questions).await?,
    };
    let mut peer = Peer::with_input(socket, &received);
    let started = read_start(&mut peer).await?;
    // The host that was the primary may have come back as a standby.
    if at.is_none() && upstream.conninfo().target_session_attrs.is_for_primaries() && is_standby(&started.greeting) {
        return Err(ConnectError::NotWanted(upstream.to_string()).into());
    }
    if !asked {
        peer.output.put(&questions);
        peer.flush().await?;
    }
    let context = read_row(&mut peer).await?;
    let lives = read_row(&mut peer).await?;
    let lives = lives.and_then(|row| Lives::read(&backend::data_row(&row).ok()?)).ok_or(NotObtained::Invalid)?;
    let answer = context.and_then(|row| Answer::read(&backend::data_row(&row).ok()?));
    let own = OwnStatements::asked_for_rest();
    let (facts, identity) = facts(answer, under, shared);
    Ok(Box::new(PooledConnection {
        socket: peer.into_socket(),
        own,
        facts,
        identity,
        compared: None,
        prepared: PreparedThere::default(),
        set: SetThere::default(),
        under_labels: UnderLabels::default(),
        has_unnamed: false,
        ready_at: shared.clock.now(),
        origin: Arc::new(Origin { greeting: started.greeting.into(), cancel_key: started.cancel_key.into(), lives }),
    }))
}

#[derive(Default)]
struct Started {
    greeting: Vec<u8>,
    cancel_key: Vec<u8>,
}

/// Whether the server says that it is one, which PostgreSQL 13 does not.
fn is_standby(greeting: &[u8]) -> bool {
    parameters(greeting).any(|(name, value)| name == b"in_hot_standby" && value == b"on")
}

/// Reads up to the first `ReadyForQuery`.
async fn read_start(peer: &mut Peer) -> Result<Started, NotObtained> {
    let mut started = Started::default();
    loop {
        let (tag, body) = peer.receive_message(MESSAGE_BYTES_MAX).await?.ok_or_else(NotObtained::closed)?;
        match tag {
            backend::ERROR => return Err(ConnectError::refused(&body).into()),
            backend::READY => return Ok(started),
            backend::KEY_DATA => started.cancel_key = body,
            backend::PARAMETER_STATUS | backend::NOTICE => backend::put_message(&mut started.greeting, tag, &body),
            _ => {}
        }
    }
}

/// Reads the answer to one question: its row as a whole frame, if it has not failed.
async fn read_row(peer: &mut Peer) -> Result<Option<Vec<u8>>, NotObtained> {
    let mut answered = Answered::default();
    loop {
        let (tag, body) = peer.receive_message(MESSAGE_BYTES_MAX).await?.ok_or_else(NotObtained::closed)?;
        if tag == backend::READY {
            return Ok(answered.row());
        }
        answered.note(tag, &body);
    }
}

/// The answer to one question, as far as it has come.
#[derive(Default)]
struct Answered {
    row: Option<Vec<u8>>,
    has_failed: bool,
}

impl Answered {
    fn note(&mut self, tag: u8, body: &[u8]) {
        match tag {
            backend::DATA_ROW => {
                let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
                backend::put_message(&mut frame, tag, body);
                self.row = Some(frame);
            }
            backend::ERROR => self.has_failed = true,
            _ => {}
        }
    }

    /// The last row. An error behind it has undone what its statement did.
    fn row(self) -> Option<Vec<u8>> {
        self.row.filter(|_| !self.has_failed)
    }
}

fn facts(answer: Option<Answer>, under: CatalogVersion, shared: &Pg) -> (Facts, Option<Arc<ServerIdentity>>) {
    let Some(mut answer) = answer else { return (Facts::default(), None) };
    let database = answer.database.clone();
    let identity = answer
        .server
        .take()
        .map(|(system_id, postmaster_start)| Arc::new(ServerIdentity { system_id, postmaster_start, database }));
    let mut facts = Facts {
        named: answer.named.take(),
        configuration: Some(std::mem::take(&mut answer.configuration)),
        default_isolation: answer.isolation,
        idle_max: answer.idle_max,
        ..Facts::default()
    };
    let context = answer.describe().and_then(|described| shared.contexts.intern(described));
    facts.context = context.ok().map(|context| (context, under));
    (facts, identity)
}

/// The parameters that the server has reported in a greeting.
pub(crate) fn parameters(mut greeting: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let head = frame::header(greeting).ok().flatten()?;
        let (message, rest) = greeting.split_at_checked(head.frame_bytes)?;
        greeting = rest;
        Some(message)
    })
    .filter_map(backend::parameter_status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_before_an_error_is_no_answer() {
        let row = |messages: &[(u8, &[u8])]| {
            let mut answered = Answered::default();
            for (tag, body) in messages {
                answered.note(*tag, body);
            }
            answered.row()
        };
        let (first, last) = ((backend::DATA_ROW, &b"\0\0"[..]), (backend::DATA_ROW, &b"\0\x01\0\0\0\0"[..]));
        let error = (backend::ERROR, &b"SFATAL\0\0"[..]);
        assert_eq!(row(&[first, (backend::NOTICE, b"\0"), last]).unwrap(), b"D\0\0\0\x0a\0\x01\0\0\0\0");
        assert!(row(&[first, error]).is_none() && row(&[first, error, last]).is_none() && row(&[error]).is_none());
    }
}
