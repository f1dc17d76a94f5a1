//! The log end, read by a service connection for three kinds of waiters: look-ups that wait for their watermark, commit waits, and results that need
//! an upper bound of what their query saw.
//!
//! A log-end probe is an upper bound of everything that was visible before the probe was sent, so a later probe serves all waiters. On MySQL and
//! MariaDB an application's account may not read the log end at all. On PostgreSQL a session may, on its own connection and sooner, but such a query
//! costs the database a fifth of a simple query. So results share log-end probes once many need one.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

use freshet_types::{Lsn, Nanos};
use tokio::sync::Notify;

use crate::session::fill::{PendingFill, Read};
use crate::shared::Shared;

/// Limit of waiting results; further ones are not cached.
const WAITING_MAX: usize = 1000;
/// If results need a log end at intervals of this many nanoseconds or less, they share log-end probes.
const SHARED_FROM: Nanos = 500_000;

/// The requests for log-end probes, and the state of the last probe.
#[derive(Debug, Default)]
pub(crate) struct LogEndProbes {
    /// Notified when a probe is needed before its time.
    wanted: Notify,
    /// Notified when a look-up waits for a probe.
    look_waits: Notify,
    /// When the last probe was sent.
    asked_at: AtomicU64,
    /// A probe is needed soon, but nothing waits for it; with its notification.
    soon: AtomicBool,
    soon_rung: Notify,
    /// Number of log ends that results needed since this was last read.
    ends_wanted: AtomicU64,
    are_shared: AtomicBool,
    /// A session has bypassed since the last probe because it needs a later position.
    sessions_wait: AtomicBool,
    /// The highest position that is waited for and not flushed, with its notification; 0: none.
    flush: AtomicU64,
    flush_wanted: Notify,
    /// Results whose query was answered.
    results: Mutex<Vec<PendingFill<Read>>>,
}

impl Shared {
    /// A session bypasses until the stream has passed a later position.
    pub(crate) fn want_log_end(&self) {
        self.probes.sessions_wait.store(true, Relaxed);
        self.probes.wanted.notify_one();
    }

    /// A look-up waits until the stream has passed a position of a probe sent at this time or later. If the running probe is earlier, the next one
    /// follows it without a pause.
    pub(crate) fn want_log_end_since(&self, since: Nanos) {
        if self.probes.asked_at.load(SeqCst) < since {
            self.probes.sessions_wait.store(true, Relaxed);
            self.probes.look_waits.notify_one();
        }
    }

    /// Returns when a look-up waits for a log-end probe.
    pub(crate) async fn look_waits(&self) {
        self.probes.look_waits.notified().await;
    }

    /// A probe is sent now; returns the time.
    pub(crate) fn probe_begins(&self) -> Nanos {
        let now = self.clock.now();
        self.probes.asked_at.store(now, SeqCst);
        now
    }

    /// The answer to the probe sent at that time has arrived.
    pub(crate) fn probe_ends(&self, asked_at: Nanos) {
        let took = self.clock.now().saturating_sub(asked_at);
        self.waits.read_in(took);
        self.scheduling_delay.read_in(took);
    }

    /// A probe is needed that nothing waits for.
    pub(crate) fn want_log_end_soon(&self) {
        if !self.probes.soon.swap(true, SeqCst) {
            self.probes.soon_rung.notify_one();
        }
    }

    /// Whether such a probe is needed.
    pub(crate) fn wants_log_end_soon(&self) -> bool {
        self.probes.soon.load(SeqCst)
    }

    /// Returns when such a probe is needed.
    pub(crate) async fn log_end_wanted_soon(&self) {
        self.probes.soon_rung.notified().await;
    }

    /// A result whose query was answered before now waits for the next log-end probe, which the caller requests.
    pub(crate) fn await_end(&self, complete: PendingFill<Read>) {
        let mut results = self.probes.results.lock().unwrap_or_else(PoisonError::into_inner);
        if results.len() < WAITING_MAX {
            results.push(complete);
        }
    }

    /// Takes all waiting results: a probe sent after this call is an upper bound for them.
    pub(crate) fn take_awaiting_end(&self) -> Vec<PendingFill<Read>> {
        self.probes.soon.store(false, SeqCst);
        std::mem::take(&mut *self.probes.results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether so many results need the log end that one probe for all of them costs the database less than a query for each. A single session reads
    /// it itself, since its answer comes sooner.
    pub(crate) fn shares_probes(&self) -> bool {
        self.probes.are_shared.load(Relaxed) || self.settings.faults.shares_probes
    }

    /// Counts a result that needs the log end, from its session's own query or from the next log-end probe.
    pub(crate) fn count_end(&self) {
        self.probes.ends_wanted.fetch_add(1, Relaxed);
    }

    /// Decides about sharing from the number needed in this time.
    pub(crate) fn decide_sharing(&self, elapsed: Nanos) {
        let wanted = self.probes.ends_wanted.swap(0, Relaxed);
        self.probes.are_shared.store(wanted.saturating_mul(SHARED_FROM) >= elapsed, Relaxed);
    }

    /// A session bypasses until the stream has passed a position that it knows. A probe would not help, but the log may have to be flushed.
    pub(crate) fn note_waiting(&self) {
        self.probes.sessions_wait.store(true, Relaxed);
    }

    /// The stream is waited for up to `end`, and the log is not flushed so far: a commit that wrote nothing is not flushed, nor are uncommitted
    /// writes of others. The stream does not get there by itself.
    pub(crate) fn want_flush(&self, end: Lsn) {
        self.probes.flush.fetch_max(end.0, SeqCst);
        // Otherwise a commit of that session will probably flush it.
        if self.writing.load(SeqCst) == 0 {
            self.probes.flush_wanted.notify_one();
        }
    }

    /// The position up to which the log must be flushed.
    pub(crate) fn flush_wanted_to(&self) -> Lsn {
        Lsn(self.probes.flush.load(SeqCst))
    }

    /// Returns when a flush is needed.
    pub(crate) async fn flush_wanted(&self) {
        self.probes.flush_wanted.notified().await;
    }

    /// The requested flush was for the log of another stream.
    pub(crate) fn forget_flush(&self) {
        self.probes.flush.store(0, SeqCst);
    }

    /// Whether a session has waited so since the last call.
    pub(crate) fn take_waiting_sessions(&self) -> bool {
        self.probes.sessions_wait.swap(false, Relaxed)
    }

    /// Returns when a log-end probe is needed before its time.
    pub(crate) async fn log_end_wanted(&self) {
        self.probes.wanted.notified().await;
    }
}
