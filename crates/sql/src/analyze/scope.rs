//! Names within one SELECT block: its table references and the meaning of column names.

use std::ops::Range;
use std::sync::Arc;

use freshet_types::{Column, Reason, Table};
use sqlparser::ast::{Ident, ObjectName, TableAlias};

use crate::allowlist::types::{TypeClass, type_class};
use crate::analyze::shown::{Shown, ShownColumn};
use crate::analyze::{Outcome, Walk, absent};

/// One item of a FROM clause.
#[derive(Debug)]
pub(crate) struct Reference {
    /// The name that qualifies its columns.
    pub(crate) alias: String,
    /// The schema that may qualify it: only if it has no alias.
    pub(crate) schema: Option<Arc<str>>,
    pub(crate) source: Source,
    /// An outer join of the block may replace its columns by NULLs.
    pub(crate) nullable: bool,
    /// The table that it reads, even if its columns are renamed here.
    pub(crate) table: Option<Arc<Table>>,
    /// The columns of a sub-select, or of a view's query, as far as they are known.
    pub(crate) shown: Shown,
}

impl Reference {
    /// The column of a view whose query was walked.
    pub(crate) fn of_view(&self, column: &Column) -> Option<&ShownColumn> {
        self.shown.column(|name| *name == *column.name)
    }

    /// Whether the names of all its columns are known.
    pub(crate) fn is_named(&self) -> bool {
        match self.source {
            Source::Table { .. } => true,
            Source::Opaque => self.shown.is_named(),
        }
    }
}

/// The source of a FROM item.
#[derive(Debug)]
pub(crate) enum Source {
    /// A relation with known columns. Its rows are those of the tables in these places among the references of the whole statement.
    Table { table: Arc<Table>, places: Range<usize> },
    /// A sub-select, common table expression, function, or a table with renamed columns: its columns are not known.
    Opaque,
}

/// A SELECT block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) references: Vec<Reference>,
    /// Columns that USING merges: an unqualified name of one belongs to no single table.
    pub(crate) merged: Vec<String>,
    /// A NATURAL join merges columns that are not listed.
    pub(crate) natural: bool,
    /// MySQL: the case of ASCII letters does not matter in names of columns.
    pub(crate) folds_columns: bool,
}

/// The meaning of a column name.
pub(crate) enum Meaning<'b> {
    /// The column of a table reference of the block (its place in the block, and the column).
    Column(usize, &'b Column),
    /// The column of a sub-select in the block.
    Shown(usize, &'b ShownColumn),
    /// A column of an item with unknown columns.
    Opaque,
    /// The qualifier is a table of the block that has no such column.
    NoColumn,
    /// No item of this block is known to have it.
    Elsewhere,
}

/// The parts of a column name: at most schema, qualifier and name. None if there are more.
pub(crate) fn parts(idents: &[Ident]) -> Option<(Option<&str>, Option<&str>, &str)> {
    match idents {
        [name] => Some((None, None, &name.value)),
        [alias, name] => Some((None, Some(&alias.value), &name.value)),
        [schema, alias, name] => Some((Some(&schema.value), Some(&alias.value), &name.value)),
        _ => None,
    }
}

impl Block {
    /// The meaning of a column name here. PostgreSQL refuses ambiguous names, so an unqualified name belongs to the only table that has it, even if
    /// columns of other items are not known.
    pub(crate) fn meaning(&self, idents: &[Ident]) -> Meaning<'_> {
        match parts(idents) {
            Some((schema, Some(alias), name)) => self.qualified(schema, alias, name),
            Some((_, None, name)) => self.unqualified(name),
            None => Meaning::Elsewhere,
        }
    }

    /// Whether an unqualified name is both a table reference of the block and a column of that one alone.
    pub(crate) fn names_own_column(&self, idents: &[Ident]) -> bool {
        let is = |alias: &str| idents.last().is_some_and(|name| name.value == alias);
        match self.meaning(idents) {
            Meaning::Column(place, _) => self.references.get(place).is_some_and(|reference| is(&reference.alias)),
            _ => false,
        }
    }

    pub(crate) fn same(&self, a: &str, b: &str) -> bool {
        if self.folds_columns { a.eq_ignore_ascii_case(b) } else { a == b }
    }

    fn column<'t>(&self, table: &'t Table, name: &str) -> Option<&'t Column> {
        table.columns.iter().find(|column| self.same(&column.name, name))
    }

    /// A column of an item by its name.
    fn meaning_in(&self, place: usize, name: &str) -> Meaning<'_> {
        let Some(reference) = self.references.get(place) else { return Meaning::Elsewhere };
        match &reference.source {
            Source::Opaque => match reference.shown.column(|shown| self.same(shown, name)) {
                Some(column) => Meaning::Shown(place, column),
                None => Meaning::Opaque,
            },
            Source::Table { table, .. } => match self.column(table, name) {
                Some(column) => Meaning::Column(place, column),
                None => Meaning::NoColumn,
            },
        }
    }

    /// The only column with this name among some items, if the columns of all of them are known.
    pub(crate) fn only_column(&self, name: &str, items: Range<usize>) -> Option<Meaning<'_>> {
        let mut found = None;
        for (place, reference) in items.clone().zip(self.references.get(items)?) {
            match (self.meaning_in(place, name), &found) {
                (meaning @ (Meaning::Column(..) | Meaning::Shown(..)), None) => found = Some(meaning),
                (Meaning::Column(..) | Meaning::Shown(..), Some(_)) => return None,
                _ if reference.is_named() => {}
                _ => return None,
            }
        }
        found
    }

    fn qualified(&self, schema: Option<&str>, alias: &str, name: &str) -> Meaning<'_> {
        let mut found = self.references.iter().enumerate().filter(|(_, reference)| {
            reference.alias == alias && schema.is_none_or(|s| reference.schema.as_deref() == Some(s))
        });
        match (found.next(), found.next()) {
            (None, _) => Meaning::Elsewhere,
            (Some((place, _)), None) => self.meaning_in(place, name),
            (Some(_), Some(_)) => Meaning::Opaque,
        }
    }

    fn unqualified(&self, name: &str) -> Meaning<'_> {
        if self.natural || self.merged.iter().any(|merged| self.same(merged, name)) {
            return Meaning::Opaque;
        }
        let known = |is: fn(&Meaning<'_>) -> bool| {
            let meanings = (0..self.references.len()).map(|place| self.meaning_in(place, name));
            let mut found = meanings.filter(is);
            let first = found.next();
            let several = found.next().is_some();
            first.map(|meaning| if several { Meaning::Opaque } else { meaning })
        };
        known(|meaning| matches!(meaning, Meaning::Column(..)))
            .or_else(|| known(|meaning| matches!(meaning, Meaning::Shown(..))))
            .unwrap_or(Meaning::Elsewhere)
    }
}

/// The values of a column definition list are read from texts in the data.
fn defined_columns(alias: &TableAlias) -> Outcome {
    for data_type in alias.columns.iter().filter_map(|column| column.data_type.as_ref()) {
        match type_class(data_type) {
            Some(TypeClass::Plain | TypeClass::Tagged(_)) => {}
            Some(TypeClass::DateTime) => return Err(Reason::Construct(DATE_IN_LIST)),
            None => return Err(Reason::Construct("a type of that name in a column definition list")),
        }
    }
    Ok(())
}

/// A text in JSON may be `today`.
const DATE_IN_LIST: &str =
    "a date or time in a column definition list, which may be a word such as 'now' (define the column as text)";

impl Walk<'_> {
    pub(crate) fn refer_opaque(&mut self, alias: Option<&TableAlias>, name: Option<&ObjectName>) -> Outcome {
        absent(alias.is_none_or(|alias| alias.at.is_none()), "AT in an alias")?;
        alias.map_or(Ok(()), defined_columns)?;
        for column in alias.iter().flat_map(|alias| &alias.columns) {
            self.mentioned.given(&column.name.value);
        }
        let own_name = || name?.0.last()?.as_ident().map(|ident| ident.value.clone());
        let alias = alias.map(|alias| alias.name.value.clone()).or_else(own_name).unwrap_or_default();
        self.mentioned.given(&alias);
        let shown = Shown::default();
        self.refer(Reference { alias, schema: None, table: None, shown, nullable: false, source: Source::Opaque })
    }

    pub(crate) fn refer(&mut self, reference: Reference) -> Outcome {
        let block = self.scope.blocks.last_mut().ok_or(Reason::Construct("a FROM item outside a query"))?;
        block.references.push(reference);
        Ok(())
    }
}

/// Whether the qualifier may be an alias of the block in another case, which MySQL's servers may fold.
pub(crate) fn has_similar(block: &Block, idents: &[Ident]) -> bool {
    let [.., qualifier, _] = idents else { return true };
    block.references.iter().any(|reference| reference.alias.eq_ignore_ascii_case(&qualifier.value))
}
