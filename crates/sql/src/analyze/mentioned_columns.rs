//! The columns that a statement mentions: an update that changes none of them does not change its result.
//!
//! The table of a name is not determined: a column is mentioned if its name occurs anywhere in the statement, with any qualifier. All columns are
//! mentioned if a name may stand for several: `*`, NATURAL joins, whole rows, names that no table has (`_rowid`), and names that the servers may fold
//! in ways that are not known here.
//!
//! Columns that only the list of the outermost SELECT mentions affect the contents of a row of the answer, not which rows are in it. The other
//! columns are the selecting columns (`dependency/result_keys.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use freshet_types::{Columns, Table};

/// The names in a statement.
#[derive(Debug, Default)]
pub(crate) struct Mentioned {
    anywhere: Names,
    /// The names outside the outermost list.
    selecting: Names,
    /// The walk is in that list.
    pub(crate) in_list: bool,
    /// Unqualified names: those that mean a whole row only if they are not a column of it, and others.
    own: BTreeSet<String>,
    bare: BTreeSet<String>,
    /// Names and aliases of tables, which may stand for whole rows; and those that several tables have.
    rows: BTreeSet<String>,
    shared: BTreeSet<String>,
    /// Aliases of expressions.
    given: BTreeSet<String>,
    /// MySQL: the case of ASCII letters does not matter in names of columns.
    folds: bool,
}

/// Names of columns.
#[derive(Debug, Default)]
struct Names {
    names: BTreeSet<String>,
    /// Any column may be meant.
    all: bool,
}

impl Mentioned {
    pub(crate) fn new(folds: bool) -> Self {
        Self { folds, ..Self::default() }
    }

    /// Notes that any column may be meant.
    pub(crate) fn all(&mut self) {
        self.anywhere.all = true;
        self.selecting.all |= !self.in_list;
    }

    pub(crate) fn name(&mut self, name: &str) {
        if !name.is_ascii() {
            self.all();
        }
        let name = self.folded(name);
        if !self.in_list {
            self.selecting.names.insert(name.clone());
        }
        self.anywhere.names.insert(name);
    }

    /// The same without a qualifier. `own`: the table with this name has a column with this name, which takes precedence over its row.
    pub(crate) fn bare(&mut self, name: &str, own: bool) {
        self.name(name);
        if own { &mut self.own } else { &mut self.bare }.insert(name.to_owned());
    }

    pub(crate) fn row(&mut self, alias: &str) {
        if !self.rows.insert(alias.to_owned()) {
            self.shared.insert(alias.to_owned());
        }
    }

    pub(crate) fn given(&mut self, alias: &str) {
        self.given.insert(self.folded(alias));
    }

    fn folded(&self, name: &str) -> String {
        if self.folds { name.to_ascii_lowercase() } else { name.to_owned() }
    }

    /// Determines which names may stand for several columns, with all relations of the statement known.
    pub(crate) fn settle<'t>(&mut self, relations: impl Iterator<Item = &'t Arc<Table>>) {
        let rows = !self.bare.is_disjoint(&self.rows) || !self.own.is_disjoint(&self.shared);
        let whole_rows = !self.folds && rows;
        let columns = relations.flat_map(|relation| &relation.columns);
        let columns: BTreeSet<String> = columns.map(|column| self.folded(&column.name)).collect();
        let known = |name: &String| self.given.contains(name) || columns.contains(name);
        self.selecting.all |= whole_rows || !self.selecting.names.iter().all(known);
        self.anywhere.all |= whole_rows || !self.anywhere.names.iter().all(known);
    }

    /// The columns of one table.
    pub(crate) fn of(&self, table: &Table) -> Columns {
        self.among(&self.anywhere, table)
    }

    /// The selecting columns of one table.
    pub(crate) fn selecting(&self, table: &Table) -> Columns {
        self.among(&self.selecting, table)
    }

    fn among(&self, Names { names, all }: &Names, table: &Table) -> Columns {
        let maybe = |name: &str| names.contains(&self.folded(name)) || (self.folds && !name.is_ascii());
        let mentioned = || table.columns.iter().filter(|column| maybe(&column.name));
        if *all || mentioned().any(|column| column.generated) {
            return Columns::All;
        }
        let mut names: Vec<Arc<str>> = mentioned().map(|column| column.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        Columns::Only(names.into())
    }
}
