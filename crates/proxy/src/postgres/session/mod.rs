//! One client connection and its upstream connection.
//!
//! A session is one task that owns both sockets, so a hit never leaves the thread. Its steps:
//!
//! | step | where | does |
//! |---|---|---|
//! | start up | `startup` | the client is let in ([`crate::postgres::login`]) and connected with its session upstream |
//! | read client | `client`, `query`, `execute` | takes messages at `Sync` boundaries: hit, fill, pass, or wait |
//! | decide | `plan`, `decide` | what the session allows; look-up, read set, tags, permit (with [`crate::session`]) |
//! | read upstream | `upstream` | forwards answers in order, keeps what is to be kept, swallows what Freshet asked |
//! | speak to the server | `server_connection` | owns the socket, what is prepared there, which settings are in force there |
//! | write | `peer` | sends what both steps produced |
//!
//! Order is kept by a queue of [`unit::Unit`]s, one per `ReadyForQuery` that the upstream owes: a hit is answered
//! only when the queue is empty. Back-pressure is kept by never reading one side while the other's output is high.

pub(crate) mod batch;
mod client;
pub(crate) mod decide;
mod drain;
mod ends;
mod execute;
mod hold;
mod long_text;
pub(crate) mod moving;
mod named;
mod own;
mod passing;
mod plan;
mod prefetch;
mod query;
mod server_connection;
pub(crate) mod shown;
mod startup;
mod statements;
mod transaction;
mod unit;
mod upstream;
mod waits_skipped;
mod way;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use freshet_cache::Watermark;
use freshet_types::{Lsn, Nanos, Reason, Visible};
use thiserror::Error;
use tokio::time::timeout;

use crate::metrics::WorkerCounters;
use crate::peer::{Peer, STALL_MAX};
use crate::postgres::Pg;
use crate::postgres::session::hold::Waiting;
use crate::postgres::session::long_text::LongText;
use crate::postgres::session::prefetch::Prefetch;
use crate::postgres::session::server_connection::{Known, ServerConnection};
use crate::postgres::session::transaction::Block;
use crate::postgres::session::unit::{Fill, Unit};
use crate::postgres::session::way::Way;
use crate::session::body::Body;
use crate::session::commit_wait::Counted;

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

/// How far the client's side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Not by a message.
    Open,
    /// It said goodbye: nothing after that is read.
    Goodbye,
    /// The upstream has been told that nothing more comes.
    Told,
}

/// A session.
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other, each set in one place")]
struct Session {
    shared: Arc<Pg>,
    worker: usize,
    client: Peer,
    server: ServerConnection,
    /// What the upstream owes.
    units: VecDeque<Unit>,
    /// Client units in the queue that are not pure.
    impure: usize,
    /// The transaction status of the last `ReadyForQuery`.
    status: u8,
    watermark: Watermark,
    /// The log end as last asked for, if it was not flushed: the stream does not come that far by itself.
    unflushed: Option<Lsn>,
    prefetch: Prefetch,
    /// A notification came since the last `ReadyForQuery`.
    notified: bool,
    /// It has read, begun a transaction block, written what was not held, or been let go by a fence, since its context was last asked for behind a write.
    reads: bool,
    /// Look-ups since the last hit that led to a fill, 255 at most.
    misses_in_row: u8,
    /// A batch that passes is open (its `Sync` has not been seen), for this reason.
    passing: Option<Reason>,
    /// The first messages of a batch have gone ahead, and are not answered yet.
    leads: bool,
    /// Portals with names may be open in the transaction block.
    portals: bool,
    /// The next `Sync` is swallowed by the server's COPY mode.
    absorb_sync: bool,
    /// A statement of the open transaction may have changed the catalogue.
    catalog_dirty: bool,
    /// Bytes of the client's current message that pass unseen.
    client_rest: usize,
    /// Its text, of which only the beginning is known.
    long_text: Option<LongText>,
    /// Such a text was prepared, and may define something.
    long_defines: bool,
    /// The last proof read, for the fills of the unit behind it.
    proof: Option<Visible>,
    /// Complete fills that wait for the log end.
    complete: Vec<Fill>,
    /// What is known of the open transaction block.
    block: Option<Block>,
    /// Complete fills that wait for the block's end, and until when they do.
    block_fills: Vec<Fill>,
    block_fills_due: Nanos,
    waiting: Waiting,
    /// Something that may define anything is not acknowledged yet.
    defining: Option<Counted>,
    way: Way,
    /// The open transaction may have changed definitions that are looked for.
    redefined: bool,
    /// They may be visible, or become so.
    redefining: Option<Counted>,
    /// Scratch for keys.
    key: Vec<u8>,
    /// When the hit that is being answered was looked up first.
    looked_up_at: Nanos,
    /// How far the client's side has ended.
    ending: Ending,
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
            if self.is_over() {
                let _ = self.server.socket().flush().await;
                self.client.flush().await?;
                // Over TLS an end that is not said looks like an attack. A client that does not read is not waited for.
                let _ = timeout(FAREWELL_TIMEOUT, self.client.shut_down()).await;
                return Ok(());
            }
            if self.client_is_drained() && !self.server.has_output() {
                self.ending = Ending::Told;
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
        self.server.has_ended() && !self.client.output.is_high() && !self.waiting.is_holding()
    }

    /// The client has ended and nothing of what it sent is left to be handled.
    fn client_is_drained(&self) -> bool {
        if self.ending != Ending::Open || !self.client.ended {
            return self.ending == Ending::Goodbye;
        }
        let waits =
            !self.is_idle() || self.waiting.is_looking() || matches!(self.server.settings.known, Known::Asked { .. });
        let high = self.client.output.is_high() || self.server.is_high();
        // What is left while nothing is waited for is a piece of a message.
        self.client.input.bytes().is_empty() || (self.client_rest == 0 && !(waits || high))
    }

    /// Writes what waits and reads what comes: at least one of it.
    async fn exchange(&mut self) -> io::Result<()> {
        // Once the client has ended, an emptied output is what the next step waits for.
        let ended = self.client.ended || self.ending == Ending::Goodbye;
        std::future::poll_fn(|cx| {
            let mut progress = self.is_to_leave() || self.poll_waits(cx);
            for peer in [self.server.socket(), &mut self.client] {
                if peer.has_output() {
                    let high = peer.output.is_high();
                    if let Poll::Ready(sent) = peer.poll_send(cx) {
                        sent?;
                    }
                    progress |= (high && !peer.output.is_high()) || (ended && !peer.has_output());
                }
            }
            if !self.client.output.is_high()
                && let Poll::Ready(received) = self.server.socket().poll_receive(cx)
            {
                received?;
                progress = true;
            }
            let hold = self.server.is_high() || self.client.output.is_high();
            if !hold && let Poll::Ready(received) = self.client.poll_receive(cx) {
                received?;
                progress = true;
            }
            if progress { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Nothing is owed to the client and no message is half forwarded: an answer of Freshet's own may follow.
    fn is_idle(&self) -> bool {
        self.units.is_empty() && self.server.rest == 0 && !self.waiting.is_holding()
    }

    fn count_passed(&self, reason: &Reason) {
        if let Some(counters) = self.counters() {
            counters.count_passed(reason);
        }
    }

    /// The database took so long for an answer.
    fn count_answer(&self, took: Nanos) {
        if let Some(counters) = self.counters() {
            counters.answers.note(took);
        }
    }

    /// The answers of these entries are in the output.
    fn count_hits<'a>(&mut self, entries: impl ExactSizeIterator<Item = &'a Body>, bytes: usize) {
        self.reads = true;
        self.misses_in_row = 0;
        let took = self.now().saturating_sub(self.looked_up_at);
        if let Some(counters) = self.counters() {
            counters.count_hits(entries.len(), bytes, took);
        }
        entries.for_each(|entry| entry.note_hit(self.worker, took));
    }
}
