//! What the binlog leaves out of row changes and the catalogue knows: the names of columns, and the rows that foreign keys
//! change.
//!
//! The catalogue may be younger than the change: it is read from the database while the stream is still before a DDL
//! statement that it shows. A row image named after it would bear the wrong names, and the foreign key by which a row
//! went may be gone. So a catalogue that says otherwise than the one before describes changes only once the stream has
//! passed a log end that was read after it; and none does once the stream has told of DDL.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use freshet_types::{Cascade, Cell, Change, End, TableId};

use crate::mysql::MySql;

impl MySql {
    /// The number of a table, however its name is spelled: under `lower_case_table_names` DDL may name it otherwise than
    /// the catalogue. Where names differ by case alone, such tables share a number and none of them is cached.
    pub fn table_id(&self, schema: &str, name: &str) -> TableId {
        self.names.id(&folded(schema), &folded(name))
    }

    /// The columns of a table in their order; None if they are not known, or may be others than at the stream's position.
    pub fn columns(&self, table: TableId) -> Option<Arc<[Arc<str>]>> {
        let catalog = self.catalog.load();
        if !self.is_described() {
            return None;
        }
        Some(catalog.table(table)?.columns.iter().map(|column| column.name.clone()).collect())
    }

    /// The tables whose rows may change, by foreign keys, with these changes.
    ///
    /// What DDL has just touched holds no results that the catalogue's foreign keys must answer for, but what hangs below it
    /// may: then all tables count that rows can cascade to.
    pub fn cascades(&self, changes: &[Change]) -> HashSet<TableId> {
        let catalog = self.catalog.load();
        if catalog.cascades.is_empty() {
            return HashSet::new();
        }
        let described = self.is_described();
        let mut tables = HashSet::new();
        for change in changes.iter().filter(|change| !matches!(change, Change::Insert { .. })) {
            if !described {
                return catalog.cascades.values().flat_map(|cascade| &cascade.tables).copied().collect();
            }
            let cascade = catalog.cascades.get(&change.table()).filter(|cascade| may_cascade(cascade, change));
            tables.extend(cascade.into_iter().flat_map(|cascade| &cascade.tables));
        }
        tables
    }

    /// The catalogue in use describes changes behind this position only.
    pub(crate) fn describe_from(&self, end: End) {
        *self.described_from.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// Whether the catalogue in use describes the change that the stream is at.
    fn is_described(&self) -> bool {
        let from = *self.described_from.lock().unwrap_or_else(PoisonError::into_inner);
        from.is_none_or(|end| self.cache.has_passed(end)) && !self.cache.wants_catalog()
    }
}

/// In lower case, character by character, as the servers fold names.
fn folded(name: &str) -> String {
    name.chars().filter_map(|character| character.to_lowercase().next()).collect()
}

/// Whether the foreign keys that refer to the table change rows elsewhere with this.
fn may_cascade(cascade: &Cascade, change: &Change) -> bool {
    let Change::Update { relation, old, new } = change else { return true };
    let same = |column: &str| {
        let at = relation.position(column)?;
        let (old, new) = (old.get(at)?, new.get(at)?);
        Some(*new == Cell::Unchanged || (old == new && *old != Cell::Absent))
    };
    !cascade.columns.iter().all(|column| same(column).unwrap_or(false))
}
