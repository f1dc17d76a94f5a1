//! The definitions that a session has sent, as far as others must know of them: see [`crate::session::commit_wait`].

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::session::commit_wait::Counted;

/// The session is counted among those that define something.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// It has sent what may define anything, which is not acknowledged yet.
    sent: Option<Counted>,
    /// Definitions that are looked for may be visible, or become so.
    visible: Option<Counted>,
}

impl Definitions {
    /// Something is about to be sent that may define anything.
    pub(super) fn note_sent(&mut self, count: &Arc<AtomicUsize>) {
        self.sent.get_or_insert_with(|| Counted::new(count));
    }

    /// Something is about to be sent that may make a definition visible which is looked for.
    pub(super) fn note_visible(&mut self, count: &Arc<AtomicUsize>) {
        self.visible.get_or_insert_with(|| Counted::new(count));
    }

    /// A definition that is looked for may be visible, or become so.
    pub(super) fn may_be_visible(&self) -> bool {
        self.visible.is_some()
    }

    /// All that was sent is acknowledged, and nothing of it can still commit.
    pub(super) fn acknowledged(&mut self) {
        self.sent = None;
    }

    /// No definition of the session becomes visible before it sends more.
    pub(super) fn none_becomes_visible(&mut self) {
        self.visible = None;
    }
}
