//! The log end, read by a service connection for all who want it: look-ups that wait for their watermark, acknowledgements
//! that are held, and results that wait for an upper bound on what their query saw.
//!
//! A log-end probe is an upper bound on whatever was visible before it was asked for, so one that is asked for later
//! serves everybody. On MySQL and MariaDB an application's account may not ask for it at all. On PostgreSQL a session may, on its
//! own connection and sooner, but each such question costs the database a fifth of what a simple query does; so
//! results share log-end probes once many are wanted.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

use freshet_types::{Lsn, Nanos};
use tokio::sync::Notify;

use crate::session::fill::{PendingFill, Read};
use crate::shared::Shared;

/// Results that may wait; further ones are not kept.
const WAITING_MAX: usize = 1000;
/// Results that together want a log end every so many nanoseconds, or more often, share log-end probes.
const SHARED_FROM: Nanos = 500_000;

/// Who wants a log-end probe, and what is known of the last one.
#[derive(Debug, Default)]
pub(crate) struct LogEndProbes {
    /// Rung when one is wanted before its time.
    wanted: Notify,
    /// Rung when a look-up waits for one.
    look_waits: Notify,
    /// When the last one was asked for.
    asked_at: AtomicU64,
    /// One is wanted, but nobody waits for it; and the bell for that.
    soon: AtomicBool,
    soon_rung: Notify,
    /// Ends of the log that results have wanted since that was last looked at.
    ends_wanted: AtomicU64,
    are_shared: AtomicBool,
    /// A session has bypassed for want of a later position since the last log-end probe.
    sessions_wait: AtomicBool,
    /// The furthest position that somebody waits for and that is not flushed, and the bell for that; 0: none was.
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

    /// A look-up waits until the stream has passed a position that was asked for at this time or later: if the probe under way
    /// is not one, the next is to follow it at once.
    pub(crate) fn want_log_end_since(&self, since: Nanos) {
        if self.probes.asked_at.load(SeqCst) < since {
            self.probes.sessions_wait.store(true, Relaxed);
            self.probes.look_waits.notify_one();
        }
    }

    /// Ends when a look-up waits for a log-end probe.
    pub(crate) async fn look_waits(&self) {
        self.probes.look_waits.notified().await;
    }

    /// A reading is asked for now; the time of it.
    pub(crate) fn probe_begins(&self) -> Nanos {
        let now = self.clock.now();
        self.probes.asked_at.store(now, SeqCst);
        now
    }

    /// The reading that was asked for at that time is there.
    pub(crate) fn probe_ends(&self, asked_at: Nanos) {
        let took = self.clock.now().saturating_sub(asked_at);
        self.waits.read_in(took);
        self.scheduling_delay.read_in(took);
    }

    /// A reading is wanted that nobody waits for.
    pub(crate) fn want_log_end_soon(&self) {
        if !self.probes.soon.swap(true, SeqCst) {
            self.probes.soon_rung.notify_one();
        }
    }

    /// Whether it is.
    pub(crate) fn wants_log_end_soon(&self) -> bool {
        self.probes.soon.load(SeqCst)
    }

    /// Ends when it has become so.
    pub(crate) async fn log_end_wanted_soon(&self) {
        self.probes.soon_rung.notified().await;
    }

    /// A result whose query was answered before now waits for the next log-end probe, which the caller asks for.
    pub(crate) fn await_end(&self, complete: PendingFill<Read>) {
        let mut results = self.probes.results.lock().unwrap_or_else(PoisonError::into_inner);
        if results.len() < WAITING_MAX {
            results.push(complete);
        }
    }

    /// All that wait: a log end that is asked for later than this call is an upper bound for them.
    pub(crate) fn take_awaiting_end(&self) -> Vec<PendingFill<Read>> {
        self.probes.soon.store(false, SeqCst);
        std::mem::take(&mut *self.probes.results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether so many results want the log end that one reading for all of them costs the database less than a
    /// question for each. Alone a session asks by itself, since its answer comes sooner.
    pub(crate) fn shares_probes(&self) -> bool {
        self.probes.are_shared.load(Relaxed) || self.settings.faults.shares_probes
    }

    /// A result wants the log end, by its session's own question or with the next log-end probe.
    pub(crate) fn count_end(&self) {
        self.probes.ends_wanted.fetch_add(1, Relaxed);
    }

    /// So many were wanted in this time.
    pub(crate) fn decide_sharing(&self, elapsed: Nanos) {
        let wanted = self.probes.ends_wanted.swap(0, Relaxed);
        self.probes.are_shared.store(wanted.saturating_mul(SHARED_FROM) >= elapsed, Relaxed);
    }

    /// A session bypasses until the stream has passed a position that it knows: no reading would tell it more, but the log may
    /// have to be flushed.
    pub(crate) fn note_waiting(&self) {
        self.probes.sessions_wait.store(true, Relaxed);
    }

    /// The stream is waited for up to here, and the log is not flushed so far: a commit that wrote nothing is not, nor is what
    /// others have not committed. The stream does not come there by itself.
    pub(crate) fn want_flush(&self, end: Lsn) {
        self.probes.flush.fetch_max(end.0, SeqCst);
        // Else that commit flushes it, probably.
        if self.writing.load(SeqCst) == 0 {
            self.probes.flush_wanted.notify_one();
        }
    }

    /// Up to where the log is to be flushed.
    pub(crate) fn flush_wanted_to(&self) -> Lsn {
        Lsn(self.probes.flush.load(SeqCst))
    }

    /// Ends when a flush is wanted.
    pub(crate) async fn flush_wanted(&self) {
        self.probes.flush_wanted.notified().await;
    }

    /// What was to be flushed was in the log of another stream.
    pub(crate) fn forget_flush(&self) {
        self.probes.flush.store(0, SeqCst);
    }

    /// Whether a session has asked so since the last call.
    pub(crate) fn take_waiting_sessions(&self) -> bool {
        self.probes.sessions_wait.swap(false, Relaxed)
    }

    /// Ends when a log-end probe is wanted before its time.
    pub(crate) async fn log_end_wanted(&self) {
        self.probes.wanted.notified().await;
    }
}
