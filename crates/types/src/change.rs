//! Committed changes, as the stream delivers them.

use std::collections::HashSet;
use std::sync::Arc;

use crate::{CommitId, Lsn, TableId};

/// The columns of a row image: what the stream said of the relation before it sent rows of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Relation {
    /// The table.
    pub table: TableId,
    /// Column names, in the order of the cells. Columns that the stream leaves out (generated, dropped) are missing.
    pub columns: Vec<Arc<str>>,
}

impl Relation {
    /// Where the cells of the column of that name stand.
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
    /// Not sent (an unchanged TOAST value, a column outside the replica identity or row image) or without a normal form: it
    /// may be anything.
    Absent,
    /// In the new image of an update: what the old one does not say either, but the same.
    Unchanged,
}

/// A row image; as many cells as its [`Relation`] has columns.
pub type Row = Box<[Cell]>;

/// What happened to one row, or to a whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row came.
    Insert {
        /// Names its columns.
        relation: Arc<Relation>,
        /// The row.
        new: Row,
    },
    /// A row changed. Cells of `old` that the stream does not know are [`Cell::Absent`].
    Update {
        /// Names the columns of both images.
        relation: Arc<Relation>,
        /// The row before, as far as known.
        old: Row,
        /// The row after.
        new: Row,
    },
    /// A row went.
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
    /// The table it happened to.
    pub fn table(&self) -> TableId {
        match self {
            Self::Insert { relation, .. } | Self::Update { relation, .. } | Self::Delete { relation, .. } => {
                relation.table
            }
            Self::AnyRow(table) | Self::Redefined { table, .. } => *table,
        }
    }

    /// The memory that its rows take, about.
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

    /// Whether it is of the relation as such.
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
    /// Rows of one transaction beyond which its tables are taken as changed in any row.
    pub const ROWS_MAX: usize = 10_000;

    /// No change.
    pub fn none() -> Self {
        Self::Rows(Vec::new())
    }

    /// Adds a change; beyond [`Self::ROWS_MAX`] all that is held is coarsened to its tables.
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

    /// The memory that it takes, about.
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
    /// Which transaction it was.
    pub id: CommitId,
    /// Where its commit record ends: the stream has then passed everything before.
    pub end: Lsn,
    /// What it changed in published tables, and which relations it defined anew.
    pub changes: ChangeSet,
    /// It changed the catalogue, as far as the stream tells: what was resolved before may mean something else now.
    pub redefines: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

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
