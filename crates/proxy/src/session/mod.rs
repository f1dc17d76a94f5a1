//! One client connection and its upstream connection.
//!
//! A session is one task that owns both sockets, so a hit never leaves the thread. Its steps:
//!
//! | step | where | does |
//! |---|---|---|
//! | start up | `startup` | TLS refused, cancel forwarded, upstream connected, authentication relayed |
//! | read client | `client`, `query`, `execute` | takes messages at `Sync` boundaries: hit, fill, pass, or wait |
//! | decide | `plan`, `decide` | what the session allows; look-up, footprint, tags, permit |
//! | read upstream | `upstream` | forwards answers in order, keeps what is to be kept, swallows what Freshet asked |
//! | write | `peer` | sends what both steps produced |
//!
//! Order is kept by a queue of [`unit::Unit`]s, one per `ReadyForQuery` that the upstream owes: a hit is answered
//! only when the queue is empty. Back-pressure is kept by never reading one side while the other's output is high.

mod batch;
mod client;
mod decide;
mod execute;
mod own;
mod peer;
mod plan;
mod query;
mod startup;
mod statements;
mod unit;
mod upstream;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use freshet_cache::Floor;
use freshet_model::{Nanos, Reason, Visible};
use freshet_wire::pg::frame::BadLength;
use thiserror::Error;

use crate::context::Context;
use crate::metrics::WorkerCounters;
use crate::session::own::OwnStatements;
use crate::session::peer::Peer;
use crate::session::statements::Statements;
use crate::session::unit::{Fill, Unit};
use crate::shared::{ServerIdentity, Shared};

pub(crate) use startup::serve;

/// Why a session ended other than by its client's wish.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    /// A socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The client sent what cannot be a message.
    #[error("client out of step: {0}")]
    ClientMisbehaved(BadLength),
    /// The server sent what cannot be a message, or an answer nobody asked for.
    #[error("server out of step: {0}")]
    ServerMisbehaved(&'static str),
}

/// What a session knows of its own context.
#[derive(Debug)]
enum Known {
    /// It must be asked for.
    Nothing,
    /// It is being asked for; the client waits.
    Asked,
    /// This.
    Context(Arc<Context>),
    /// It cannot be known.
    Unknowable(Reason),
}

/// A session.
struct Session {
    shared: Arc<Shared>,
    worker: usize,
    client: Peer,
    upstream: Peer,
    /// What the upstream owes.
    units: VecDeque<Unit>,
    /// Client units in the queue that are not pure.
    impure: usize,
    /// The transaction status of the last `ReadyForQuery`.
    status: u8,
    known: Known,
    /// The server this connection leads to.
    server: Option<ServerIdentity>,
    /// The stream's identity that `server` was compared with, and the verdict.
    compared: Option<(Arc<ServerIdentity>, Result<(), Reason>)>,
    user: String,
    statements: Statements,
    floor: Floor,
    own: OwnStatements,
    /// A batch that passes is open (its `Sync` has not been seen), for this reason.
    passing: Option<Reason>,
    /// The next `Sync` is swallowed by the server's COPY mode.
    absorb_sync: bool,
    /// Bytes of the client's current message that pass unseen.
    client_rest: usize,
    /// Bytes of the server's current message still to come, and what becomes of them.
    upstream_rest: usize,
    upstream_way: upstream::Way,
    /// The last proof read, for the fills of the unit behind it.
    proof: Option<Visible>,
    /// Complete fills that wait for the end of the log.
    complete: Vec<Fill>,
    /// Scratch for keys.
    key: Vec<u8>,
    /// The client said goodbye.
    closing: bool,
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
            self.read_client()?;
            if self.is_over() {
                let _ = self.upstream.flush().await;
                return Ok(self.client.flush().await?);
            }
            self.exchange().await?;
        }
    }

    /// Everything that can be done has been done.
    fn is_over(&self) -> bool {
        let upstream_gone = self.upstream.ended && !self.client.output.is_high();
        let client_gone = self.client.ended && self.units.is_empty();
        self.closing || upstream_gone || client_gone
    }

    /// Writes what waits and reads what comes: at least one of it.
    async fn exchange(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            let mut progress = false;
            for peer in [&mut self.upstream, &mut self.client] {
                if !peer.output.is_empty() {
                    let high = peer.output.is_high();
                    if let Poll::Ready(sent) = peer.poll_send(cx) {
                        sent?;
                    }
                    progress |= high && !peer.output.is_high();
                }
            }
            if !self.client.output.is_high()
                && let Poll::Ready(received) = self.upstream.poll_receive(cx)
            {
                received?;
                progress = true;
            }
            let hold = self.upstream.output.is_high() || self.client.output.is_high();
            if !hold && let Poll::Ready(received) = self.client.poll_receive(cx) {
                received?;
                progress = true;
            }
            if progress { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Whether this connection leads to the server and database of the change stream; None: not known yet.
    fn compare_server(&mut self) -> Option<Result<(), Reason>> {
        let Some(stream) = self.shared.identity() else { return Some(Err(Reason::NoStream)) };
        if let Some((compared, verdict)) = &self.compared
            && Arc::ptr_eq(compared, &stream)
        {
            return Some(verdict.clone());
        }
        let own = self.server.as_ref()?;
        let verdict = if own.database != stream.database {
            Err(Reason::OtherDatabase)
        } else if *own == *stream {
            Ok(())
        } else {
            Err(Reason::OtherServer)
        };
        self.compared = Some((stream, verdict.clone()));
        Some(verdict)
    }

    /// Nothing is owed to the client and no message is half forwarded: an answer of Freshet's own may follow.
    fn is_idle(&self) -> bool {
        self.units.is_empty() && self.upstream_rest == 0
    }

    fn count_passed(&self, reason: &Reason) {
        if let Some(counters) = self.counters() {
            counters.count_passed(reason);
        }
    }

    fn count_hits(&self, count: usize, bytes: usize) {
        if let Some(counters) = self.counters() {
            counters.hits.fetch_add(count as u64, Relaxed);
            counters.hit_bytes.fetch_add(bytes as u64, Relaxed);
        }
    }
}
