//! What a read at a replica must show, and when its session may read at the primary again.
//!
//! Reading list: `docs/decisions/2026-11-29-replicas.md`, rules 1, 3 and 4; the model is `spec/replicas.py`.

use freshet_types::{CatalogVersion, End, Lsn, Nanos, Reason, TableId, Tag};

use crate::freshness::{Proven, Watermark};
use crate::{Cache, Payload};

impl<P: Payload> Cache<P> {
    /// The position that a replica must have replayed before it may answer a read of a session with this watermark.
    /// `written_since`: when a write was last acknowledged without a commit wait; 0 if none was.
    ///
    /// It is the applied position, once the stream has passed everything that the session has read, all fences, and a
    /// log end that was asked for after that write.
    pub fn replica_floor(&self, watermark: &Watermark, written_since: Nanos, now: Nanos) -> Result<End, Reason> {
        let seen = self.freshness.read(watermark, now, self.faults)?;
        if watermark.snapshot.is_some() {
            return Err(Reason::Snapshot);
        }
        if !seen.watermark_passed {
            return Err(Reason::Watermark);
        }
        if self.freshness.current_as_of() < written_since {
            return Err(Reason::Fence);
        }
        // Read again: the stream publishes its position before the lease that was read above.
        Ok(End { epoch: seen.epoch, lsn: self.freshness.applied() })
    }

    /// All commits up to this position were delivered and are visible at the primary. `true`: a later commit was
    /// delivered and is not yet proven visible.
    pub fn visible_end(&self) -> Option<(End, bool)> {
        let core = self.core();
        let (epoch, before) = (core.epoch()?, core.before_pending());
        Some((End { epoch, lsn: before.unwrap_or_else(|| self.freshness.applied()) }, before.is_some()))
    }

    /// Whether a replica that has replayed everything up to this position may answer a statement with these tags, known under this catalogue, though
    /// it has not reached the floor: no commit in between touches the tags. False also if that is not known.
    pub fn untouched_since(&self, tags: &[Tag], catalog: CatalogVersion, floor: End, position: Lsn) -> bool {
        let core = self.core();
        core.epoch() == Some(floor.epoch) && core.is_untouched_since(tags, catalog, position)
    }

    /// This log end was asked for after `known` had been read: behind it, the stream delivers all changes of what was published then, under the
    /// catalogue of that time.
    pub fn note_complete(&self, known: &Proven, end: End) {
        let mut core = self.core();
        if core.epoch() == Some(end.epoch) && known.end.epoch == end.epoch {
            core.note_complete(known, end.lsn);
        }
    }

    /// Whether all these tables are published.
    pub fn are_published(&self, tables: &[TableId]) -> bool {
        let core = self.core();
        tables.iter().all(|table| core.is_published(*table))
    }
}
