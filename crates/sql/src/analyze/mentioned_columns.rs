//! The columns that a statement mentions: an update that leaves all of them as they were leaves its result as it was.
//!
//! Which table a name belongs to is not asked: a column is mentioned if its name stands anywhere in the statement, behind
//! whatever qualifier. All columns are, wherever a name may stand for more than one: `*`, NATURAL joins, whole rows, names
//! that no table has (`_rowid`) and names that the servers may fold in ways that are not known here.
//!
//! Columns that the list of the outermost SELECT alone mentions decide what is shown of a row, and not which rows are: the others
//! select (`dependency/result_keys.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use freshet_types::{Columns, Table};

/// The names in a statement.
#[derive(Debug, Default)]
pub(crate) struct Mentioned {
    anywhere: Names,
    /// Those outside of the outermost list.
    selecting: Names,
    /// The current place is in that list.
    pub(crate) in_list: bool,
    /// Unqualified names: those that would be a whole row only if they were no column of it, and others.
    own: BTreeSet<String>,
    bare: BTreeSet<String>,
    /// Names of tables, or their aliases, that may stand for whole rows; and those that more than one has.
    rows: BTreeSet<String>,
    shared: BTreeSet<String>,
    /// Names that the statement gives to values: aliases.
    given: BTreeSet<String>,
    /// Names of columns are the same in any case of ASCII letters: MySQL.
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

    /// Any column may be meant.
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

    /// The same without a qualifier; `own`: a column of the table of that name, which comes before its row.
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

    /// Settles which names may stand for more than themselves, all relations of the statement given.
    pub(crate) fn settle<'t>(&mut self, relations: impl Iterator<Item = &'t Arc<Table>>) {
        let rows = !self.bare.is_disjoint(&self.rows) || !self.own.is_disjoint(&self.shared);
        let whole_rows = !self.folds && rows;
        let columns = relations.flat_map(|relation| &relation.columns);
        let columns: BTreeSet<String> = columns.map(|column| self.folded(&column.name)).collect();
        let known = |name: &String| self.given.contains(name) || columns.contains(name);
        self.selecting.all |= whole_rows || !self.selecting.names.iter().all(known);
        self.anywhere.all |= whole_rows || !self.anywhere.names.iter().all(known);
    }

    /// Those of one table.
    pub(crate) fn of(&self, table: &Table) -> Columns {
        self.among(&self.anywhere, table)
    }

    /// Those of one table that decide which of its rows are in the answer.
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
