//! Refreshes results that a change invalidated while they were in use, before the next reader asks.
//!
//! Without refreshing, a write to a hot row costs the database the same statement once for every session that misses before one of them has filled
//! the entry again, and each of them waits. With refreshing the statement runs once.
//!
//! It must not cost the database more than it saves, so:
//!
//! - only an entry that was served since it was read is refreshed: at least one reader would have run the statement. A refreshed entry that was not
//!   used is not refreshed again;
//! - the hottest entries come first, and if too many wait the coldest are dropped ([`crate::service::refreshes`]);
//! - the statements use no more than a given share of the time ([`Budget`]);
//! - the refresh is the cache's flight of the key, so no session fills it meanwhile. An entry that a reader has already filled is not touched.
//!
//! The answer must be byte for byte the one that a session of the entry's context would get. A connection enters the context, and its context is then
//! read like that of each session. Any difference ends the attempt ([`reader`]). The result is installed under the same rules as any fill.

mod reader;

use std::sync::Arc;
use std::time::Duration;

use crate::postgres::Pg;
use crate::postgres::service::refresh::reader::{Reader, Timing};
use crate::service::once::Once;
use crate::service::refreshes::{Budget, Outcome};

/// Pause after a failure.
const RETRY: Duration = Duration::from_millis(200);
/// Time until the database probably shows a commit that the stream has delivered.
const VISIBLE_PAUSE: Duration = Duration::from_millis(2);
/// Number of attempts, which last at least a second. On a busy server the committing session may wait for a processor before others see its commit. A
/// result that is given up is missing for the next reader.
const VISIBLE_TRIES: u32 = 500;
/// Number of first attempts to read a join while its tables do not change. Which change prevents the fill is known only at the end, and it is most
/// likely the one that invalidated the entry. Tables that change all the time are not waited for. Proofs come every 10 ms, or with another fill.
const QUIET_TRIES: u32 = 7;

/// Refreshes entries; never returns.
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
