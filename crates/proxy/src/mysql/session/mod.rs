//! A client connection and its server connection.
//!
//! A session is one task that owns both sockets, so a hit never leaves the thread. The protocol is half-duplex, one
//! command and its answer, so the session is straight-line code:
//!
//! | step | where | does |
//! |---|---|---|
//! | log in | [`crate::mysql::login`] | connects upstream, relays the login |
//! | next command | here | watches both sides; what the client sends ahead waits its turn |
//! | command | `command`, `text`, `prepare`, `execute` | hit, fill, or pass |
//! | decide | `decide`, `settings`, `transaction` | what the session allows; key, look-up, tags, permit (with [`crate::session`]) |
//! | ask | `settings`, `source`, `counters` | Freshet's own questions: for the context; for the text that PREPARE reads; for what unknown code has done |
//! | speak to the server | `server_connection` | owns the socket, what is prepared there, which settings are in force there |
//! | forward | `forward` | commands and answers of any size, in bounded memory |
//! | share connections | `pooling`, `check_out`, `state_left`, `own_statements`, `killing` | in transaction mode: gives the server connection back at rest, and takes one again |
//! | after | `after`, `track`, `temporaries`, `waiting` | what the answer says of the session; an acknowledgement that waits for the stream, or need not ([`crate::session::commit_wait`]) |
//!
//! Its parts, which know nothing of the session:
//!
//! | part | where | has |
//! |---|---|---|
//! | server's side | `server_connection` | the server connection, of which a session may be without; what is prepared there, the context: which settings are in force there |
//! | label, pins | `label`, `user_variables`, `pin` | in transaction mode: the settings that go to another connection, and what does not |
//! | transaction | `transaction` | the open block, and what it may have written to |
//! | watermark | `watermark` | how new the next answers must be |
//! | definitions | `definitions` | whether others, and the session itself, must reckon with what it has defined |
//! | command at hand | `at_hand` | what is known of it beside its bytes |
//! | replay | `diagnostics` | the hits that the server must learn of before it is asked for diagnostics |
//!
//! The client's output is written only when the session waits for something, so that a hit costs one read and one write. An acknowledgement is
//! delayed by not waiting for the client.

pub(crate) mod after;
mod answer;
mod at_hand;
mod check_out;
mod command;
mod connection;
mod counted;
mod counters;
mod decide;
mod definitions;
pub(crate) mod diagnostics;
mod execute;
mod execution;
mod forward;
mod held;
mod idle;
mod killing;
mod known;
mod label;
mod mark;
mod message;
mod moving;
mod named;
mod observe;
mod own_statements;
mod pin;
mod polled;
pub(crate) mod pooling;
mod prepare;
mod prepared;
pub(crate) mod reading;
mod refusal;
mod row_count;
mod server_connection;
mod settings;
mod shown;
mod source;
mod state_left;
mod temporaries;
mod text;
mod there;
mod time_limit;
pub(crate) mod track;
mod transaction;
mod user_variables;
mod waiting;
mod watermark;
mod yielding;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freshet_types::{Nanos, Reason};
use freshet_wire::mysql::capabilities::{Capabilities, Status};
use freshet_wire::mysql::response::OutOfStep;
use thiserror::Error;

use crate::latency::Took;
use crate::mysql::MySql;
use crate::mysql::login::{Admitted, admit};
use crate::mysql::session::at_hand::AtHand;
pub(crate) use crate::mysql::session::connection::ServerConnection;
use crate::mysql::session::definitions::Definitions;
use crate::mysql::session::diagnostics::Replay;
pub(crate) use crate::mysql::session::pooling::PooledLogin;
use crate::mysql::session::pooling::Pooling;
use crate::mysql::session::row_count::RowCount;
use crate::mysql::session::server_connection::ServerSide;
use crate::mysql::session::track::Track;
use crate::mysql::session::transaction::TransactionState;
use crate::mysql::session::watermark::SessionWatermark;
use crate::peer::Peer;
use crate::server::access::Incoming;
use crate::server::sessions::{About, Link};
use crate::server::traces::{Answered, AnsweredBy};
use crate::session::body::Body;
use crate::session::last::Last;
use crate::session::wait_queue::Patience;

/// Why a session ended, if the client did not end it.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    /// A socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server's packets are invalid in this state.
    #[error("server out of step: {0}")]
    OutOfStep(#[from] OutOfStep),
    /// The server ended the connection while an answer was due; its last message has been forwarded.
    #[error("the server ended the connection within an answer")]
    UpstreamEnded,
    /// The client ended the connection within a command.
    #[error("the client ended the connection within a command")]
    ClientEnded,
    /// There is no connection for it; the client has been told.
    #[error("there is no server connection for the session")]
    NoConnection,
    /// An answer to a statement of Freshet's own is too large.
    #[error("an own statement's answer is too large")]
    OwnAnswer,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outcome {
    #[default]
    Plain,
    /// With an error.
    Failed,
    /// With a cursor: its rows are fetched later.
    Cursor,
}

/// The server's last answer.
#[derive(Debug, Default)]
struct LastAnswer {
    /// The server's list of warnings may not be empty: it, or an earlier one, was an error or had warnings.
    warned: bool,
    outcome: Outcome,
    row_count: RowCount,
}

/// A session.
struct Session {
    shared: Arc<MySql>,
    worker: usize,
    client: Peer,
    server: ServerSide,
    /// The session's state as the server last reported it.
    status: Status,
    transaction: TransactionState,
    track: Track,
    watermark: SessionWatermark,
    definitions: Definitions,
    replay: Replay,
    /// The last wait for a position did not help.
    patience: Patience,
    answer: LastAnswer,
    at_hand: AtHand,
    /// Buffer for keys.
    key: Vec<u8>,
    last: Last,
}

/// Serves a connection from its first byte to its end.
pub(crate) async fn serve(socket: Incoming, shared: Arc<MySql>, worker: usize) {
    shared.metrics.connections.fetch_add(1, Relaxed);
    // In a box of its own: the login's state is large, and is dropped before the session begins.
    let Some(admitted) = Box::pin(admit(socket, &shared)).await else { return };
    if let Some(counters) = shared.metrics.worker(worker) {
        counters.sessions.fetch_add(1, Relaxed);
    }
    if let Err(error) = converse(admitted, &shared, worker).await {
        tracing::debug!(%error, "session ended");
    }
    if let Some(counters) = shared.metrics.worker(worker) {
        counters.sessions.fetch_sub(1, Relaxed);
    }
}

async fn converse(mut admitted: Admitted, shared: &Arc<MySql>, worker: usize) -> Result<(), SessionError> {
    let listed = shared.sessions.begin(about(&admitted));
    let _place = admitted.place.take();
    let _woken = shared.switches.enlist().await;
    listed.link.enlist().await;
    let mut session = Session::new(admitted, shared.clone(), (worker, listed.link.clone()));
    let ended = session.run().await;
    session.answered();
    session.leave_pool();
    // What is in the output is the client's, whatever ended the session.
    let _ = session.farewell().await;
    ended
}

fn about(admitted: &Admitted) -> About {
    let (client, server) = (admitted.client.socket(), admitted.upstream.socket());
    About {
        user: admitted.about.user.clone(),
        database: admitted.about.database.clone().unwrap_or_default(),
        application_name: admitted.about.application.clone(),
        client: client.addresses(),
        server: server.addresses(),
        tls: (client.is_encrypted(), server.is_encrypted()),
        ..About::default()
    }
}

impl Session {
    fn new(admitted: Admitted, shared: Arc<MySql>, (worker, link): (usize, Arc<Link>)) -> Self {
        let Admitted { client, upstream, about, thread, account, .. } = admitted;
        let connection = ServerConnection::new(upstream, thread);
        let (connection, pooling) = match account {
            None => (Some(connection), None),
            Some(account) => {
                let (connection, pooling) = Pooling::begin(account, &about, (connection, &link), &shared);
                (connection, Some(Box::new(pooling)))
            }
        };
        let mut session = Self {
            shared,
            worker,
            client,
            server: ServerSide::new(connection, about, link),
            status: Status::AUTOCOMMIT,
            transaction: TransactionState::default(),
            track: Track::default(),
            watermark: SessionWatermark::default(),
            definitions: Definitions::default(),
            replay: Replay::default(),
            patience: Patience::default(),
            answer: LastAnswer::default(),
            at_hand: AtHand::default(),
            key: Vec::with_capacity(256),
            last: Last::default(),
        };
        session.server.pooling = pooling;
        session.logged_in();
        session
    }

    async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            // In a box of its own: hits of other sessions do not pay for it.
            if self.server.pooling.is_some() {
                Box::pin(self.rest()).await?;
            }
            let Some(command) = self.next_command().await? else { return Ok(()) };
            if !self.command(command).await? {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    fn capabilities(&self) -> Capabilities {
        self.server.about.capabilities
    }

    /// The server has said what state the session is in.
    fn note_status(&mut self, status: Status) {
        self.status = status;
        self.server.link.note_transaction(status.has(Status::IN_TRANS));
    }

    /// The server has answered a statement.
    fn answered(&mut self) {
        self.server.link.end_running();
        let from_server = self.server.traffic();
        self.server.link.note_traffic(self.client.traffic, from_server);
    }

    fn count_passed(&self, reason: &Reason) {
        self.shared.metrics.count_passed(self.worker, reason);
    }

    /// Counts an answer of the database and its latency.
    fn count_answer(&self, took: Took) {
        self.shared.metrics.count_answer(self.worker, took);
    }

    /// The answer of this entry is in the output.
    fn count_hit(&mut self, body: &Body) {
        let took = self.count_served(body.frames().len());
        body.note_hit(self.worker, took);
        if self.shared.settings.query_log.wants(took.nanos) {
            let (query, took, outcome) = (&body.source.query, took.nanos, AnsweredBy::Hit(body.frames().len()));
            let parent = self.at_hand.trace.take();
            self.observe(&Answered { query, took, outcome, has_failed: false, parent });
        }
    }

    /// So many bytes from the cache are in the output; how long that took.
    fn count_served(&self, bytes: usize) -> Took {
        let took = Took::from(self.now().saturating_sub(self.last.looked_up_at));
        self.shared.metrics.count_hits(self.worker, (1, bytes), took);
        took
    }
}
