//! Reads results again that a change invalidated while they were in use, before the next reader asks.
//!
//! Without it each write to a hot row costs the database the same statement once for every session that asks before one
//! of them has filled the cache again, and each of them waits. Here it runs once.
//!
//! It must not cost the database more than it saves, so:
//!
//! - only an entry that was served since it was read comes back: for one reader at least the statement would have run;
//!   what was brought back and not used is not brought back again;
//! - the hottest come first, and when too many wait the coldest are dropped ([`crate::service::refreshes`]);
//! - the statements take no more than a given share of the time ([`Budget`]);
//! - it is the cache's own flight of the key, so nobody else fills it meanwhile, and what a reader has brought back
//!   already is left alone.
//!
//! And it must be the answer that a session of the entry's context would get, byte for byte. A connection is brought into
//! that context and asked for it, as each session is asked; any difference ends the attempt ([`reader`]). What is read is
//! installed under the same rules as any fill.

mod reader;

use std::sync::Arc;
use std::time::Duration;

use crate::postgres::Pg;
use crate::postgres::service::refresh::reader::{Reader, Timing};
use crate::service::once::Once;
use crate::service::refreshes::{Budget, Outcome};

/// Time after a failure.
const RETRY: Duration = Duration::from_millis(200);
/// Time until the database may show a commit that the stream was quicker to deliver.
const VISIBLE_PAUSE: Duration = Duration::from_millis(2);
/// How often that is tried: for a second at least. On a busy server the session that commits may have to wait for its
/// turn before others see the commit, and a result that is given up is not there for the next reader.
const VISIBLE_TRIES: u32 = 500;
/// How often it is tried, at first, to read a join while its tables do not change: which change is in its way turns out
/// only at the end, and the one that invalidated it most likely is. Tables that always change are not waited for. Proofs come every
/// 10 ms, or with somebody else's fill.
const QUIET_TRIES: u32 = 7;

/// Refreshes, for ever.
pub async fn refresh_entries(shared: Arc<Pg>) {
    let Some(mut budget) = Budget::new(shared.settings.refresh_share, shared.clock.now()) else { return };
    let mut reader = Reader::new(shared.clone());
    let mut once = Once::default();
    loop {
        let job = shared.refreshes.wait_for_one(|| budget.wait(shared.clock.now())).await;
        if shared.switches.bypass() {
            continue;
        }
        for attempt in 0..VISIBLE_TRIES {
            let started = shared.clock.now();
            let timing = match attempt {
                0 => Timing::AtOnce,
                1..QUIET_TRIES => Timing::Quiet,
                _ => Timing::Proven,
            };
            let outcome = reader.refresh(&job, timing).await;
            let ended = shared.clock.now();
            match outcome {
                Ok(Outcome::TooSoon) => {
                    budget.spend(ended - started, ended);
                    tokio::time::sleep(VISIBLE_PAUSE).await;
                    continue;
                }
                Ok(outcome) => {
                    once.clear();
                    if outcome != Outcome::NotAsked {
                        budget.spend(ended - started, ended);
                        shared.refreshes.count_read(ended - started);
                    }
                }
                Err(error) => {
                    once.warn_of("cannot refresh results", &error);
                    budget.spend(ended - started, ended);
                    tokio::time::sleep(RETRY).await;
                }
            }
            break;
        }
    }
}
