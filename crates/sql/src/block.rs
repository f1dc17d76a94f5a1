//! Names within one SELECT block: its table references and what a column name means among them.

use std::sync::Arc;

use freshet_model::{Column, Table};
use sqlparser::ast::Ident;

/// One item of a FROM clause.
#[derive(Debug)]
pub(crate) struct Reference {
    /// The name that qualifies its columns.
    pub(crate) alias: String,
    /// The schema it can be qualified with: only if it has no alias.
    pub(crate) schema: Option<Arc<str>>,
    pub(crate) source: Source,
}

/// What a FROM item reads.
#[derive(Debug)]
pub(crate) enum Source {
    /// A table; `index` is its place among the table references of the whole statement.
    Table { table: Arc<Table>, index: usize },
    /// A sub-select, common table expression, function, or a table with renamed columns: its columns are not known.
    Opaque,
}

/// A SELECT block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) references: Vec<Reference>,
    /// Columns that USING merges: unqualified, they belong to no single table.
    pub(crate) merged: Vec<String>,
    /// A NATURAL join merges columns that are not listed.
    pub(crate) natural: bool,
}

/// What a column name means.
pub(crate) enum Meaning<'b> {
    /// The column of a table reference of the block (its place in the block, and the column).
    Column(usize, &'b Column),
    /// A column of something whose columns are not known.
    Opaque,
    /// A name that qualifies with a table of the block, which has no such column.
    NoColumn,
    /// Nothing in this block is known to have it.
    Elsewhere,
}

/// The parts of a column name: at most schema, qualifier and name. None: more parts.
pub(crate) fn parts(idents: &[Ident]) -> Option<(Option<&str>, Option<&str>, &str)> {
    match idents {
        [name] => Some((None, None, &name.value)),
        [alias, name] => Some((None, Some(&alias.value), &name.value)),
        [schema, alias, name] => Some((Some(&schema.value), Some(&alias.value), &name.value)),
        _ => None,
    }
}

impl Block {
    /// What a column name means here. PostgreSQL refuses ambiguous names, so an unqualified one that a single
    /// table has is that table's, even if columns of other items are not known.
    pub(crate) fn meaning(&self, idents: &[Ident]) -> Meaning<'_> {
        match parts(idents) {
            Some((schema, Some(alias), name)) => self.qualified(schema, alias, name),
            Some((_, None, name)) => self.unqualified(name),
            None => Meaning::Elsewhere,
        }
    }

    fn qualified(&self, schema: Option<&str>, alias: &str, name: &str) -> Meaning<'_> {
        let mut found = self.references.iter().enumerate().filter(|(_, reference)| {
            reference.alias == alias && schema.is_none_or(|s| reference.schema.as_deref() == Some(s))
        });
        match (found.next(), found.next()) {
            (None, _) => Meaning::Elsewhere,
            (Some((place, reference)), None) => match &reference.source {
                Source::Opaque => Meaning::Opaque,
                Source::Table { table, .. } => match table.column(name) {
                    Some(column) => Meaning::Column(place, column),
                    None => Meaning::NoColumn,
                },
            },
            (Some(_), Some(_)) => Meaning::Opaque,
        }
    }

    fn unqualified(&self, name: &str) -> Meaning<'_> {
        if self.natural || self.merged.iter().any(|merged| merged == name) {
            return Meaning::Opaque;
        }
        let mut found = self.references.iter().enumerate().filter_map(|(place, reference)| match &reference.source {
            Source::Table { table, .. } => Some((place, table.column(name)?)),
            Source::Opaque => None,
        });
        match (found.next(), found.next()) {
            (None, _) => Meaning::Elsewhere,
            (Some((place, column)), None) => Meaning::Column(place, column),
            (Some(_), Some(_)) => Meaning::Opaque,
        }
    }
}
