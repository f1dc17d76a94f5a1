//! How new the answers must be that the session gets from now on, and how that is known.

use freshet_cache::{SnapshotBounds, Watermark};
use freshet_types::{End, Nanos};
use freshet_wire::mysql::track::Gtid;

/// The session's watermark.
#[derive(Debug, Default)]
pub(super) struct SessionWatermark {
    watermark: Watermark,
    /// The last that the client was told came from the server, and no end of the binlog behind that is known.
    behind_passed: bool,
    /// The commits that the last answer told, if it was not held for them and nothing was told since.
    committed: Vec<Gtid>,
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
        self.behind_passed = true;
        self.committed.clear();
    }

    /// All that the client has learned is older than this, which the stream has applied.
    pub(super) fn set_end(&mut self, end: End) {
        self.watermark.end = Some(end);
        self.behind_passed = false;
    }

    /// Whether no end of the binlog was known; a hit comes now.
    pub(super) fn take_behind_passed(&mut self) -> bool {
        std::mem::take(&mut self.behind_passed)
    }

    /// The commits that the last answer told, which was not held for them.
    pub(super) fn set_committed(&mut self, gtids: Vec<Gtid>) {
        self.committed = gtids;
    }

    pub(super) fn committed(&self) -> &[Gtid] {
        &self.committed
    }

    /// The stream has applied these commits up to here.
    pub(super) fn committed_until(&mut self, end: End) {
        self.set_end(end);
        self.committed.clear();
    }

    /// What the client has learned may show a change of the catalogue that has not been looked for.
    pub(super) fn note_definition(&mut self, now: Nanos) {
        self.watermark.catalog_since = now;
    }

    /// The snapshot that look-ups are to be within.
    pub(super) fn snapshot(&self) -> Option<SnapshotBounds> {
        self.watermark.snapshot
    }

    pub(super) fn set_snapshot(&mut self, bounds: Option<SnapshotBounds>) {
        self.watermark.snapshot = bounds;
    }
}
