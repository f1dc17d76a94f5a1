//! What a cached result depends on.
//!
//! For each table reference of a query a predicate T such that leaving the rows that satisfy T unchanged
//! leaves the result unchanged. A row change hits if the old or the new row satisfies T. [`RowSet::Any`]
//! always suffices, so correctness never depends on cleverness; precision does. Ranges and key sets read by
//! lineage queries will be further variants.

use std::sync::Arc;

use crate::{TableId, Value, ValueType};

/// The rows of one table that a result depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The table.
    pub table: TableId,
    /// Which of its rows.
    pub rows: RowSet,
}

/// A predicate over the rows of one table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowSet {
    /// Any row.
    Any,
    /// Rows in which all these columns equal these values; sorted by column name, each name once.
    Point(Box<[(PointColumn, Value)]>),
}

/// A column that a point predicate compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointColumn {
    /// Its name, in the catalogue's spelling.
    pub name: Arc<str>,
    /// How its values compare.
    pub value_type: ValueType,
}
