//! The definitions that a session has sent, as far as others, and the session itself, must know of them: see
//! [`crate::session::commit_wait`].

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use freshet_types::Nanos;

use crate::session::commit_wait::Counted;

/// What the session has defined.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// What may define anything was sent, and is not acknowledged yet.
    sent: Option<Counted>,
    /// When the session has defined what the catalogue in use may lack.
    at: Option<Nanos>,
}

impl Definitions {
    /// Something is about to be sent that may define anything.
    pub(super) fn note_sent(&mut self, count: &Arc<AtomicUsize>) {
        self.sent.get_or_insert_with(|| Counted::new(count));
    }

    /// It is acknowledged.
    pub(super) fn acknowledged(&mut self) {
        self.sent = None;
    }

    /// The session has defined something now.
    pub(super) fn defined(&mut self, now: Nanos) {
        self.at = Some(now);
    }

    /// When the session has defined what the catalogue in use may lack.
    pub(super) fn defined_at(&self) -> Option<Nanos> {
        self.at
    }

    /// The catalogue in use shows all of it.
    pub(super) fn are_shown(&mut self) {
        self.at = None;
    }
}
