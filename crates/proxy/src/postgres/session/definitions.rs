//! The definitions that a session has sent, as far as other sessions must take them into account: see [`crate::session::commit_wait`].

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::session::commit_wait::Counted;

/// Counts the session among those that define something.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// It has sent a statement that may define anything, and that is not acknowledged yet.
    sent: Option<Counted>,
    /// Definitions that only a check of the catalogue finds may be visible, or may become visible.
    visible: Option<Counted>,
}

impl Definitions {
    /// The session is about to send a statement that may define anything.
    pub(super) fn note_sent(&mut self, count: &Arc<AtomicUsize>) {
        self.sent.get_or_insert_with(|| Counted::new(count));
    }

    /// The session is about to send a statement that may make such a definition visible.
    pub(super) fn note_visible(&mut self, count: &Arc<AtomicUsize>) {
        self.visible.get_or_insert_with(|| Counted::new(count));
    }

    /// Whether such a definition may be visible, or may become visible.
    pub(super) fn may_be_visible(&self) -> bool {
        self.visible.is_some()
    }

    /// All statements sent are acknowledged, and none of them can still commit.
    pub(super) fn acknowledged(&mut self) {
        self.sent = None;
    }

    /// No definition of the session becomes visible before it sends another statement.
    pub(super) fn none_becomes_visible(&mut self) {
        self.visible = None;
    }
}
