//! The relations that DDL has named since the catalogue was read: only these must be read again.
//!
//! The cache accepts a catalogue if its proof shows all redefinitions that were delivered. A proof may show one more: DDL on another table that was
//! committed before the proof was taken, and is delivered while the tables are being read. A catalogue that was read as a whole includes it anyway. A
//! catalogue that was read for some tables does not: so its proof is reduced to the redefinitions whose tables were read ([`Redefined::shown_by`]).
//!
//! The sink writes here before it gives a commit to the cache. So every redefinition that the cache waits for is in this list. It is removed only
//! after a catalogue was read that shows it, which is the basis of the next one.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freshet_types::{Change, ChangeSet, Commit, CommitId, Epoch, GtidSet, Lsn, TableId, Visible};

use crate::mysql::MySql;

/// Limit of redefinitions that are stored one by one.
const KEPT_MAX: usize = 1000;

/// A delivered redefinition; None: of anything.
type Redefinition = (CommitId, Option<Vec<TableId>>);

/// The redefinitions of this epoch that were not read yet, in order.
#[derive(Debug, Default)]
struct List {
    epoch: Option<Epoch>,
    redefinitions: Vec<Redefinition>,
}

/// The redefinitions that were delivered and not read yet.
#[derive(Debug, Default)]
pub(crate) struct Redefinitions {
    list: Mutex<List>,
}

/// The redefinitions up to some point.
#[derive(Debug)]
pub(super) struct Redefined {
    commits: Vec<CommitId>,
    /// None: it may be any table.
    pub(super) tables: Option<HashSet<TableId>>,
}

impl MySql {
    /// The stream has delivered this commit. Must be called before the cache gets it.
    pub fn note_redefinition(&self, commit: &Commit) {
        if commit.redefines {
            self.redefinitions.push(self.cache.epoch(), (commit.id, named(&commit.changes)));
        }
    }
}

impl Redefinitions {
    fn push(&self, epoch: Option<Epoch>, redefinition: Redefinition) {
        let mut all = self.list();
        if all.epoch != epoch {
            // The previous server's redefinitions may never become visible here.
            *all = List { epoch, redefinitions: Vec::new() };
        }
        let list = &mut all.redefinitions;
        // The catalogue is not being read: later it will be read as a whole.
        if list.len() < KEPT_MAX {
            list.push(redefinition);
        } else if let Some(last) = list.last_mut() {
            *last = (redefinition.0, None);
        }
    }

    /// The redefinitions that a catalogue read from now on must show.
    pub(super) fn until_now(&self, epoch: Epoch) -> Redefined {
        let all = self.list();
        let list = if all.epoch == Some(epoch) { &all.redefinitions[..] } else { &[] };
        let tables = list.iter().map(|(_, tables)| tables.as_deref()).collect::<Option<Vec<_>>>();
        Redefined {
            commits: list.iter().map(|(commit, _)| *commit).collect(),
            tables: tables.map(|tables| tables.into_iter().flatten().copied().collect()),
        }
    }

    /// A catalogue was read that shows these, and is in use or the basis of the next one.
    pub(super) fn shown(&self, redefined: &Redefined) {
        self.list().redefinitions.retain(|(commit, _)| !redefined.commits.contains(commit));
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Redefined {
    /// Whether the list is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// The proof, reduced to these redefinitions among those that may be delivered from now on; None if it does not show all of them yet.
    pub(super) fn shown_by(&self, proof: &Visible) -> Option<Visible> {
        if !self.commits.iter().all(|commit| proof.proves(*commit)) {
            return None;
        }
        let (mut gtids, mut last) = (GtidSet::default(), Lsn(0));
        for commit in &self.commits {
            match *commit {
                CommitId::Gtid { source, number } => gtids.add(source, number),
                CommitId::Position(end) => last = last.max(end),
                CommitId::Xid(_) => return None,
            }
        }
        // In MariaDB commits are named by positions in the order of their delivery.
        Some(if matches!(proof, Visible::Gtids(_)) { Visible::Gtids(gtids) } else { Visible::UpTo(last) })
    }
}

/// The relations that the commit redefines, if it names all of them.
fn named(changes: &ChangeSet) -> Option<Vec<TableId>> {
    let ChangeSet::Rows(changes) = changes else { return None };
    let table = |change: &Change| if let Change::Redefined { table, .. } = change { Some(*table) } else { None };
    Some(changes.iter().filter_map(table).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Epoch = Epoch(3);

    fn redefined(table: u32) -> ChangeSet {
        ChangeSet::Rows(vec![Change::Redefined { table: TableId(table), name: "t".into() }])
    }

    fn gtid(number: u64) -> CommitId {
        CommitId::Gtid { source: 1, number }
    }

    #[test]
    fn what_is_named_is_gathered() {
        let list = Redefinitions::default();
        assert!(list.until_now(NOW).is_empty());
        list.push(Some(NOW), (gtid(1), named(&redefined(7))));
        list.push(Some(NOW), (gtid(2), named(&redefined(8))));
        let two = list.until_now(NOW);
        assert_eq!(two.tables, Some(HashSet::from([TableId(7), TableId(8)])));
        list.push(Some(NOW), (gtid(3), named(&ChangeSet::Everything)));
        assert_eq!(list.until_now(NOW).tables, None);
        list.shown(&two);
        assert_eq!(list.until_now(NOW).commits, [gtid(3)]);
        // A proof of this epoch cannot show those of another epoch.
        assert!(list.until_now(Epoch(4)).is_empty());
        list.push(Some(Epoch(4)), (gtid(1), named(&redefined(7))));
        assert_eq!(list.until_now(Epoch(4)).commits, [gtid(1)]);
    }

    #[test]
    fn too_many_are_anything() {
        let list = Redefinitions::default();
        for number in 1..=KEPT_MAX as u64 + 5 {
            list.push(Some(NOW), (gtid(number), named(&redefined(7))));
        }
        let all = list.until_now(NOW);
        assert_eq!((all.commits.len(), all.commits.last(), all.tables.clone()), (KEPT_MAX, Some(&gtid(1005)), None));
        list.shown(&all);
        assert!(list.until_now(NOW).is_empty());
    }

    #[test]
    fn a_proof_shows_no_more_than_was_read() {
        let read = Redefined { commits: vec![gtid(4), gtid(6)], tables: None };
        let set = |text: &str| GtidSet::parse(&text.replace('#', "00000000-0000-0000-0000-000000000001")).unwrap();
        let shown = read.shown_by(&Visible::Gtids(set("#:1-9"))).unwrap();
        assert_eq!(shown, Visible::Gtids(set("#:4:6")));
        assert_eq!(read.shown_by(&Visible::Gtids(set("#:1-5"))), None);

        let at = |offset| CommitId::Position(Lsn(offset));
        let read = Redefined { commits: vec![at(400), at(600)], tables: None };
        assert_eq!(read.shown_by(&Visible::UpTo(Lsn(900))), Some(Visible::UpTo(Lsn(600))));
        assert_eq!(read.shown_by(&Visible::UpTo(Lsn(599))), None);
    }
}
