//! The definitions that a session has sent, as far as it and other sessions must take them into account: see [`crate::session::commit_wait`].

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use freshet_types::Nanos;

use crate::session::commit_wait::Counted;

/// The definitions of the session.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// A statement that may define anything was sent, and is not acknowledged yet.
    sent: Option<Counted>,
    /// When the session last made a definition that the catalogue in use may lack.
    at: Option<Nanos>,
}

impl Definitions {
    /// A statement that may define anything is about to be sent.
    pub(super) fn note_sent(&mut self, count: &Arc<AtomicUsize>) {
        self.sent.get_or_insert_with(|| Counted::new(count));
    }

    /// The statement is acknowledged.
    pub(super) fn acknowledged(&mut self) {
        self.sent = None;
    }

    /// The session has just made a definition.
    pub(super) fn defined(&mut self, now: Nanos) {
        self.at = Some(now);
    }

    /// When the session last made a definition that the catalogue in use may lack.
    pub(super) fn defined_at(&self) -> Option<Nanos> {
        self.at
    }

    /// The catalogue in use shows all definitions of the session.
    pub(super) fn are_shown(&mut self) {
        self.at = None;
    }
}
