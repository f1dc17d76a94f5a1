//! The lease and the prober: one statement serves both.
//!
//! Every [`TICK`], and at once when a session waits for its watermark, the primary is asked for the end of its log and for what
//! is visible. The end, once the stream has passed it, renews the lease to the moment of the question. The snapshot proves
//! pending commits visible; while some remain the question is repeated every [`PROOF_PAUSE`], which serves all of them at
//! once. Nobody waits for that: who fills while a commit that matters is pending asks for a proof of its own, which counts for
//! PENDING, too.
//!
//! A stream that moves passes each end by itself, and one that has nothing to send says how far it is; it is asked for that
//! only if a log-end probe has not been passed in a while.
//!
//! A position can stay out of the stream's reach although nothing is wrong: a transaction that has written a little
//! and does nothing more leaves log that nobody flushes. Nor does the server flush the commit of a transaction that wrote no log of
//! its own before it acknowledges it (NOTIFY, a transaction id, temporary and unlogged tables). Then a tiny transactional message is committed,
//! which flushes it: at once where somebody waits for log that is known not to be flushed, unless another session is about to
//! commit, which does the same; else once the stream has not moved for a while. For look-ups alone that is done every [`NUDGE_PAUSE`] at most.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use freshet_types::{End, Lsn, Nanos, Visible};
use tokio::time::Instant;

use crate::postgres::Pg;
use crate::postgres::service::connection::{Connection, ServiceError};
use crate::service::once::Once;

/// Time between log-end probes when nobody waits.
const TICK: Duration = Duration::from_millis(50);
/// Least time between log-end probes, unless look-ups wait for the next one, all of which it serves.
const TICK_MIN: Duration = Duration::from_millis(1);
/// What is visible, the log end, and up to where it is flushed.
const QUESTION: &str = "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text, \
     pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text";
/// Time between log-end probes while commits wait for proof.
const PROOF_PAUSE: Duration = Duration::from_millis(10);
/// Time between log-end probes while some are wanted that nobody waits for.
const SOON: Duration = Duration::from_millis(4);
/// For how long ends are counted that results want: see [`crate::Shared::shares_probes`].
const COUNT_FOR: Nanos = 10_000_000;
/// Time after a failure.
const RETRY: Duration = Duration::from_millis(200);
/// Time between looks at whether the stream is late, while somebody waits for it.
const LOOK: Duration = Duration::from_millis(1);
/// How long the stream stands still before the log is flushed although another session writes, whose commit may flush it.
const OTHERS_FLUSH: Nanos = 1_000_000;
/// Age of a log-end probe that the stream has not passed, after which the log is flushed by a message: when sessions wait
/// for it, and when none does.
const NUDGE_AFTER: (Nanos, Nanos) = (3_000_000, 150_000_000);
/// Least time between such messages, likewise: each is a commit with its flush.
const NUDGE_PAUSE: (Nanos, Nanos) = (20_000_000, 150_000_000);

/// Keeps the lease and takes proofs, for ever.
pub async fn keep_lease(shared: Arc<Pg>) {
    let connection = Connection::new(shared.clone());
    let mut lease = Lease {
        connection,
        once: Once::default(),
        nudged_at: 0,
        nudged_for: Lsn(0),
        nudged_behind: Lsn(0),
        unflushed: None,
        counted_at: 0,
        reloads: shared.reloads.noticed(),
        shared,
    };
    loop {
        let wanted = lease.shared.take_waiting_sessions();
        let read_at = Instant::now();
        let failed = match lease.read(wanted).await {
            Ok(()) => {
                lease.once.clear();
                false
            }
            Err(error) => {
                lease.once.warn_of("cannot read the position of the log", &error);
                true
            }
        };
        lease.rest(read_at, failed, wanted).await;
    }
}

struct Lease {
    shared: Arc<Pg>,
    connection: Connection,
    once: Once,
    /// When the log was last flushed by a message, up to where that was wanted, and where the stream was then.
    nudged_at: Nanos,
    nudged_for: Lsn,
    nudged_behind: Lsn,
    /// Somebody waits for log that is not flushed, nor by the last message: where the stream is, and since when.
    unflushed: Option<(Lsn, Nanos)>,
    /// When the ends were last counted that results want.
    counted_at: Nanos,
    /// The changes of the configuration that had been noticed before the last results were taken.
    reloads: u64,
}

impl Lease {
    /// `wanted`: sessions wait for this reading.
    async fn read(&mut self, wanted: bool) -> Result<(), ServiceError> {
        let shared = &self.shared;
        let (before, reloads) = (self.reloads, shared.reloads.noticed());
        self.reloads = reloads;
        let results = shared.take_awaiting_end();
        let Some(epoch) = shared.cache.epoch() else { return Ok(()) };
        let asked_at = shared.probe_begins();
        let elapsed = asked_at.saturating_sub(self.counted_at);
        if elapsed >= COUNT_FOR {
            self.counted_at = asked_at;
            shared.decide_sharing(elapsed);
        }
        let rows = self.connection.query_again(QUESTION).await?;
        shared.probe_ends(asked_at);
        let shape = || ServiceError::UnexpectedAnswer("a position");
        let [[Some(snapshot), Some(lsn), Some(flushed)]] = rows.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]
        else {
            return Err(shape());
        };
        let visible = Visible::of_snapshot(snapshot).ok_or_else(shape)?;
        let lsn = Lsn::parse(lsn).ok_or_else(shape)?.without_page_header(shared.wal_segment_bytes());
        if (wanted || shared.waits.any_holds()) && Lsn::parse(flushed).ok_or_else(shape)? < lsn {
            shared.want_flush(lsn);
        }
        let end = End { epoch, lsn };
        shared.cache.prove(epoch, &visible);
        // They were added since, each under the configuration of then.
        if shared.reloads.noticed() == before {
            for result in results {
                shared.install(result, end);
            }
        }
        shared.cache.offer_log_end(end, asked_at);
        shared.verifier.decide(&shared.cache);
        if shared.cache.oldest_probe().is_none() {
            shared.waits.passed(Lsn(0), shared.cache.current_as_of()); // it had been passed already
        } else if wanted {
            shared.keepalive.notify_one();
        }
        Ok(())
    }

    /// Until the next log-end probe is due, or wanted.
    async fn rest(&mut self, read_at: Instant, failed: bool, wanted: bool) {
        tokio::select! {
            () = tokio::time::sleep(TICK_MIN) => {}
            () = self.shared.look_waits(), if !failed => return,
            () = self.shared.flush_wanted() => {}
        }
        if self.shared.cache.oldest_probe().is_some() {
            self.shared.keepalive.notify_one();
        }
        let mut held = None;
        // Behind a log-end probe that sessions wait for it is looked all the time whether the log is to be flushed.
        let untimed = self.shared.settings.faults.no_timed_flushes && !wanted && self.shared.cache.epoch().is_some();
        loop {
            let pending = self.shared.cache.has_pending();
            let soon = self.shared.wants_log_end_soon();
            let pause = if failed {
                RETRY
            } else if soon {
                SOON
            } else if pending {
                PROOF_PAUSE
            } else if untimed {
                Duration::from_secs(3_600)
            } else {
                TICK
            };
            let due = read_at + pause;
            let now = Instant::now();
            if now >= due {
                return;
            }
            self.nudge_if_late(wanted, &mut held).await;
            let look = if wanted || self.shared.waits.any_holds() { due.min(now + LOOK) } else { due };
            tokio::select! {
                () = tokio::time::sleep_until(look) => {}
                () = self.shared.look_waits() => return,
                () = self.shared.flush_wanted() => {}
                () = self.shared.log_end_wanted() => return,
                () = self.shared.log_end_wanted_soon(), if !soon => {}
                () = self.shared.proof_wanted.notified(), if !pending => {}
            }
        }
    }

    /// Commits a message if the stream does not come far enough by itself. `held`: where it stands, and since when it has been seen
    /// there while an acknowledgement is held.
    async fn nudge_if_late(&mut self, wanted: bool, held: &mut Option<(Lsn, Nanos)>) {
        let shared = &self.shared;
        let (now, applied) = (shared.clock.now(), shared.cache.applied());
        let since = held.filter(|(lsn, _)| *lsn == applied).map_or(now, |(_, since)| since);
        *held = shared.waits.any_holds().then_some((applied, since));
        let stuck = held.is_some() && now.saturating_sub(since) >= shared.waits.stuck_after();
        let choose = |(waiting, idle)| if wanted || stuck { waiting } else { idle };
        let age = shared.cache.oldest_probe().map(|asked_at| now.saturating_sub(asked_at));
        let late = stuck || age.is_some_and(|age| age > choose(NUDGE_AFTER));
        let rested =
            now.saturating_sub(self.nudged_at) > choose(NUDGE_PAUSE) || (stuck && applied > self.nudged_behind);
        let timed = late && rested && !shared.settings.faults.no_timed_flushes;
        if self.find_missing_flush(now, applied) || timed {
            let shared = &self.shared;
            (self.nudged_at, self.nudged_for, self.nudged_behind) = (now, shared.flush_wanted_to(), applied);
            shared.waits.flushes.fetch_add(1, Relaxed);
            if let Err(error) = nudge(&mut self.connection).await {
                self.once.warn_of("cannot write a message into the log", &error);
            }
        }
    }

    /// Somebody waits for log that is not flushed, and nobody is about to flush it.
    fn find_missing_flush(&mut self, now: Nanos, applied: Lsn) -> bool {
        let wanted = self.shared.flush_wanted_to();
        if wanted < self.nudged_for {
            self.nudged_for = Lsn(0); // of another stream
        }
        if wanted <= applied.max(self.nudged_for) {
            self.unflushed = None;
            return false;
        }
        let (_, since) = self.unflushed.filter(|(at, _)| *at == applied).unwrap_or((applied, now));
        self.unflushed = Some((applied, since));
        let rested = now.saturating_sub(self.nudged_at) > NUDGE_PAUSE.0;
        if !rested && !self.shared.waits.any_holds() {
            return false; // look-ups wait for it, which are as many as clients like
        }
        self.shared.writing.load(SeqCst) == 0 || now.saturating_sub(since) >= OTHERS_FLUSH
    }
}

async fn nudge(connection: &mut Connection) -> Result<(), ServiceError> {
    // Its own commit flushes everything before it; `local` keeps it from waiting for a synchronous standby.
    let sql = "SET synchronous_commit = local; SELECT pg_catalog.pg_logical_emit_message(true, 'freshet', '')";
    connection.query(sql).await?;
    Ok(())
}
