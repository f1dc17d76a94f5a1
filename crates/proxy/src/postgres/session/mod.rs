//! One client connection and its upstream connection.
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
//! | orders | `orders` | what an operator has ordered: KILL, PAUSE |
//! | waiting | `hold` | the acknowledgement or the look-up that waits for the change stream |
//!
//! Order is kept by a queue of [`unit::Unit`]s, one per `ReadyForQuery` that the upstream owes: a hit is answered
//! only when the queue is empty. Back-pressure is kept by never reading one side while the other's output is high.

mod ahead;
pub(crate) mod batch;
mod block;
mod client;
mod client_side;
mod complete;
mod decide;
mod definitions;
mod drain;
mod ends;
mod execute;
pub(crate) mod execution;
mod hold;
mod local;
mod long_text;
mod mark;
pub(crate) mod moving;
mod named;
mod observe;
mod orders;
mod own;
mod own_statements;
mod passing;
mod pipeline;
mod plan;
mod prefetch;
mod query;
mod refusal;
mod server_connection;
pub(crate) mod shown;
mod startup;
mod statements;
mod transaction;
mod unit;
mod unseen;
mod upstream;
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
use crate::metrics::WorkerCounters;
use crate::peer::STALL_MAX;
use crate::postgres::Pg;
use crate::postgres::session::block::Transaction;
use crate::postgres::session::client_side::ClientSide;
use crate::postgres::session::complete::CompleteFills;
use crate::postgres::session::definitions::Definitions;
use crate::postgres::session::hold::Waiting;
use crate::postgres::session::pipeline::Pipeline;
use crate::postgres::session::prefetch::Prefetch;
use crate::postgres::session::server_connection::{Known, ServerConnection};
use crate::postgres::session::watermark::SessionWatermark;
use crate::postgres::session::way::Way;
use crate::server::sessions::Link;
use crate::server::traces::{Answered, AnsweredBy};
use crate::session::body::Body;

pub(crate) use own::first_question;
pub(crate) use startup::serve;

/// Time for a last word over TLS.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a session ended other than by its client's wish.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    /// A socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server sent what cannot be a message, or an answer nobody asked for.
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
    /// Scratch for keys.
    key: Vec<u8>,
    /// When the hit that is being answered was looked up first.
    looked_up_at: Nanos,
}

impl Session {
    fn counters(&self) -> Option<&WorkerCounters> {
        self.shared.metrics.worker(self.worker)
    }

    fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    /// Serves until either side ends.
    async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            self.read_upstream()?;
            while self.release_held() {
                self.read_upstream()?;
            }
            self.give_up_block_fills();
            self.read_client();
            if self.make_way().await {
                continue;
            }
            self.leave_if_drained();
            if self.link.has_orders() {
                self.leave_if_dismissed();
                self.park();
                if self.link.is_killed() {
                    return Ok(self.end_by_order().await?);
                }
            }
            if self.is_over() {
                let _ = self.server.socket().flush().await;
                self.client.socket().flush().await?;
                // Over TLS an end that is not said looks like an attack. A client that does not read is not waited for.
                let _ = timeout(FAREWELL_TIMEOUT, self.client.socket().shut_down()).await;
                return Ok(());
            }
            if self.client_is_drained() && !self.server.has_output() {
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

    /// The server has ended the connection, as it does once it has answered everything and the client sends no more.
    fn is_over(&self) -> bool {
        self.server.has_ended() && !self.client.is_high() && !self.waiting.is_holding()
    }

    /// The client has ended and nothing of what it sent is left to be handled.
    fn client_is_drained(&self) -> bool {
        if !self.client.is_open() || !self.client.has_ended() {
            return self.client.has_said_goodbye();
        }
        let waits =
            !self.is_idle() || self.waiting.is_looking() || matches!(self.server.settings.known, Known::Asked { .. });
        let high = self.client.is_high() || self.server.is_high();
        // What is left while nothing is waited for is a piece of a message.
        self.client.received().is_empty() || !(self.client.is_within_message() || waits || high)
    }

    /// Writes what waits and reads what comes: at least one of it.
    async fn exchange(&mut self) -> io::Result<()> {
        // Once the client has ended, an emptied output is what the next step waits for.
        let ended = self.client.has_ended() || self.client.has_said_goodbye();
        std::future::poll_fn(|cx| {
            let mut progress = self.is_to_leave() || self.link.take_news() || self.poll_waits(cx);
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
            let hold = self.server.is_high() || self.client.is_high();
            if !hold && let Poll::Ready(received) = self.client.socket().poll_receive(cx) {
                received?;
                progress = true;
            }
            if progress { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Nothing is owed to the client and no message is half forwarded: an answer of Freshet's own may follow.
    fn is_idle(&self) -> bool {
        self.pipeline.is_empty() && self.server.rest == 0 && !self.waiting.is_holding()
    }

    fn count_passed(&self, reason: &Reason) {
        if let Some(counters) = self.counters() {
            counters.count_passed(reason);
        }
    }

    /// The database has answered a statement.
    fn count_answer(&self, took: Took, answered: &Answered<'_>) {
        if let Some(counters) = self.counters() {
            counters.answers.note(took);
        }
        if self.shared.settings.query_log.wants(took.nanos) {
            self.observe(answered);
        }
        self.note_traffic();
    }

    fn note_traffic(&self) {
        self.link.note_traffic(self.client.traffic(), self.server.traffic());
    }

    /// The answers of these entries are in the output.
    fn count_hits<'a>(&mut self, entries: impl Iterator<Item = &'a Body>, count: usize, bytes: usize) {
        self.server.settings.is_used = true;
        self.prefetch.note_hit();
        let took = Took::from(self.now().saturating_sub(self.looked_up_at));
        if let Some(counters) = self.counters() {
            counters.count_hits(count, bytes, took);
        }
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
