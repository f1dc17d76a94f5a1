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

use freshet_types::{ChangeSet, Commit, CommitId, Lsn, TableId, Tag};

/// Commits of this epoch that were proven visible, in the order of their proofs.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    commits: VecDeque<Kept>,
    bytes: usize,
    /// Commits up to here may have been dropped.
    dropped: Lsn,
}

#[derive(Debug)]
struct Kept {
    commit: Commit,
    bytes: usize,
    /// The furthest end up to here, since proofs come in another order.
    furthest: Lsn,
}

impl Ring {
    /// Keeps one more, which takes so many bytes; the oldest go for it, so that all take no more than `bytes_max`.
    pub(crate) fn push(&mut self, commit: Commit, bytes: usize, bytes_max: usize) {
        self.bytes += bytes;
        let furthest = self.commits.back().map_or(commit.end, |last| last.furthest.max(commit.end));
        self.commits.push_back(Kept { commit, bytes, furthest });
        while self.bytes > bytes_max
            && let Some(oldest) = self.commits.pop_front()
        {
            self.bytes -= oldest.bytes;
            self.dropped = self.dropped.max(oldest.commit.end);
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

/// The memory that a remembered commit takes, its places in tables included.
pub(crate) fn commit_bytes(changes: &ChangeSet) -> usize {
    2 * size_of::<Kept>() + changes.bytes()
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
    use freshet_types::{Change, CommitId};

    use super::*;

    fn commit(end: u64, table: u32) -> Commit {
        let changes = ChangeSet::Rows(vec![Change::AnyRow(TableId(table))]);
        Commit { id: CommitId::Xid(0), end: Lsn(end), changes, redefines: false }
    }

    #[test]
    fn what_was_dropped_is_not_quiet() {
        const COUNT_MAX: u64 = 1000;
        let matters = |changes: &ChangeSet| *changes == commit(0, 1).changes;
        let quiet = |ring: &Ring, since| ring.since(Lsn(since), matters).map(|some| some.is_empty());
        let mut ring = Ring::default();
        let push = |ring: &mut Ring, commit| ring.push(commit, 100, COUNT_MAX as usize * 100);
        push(&mut ring, commit(20, 1));
        push(&mut ring, commit(15, 2));
        assert_eq!((quiet(&ring, 10), quiet(&ring, 17), quiet(&ring, 20)), (Some(false), Some(false), Some(true)));
        for end in 21..=COUNT_MAX + 30 {
            push(&mut ring, commit(end, 2));
        }
        assert_eq!(ring.latest(Lsn(COUNT_MAX)).count(), 30);
        assert_eq!(ring.commits.len() as u64, COUNT_MAX);
        assert_eq!(quiet(&ring, 20), None, "the oldest are gone");
        assert_eq!(quiet(&ring, COUNT_MAX), Some(true));
    }
}
