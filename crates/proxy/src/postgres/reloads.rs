//! Whether the server's configuration is what it was when a session's settings were read.
//!
//! A server process reads the configuration again when it is told to, before its next statement, and its settings may change
//! with that, unseen. A session that asks for the log end behind a result asks its process for the time of that, too. Where a
//! reading of the service connection's tells the end, this does:
//!
//! - A change is *noticed* by the catalogue's watch, which then has everything go: what was kept by mistake is gone with it.
//! - From then on no result waits for a shared probe, until the change is *settled*: a process has been started
//!   since, which the server does only after it has told all others to read the configuration.
//! - What a session asks its process from then on is answered under the new configuration. So once it has found its own
//!   unchanged by a question that it sent later, it may share log-end probes until the next change is noticed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use freshet_types::Nanos;

/// The changes of the configuration that were noticed.
#[derive(Debug, Default)]
pub(crate) struct Reloads(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    noticed: u64,
    settled_at: Option<Nanos>,
}

impl Reloads {
    /// The configuration may have changed.
    pub(crate) fn notice(&self) {
        let mut state = self.state();
        *state = State { noticed: state.noticed + 1, settled_at: None };
    }

    /// How many changes have been noticed.
    pub(crate) fn noticed(&self) -> u64 {
        self.state().noticed
    }

    /// A process that was asked for after so many changes had been noticed is there now.
    pub(crate) fn settle(&self, noticed: u64, now: Nanos) {
        let mut state = self.state();
        if state.noticed == noticed && state.settled_at.is_none() {
            state.settled_at = Some(now);
        }
    }

    /// Whether a session's settings are known, whose process was last asked for them at this time.
    pub(crate) fn cover(&self, asked_at: Nanos) -> bool {
        self.state().settled_at.is_some_and(|settled_at| asked_at >= settled_at)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_known_once_they_were_asked_for_behind_a_settled_change() {
        let reloads = Reloads::default();
        assert!(!reloads.cover(Nanos::MAX), "nothing is settled");
        reloads.settle(0, 5);
        assert!(reloads.cover(5) && !reloads.cover(4));
        reloads.settle(0, 7);
        assert!(reloads.cover(5), "it was settled before");
        reloads.notice();
        assert!(!reloads.cover(9));
        reloads.settle(0, 10);
        assert!(!reloads.cover(11), "that process may be older than the change");
        reloads.settle(reloads.noticed(), 12);
        assert!(reloads.cover(12) && !reloads.cover(11));
    }
}
