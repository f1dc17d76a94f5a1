//! Committed changes, as the stream delivers them.

use std::collections::HashSet;
use std::sync::Arc;

use crate::{CommitId, Lsn, TableId};

/// The columns of a row image, as the stream described the relation before its rows.
#[derive(Debug, PartialEq, Eq)]
pub struct Relation {
    /// The table.
    pub table: TableId,
    /// Column names, in the order of the cells. Columns that the stream omits (generated, dropped) are missing.
    pub columns: Vec<Arc<str>>,
}

impl Relation {
    /// The index of the column's cells.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| &**c == name)
    }
}

/// One value of a row image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// SQL NULL.
    Null,
    /// The value in the server's text form: PostgreSQL's in UTF-8; strings of MySQL and MariaDB in their column's character
    /// set.
    Text(Box<[u8]>),
    /// Not sent (an unchanged TOAST value, a column outside the replica identity or row image), or without a normal
    /// form. Any value is possible.
    Absent,
    /// In the new image of an update: the same unknown value as in the old image.
    Unchanged,
}

/// A row image, with as many cells as its [`Relation`] has columns.
pub type Row = Box<[Cell]>;

/// A change of one row or of a whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row was inserted.
    Insert {
        /// Names its columns.
        relation: Arc<Relation>,
        /// The row.
        new: Row,
    },
    /// A row was updated. Cells of `old` that the stream omits are [`Cell::Absent`].
    Update {
        /// Names the columns of both images.
        relation: Arc<Relation>,
        /// The row before, as far as known.
        old: Row,
        /// The row after.
        new: Row,
    },
    /// A row was deleted.
    Delete {
        /// Names its columns.
        relation: Arc<Relation>,
        /// The row, as far as known.
        old: Row,
    },
    /// Any row of the table may have changed: TRUNCATE, a changed definition, or too many changes to list.
    AnyRow(TableId),
    /// The relation was created, altered or dropped.
    Redefined {
        /// The relation.
        table: TableId,
        /// Its name after the command; before it, if it was dropped.
        name: Arc<str>,
    },
}

impl Change {
    /// The changed table.
    pub fn table(&self) -> TableId {
        match self {
            Self::Insert { relation, .. } | Self::Update { relation, .. } | Self::Delete { relation, .. } => {
                relation.table
            }
            Self::AnyRow(table) | Self::Redefined { table, .. } => *table,
        }
    }

    /// About how much memory its rows take.
    pub fn bytes(&self) -> usize {
        const QUANTUM: usize = 16;
        let text = |cell: &Cell| if let Cell::Text(text) = cell { text.len().next_multiple_of(QUANTUM) } else { 0 };
        let row = |row: &Row| row.iter().map(|cell| size_of::<Cell>() + text(cell)).sum::<usize>();
        match self {
            Self::Insert { new, .. } => row(new),
            Self::Update { old, new, .. } => row(old) + row(new),
            Self::Delete { old, .. } => row(old),
            Self::AnyRow(_) | Self::Redefined { .. } => 0,
        }
    }

    /// Whether the change affects the relation as a whole.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::AnyRow(_) | Self::Redefined { .. })
    }
}

/// The changes of one transaction, in bounded memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeSet {
    /// These rows.
    Rows(Vec<Change>),
    /// Anything may have changed.
    Everything,
}

impl ChangeSet {
    /// The number of rows in one transaction beyond which its tables count as changed in any row.
    pub const ROWS_MAX: usize = 10_000;

    /// No change.
    pub fn none() -> Self {
        Self::Rows(Vec::new())
    }

    /// Adds a change. Beyond [`Self::ROWS_MAX`] all changes are coarsened to their tables.
    pub fn push(&mut self, change: Change) {
        let Self::Rows(rows) = self else { return };
        if rows.len() >= Self::ROWS_MAX {
            let tables: HashSet<TableId> = rows.iter().map(Change::table).collect();
            *rows = tables.into_iter().map(Change::AnyRow).collect();
        }
        let known = matches!(rows.first(), Some(Change::AnyRow(_)))
            && rows.iter().any(|held| *held == Change::AnyRow(change.table()));
        if !known {
            if rows.is_empty() {
                rows.reserve_exact(1); // as most transactions have
            }
            rows.push(change);
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.iter().map(Change::bytes).sum::<usize>() + rows.capacity() * size_of::<Change>(),
            Self::Everything => 0,
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Rows(rows) if rows.is_empty())
    }
}

/// A delivered commit.
#[derive(Debug, PartialEq, Eq)]
pub struct Commit {
    /// The transaction's id.
    pub id: CommitId,
    /// The end of its commit record. The stream has then passed everything before it.
    pub end: Lsn,
    /// The changes of published tables, and the relations that it redefined.
    pub changes: ChangeSet,
    /// It changed the catalogue, as far as the stream shows: names resolved before may now mean something else.
    pub redefines: bool,
}

impl Commit {
    /// The tables whose rows it changed, each once; empty if it is not known which.
    pub fn tables(&self) -> Vec<TableId> {
        let ChangeSet::Rows(changes) = &self.changes else { return Vec::new() };
        let mut tables: Vec<TableId> = changes.iter().map(Change::table).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_commit_are_each_told_once() {
        let mut changes = ChangeSet::none();
        for table in [2, 1, 2, 1] {
            changes.push(Change::AnyRow(TableId(table)));
        }
        let commit = |changes| Commit { id: CommitId::Xid(1), end: Lsn(1), changes, redefines: false };
        assert_eq!(commit(changes).tables(), [TableId(1), TableId(2)]);
        assert_eq!(commit(ChangeSet::Everything).tables(), []);
    }

    #[test]
    fn a_large_transaction_coarsens_to_its_tables() {
        let mut set = ChangeSet::none();
        for table in [1, 2] {
            let relation = Arc::new(Relation { table: TableId(table), columns: vec!["a".into()] });
            for _ in 0..ChangeSet::ROWS_MAX {
                set.push(Change::Delete { relation: relation.clone(), old: Box::new([Cell::Null]) });
            }
        }
        let ChangeSet::Rows(rows) = &set else { panic!("{set:?}") };
        assert!(rows.len() <= ChangeSet::ROWS_MAX, "{}", rows.len());
        for table in [1, 2] {
            assert!(rows.iter().any(|c| c.table() == TableId(table)));
        }
    }
}
