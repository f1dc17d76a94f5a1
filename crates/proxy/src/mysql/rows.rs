//! Facts about row changes that are in the catalogue, not in the binlog: the names of columns, and the rows that foreign keys change.
//!
//! The catalogue may be newer than the change: it is read from the database while the stream is still before a DDL statement that it shows. A row
//! image with its names could have the wrong ones, and the foreign key by which a row was deleted may have been dropped. So a catalogue that differs
//! from the previous one describes changes only once the stream has passed a log end that was read after it. No catalogue describes changes once the
//! stream has delivered DDL, until a newer one is in use.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use freshet_types::{Cascade, Cell, Change, End, TableId};

use crate::mysql::MySql;

impl MySql {
    /// The id of a table, whatever the spelling of its name: under `lower_case_table_names` DDL may spell it differently from the catalogue. If names
    /// differ only in case, these tables share an id and none of them is cached.
    pub fn table_id(&self, schema: &str, name: &str) -> TableId {
        self.names.id(&folded(schema), &folded(name))
    }

    /// The columns of a table in order; None if they are not known, or may differ at the stream's position.
    pub fn columns(&self, table: TableId) -> Option<Arc<[Arc<str>]>> {
        let catalog = self.catalog.load();
        if !self.is_described() {
            return None;
        }
        Some(catalog.table(table)?.columns.iter().map(|column| column.name.clone()).collect())
    }

    /// The tables whose rows may change, by foreign keys, with these changes.
    ///
    /// A table that DDL has just redefined has no results that depend on the catalogue's foreign keys, but tables below it may: then all tables count
    /// that rows can cascade to.
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

    /// The catalogue in use describes only changes behind this position.
    pub(crate) fn describe_from(&self, end: End) {
        *self.described_from.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// Whether the catalogue in use describes the change at the stream's position.
    fn is_described(&self) -> bool {
        let from = *self.described_from.lock().unwrap_or_else(PoisonError::into_inner);
        from.is_none_or(|end| self.cache.has_passed(end)) && !self.cache.wants_catalog()
    }
}

/// In lower case, character by character, as the servers fold names.
fn folded(name: &str) -> String {
    name.chars().filter_map(|character| character.to_lowercase().next()).collect()
}

/// Whether the foreign keys that refer to the table change rows elsewhere with this change.
fn may_cascade(cascade: &Cascade, change: &Change) -> bool {
    let Change::Update { relation, old, new } = change else { return true };
    let same = |column: &str| {
        let at = relation.position(column)?;
        let (old, new) = (old.get(at)?, new.get(at)?);
        Some(*new == Cell::Unchanged || (old == new && *old != Cell::Absent))
    };
    !cascade.columns.iter().all(|column| same(column).unwrap_or(false))
}
