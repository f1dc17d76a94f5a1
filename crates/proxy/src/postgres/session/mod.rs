//! A client connection and its server connection.
//!
//! A session is one task that owns both sockets, so a hit never leaves the thread. Its steps:
//!
//! | step | where | does |
//! |---|---|---|
//! | start up | `startup` | the client is let in ([`crate::postgres::login`]) and connected with its session upstream |
//! | read client | `client`, `query`, `execute` | takes messages at `Sync` boundaries: hit, fill, pass, or wait |
//! | decide | `plan`, `decide` | what the session allows; look-up, read set, tags, permit (with [`crate::session`]) |
//! | read upstream | `upstream` | forwards answers in order, keeps what is to be cached, swallows what Freshet asked |
//! | write | `peer` | sends what both steps produced |
//!
//! Its parts, which know nothing of the session:
//!
//! | part | where | has |
//! |---|---|---|
//! | client side | `client_side` | the client's socket, and how far its messages and its batch have been read |
//! | server connection | `server_connection` | the server's socket, what is prepared there, the context: which settings are in force there |
//! | pipeline | `pipeline`, `unit`, `mark` | the units that the server has not answered, and what each of them may do |
//! | transaction | `block` | the transaction status, the open block, and what waits for its end |
//! | watermark | `watermark` | how new the next answers must be |
//! | prefetch | `prefetch` | whether the next look-up is likely to need the log end, or to miss |
//! | complete fills | `complete` | answers that wait for the log end before they are cached |
//! | definitions | `definitions` | whether others must reckon with what the session has defined |
//! | names | `names`, `renaming`, `renamed` | what the client's names of prepared statements stand for, where connections are shared |
//! | sharing | `sharing`, `tending`, `traces` | the server connection of a session that shares connections: whether it has one, and what keeps it |
//! | listening | `listening` | LISTEN of a session that shares connections: its channels are handed over to a listener |
//! | replica | `replica` | reads of a session that shares connections at a replica |
//! | orders | `orders` | what an operator has ordered: KILL, PAUSE |
//! | waiting | `waiting` | the acknowledgement or the look-up that waits for the change stream |
//! | time limit | `time_limit` | of a statement that a rule cancels |
//!
//! Order is kept by a queue of [`unit::Unit`]s, one per `ReadyForQuery` that the upstream owes: a hit is answered
//! only when the queue is empty. Back-pressure is kept by never reading one side while the other's output is high.

mod ahead;
mod at_replica;
pub(crate) mod batch;
mod block;
mod carrying;
mod client;
mod client_side;
mod complete;
mod decide;
mod definitions;
mod drain;
mod ends;
mod execute;
pub(crate) mod execution;
mod listening;
mod local;
mod long_text;
mod mark;
pub(crate) mod moving;
mod named;
mod names;
mod observe;
mod orders;
mod own;
pub(crate) mod own_statements;
mod passing;
mod pipeline;
mod plan;
mod prefetch;
mod query;
mod real_names;
mod refusal;
mod renamed;
mod renaming;
mod replica;
mod server_connection;
mod sharing;
pub(crate) mod shown;
mod startup;
mod statements;
mod tending;
mod time_limit;
mod traces;
mod transaction;
mod unit;
mod unseen;
mod upstream;
mod waiting;
mod waits_skipped;
mod watermark;
mod way;

use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use freshet_types::{Nanos, Reason};
use thiserror::Error;
use tokio::time::timeout;

use crate::latency::Took;
use crate::peer::STALL_MAX;
use crate::postgres::Pg;
use crate::postgres::session::block::Transaction;
use crate::postgres::session::carrying::Leaving;
use crate::postgres::session::client_side::ClientSide;
use crate::postgres::session::complete::CompleteFills;
use crate::postgres::session::definitions::Definitions;
use crate::postgres::session::pipeline::Pipeline;
use crate::postgres::session::prefetch::Prefetch;
use crate::postgres::session::server_connection::{Known, ServerConnection};
use crate::postgres::session::tending::Tended;
use crate::postgres::session::waiting::Waiting;
use crate::postgres::session::watermark::SessionWatermark;
use crate::postgres::session::way::Way;
use crate::server::sessions::Link;
use crate::server::switches::Stage;
use crate::server::traces::{Answered, AnsweredBy};
use crate::session::body::Body;
use crate::session::last::Last;

pub(crate) use carrying::{Carried, way_of};
pub(crate) use drain::TERMINATED;
pub(crate) use own::first_question;
pub(crate) use startup::{serve, take_over};

/// The longest wait for the client to receive the last message over TLS, or before another process has the session.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a session ended, if the client did not end it.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    /// A socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server sent an invalid message, or an answer to nothing.
    #[error("server out of step: {0}")]
    ServerMisbehaved(&'static str),
}

/// A session.
struct Session {
    shared: Arc<Pg>,
    worker: usize,
    link: Arc<Link>,
    client: ClientSide,
    server: ServerConnection,
    pipeline: Pipeline,
    transaction: Transaction,
    watermark: SessionWatermark,
    prefetch: Prefetch,
    complete: CompleteFills,
    definitions: Definitions,
    waiting: Waiting,
    way: Way,
    /// Buffer for keys.
    key: Vec<u8>,
    last: Last,
}

impl Session {
    fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    /// Runs until either side ends.
    async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            self.read_upstream()?;
            while self.waiting.is_in_commit_wait() && self.end_commit_wait() {
                self.read_upstream()?;
            }
            self.give_up_block_fills();
            self.read_client();
            if self.make_way().await {
                continue;
            }
            if self.link.has_orders() {
                self.leave_if_dismissed();
                self.park();
                if self.link.is_killed() {
                    return Ok(self.end_by_order().await?);
                }
            }
            if self.server.sharing.is_some() {
                match self.tend() {
                    Tended::Again => continue,
                    Tended::Ended => {
                        self.end_shared().await;
                        return Ok(());
                    }
                    Tended::Leaves => {
                        self.client.end_is_told();
                        self.server.socket().shut_down().await?;
                    }
                    Tended::Rests => {}
                }
            }
            // A session that shares connections has given back what it does not need.
            if self.shared.switches.stage() != Stage::Serving {
                match Box::pin(self.leave_process()).await {
                    Leaving::Stays => {}
                    Leaving::Ends => continue,
                    Leaving::IsCarried => return Ok(()),
                }
            }
            if self.is_over() {
                let _ = self.server.socket().flush().await;
                self.client.socket().flush().await?;
                // Without a close_notify the end would look like an attack. Do not wait for a client that does not read.
                let _ = timeout(FAREWELL_TIMEOUT, self.client.socket().shut_down()).await;
                return Ok(());
            }
            if self.server.sharing.is_none() && self.client_is_drained() && !self.server.has_output() {
                self.client.end_is_told();
                self.server.socket().shut_down().await?;
            }
            if self.stalled_fills().next().is_none() {
                self.exchange().await?;
            } else if let Ok(exchanged) = timeout(STALL_MAX, self.exchange()).await {
                exchanged?;
            } else {
                self.stalled_fills().for_each(|fill| *fill = None);
            }
        }
    }

    /// The server has ended the connection: it has answered everything, and the client sends no more.
    fn is_over(&self) -> bool {
        self.server.has_ended() && !self.client.is_high() && !self.waiting.is_in_commit_wait()
    }

    /// The client has ended, and all that it sent is handled.
    fn client_is_drained(&self) -> bool {
        if !self.client.is_open() || !self.client.has_ended() {
            return self.client.has_said_goodbye();
        }
        let waits = !self.is_idle()
            || self.is_held()
            || self.waiting.is_looking()
            || self.server.sharing.as_ref().is_some_and(|sharing| sharing.awaits_replica())
            || matches!(self.server.settings.known, Known::Asked { .. });
        let high = self.client.is_high() || self.server.is_high();
        // If the session waits for nothing, the remaining bytes are an incomplete message.
        self.client.received().is_empty() || !(self.client.is_within_message() || waits || high)
    }

    /// Sends pending output and receives input; waits until it can do at least one.
    async fn exchange(&mut self) -> io::Result<()> {
        // Once the client has ended, the next step waits until the output is empty.
        let ended = self.client.has_ended() || self.client.has_said_goodbye();
        std::future::poll_fn(|cx| {
            if self.is_to_be_carried() {
                // What comes now is for the other process.
                return Poll::Ready(Ok(()));
            }
            let mut progress =
                self.is_to_leave() || self.link.take_news() || self.poll_waits(cx) || self.poll_sharing(cx);
            for peer in [self.server.socket(), self.client.socket()] {
                if peer.has_output() {
                    let high = peer.output.is_high();
                    if let Poll::Ready(sent) = peer.poll_send(cx) {
                        sent?;
                    }
                    progress |= (high && !peer.output.is_high()) || (ended && !peer.has_output());
                }
            }
            if !self.client.is_high()
                && let Poll::Ready(received) = self.server.socket().poll_receive(cx)
            {
                received?;
                progress = true;
            }
            let is_full = self.server.is_high() || self.client.is_high();
            if !is_full && let Poll::Ready(received) = self.client.socket().poll_receive(cx) {
                received?;
                progress = true;
            }
            // All may be sent now.
            progress |= self.is_to_be_carried();
            if progress { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// No answer is due to the client, and no message is partly forwarded: Freshet may send an answer of its own.
    fn is_idle(&self) -> bool {
        self.pipeline.is_empty() && self.server.rest == 0 && !self.waiting.is_in_commit_wait()
    }

    fn count_passed(&self, reason: &Reason) {
        self.shared.metrics.count_passed(self.worker, reason);
    }

    /// The database has answered a statement.
    fn count_answer(&self, took: Took, answered: &Answered<'_>) {
        self.shared.metrics.count_answer(self.worker, took);
        if self.shared.settings.query_log.wants(took.nanos) {
            self.observe(answered);
        }
        self.note_traffic();
    }

    fn note_traffic(&self) {
        self.link.note_traffic(self.client.traffic(), self.server.traffic());
    }

    /// Counts hits whose answers are in the output.
    fn count_hits<'a>(&mut self, entries: impl Iterator<Item = &'a Body>, count: usize, bytes: usize) {
        self.server.settings.is_used = true;
        self.prefetch.note_hit();
        let took = Took::from(self.now().saturating_sub(self.last.looked_up_at));
        self.shared.metrics.count_hits(self.worker, (count, bytes), took);
        let is_observed = self.shared.settings.query_log.wants(took.nanos);
        let parent = if is_observed { self.client.take_trace() } else { None };
        entries.for_each(|entry| {
            entry.note_hit(self.worker, took);
            if is_observed {
                let outcome = AnsweredBy::Hit(entry.frames().len());
                let query = &entry.source.query;
                self.observe(&Answered { query, took: took.nanos, outcome, has_failed: false, parent });
            }
        });
        self.note_traffic();
    }
}
