//! Measures delays of threads that wait for a processor.
//!
//! The main thread renews the lease and applies the change stream, with the database's answers. If the main thread or the database gets no processor,
//! nothing is served from the cache. Nothing else shows the cause: the sessions' threads may run as usual, and the machine may be idle. So a timer of
//! the main thread measures its delay, and log-end probes are timed. Both delays were seen on Linux 6.18 with `kernel.sched_autogroup_enabled`, up to
//! 7 s (docs/experiments/2026-11-26-threads-that-wait-for-a-processor.md).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use freshet_types::Nanos;
use tokio::time::{Instant, sleep};
use tracing::warn;

/// Interval of measurements.
const EVERY: Duration = Duration::from_millis(100);
/// Delays up to this are normal: timers are rounded, and a turn of the event loop takes some time.
const NOT_LATE: Duration = Duration::from_millis(20);
/// The normal time of a log-end probe, also to a distant server.
const PROBE_NOT_LATE: Duration = Duration::from_millis(200);
/// A delay of this length is logged, at most once in this interval.
const TELL: Duration = Duration::from_millis(500);
const TELL_EVERY: Duration = Duration::from_secs(60);
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// The accumulated delays.
#[derive(Debug, Default)]
pub struct SchedulingDelay {
    main_thread: Late,
    probes: Late,
}

/// The accumulated delay, and when it was last logged.
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
                "{said} by {late:.1?}. Cached results may have been too old to be served meanwhile (lease_expired){}",
                processor_hint()
            );
        }
    }

    fn seconds(&self) -> f64 {
        self.nanos.load(Relaxed) as f64 / 1e9
    }
}

impl SchedulingDelay {
    /// Total delay of the main thread.
    pub fn main_thread_seconds(&self) -> f64 {
        self.main_thread.seconds()
    }

    /// Total delay of the database's answers to log-end probes.
    pub fn probe_seconds(&self) -> f64 {
        self.probes.seconds()
    }

    /// Notes the duration of a log-end probe.
    pub(crate) fn read_in(&self, nanos: Nanos) {
        if let Some(late) = Duration::from_nanos(nanos).checked_sub(PROBE_NOT_LATE) {
            self.probes.add(late, "the database, or the network, was late to tell the end of the log");
        }
    }

    /// Measures the delay of the thread that runs this; never returns.
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

/// A hint at a possible cause on this machine, to append to a sentence.
fn processor_hint() -> &'static str {
    match std::fs::read_to_string(AUTOGROUP) {
        Ok(enabled) if enabled.trim() == "1" => {
            "; with kernel.sched_autogroup_enabled = 1 each connection of a PostgreSQL here is a group for the scheduler, \
             which can do this: try 0"
        }
        _ => "",
    }
}
