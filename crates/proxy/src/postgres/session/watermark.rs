//! How new the session's next answers must be, and how that is known.

use freshet_cache::{SnapshotBounds, Watermark};
use freshet_types::{End, Lsn, Nanos};

/// The session's watermark.
#[derive(Debug, Default)]
pub(super) struct SessionWatermark {
    watermark: Watermark,
    /// The last log end read, if it was not flushed: the stream does not come that far by itself.
    unflushed: Option<Lsn>,
    /// A notification came since the last `ReadyForQuery`.
    notified: bool,
}

impl SessionWatermark {
    /// The watermark for look-ups.
    pub(super) fn get(&self) -> &Watermark {
        &self.watermark
    }

    /// The client has read data of unknown age.
    pub(super) fn raise(&mut self, now: Nanos) {
        self.watermark.end = None;
        self.watermark.since = now;
    }

    /// A notification shows a commit that the client may look for at once.
    pub(super) fn note_notification(&mut self, now: Nanos) {
        self.raise(now);
        self.notified = true;
    }

    /// Whether a notification came before this `ReadyForQuery`, after the last one.
    pub(super) fn take_notified(&mut self) -> bool {
        std::mem::take(&mut self.notified)
    }

    /// All that the client has read is older than this; None: no bound is known.
    pub(super) fn set_end(&mut self, end: Option<End>) {
        self.watermark.end = end;
    }

    /// A log end was read, with the flushed position at that time.
    pub(super) fn note_flushed(&mut self, end: Option<Lsn>, flushed: Option<Lsn>) {
        self.unflushed = end.filter(|end| flushed.is_some_and(|flushed| flushed < *end));
    }

    /// The last log end read, if it was not flushed.
    pub(super) fn unflushed(&self) -> Option<Lsn> {
        self.unflushed
    }

    /// The client may have seen a change of the catalogue that no check has found yet.
    pub(super) fn note_definition(&mut self, now: Nanos) {
        self.watermark.catalog_since = now;
    }

    /// The snapshot of the open block, once it has one.
    pub(super) fn snapshot(&self) -> Option<SnapshotBounds> {
        self.watermark.snapshot
    }

    /// The open block has taken its snapshot; None: its bounds are unknown.
    pub(super) fn begin_snapshot(&mut self, bounds: Option<SnapshotBounds>) {
        self.watermark.snapshot = bounds;
    }

    /// No block is open.
    pub(super) fn end_snapshot(&mut self) {
        self.watermark.snapshot = None;
    }
}
