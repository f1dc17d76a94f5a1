//! What comes late for want of a processor.
//!
//! The lease is renewed and the change stream applied by the main thread, with what the database answers. If either is given no
//! processor, nothing is served from the cache and nothing else tells why: the sessions' threads may run as ever, and the machine
//! is idle. So a clock of the main thread's own tells when it is late, and log-end probe are timed. Both were seen on
//! Linux 6.18 with `kernel.sched_autogroup_enabled`, up to 7 s (docs/experiments/2026-11-26-threads-that-wait-for-a-processor.md).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use freshet_types::Nanos;
use tokio::time::{Instant, sleep};
use tracing::warn;

/// Time between looks.
const EVERY: Duration = Duration::from_millis(100);
/// What is not late: timers are rounded, and a turn of the event loop takes a moment.
const NOT_LATE: Duration = Duration::from_millis(20);
/// What a log-end probe may take, also far away.
const PROBE_NOT_LATE: Duration = Duration::from_millis(200);
/// Scheduling delay that is told, and how often at most.
const TELL: Duration = Duration::from_millis(500);
const TELL_EVERY: Duration = Duration::from_secs(60);
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// What was late so far.
#[derive(Debug, Default)]
pub struct SchedulingDelay {
    main_thread: Late,
    probes: Late,
}

/// By how much, and when that was last told.
#[derive(Debug, Default)]
struct Late {
    nanos: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Late {
    fn add(&self, late: Duration, said: &str) {
        self.nanos.fetch_add(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if late >= TELL && told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            warn!(
                "{said} by {late:.1?}. What is kept may have been too old to be served meanwhile (lease_expired){}",
                processor_hint()
            );
        }
    }

    fn seconds(&self) -> f64 {
        self.nanos.load(Relaxed) as f64 / 1e9
    }
}

impl SchedulingDelay {
    /// By how much the main thread came late, in all.
    pub fn main_thread_seconds(&self) -> f64 {
        self.main_thread.seconds()
    }

    /// By how much the database was late to tell the end of its log, in all.
    pub fn probe_seconds(&self) -> f64 {
        self.probes.seconds()
    }

    /// A log-end probe took so long.
    pub(crate) fn read_in(&self, nanos: Nanos) {
        if let Some(late) = Duration::from_nanos(nanos).checked_sub(PROBE_NOT_LATE) {
            self.probes.add(late, "the database, or the network, was late to tell the end of the log");
        }
    }

    /// Measures how late the thread comes that this runs in, for ever.
    pub async fn watch(&self) {
        loop {
            let due = Instant::now() + EVERY;
            sleep(EVERY).await;
            let late = due.elapsed();
            if late >= NOT_LATE {
                let said = "there was no processor for the main thread, or the process was stopped: it was late";
                self.main_thread.add(late, said);
            }
        }
    }
}

/// What may be the cause on this machine, to be put behind a sentence.
fn processor_hint() -> &'static str {
    match std::fs::read_to_string(AUTOGROUP) {
        Ok(enabled) if enabled.trim() == "1" => {
            "; with kernel.sched_autogroup_enabled = 1 each connection of a PostgreSQL here is a group for the scheduler, \
             which can do this: try 0"
        }
        _ => "",
    }
}
