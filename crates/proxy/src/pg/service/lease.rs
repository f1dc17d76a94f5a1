//! The lease and the prober: one statement serves both.
//!
//! Every [`TICK`], and at once when a session waits for its floor or a commit for its proof, the primary is asked
//! for the end of its log and for what is visible. The end, once the stream has passed it, renews the lease to the
//! moment of the question. The snapshot proves pending commits visible. While some remain the question is repeated.
//!
//! A position can stay out of the stream's reach although nothing is wrong: a transaction that has written a little
//! and does nothing more leaves log that nobody flushes. Then a tiny transactional message is committed, which
//! flushes it.

use std::sync::Arc;
use std::time::Duration;

use freshet_model::{End, Lsn, Nanos, Visible};

use crate::pg::Pg;
use crate::pg::service::connection::{Connection, Once, ServiceError};

/// Time between readings when nobody waits.
const TICK: Duration = Duration::from_millis(50);
/// Least time between readings.
const TICK_MIN: Duration = Duration::from_millis(1);
/// Most time between questions while commits wait for proof.
const PROOF_PAUSE_MAX: Duration = Duration::from_millis(10);
/// Time after a failure.
const RETRY: Duration = Duration::from_millis(200);
/// Age of a reading that the stream has not passed, after which the log is flushed by a message: when sessions wait
/// for it, and when none does.
const NUDGE_AFTER: (Nanos, Nanos) = (3_000_000, 150_000_000);
/// Least time between such messages, likewise: each is a commit with its flush.
const NUDGE_PAUSE: (Nanos, Nanos) = (20_000_000, 150_000_000);

/// Keeps the lease and takes proofs, for ever.
pub async fn keep_lease(shared: Arc<Pg>) {
    let mut connection = Connection::new(shared.clone());
    let mut once = Once::default();
    let mut nudged_at = 0;
    let mut proof_pause = TICK_MIN;
    loop {
        let sessions_wait = shared.take_waiting_sessions() | shared.waits.any_holds();
        let mut pause = match read(&shared, &mut connection).await {
            Ok(()) => {
                once.clear();
                // A commit may wait for a synchronous standby for long: ask less and less often.
                proof_pause =
                    if shared.cache.has_pending() { (proof_pause * 2).min(PROOF_PAUSE_MAX) } else { TICK_MIN };
                if shared.cache.has_pending() { proof_pause } else { TICK }
            }
            Err(error) => {
                once.warn("cannot read the position of the log", &error);
                RETRY
            }
        };
        tokio::time::sleep(TICK_MIN).await;
        if let Some(asked_at) = shared.cache.oldest_reading() {
            let now = shared.clock.now();
            let choose = |(waiting, idle)| if sessions_wait { waiting } else { idle };
            let late = now.saturating_sub(asked_at) > choose(NUDGE_AFTER);
            if late && now.saturating_sub(nudged_at) > choose(NUDGE_PAUSE) {
                nudged_at = now;
                if let Err(error) = nudge(&mut connection).await {
                    once.warn("cannot write a message into the log", &error);
                }
            } else if sessions_wait {
                pause = pause.min(2 * TICK_MIN);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause.saturating_sub(TICK_MIN)) => {}
            () = shared.reading_wanted() => {}
            () = shared.proof_wanted.notified() => {}
        }
    }
}

async fn read(shared: &Pg, connection: &mut Connection) -> Result<(), ServiceError> {
    let Some(epoch) = shared.cache.epoch() else { return Ok(()) };
    let asked_at = shared.clock.now();
    let rows = connection
        .query(
            "SELECT pg_catalog.pg_current_snapshot()::text, \
             pg_catalog.pg_current_wal_insert_lsn()::text",
        )
        .await?;
    let shape = || ServiceError::Shape("a position");
    let [[Some(snapshot), Some(lsn)]] = rows.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] else {
        return Err(shape());
    };
    let visible = Visible::of_snapshot(snapshot).ok_or_else(shape)?;
    let lsn = Lsn::parse(lsn).ok_or_else(shape)?.without_page_header(shared.wal_segment_bytes());
    shared.cache.prove(epoch, &visible);
    shared.cache.offer_reading(End { epoch, lsn }, asked_at);
    shared.verifier.decide(&shared.cache);
    shared.waits.passed(Lsn(0)); // it may have been passed already
    shared.keepalive.notify_one();
    Ok(())
}

async fn nudge(connection: &mut Connection) -> Result<(), ServiceError> {
    // Its own commit flushes everything before it; `local` keeps it from waiting for a synchronous standby.
    connection.query("SET synchronous_commit = local").await?;
    connection.query("SELECT pg_catalog.pg_logical_emit_message(true, 'freshet', '')").await?;
    Ok(())
}
