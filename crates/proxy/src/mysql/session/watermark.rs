//! How new the session's next answers must be, and how that is known.

use freshet_cache::{SnapshotBounds, Watermark};
use freshet_types::{End, Nanos};
use freshet_wire::mysql::track::Gtid;

/// The session's watermark.
#[derive(Debug, Default)]
pub(super) struct SessionWatermark {
    watermark: Watermark,
    /// The client's last answer came from the server, and no log end after it is known.
    behind_passed: bool,
    /// The commits that the last answer reported, if there was no commit wait for them and nothing was answered since.
    committed: Vec<Gtid>,
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
        self.behind_passed = true;
        self.committed.clear();
    }

    /// All that the client has read is older than this, which the stream has applied.
    pub(super) fn set_end(&mut self, end: End) {
        self.watermark.end = Some(end);
        self.behind_passed = false;
    }

    /// Whether no log end was known before this hit.
    pub(super) fn take_behind_passed(&mut self) -> bool {
        std::mem::take(&mut self.behind_passed)
    }

    /// The commits that the last answer reported, without a commit wait.
    pub(super) fn set_committed(&mut self, gtids: Vec<Gtid>) {
        self.committed = gtids;
    }

    pub(super) fn committed(&self) -> &[Gtid] {
        &self.committed
    }

    /// The stream has applied these commits, up to here.
    pub(super) fn committed_until(&mut self, end: End) {
        self.set_end(end);
        self.committed.clear();
    }

    /// The client may have seen a change of the catalogue that no check has found yet.
    pub(super) fn note_definition(&mut self, now: Nanos) {
        self.watermark.catalog_since = now;
    }

    /// The snapshot that look-ups must fit.
    pub(super) fn snapshot(&self) -> Option<SnapshotBounds> {
        self.watermark.snapshot
    }

    pub(super) fn set_snapshot(&mut self, bounds: Option<SnapshotBounds>) {
        self.watermark.snapshot = bounds;
    }
}
