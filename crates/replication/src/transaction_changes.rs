//! The changes of an open transaction, in bounded memory: by rows ([`ChangeSet::push`]) and by bytes.

use std::collections::HashSet;
use std::sync::Arc;

use freshet_types::{Change, ChangeSet, TableId};

/// Limit of the bytes of one transaction's values. Beyond it, any row of its tables counts as changed.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 32 << 20;

/// The changes of a transaction until now.
#[derive(Debug)]
pub(crate) struct TransactionChanges {
    changes: ChangeSet,
    bytes: usize,
    /// The tables of `changes`, once it contains only whole tables.
    coarse: Option<HashSet<TableId>>,
    /// The relations that it redefined. Separate from `changes`, which loses their names when it becomes coarse.
    redefined: HashSet<(TableId, Arc<str>)>,
    /// It changed the catalogue.
    redefines: bool,
}

impl TransactionChanges {
    pub(crate) fn new() -> Self {
        let (changes, redefined) = (ChangeSet::none(), HashSet::new());
        Self { changes, bytes: 0, coarse: None, redefined, redefines: false }
    }

    pub(crate) fn push(&mut self, change: Change) {
        let table = change.table();
        if let Some(tables) = &mut self.coarse {
            if tables.insert(table) {
                self.changes.push(Change::AnyRow(table));
            }
            return;
        }
        self.bytes = self.bytes.saturating_add(change.bytes());
        self.changes.push(change);
        if self.bytes > TRANSACTION_BYTES_MAX
            && let ChangeSet::Rows(rows) = &mut self.changes
        {
            let tables: HashSet<TableId> = rows.iter().map(Change::table).collect();
            *rows = tables.iter().map(|table| Change::AnyRow(*table)).collect();
            self.coarse = Some(tables);
            self.bytes = 0;
        }
    }

    /// Adds relations with a new definition.
    pub(crate) fn redefine(&mut self, relations: Vec<(TableId, Arc<str>)>) {
        self.redefines = true;
        if self.redefined.len() + relations.len() <= ChangeSet::ROWS_MAX {
            self.redefined.extend(relations);
        } else {
            self.change_everything();
        }
    }

    /// Anything may have changed, also the catalogue.
    pub(crate) fn change_everything(&mut self) {
        self.redefines = true;
        self.bytes = 0;
        self.changes = ChangeSet::Everything;
    }

    /// The changes, and whether they include the catalogue.
    pub(crate) fn finish(self) -> (ChangeSet, bool) {
        let changes = match self.changes {
            ChangeSet::Rows(mut rows) => {
                rows.extend(self.redefined.into_iter().map(|(table, name)| Change::Redefined { table, name }));
                ChangeSet::Rows(rows)
            }
            ChangeSet::Everything => ChangeSet::Everything,
        };
        (changes, self.redefines)
    }

    /// Number of rows in memory.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        match &self.changes {
            ChangeSet::Rows(rows) => rows.len(),
            ChangeSet::Everything => 0,
        }
    }

    /// Bytes of the rows in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
