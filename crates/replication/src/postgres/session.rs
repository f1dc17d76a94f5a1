//! One stream from its start to its fault.
//!
//! # How positions arrive promptly
//!
//! A cached result may be served only once the stream has passed the position at which it was read. The lease is renewed only when the stream passes
//! a position that was read from the server. So the follower must soon learn how far the walsender is, even if nothing it passed was sent. The
//! walsender reports this by itself: each time it has read the whole log, it sends a keepalive with its position, if that is ahead of both the
//! written and the flushed position that the follower reported last (`WalSndWaitForWal` in `walsender.c`).
//!
//! Measured on PostgreSQL 15 and 18, each with 80 commits to a published and 80 to an unpublished table, from the answer to
//! `pg_current_wal_insert_lsn()` until the stream has passed it:
//!
//! | the follower confirms | median | worst | keepalives |
//! |---|---|---|---|
//! | nothing | 0.02 ms | 11 ms | 325 |
//! | what has passed, with each commit and keepalive | 0.02 ms | 4 ms | 160 |
//! | what has passed, once a second | 0.02 ms | 3 ms | 325 |
//! | a position ahead of what was sent | as long as nothing is published: never | | 3 |
//!
//! So the interval does not matter, but the follower must *never confirm a position that it did not receive*: the server then sends no keepalive.
//! Confirming once a second prevents log from piling up and costs nothing; requests for keepalives repeat the last confirmed position. Log that is
//! not flushed is not sent: log without a commit, or with asynchronous commits only, waits for the WAL writer (up to 0.4 s seen, with
//! `wal_writer_delay` at its default), whatever is requested.
//!
//! # Keepalives inside a transaction
//!
//! Between Begin and Commit of a large transaction the walsender may send keepalives. Their position is before the commit record and is ignored: the
//! position advances when the commit is complete.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freshet_net::postgres::{Client, Error};
use freshet_types::Lsn;
use freshet_wire::postgres::pgoutput::Message;
use freshet_wire::postgres::replication::{POSTGRES_EPOCH_UNIX_US, StatusUpdate, WalMessage};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::error::Fault;
use crate::postgres::progress::Progress;
use crate::{Control, Sink};

/// Interval of confirmations. Not with each commit: see above.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);
/// The walsender ends a connection without messages after `wal_sender_timeout`, which the login sets to 60 s.
const STATUS_EVERY: Duration = Duration::from_secs(10);
/// Time limit of sending a status update, which is shorter than any socket's buffer.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of messages processed before requests are checked.
const BATCH_MAX: usize = 256;

/// A running stream.
pub(crate) struct Session<'a> {
    client: &'a mut Client,
    sink: &'a dyn Sink,
    progress: &'a mut Progress,
    /// The position that status updates confirm: that of the last tick.
    confirmed: Lsn,
    told_at: Instant,
    heard_at: Instant,
    /// When a keepalive was requested because nothing arrived.
    asked_at: Option<Instant>,
    /// Time without a message after which the stream counts as dead; a keepalive is requested after a third of it.
    silence_max: Duration,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        client: &'a mut Client,
        sink: &'a dyn Sink,
        progress: &'a mut Progress,
        silence_max: Duration,
    ) -> Self {
        let now = Instant::now();
        Self { client, sink, progress, confirmed: Lsn(0), told_at: now, heard_at: now, asked_at: None, silence_max }
    }

    /// Runs until a fault.
    pub(crate) async fn run(&mut self, control: &Control) -> Fault {
        let mut tick = interval(CONFIRM_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                biased;
                () = control.keepalive_requested() => self.tell(true).await,
                _ = tick.tick() => self.tick().await,
                data = self.client.recv_copy() => match data {
                    Ok(data) => {
                        let reply = take(self.progress, self.sink, data);
                        self.drain(reply).await
                    }
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(fault) = done {
                return fault;
            }
        }
    }

    /// Processes the messages that have arrived, then answers if one of them requests it.
    async fn drain(&mut self, first: Result<bool, Fault>) -> Result<(), Fault> {
        let mut reply = first?;
        for _ in 0..BATCH_MAX {
            if !self.client.has_copy_buffered() {
                break;
            }
            let data = self.client.recv_copy().await?;
            reply |= take(self.progress, self.sink, data)?;
        }
        self.heard_at = Instant::now();
        self.asked_at = None;
        if reply {
            // A server that shuts down waits until everything is confirmed.
            self.confirmed = self.progress.passed;
            self.tell(false).await?;
        }
        Ok(())
    }

    /// Work that depends on time only.
    async fn tick(&mut self) -> Result<(), Fault> {
        if self.asked_at.is_some_and(|asked| asked.elapsed() > self.silence_max * 2 / 3) {
            return Err(Fault::Silent(self.heard_at.elapsed()));
        }
        let moved = self.progress.passed > self.confirmed;
        self.confirmed = self.progress.passed;
        if self.asked_at.is_none() && self.heard_at.elapsed() > self.silence_max / 3 {
            self.asked_at = Some(Instant::now());
            self.tell(true).await
        } else if moved || self.told_at.elapsed() > STATUS_EVERY {
            self.tell(false).await
        } else {
            Ok(())
        }
    }

    /// Sends a status update, with the confirmed position, not the passed one.
    async fn tell(&mut self, reply_requested: bool) -> Result<(), Fault> {
        let status = StatusUpdate {
            written: self.confirmed,
            flushed: self.confirmed,
            applied: self.confirmed,
            sent_us: now_us(),
            reply_requested,
        };
        self.told_at = Instant::now();
        match timeout(SEND_TIMEOUT, self.client.send_copy(&status.encode())).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(Error::Timeout(SEND_TIMEOUT).into()),
        }
    }
}

/// Passes one message to the sink; returns whether the server requests a status update.
///
/// Positions must be right: if a commit were at or before a passed position, the sink would have been told of a delivery that had not happened.
fn take(progress: &mut Progress, sink: &dyn Sink, data: &[u8]) -> Result<bool, Fault> {
    let Progress { assembler, passed, .. } = progress;
    match WalMessage::decode(data)? {
        WalMessage::Data { payload, .. } => {
            if let Some(commit) = assembler.take(Message::decode(payload)?)? {
                let end = commit.end;
                if end <= *passed {
                    return Err(Fault::OutOfOrder("a commit before a position that had passed"));
                }
                *passed = end;
                sink.commit(commit);
                sink.advance(end);
            }
            Ok(false)
        }
        WalMessage::Keepalive { end, reply_requested, .. } => {
            if !assembler.in_transaction() && end >= *passed {
                *passed = end;
                sink.advance(end);
            }
            Ok(reply_requested)
        }
    }
}

/// Microseconds since 2000.
fn now_us() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX) - POSTGRES_EPOCH_UNIX_US
}
