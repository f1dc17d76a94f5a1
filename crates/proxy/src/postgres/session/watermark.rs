//! How new the answers must be that the session gets from now on, and how that is known.

use freshet_cache::{SnapshotBounds, Watermark};
use freshet_types::{End, Lsn, Nanos};

/// The session's watermark.
#[derive(Debug, Default)]
pub(super) struct SessionWatermark {
    watermark: Watermark,
    /// The log end as last asked for, if it was not flushed: the stream does not come that far by itself.
    unflushed: Option<Lsn>,
    /// A notification came since the last `ReadyForQuery`.
    notified: bool,
}

impl SessionWatermark {
    /// What look-ups are held to.
    pub(super) fn get(&self) -> &Watermark {
        &self.watermark
    }

    /// The client has learned something of unknown newness.
    pub(super) fn raise(&mut self, now: Nanos) {
        self.watermark.end = None;
        self.watermark.since = now;
    }

    /// A notification tells of a commit that the client may look for at once.
    pub(super) fn note_notification(&mut self, now: Nanos) {
        self.raise(now);
        self.notified = true;
    }

    /// Whether a notification came since the last `ReadyForQuery`, which comes now.
    pub(super) fn take_notified(&mut self) -> bool {
        std::mem::take(&mut self.notified)
    }

    /// All that the client has learned is older than this; None: no bound is known.
    pub(super) fn set_end(&mut self, end: Option<End>) {
        self.watermark.end = end;
    }

    /// A log end was read, and how far the log was flushed then.
    pub(super) fn note_flushed(&mut self, end: Option<Lsn>, flushed: Option<Lsn>) {
        self.unflushed = end.filter(|end| flushed.is_some_and(|flushed| flushed < *end));
    }

    /// The log end as last asked for, if it was not flushed.
    pub(super) fn unflushed(&self) -> Option<Lsn> {
        self.unflushed
    }

    /// What the client has learned may show a change of the catalogue that has not been looked for.
    pub(super) fn note_definition(&mut self, now: Nanos) {
        self.watermark.catalog_since = now;
    }

    /// The snapshot of the open block, once it has one.
    pub(super) fn snapshot(&self) -> Option<SnapshotBounds> {
        self.watermark.snapshot
    }

    /// The open block has taken its snapshot; None: its bounds are not known.
    pub(super) fn begin_snapshot(&mut self, bounds: Option<SnapshotBounds>) {
        self.watermark.snapshot = bounds;
    }

    /// No block is open.
    pub(super) fn end_snapshot(&mut self) {
        self.watermark.snapshot = None;
    }
}
