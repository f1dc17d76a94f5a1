//! Commits of late, for fills that must be held against what was committed before.
//!
//! * What a REPEATABLE READ transaction reads is the state of its snapshot. It is the state of now as well if nothing that
//!   matters was committed since; then it may be kept like any other answer, and a transaction of many reads fills the cache
//!   with all of them.
//! * Some tags are told only when the fill ends: those of rows that are found by the keys in other rows. Commits that came
//!   meanwhile could not be held against them when they came.
//!
//! The commits since are those that are pending and those kept here. The memory is bounded: what is older than the oldest
//! commit here cannot be told, and such fills are refused.

use std::collections::VecDeque;

use freshet_model::{ChangeSet, Commit, CommitId, Lsn, TableId, Tag};

/// Row changes kept; commits count as one at least.
const ROWS_MAX: usize = 20_000;

/// Commits of this epoch that were proven visible, in the order of their proofs.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    commits: VecDeque<Kept>,
    rows: usize,
    /// Commits up to here may have been dropped.
    dropped: Lsn,
}

#[derive(Debug)]
struct Kept {
    commit: Commit,
    /// The furthest end up to here, since proofs come in another order.
    furthest: Lsn,
}

impl Ring {
    pub(crate) fn push(&mut self, commit: Commit) {
        self.rows += row_count(&commit.changes);
        let furthest = self.commits.back().map_or(commit.end, |last| last.furthest.max(commit.end));
        self.commits.push_back(Kept { commit, furthest });
        while self.rows > ROWS_MAX
            && let Some(Kept { commit: oldest, .. }) = self.commits.pop_front()
        {
            self.rows -= row_count(&oldest.changes);
            self.dropped = self.dropped.max(oldest.end);
        }
    }

    /// The commits behind `since` that matter; None if some may have been dropped.
    pub(crate) fn since(&self, since: Lsn, matters: impl Fn(&ChangeSet) -> bool) -> Option<Vec<CommitId>> {
        let behind = self.latest(since).filter(|commit| commit.end > since && matters(&commit.changes));
        (self.dropped <= since).then(|| behind.map(|commit| commit.id).collect())
    }

    /// All commits behind `since`, the last one first, and few others: a fill under writes is not to look at all that is kept.
    fn latest(&self, since: Lsn) -> impl Iterator<Item = &Commit> {
        self.commits.iter().rev().take_while(move |kept| kept.furthest > since).map(|kept| &kept.commit)
    }
}

/// Rows for a bound: at least one for a commit that changed anything.
pub(crate) fn row_count(changes: &ChangeSet) -> usize {
    match changes {
        ChangeSet::Everything => 1,
        ChangeSet::Rows(rows) => rows.len(),
    }
}

/// Whether any change may touch rows that a tag names.
pub(crate) fn changes_match(tags: &[Tag], changes: &ChangeSet) -> bool {
    match changes {
        ChangeSet::Everything => true,
        ChangeSet::Rows(rows) => rows.iter().any(|change| tags.iter().any(|tag| tag.may_be_hit(change))),
    }
}

/// Whether any change is one of these tables.
pub(crate) fn touches(changes: &ChangeSet, tables: &[TableId]) -> bool {
    match changes {
        ChangeSet::Everything => !tables.is_empty(),
        ChangeSet::Rows(rows) => rows.iter().any(|change| tables.contains(&change.table())),
    }
}

#[cfg(test)]
mod tests {
    use freshet_model::{Change, CommitId};

    use super::*;

    fn commit(end: u64, table: u32) -> Commit {
        let changes = ChangeSet::Rows(vec![Change::AnyRow(TableId(table))]);
        Commit { id: CommitId::Xid(0), end: Lsn(end), changes, redefines: false }
    }

    #[test]
    fn what_was_dropped_is_not_quiet() {
        let matters = |changes: &ChangeSet| *changes == commit(0, 1).changes;
        let quiet = |ring: &Ring, since| ring.since(Lsn(since), matters).map(|some| some.is_empty());
        let mut ring = Ring::default();
        ring.push(commit(20, 1));
        ring.push(commit(15, 2));
        assert_eq!((quiet(&ring, 10), quiet(&ring, 17), quiet(&ring, 20)), (Some(false), Some(false), Some(true)));
        for end in 21..=ROWS_MAX as u64 + 30 {
            ring.push(commit(end, 2));
        }
        assert_eq!(ring.latest(Lsn(ROWS_MAX as u64)).count(), 30);
        assert!(ring.rows <= ROWS_MAX);
        assert_eq!(quiet(&ring, 20), None, "the oldest are gone");
        assert_eq!(quiet(&ring, ROWS_MAX as u64), Some(true));
    }
}
