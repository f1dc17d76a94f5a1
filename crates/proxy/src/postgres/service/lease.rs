//! The lease and the visibility proofs: one query serves both.
//!
//! Every [`TICK`], and at once when a session waits for its watermark, the log end and a snapshot are read from the primary. Once the stream has
//! passed the log end, the lease is renewed to the time of the query. The snapshot proves commits visible. While some are unproven, the query is
//! repeated every [`PROOF_PAUSE`], which serves all of them at once. No session waits for this: a session that fills while an unproven commit matters
//! requests its own proof, which also counts for all unproven commits.
//!
//! A stream with changes passes each log end by itself, and an idle stream reports its position. The stream is asked for its position only if a
//! log-end probe was not passed for a while.
//!
//! The stream may not reach a position although nothing is wrong. An idle transaction that has written a little leaves log that nothing flushes. Nor
//! does the server flush the commit of a transaction without log of its own before it acknowledges it (NOTIFY, a transaction id, temporary and
//! unlogged tables). Then Freshet commits a small transactional message, which flushes the log. It does so at once if something waits for log that is
//! known not to be flushed, unless another session is about to commit, which also flushes it. Otherwise it does so once the stream has not moved for
//! a while. For look-ups alone it does so at most every [`NUDGE_PAUSE`].

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use freshet_types::{End, Lsn, Nanos, Visible};
use tokio::time::Instant;

use crate::postgres::Pg;
use crate::postgres::question::POSTMASTER_START;
use crate::postgres::service::connection::{Connection, ServiceError};
use crate::service::once::Once;
use crate::shared::servers::Ids;

/// Interval of log-end probes when nothing waits.
const TICK: Duration = Duration::from_millis(50);
/// Shortest interval of log-end probes, unless look-ups wait for the next one, which serves all of them.
const TICK_MIN: Duration = Duration::from_millis(1);
/// The query for the visible snapshot, the log end, and the flushed position.
const PROBE: &str = "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text, \
     pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text";
/// The same if replicas are read: also the transaction ids that were given, and when the server was started.
static PROBE_FOR_READS: LazyLock<String> =
    LazyLock::new(|| format!("{PROBE}, pg_catalog.age('3'::pg_catalog.xid)::pg_catalog.text, {POSTMASTER_START}"));
/// Interval of log-end probes while commits are unproven.
const PROOF_PAUSE: Duration = Duration::from_millis(10);
/// Interval of log-end probes while some are needed for which nothing waits.
const SOON: Duration = Duration::from_millis(4);
/// Interval in which log ends that results need are counted: see [`crate::Shared::shares_probes`].
const COUNT_FOR: Nanos = 10_000_000;
/// Pause after a failure.
const RETRY: Duration = Duration::from_millis(200);
/// Interval of checks whether the stream is late, while something waits for it.
const LOOK: Duration = Duration::from_millis(1);
/// If the stream has not moved for this time, the log is flushed even if another session writes, whose commit may flush it.
const OTHERS_FLUSH: Nanos = 1_000_000;
/// Age of an unpassed log-end probe after which a message flushes the log: when sessions wait for it, and when none does.
const NUDGE_AFTER: (Nanos, Nanos) = (3_000_000, 150_000_000);
/// Shortest interval of such messages, for the same cases: each is a commit with its flush.
const NUDGE_PAUSE: (Nanos, Nanos) = (20_000_000, 150_000_000);

/// Renews the lease and takes proofs; never returns.
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
    /// When a message last flushed the log, up to which position that was needed, and the stream's position then.
    nudged_at: Nanos,
    nudged_for: Lsn,
    nudged_behind: Lsn,
    /// If something waits for log that is not flushed, not even by the last message: the stream's position, and since when.
    unflushed: Option<(Lsn, Nanos)>,
    /// When the log ends that results need were last counted.
    counted_at: Nanos,
    /// Number of configuration reloads noticed before the last results were taken.
    reloads: u64,
}

impl Lease {
    /// `wanted`: sessions wait for this probe.
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
        let reads = shared.pooling.reads_replicas();
        let known = if reads { shared.cache.proven() } else { None };
        let rows = self.connection.query_again(if reads { &PROBE_FOR_READS } else { PROBE }).await?;
        shared.probe_ends(asked_at);
        let shape = || ServiceError::UnexpectedAnswer("a position");
        let [[Some(snapshot), Some(lsn), Some(flushed), of_reads @ ..]] =
            rows.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]
        else {
            return Err(shape());
        };
        let visible = Visible::of_snapshot(snapshot).ok_or_else(shape)?;
        let lsn = Lsn::parse(lsn).ok_or_else(shape)?.without_page_header(shared.wal_segment_bytes());
        if (wanted || shared.waits.has_commit_wait()) && Lsn::parse(flushed).ok_or_else(shape)? < lsn {
            shared.want_flush(lsn);
        }
        let end = End { epoch, lsn };
        shared.log_lag.note_end(lsn);
        shared.cache.prove(epoch, &visible);
        // These results were added later, each under the configuration at that time.
        if shared.reloads.noticed() == before {
            for result in results {
                shared.install(result, end);
            }
        }
        shared.cache.offer_log_end(end, asked_at);
        if reads {
            shared.servers.note_end(end, ids(&visible, of_reads), asked_at);
            shared.servers.note_visible(shared.cache.visible_end(), shared.clock.now());
            if let Some(known) = known {
                shared.cache.note_complete(&known, end);
            }
        }
        shared.verifier.decide(&shared.cache);
        if shared.cache.oldest_probe().is_none() {
            shared.waits.passed(Lsn(0), shared.cache.current_as_of()); // it had been passed already
        } else if wanted {
            shared.keepalive.notify_one();
        }
        Ok(())
    }

    /// Waits until the next log-end probe is due or needed.
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
        // After a log-end probe for which sessions wait, Freshet checks continuously whether the log must be flushed.
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
            let look = if wanted || self.shared.waits.has_commit_wait() { due.min(now + LOOK) } else { due };
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

    /// Commits a message if the stream does not advance far enough by itself. `held`: the stream's position during a commit wait, and since when.
    async fn nudge_if_late(&mut self, wanted: bool, held: &mut Option<(Lsn, Nanos)>) {
        let shared = &self.shared;
        let (now, applied) = (shared.clock.now(), shared.cache.applied());
        let since = held.filter(|(lsn, _)| *lsn == applied).map_or(now, |(_, since)| since);
        *held = shared.waits.has_commit_wait().then_some((applied, since));
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

    /// Whether something waits for log that is not flushed, and no session is about to flush it.
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
        if !rested && !self.shared.waits.has_commit_wait() {
            return false; // look-ups wait for it, which are as many as clients like
        }
        self.shared.writing.load(SeqCst) == 0 || now.saturating_sub(since) >= OTHERS_FLUSH
    }
}

/// The transaction ids of an answer to [`PROBE_FOR_READS`].
fn ids(visible: &Visible, of_reads: &[Option<String>]) -> Option<Ids> {
    let (Visible::Snapshot(snapshot), [Some(given), Some(server)]) = (visible, of_reads) else { return None };
    // The age of the first normal id, as a number of 32 bits that has wrapped around.
    let next = given.parse::<i32>().ok()?.cast_unsigned().wrapping_add(3);
    Some(Ids { server: server.clone(), next, ended: snapshot.all_ended_below() })
}

async fn nudge(connection: &mut Connection) -> Result<(), ServiceError> {
    // Its commit flushes everything before it; with `local` it does not wait for a synchronous standby.
    let sql = "SET synchronous_commit = local; SELECT pg_catalog.pg_logical_emit_message(true, 'freshet', '')";
    connection.query(sql).await?;
    Ok(())
}
