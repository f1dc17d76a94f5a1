//! The changes that the stream has delivered of each table, in any epoch. They tell whether tags need to be precise,
//! and what following the table costs.

use freshet_types::{Change, TableId};

use crate::core::Core;

/// The delivered changes of one table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changed {
    /// About how many commits changed it. The count is too high if changes of several tables alternate in one commit.
    commits: u64,
    /// Whether any change was not an insert.
    has_lost_rows: bool,
}

impl Core {
    pub(super) fn note_changed(&mut self, changes: &[Change]) {
        let mut last = None;
        for change in changes {
            let table = change.table();
            let changed = self.changed.entry(table).or_default();
            changed.commits += u64::from(last.replace(table) != Some(table));
            changed.has_lost_rows |= !matches!(change, Change::Insert { .. });
        }
    }

    pub(crate) fn has_changed(&self, table: TableId) -> bool {
        self.changed.contains_key(&table)
    }

    pub(crate) fn has_lost_rows(&self, table: TableId) -> bool {
        self.changed.get(&table).is_some_and(|changed| changed.has_lost_rows)
    }

    /// About how many delivered commits changed each table.
    pub(crate) fn changes(&self) -> Vec<(TableId, u64)> {
        self.changed.iter().map(|(table, changed)| (*table, changed.commits)).collect()
    }
}
