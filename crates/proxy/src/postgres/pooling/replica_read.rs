//! One read at a replica, from the choice of the server to the answer.
//!
//! The answer is forwarded once it is proven to be true, and not before:
//!
//! | step | why |
//! |---|---|
//! | the floor is known: [`freshet_cache::Cache::replica_floor`] | the session, others whose writes were acknowledged, and hits have seen no more |
//! | a standby of the primary's timeline has replayed it, as it said before the query is sent | its queries see at least that |
//! | or no delivered commit between the standby's position and the floor touches the statement ([`freshet_cache::Cache::untouched_since`]) | its answer is that of the floor |
//! | the query runs on a connection to the same server process | a restart may take a standby back |
//! | asked after the answer, the server is still that standby, on the same timeline | what the session has seen is in the log of the primary that Freshet follows |
//!
//! If a step fails, nothing has been forwarded, and the statement is run at the primary: it only reads. A large answer is forwarded in parts once its
//! first part is proven: its snapshot is older than that.

use std::sync::Arc;
use std::task::Poll;

use freshet_net::postgres::ConnectError;
use freshet_wire::postgres::backend;
use freshet_wire::postgres::frame;
use tokio::time::{Instant, timeout, timeout_at};

use crate::peer::Peer;
use crate::pool::Lease;
use crate::postgres::Pg;
use crate::postgres::pooling::cancel::CancelTarget;
use crate::postgres::pooling::labels::SetThere;
use crate::postgres::pooling::obtain::{NotObtained, open};
use crate::postgres::pooling::prepared::PreparedThere;
use crate::postgres::pooling::replica_choice::{Request, STEP_MAX, choose};
use crate::postgres::pooling::shown::WAIT_MAX;
use crate::postgres::pooling::{Facts, Origin, PooledConnection, UnderLabels};
use crate::postgres::session::own_statements::OwnStatements;
use crate::shared::servers::{Found, InUse, Trouble};
use crate::shared::{ServerIdentity, Shared};

/// So much of an answer is gathered before it is forwarded.
const PART_BYTES: usize = 256 << 10;

/// What comes of it.
pub(crate) enum Outcome {
    /// The next part of the answer, which is complete if there is no reader. `at`: the server, by its place in the connection string.
    Part { frames: Vec<u8>, reader: Option<Box<Reader>>, at: Option<usize> },
    /// Nothing was forwarded: the statement goes to the primary.
    Primary,
    /// The server was lost amid the answer.
    Lost { is_within_message: bool },
}

/// Why a replica does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfit {
    /// There is no floor, or no replica has reached it in time.
    NotNow,
    /// The connection failed, or there was none.
    Broken,
    /// The statement failed there, or the server is not what it was.
    Changed,
    /// The server does not let the user in.
    Refused,
    /// The connection has other settings than the session.
    OtherSettings,
}

impl Unfit {
    /// Of an error at the login.
    fn of(error: &NotObtained) -> Self {
        let NotObtained::Connect(ConnectError::Refused(error)) = error else { return Self::Broken };
        let is_of_all = error.code.starts_with("57P") || error.code.starts_with("53");
        if is_of_all { Self::Broken } else { Self::Refused }
    }

    fn trouble(self) -> Option<Trouble> {
        match self {
            Self::NotNow | Self::Changed => None,
            Self::Broken => Some(Trouble::Server),
            Self::Refused | Self::OtherSettings => Some(Trouble::Login),
        }
    }
}

/// Reads at a replica.
pub(crate) async fn read(shared: Arc<Pg>, request: Request) -> Outcome {
    let who = (request.login.key.clone(), request.login.group.clone());
    let Some((mut in_use, found)) = choose(&shared, &request, &who).await else { return Outcome::Primary };
    let target = request.target.clone();
    target.take_asked();
    let at = in_use.at;
    let outcome = tokio::select! {
        outcome = answer(&shared, request, &mut in_use, &found) => outcome,
        () = gone(&shared, at, &found) => Err(Unfit::Changed),
    };
    match outcome {
        Ok((frames, reader)) => {
            in_use.note_answered();
            let at = Some(at);
            let reader = reader.map(|reader| Box::new(Reader { in_use: Some(in_use), ..reader }));
            Outcome::Part { frames, reader, at }
        }
        Err(unfit) => {
            released(&target).await;
            target.take_doubt();
            if in_use.note_run_again(unfit.trouble()) {
                let (key, server) = (&who.0, shared.servers.describe(in_use.at));
                tracing::warn!(user = key.user, database = key.database, "no reads at {server} for now: {unfit:?}");
            }
            // A client that has cancelled its statement does not want it to be run again.
            if target.take_asked() {
                Outcome::Part { frames: canceled(), reader: None, at: None }
            } else {
                Outcome::Primary
            }
        }
    }
}

/// Gives the rest of an answer.
pub(crate) async fn read_on(mut reader: Box<Reader>) -> Outcome {
    let mut frames = Vec::new();
    let at = reader.in_use.as_ref().map(|in_use| in_use.at);
    match reader.gather(&mut frames).await {
        Ok(false) => Outcome::Part { frames, reader: Some(reader), at },
        Ok(true) => {
            reader.give_back().await;
            Outcome::Part { frames, reader: None, at }
        }
        Err(_) => {
            if let Some(in_use) = &reader.in_use {
                in_use.note_run_again(Some(Trouble::Server));
            }
            Outcome::Lost { is_within_message: reader.rest > 0 }
        }
    }
}

/// What a server answers to a statement that was cancelled.
fn canceled() -> Vec<u8> {
    let mut frames = Vec::new();
    backend::put_error(&mut frames, "ERROR", "57014", "canceling statement due to user request");
    backend::put_ready(&mut frames, backend::STATUS_IDLE);
    frames
}

/// Returns when the server is no longer what it was.
async fn gone(shared: &Shared, at: usize, found: &Found) {
    loop {
        let next = shared.servers.next_change();
        tokio::pin!(next);
        next.as_mut().enable();
        match shared.servers.answer_since(at, 0) {
            Ok(now) if now.as_ref().is_some_and(|now| now.goes_on_as(found)) => next.await,
            _ => return,
        }
    }
}

/// The first part of the answer, proven, and what gives the rest.
async fn answer(
    shared: &Arc<Pg>,
    request: Request,
    in_use: &mut InUse,
    found: &Found,
) -> Result<(Vec<u8>, Option<Reader>), Unfit> {
    let mut reader = Reader::open(shared, &request, in_use.at, found).await?;
    reader.peer.output.put(&request.message);
    reader.peer.flush().await.map_err(|_| Unfit::Broken)?;
    let mut frames = Vec::new();
    let is_complete = reader.gather(&mut frames).await?;
    let mut rest = Some(reader);
    let has_failed = rest.as_ref().is_some_and(|reader| reader.has_failed);
    if let Some(reader) = rest.take_if(|_| is_complete) {
        in_use.end();
        reader.give_back().await;
    }
    let is_same = goes_on(shared, in_use.at, found).await
        && shared.cache.epoch() == Some(request.epoch)
        && shared.cache.are_published(&request.reads.tables);
    if is_same && !has_failed { Ok((frames, rest)) } else { Err(Unfit::Changed) }
}

/// Whether an error is the answer. All others may be of the replica's own, and the statement is run again.
fn is_final(sqlstate: &[u8]) -> bool {
    // A client that has cancelled its statement does not want it to be run again; errors of class 22 come of the data alone.
    sqlstate == b"57014" || sqlstate.starts_with(b"22")
}

/// Whether the server, asked now, is what it was.
async fn goes_on(shared: &Shared, at: usize, found: &Found) -> bool {
    let (since, deadline) = (shared.clock.now(), Instant::now() + STEP_MAX);
    loop {
        let next = shared.servers.next_answer();
        tokio::pin!(next);
        next.as_mut().enable();
        shared.servers.want(at);
        match shared.servers.answer_since(at, since) {
            Err(()) => return false,
            Ok(Some(now)) => return now.goes_on_as(found),
            Ok(None) => {}
        }
        if timeout_at(deadline, next).await.is_err() {
            return false;
        }
    }
}

/// Returns when no cancel request for the session's connection is under way.
async fn released(target: &CancelTarget) {
    let release = |cx: &mut std::task::Context<'_>| {
        if target.release(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
    };
    std::future::poll_fn(release).await;
}

/// A connection to a replica on which a statement was sent.
pub(crate) struct Reader {
    peer: Peer,
    /// Bytes of the current message still to come.
    rest: usize,
    has_failed: bool,
    lease: Lease<Box<PooledConnection>>,
    origin: Arc<Origin>,
    facts: Facts,
    own: OwnStatements,
    identity: Option<Arc<ServerIdentity>>,
    prepared: PreparedThere,
    has_unnamed: bool,
    shared: Arc<Pg>,
    target: Arc<CancelTarget>,
    in_use: Option<InUse>,
}

impl Reader {
    /// Takes an idle connection, or opens one.
    async fn open(shared: &Arc<Pg>, request: &Request, at: usize, found: &Found) -> Result<Self, Unfit> {
        let login = &request.login;
        let pools = shared.pooling.replicas.get(at).ok_or(Unfit::NotNow)?;
        let lease = timeout(WAIT_MAX, pools.check_out(&login.key, &login.group)).await;
        let mut lease = lease.map_err(|_| Unfit::NotNow)?.map_err(|_| Unfit::NotNow)?;
        let idle = lease.take().and_then(|connection| login.use_of(connection));
        let connection = if let Some(connection) = idle {
            connection
        } else {
            lease.renew();
            lease.regroup(login.group.clone());
            let opened = timeout(STEP_MAX, open(shared, login, Some(at))).await;
            opened.map_err(|_| Unfit::Broken)?.map_err(|error| Unfit::of(&error))?
        };
        let has_begun = login.has_begun_with(&connection.origin);
        let has_settings =
            connection.facts.context.as_ref().is_some_and(|(context, _)| context.settings == request.settings);
        let is_there = connection.identity.as_ref().is_some_and(|there| {
            (&there.system_id, &there.postmaster_start) == (&found.system_id, &found.postmaster_start)
        });
        if !is_there {
            return Err(Unfit::Changed);
        }
        if !(has_begun && has_settings) {
            return Err(Unfit::OtherSettings);
        }
        let PooledConnection { socket, own, facts, identity, prepared, has_unnamed, origin, .. } = *connection;
        request.target.set(origin.cancel_key.clone(), Some(at));
        Ok(Self {
            peer: Peer::new(socket),
            rest: 0,
            has_failed: false,
            lease,
            origin,
            facts,
            own,
            identity,
            prepared,
            has_unnamed: has_unnamed || request.parses,
            shared: shared.clone(),
            target: request.target.clone(),
            in_use: None,
        })
    }

    /// Adds bytes of the answer until it is complete (true), or until there is a part's worth of them.
    async fn gather(&mut self, frames: &mut Vec<u8>) -> Result<bool, Unfit> {
        loop {
            while self.rest > 0 && frames.len() < PART_BYTES {
                let input = self.peer.input.bytes();
                let bytes = input.get(..self.rest).unwrap_or(input);
                frames.extend_from_slice(bytes);
                let count = bytes.len();
                self.peer.input.consume(count);
                self.rest -= count;
                if self.rest > 0 {
                    self.receive(1).await?;
                }
            }
            if frames.len() >= PART_BYTES {
                return Ok(false);
            }
            self.receive(frame::HEADER_BYTES).await?;
            let head = frame::header(self.peer.input.bytes()).ok().flatten().ok_or(Unfit::Broken)?;
            match head.tag {
                backend::PARAMETER_STATUS | backend::NOTIFICATION => {
                    self.receive(head.frame_bytes).await?;
                    self.peer.input.consume(head.frame_bytes);
                    continue;
                }
                backend::ERROR => {
                    self.receive(head.frame_bytes).await?;
                    let message = self.peer.input.bytes().get(..head.frame_bytes).unwrap_or_default();
                    self.has_failed |= !backend::sqlstate(message).is_some_and(is_final);
                }
                backend::READY => {
                    self.receive(head.frame_bytes).await?;
                    let message = self.peer.input.bytes().get(..head.frame_bytes).unwrap_or_default();
                    frames.extend_from_slice(message);
                    let is_idle = message.last() == Some(&backend::STATUS_IDLE);
                    self.peer.input.consume(head.frame_bytes);
                    return if is_idle { Ok(true) } else { Err(Unfit::Broken) };
                }
                _ => {}
            }
            self.rest = head.frame_bytes;
        }
    }

    async fn receive(&mut self, count: usize) -> Result<(), Unfit> {
        match self.peer.receive_at_least(count).await {
            Ok(true) => Ok(()),
            _ => Err(Unfit::Broken),
        }
    }

    /// The answer is complete: others may use the connection.
    async fn give_back(self) {
        released(&self.target).await;
        if self.target.take_doubt() {
            return;
        }
        let mut peer = self.peer;
        if !peer.input.bytes().is_empty() || peer.rest().is_err() {
            return;
        }
        self.lease.give_back(Box::new(PooledConnection {
            socket: peer.into_socket(),
            own: self.own,
            facts: self.facts,
            identity: self.identity,
            compared: None,
            prepared: self.prepared,
            set: SetThere::default(), // replicas are not read by sessions that have set anything
            under_labels: UnderLabels::default(),
            has_unnamed: self.has_unnamed,
            ready_at: self.shared.clock.now(),
            origin: self.origin,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_data_alone_is_the_answer() {
        assert!([&b"57014"[..], b"22012", b"22P02"].into_iter().all(is_final));
        assert!(![&b"40001"[..], b"57P01", b"42P01", b"25006", b"55000", b"0A000"].into_iter().any(is_final));
    }

    #[test]
    fn a_refused_login_leaves_the_server_to_others() {
        let refused = |code: &str| {
            let mut frame = Vec::new();
            backend::put_error(&mut frame, "FATAL", code, "no");
            let error = ConnectError::refused(&frame[frame::HEADER_BYTES..]);
            Unfit::of(&NotObtained::Connect(error)).trouble()
        };
        assert_eq!(["28P01", "3D000", "42501"].map(refused), [Some(Trouble::Login); 3]);
        assert_eq!(["57P03", "53300"].map(refused), [Some(Trouble::Server); 2]);
        let lost = ConnectError::Tcp(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(Unfit::of(&lost.into()).trouble(), Some(Trouble::Server));
    }
}
