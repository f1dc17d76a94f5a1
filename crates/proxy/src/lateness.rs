//! How late the main thread comes.
//!
//! The lease is renewed and the change stream applied by the main thread. If that is given no processor, nothing is served
//! from the cache and nothing else tells why: the sessions' threads may run as ever, and the database is idle. So a clock of
//! the main thread's own tells when it is late. Seen on Linux 6.18 with `kernel.sched_autogroup_enabled`, up to 7 s
//! (docs/decisions/2026-11-26-threads-that-wait-for-a-processor.md).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::shared::Shared;

/// Time between looks.
const EVERY: Duration = Duration::from_millis(100);
/// What is not late: timers are rounded, and a turn of the event loop takes a moment.
const NOT_LATE: Duration = Duration::from_millis(20);
/// Lateness that is told, and how often at most.
const TELL: Duration = Duration::from_millis(500);
const TELL_EVERY: Duration = Duration::from_secs(60);
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Measures how late the thread comes that this runs in, for ever.
pub async fn watch_lateness(shared: Arc<Shared>) {
    let mut told: Option<Instant> = None;
    loop {
        let due = Instant::now() + EVERY;
        sleep(EVERY).await;
        let late = due.elapsed();
        if late < NOT_LATE {
            continue;
        }
        shared.metrics.late_nanos.fetch_add(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        if late >= TELL && told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            told = Some(Instant::now());
            warn!(
                "the main thread was late by {late:.1?}: there was no processor for it, or the process was stopped. \
                 What is kept may have been too old to be served meanwhile (lease_expired){}",
                processor_hint()
            );
        }
    }
}

/// What may be the cause on this machine, to be put behind a sentence.
pub fn processor_hint() -> &'static str {
    match std::fs::read_to_string(AUTOGROUP) {
        Ok(enabled) if enabled.trim() == "1" => {
            "; with kernel.sched_autogroup_enabled = 1 each connection of a PostgreSQL here is a group for the scheduler, \
             which can do this: try 0"
        }
        _ => "",
    }
}
