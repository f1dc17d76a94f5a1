//! Whether the server's configuration has changed since a session's settings were read.
//!
//! A server process reads the configuration again when it is signalled, before its next statement, and its settings may change then without notice. A
//! session that reads the log end after a result also reads from its process when that happened. If a probe of the service connection gives the log
//! end, this module replaces that:
//!
//! - The catalogue's service *notices* a change and then flushes all entries; an entry that was cached by mistake is gone.
//! - From then on no result waits for a shared probe, until the change is *settled*: a server process has been started since, which the server does
//!   only after it has signalled all others.
//! - A session's process answers later queries under the new configuration. So once a later query has found the session's settings unchanged, the
//!   session may share log-end probes until the next change is noticed.

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

    /// Number of changes noticed.
    pub(crate) fn noticed(&self) -> u64 {
        self.state().noticed
    }

    /// A process that was requested after this many changes had been noticed has started.
    pub(crate) fn settle(&self, noticed: u64, now: Nanos) {
        let mut state = self.state();
        if state.noticed == noticed && state.settled_at.is_none() {
            state.settled_at = Some(now);
        }
    }

    /// Whether a session's settings are known whose process was last queried for them at this time.
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
