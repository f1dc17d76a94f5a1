//! A ring of recent commits, for fills that are checked against past commits.
//!
//! * A read in a REPEATABLE READ transaction shows the state of its snapshot. If no matching commit has happened
//!   since, this is also the current state. The result may then be cached like any other, and a transaction with many
//!   reads fills the cache with all of them.
//! * Deferred tags are known only when the fill ends: they name rows found by the keys of other rows. Commits that
//!   arrived during the fill could not be checked against them on arrival.
//!
//! Both look at the unproven commits and at the proven ones in the ring. The ring is bounded. Commits older than its
//! oldest are unknown, and fills that depend on them are refused.

use std::collections::VecDeque;

use freshet_types::{ChangeSet, Commit, CommitId, Lsn, TableId, Tag};

/// The proven commits of this epoch, in the order of their proofs.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    commits: VecDeque<Kept>,
    bytes: usize,
    /// Commits up to this position may have been dropped.
    dropped: Lsn,
}

#[derive(Debug)]
struct Kept {
    commit: Commit,
    bytes: usize,
    /// The furthest end among the commits so far: the order of proofs differs from the order of ends.
    furthest: Lsn,
}

impl Ring {
    /// Appends a commit of this size and drops the oldest ones until the ring takes at most `bytes_max`.
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

    /// The matching commits after `since`. None if some may have been dropped.
    pub(crate) fn since(&self, since: Lsn, matters: impl Fn(&ChangeSet) -> bool) -> Option<Vec<CommitId>> {
        let behind = self.latest(since).filter(|commit| commit.end > since && matters(&commit.changes));
        (self.dropped <= since).then(|| behind.map(|commit| commit.id).collect())
    }

    /// All commits after `since`, and few others, the last one first. None if some may have been dropped, or if there are more than `count_max`.
    pub(crate) fn few_since(&self, since: Lsn, count_max: usize) -> Option<impl Iterator<Item = &Commit>> {
        let is_few = self.commits.iter().nth_back(count_max).is_none_or(|kept| kept.furthest <= since);
        (self.dropped <= since && is_few).then(|| self.latest(since))
    }

    /// All commits after `since` and few others, the last one first. A fill under writes so need not search the whole
    /// ring.
    fn latest(&self, since: Lsn) -> impl Iterator<Item = &Commit> {
        self.commits.iter().rev().take_while(move |kept| kept.furthest > since).map(|kept| &kept.commit)
    }
}

/// The memory that a remembered commit takes, with its slots in tables.
pub(crate) fn commit_bytes(changes: &ChangeSet) -> usize {
    2 * size_of::<Kept>() + changes.bytes()
}

/// Whether any change may hit one of the tags.
pub(crate) fn changes_match(tags: &[Tag], changes: &ChangeSet) -> bool {
    match changes {
        ChangeSet::Everything => true,
        ChangeSet::Rows(rows) => rows.iter().any(|change| tags.iter().any(|tag| tag.may_be_hit(change))),
    }
}

/// Whether any change is on one of these tables.
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
        let few = |since, count_max| ring.few_since(Lsn(since), count_max).map(Iterator::count);
        assert_eq!((few(COUNT_MAX, 30), few(COUNT_MAX, 29), few(20, 2000)), (Some(30), None, None));
    }
}
