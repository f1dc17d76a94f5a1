//! Member keys: leaving rows are found by the keys of all rows that matter, if old images have few columns and the answer does not show the keys.
//!
//! Of an old row, PostgreSQL logs only the columns of the replica identity, unless that is FULL. So does MySQL under `binlog_row_image = MINIMAL`. By
//! these images, each update and each delete anywhere in the table may affect `SELECT count(*) FROM post WHERE author_id = 5`. The answer does not
//! show the keys of its rows (`result_keys.rs`) with aggregates, GROUP BY, DISTINCT, OFFSET, sub-selects or nullable sides. So the keys of all rows
//! of the reference that satisfy its predicate T are read, by the same key query as other keys (`join_keys.rs`).
//!
//! # Why this is sound
//!
//! Let R be a table reference, T a sound predicate of it, and K the values of the identity's columns in all rows of σ_T(R). The result stays the same
//! unless a row enters T, changes within it, or leaves it. Then:
//!
//! * A row that enters has a new image that satisfies T, and a column that T compares, or the key, changed: [`RowSet::Enters`]. New images are
//!   complete except for unchanged values, which pass every test.
//! * A row that changes within T or leaves it is a row of σ_T(R). Its key is in K, or the row was inserted after K was read.
//!
//! **K is read later than the answer**, and a row that was deleted between the two reads is not in K. Such a commit was delivered before the stream
//! passed a log end that was read after K. So until then the fill continues: commits are tested with T as without this mechanism, where columns
//! missing in an old image pass, and each commit that matches must be in the fill's proof (`set_members` in the cache). A commit that is delivered
//! later is not in K's snapshot, and both tags are tested. The simulator has both rules and finds a stale answer without either of them.
//!
//! The key query may return more rows than T: more keys mean more rows. So T is written as far as possible (`key_conditions.rs`). A reference that is
//! found by keys of other tables (`join_path.rs`) is joined with them in the same statement, hence in the same snapshot as these keys.
//!
//! A composite identity is tested column by column, which includes more rows. Tags of K include the identity's columns, too: an update of the key
//! alone does not change the answer, but it changes K.
//!
//! If there are more than [`KEYS_MAX`](crate::dependency::key_query::KEYS_MAX) keys, or one without a normal form, T is tested on old and new images.

use std::collections::BTreeSet;
use std::sync::Arc;

use freshet_types::{Columns, ComparedColumn, NamedRows, ReplicaIdentity, RowSet, Table, TableId, Tag, Term, Test};

use crate::analysis::{ReadSet, TableReference};
use crate::dependency::join_path::JoinPaths;
use crate::dependency::key_query::{Key, Select, values_of};
use crate::predicate::bind::{self, Rows};
use crate::predicate::key_types::{compare_alike, compare_by_keys};

/// For EXPLAIN CACHE.
pub(crate) const BY_THEIR_KEYS: &str = ", by the keys of these rows";

/// A table reference of which leaving rows are found by their keys.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    table: TableId,
    rows: Matching,
    /// The columns of the replica identity.
    key: Vec<ComparedColumn>,
    /// The number of the query for the first of them; the others follow.
    number: usize,
    /// The SELECTs that find the rows; their `key` is the table's name. Empty if the keys are not read.
    selects: Vec<Select>,
    /// The columns that the statement mentions.
    columns: Columns,
}

/// The predicate of the rows.
#[derive(Clone, Debug)]
pub(crate) enum Matching {
    /// A disjunction of these conjunctions.
    Constants(Vec<Vec<Term>>),
    /// The tag of the keyed table with this number.
    Keyed(usize),
}

impl Members {
    /// The rows of this reference, whose queries are numbered from `number` on.
    pub(crate) fn of(
        reference: &TableReference,
        key: Vec<ComparedColumn>,
        rows: Matching,
        selects: Vec<Select>,
        number: usize,
    ) -> Self {
        let (table, columns) = (reference.table.id, reference.columns.clone());
        Self { table, rows, key, number, selects, columns }
    }

    /// The keyed table that has the rows' predicate.
    pub(crate) fn keyed(&self) -> Option<usize> {
        if let Matching::Keyed(number) = self.rows { Some(number) } else { None }
    }

    pub(crate) fn selects_mut(&mut self) -> &mut Vec<Select> {
        &mut self.selects
    }

    /// Stops reading the keys.
    pub(crate) fn leave(&mut self) {
        self.selects.clear();
    }

    /// The number after those of its queries.
    pub(crate) fn next_number(&self) -> usize {
        self.number + self.key.len()
    }

    pub(crate) fn table(&self) -> TableId {
        self.table
    }

    /// Bytes of the SELECTs: each is sent once for every column of the key.
    pub(crate) fn sql_bytes(&self) -> usize {
        self.selects.iter().map(Select::bytes).sum::<usize>() * self.key.len()
    }

    pub(crate) fn is_asked(&self) -> bool {
        !self.selects.is_empty() && self.selects.iter().all(|select| select.bounded)
    }

    /// The rows that the tags name.
    pub(crate) fn named(&self) -> NamedRows {
        let mut key = self.key.clone();
        key.sort_unstable();
        NamedRows { table: self.table, key: key.into(), columns: self.with_key(&self.columns) }
    }

    /// Each query with its number.
    pub(crate) fn asked(&self, quoted: impl Fn(&str) -> String) -> Vec<(usize, Select)> {
        let selects = if self.is_asked() { &self.selects[..] } else { &[] };
        let numbered = self.key.iter().zip(self.number..);
        let each = numbered.flat_map(|(column, number)| selects.iter().map(move |select| (column, number, select)));
        let of_column = |(column, number, select): (&ComparedColumn, usize, &Select)| {
            (number, Select { key: format!("{}.{}", select.key, quoted(&column.name)), ..select.clone() })
        };
        each.map(of_column).collect()
    }

    /// The tags of rows with constants if their keys are not known.
    pub(crate) fn tags_of_constants(&self) -> Vec<Tag> {
        let Matching::Constants(conjunctions) = &self.rows else { return Vec::new() };
        let tag = |terms: &Vec<Term>| self.tag(RowSet::Where(terms.as_slice().into()), self.columns.clone());
        conjunctions.iter().map(tag).collect()
    }

    /// The tags of these rows by their keys; `of_keyed` is the predicate of the keyed table. None if the keys are not known.
    pub(crate) fn tags(&self, of_keyed: Option<&[Term]>, rows: &[Key]) -> Option<Vec<Tag>> {
        let conjunctions: Vec<&[Term]> = match (&self.rows, of_keyed) {
            (_, Some(terms)) => vec![terms],
            (Matching::Constants(conjunctions), None) => conjunctions.iter().map(Vec::as_slice).collect(),
            (Matching::Keyed(_), None) => return None,
        };
        let term = |(column, number): (&ComparedColumn, usize)| {
            let values = values_of(column, number, rows)?;
            Some(Term { column: column.clone(), test: Test::In(values.into()) })
        };
        let mut keys: Vec<Term> =
            self.is_asked().then(|| self.key.iter().zip(self.number..).map(term).collect::<Option<_>>()).flatten()?;
        keys.sort_unstable_by(|a, b| a.column.cmp(&b.column));
        let is_none = keys.iter().any(|term| matches!(&term.test, Test::In(values) if values.is_empty()));
        let leaves = (!is_none).then(|| self.tag(RowSet::Where(keys.into()), self.with_key(&self.columns)));
        let selecting: BTreeSet<Arc<str>> = conjunctions.iter().flat_map(|terms| names_of(terms)).cloned().collect();
        let selecting = self.with_key(&Columns::Only(selecting.into_iter().collect()));
        let enters = |terms: &[Term]| self.tag(RowSet::Enters(terms.into()), selecting.clone());
        Some(conjunctions.into_iter().map(enters).chain(leaves).collect())
    }

    fn with_key(&self, columns: &Columns) -> Columns {
        let Columns::Only(names) = columns else { return Columns::All };
        let names: BTreeSet<&Arc<str>> = names.iter().chain(self.key.iter().map(|column| &column.name)).collect();
        Columns::Only(names.into_iter().cloned().collect())
    }

    fn tag(&self, rows: RowSet, columns: Columns) -> Tag {
        Tag { table: self.table, rows, columns }
    }
}

/// The columns that conjunctions of these terms compare.
fn names_of(terms: &[Term]) -> impl Iterator<Item = &Arc<str>> {
    fn more(test: &Test) -> &[Arc<str>] {
        match test {
            Test::OrNull(test) => more(test),
            Test::Row(test) => &test.columns,
            _ => &[],
        }
    }
    terms.iter().flat_map(|term| std::iter::once(&term.column.name).chain(more(&term.test)))
}

impl ReadSet {
    /// The columns of the reference's replica identity, if old images have no other columns and their values can be read.
    fn identity(&self, place: usize) -> Option<Vec<ComparedColumn>> {
        let table = &self.references.get(place)?.table;
        let ReplicaIdentity::Columns(names) = &table.identity else { return None };
        let column = |name: &Arc<str>| {
            let column = table.column(name).filter(|column| !column.generated)?;
            let own = column.value_type;
            let is_read = compare_alike(own, own) || compare_by_keys(own, own);
            is_read.then(|| ComparedColumn { name: column.name.clone(), value_type: own })
        };
        names.iter().map(column).collect::<Option<Vec<_>>>().filter(|key| !key.is_empty())
    }

    /// The same, if old images of the reference's rows lack a column that one of these conjunctions compares.
    pub(crate) fn lacking<'t>(
        &self,
        place: usize,
        conjunctions: impl Iterator<Item = &'t [Term]>,
    ) -> Option<Vec<ComparedColumn>> {
        self.lacks(place, conjunctions).then(|| self.identity(place)).flatten()
    }

    fn lacks<'t>(&self, place: usize, mut conjunctions: impl Iterator<Item = &'t [Term]>) -> bool {
        let table = self.references.get(place).map(|reference| &*reference.table);
        let Some(Table { identity: ReplicaIdentity::Columns(key), .. }) = table else { return false };
        let is_told =
            |terms: &[Term]| names_of(terms).all(|name| key.contains(name)) || bind::is_point(key.iter(), terms);
        !conjunctions.all(is_told)
    }

    /// For EXPLAIN CACHE: whether leaving rows with constants are found by their keys.
    pub(crate) fn has_members(&self, place: usize, rows: &Rows) -> bool {
        self.wants_members(place, rows) && self.identity(place).is_some()
    }

    /// Whether they should be, if their keys can be read.
    pub(crate) fn wants_members(&self, place: usize, rows: &Rows) -> bool {
        let is_keyed = self.limits.result_keys.iter().any(|result_key| result_key.place == place);
        !is_keyed && self.lacks(place, rows.iter().flatten().map(Vec::as_slice))
    }

    /// For EXPLAIN CACHE: the same for rows that join keys of other tables find.
    pub(crate) fn has_led_members(&self, place: usize, rows: &Rows, paths: &JoinPaths<'_>) -> bool {
        let column = paths.reached().find(|(reached, _)| *reached == place);
        let column = column.and_then(|(_, paths)| Some(&paths.first()?.first()?.0.to_column));
        let terms = if let Some([terms]) = rows.as_deref() { terms.as_slice() } else { &[] };
        let by_key = column.map(|column| Term { column: column.clone(), test: Test::NotNull });
        let all: Vec<Term> = terms.iter().cloned().chain(by_key).collect();
        self.lacking(place, std::iter::once(&*all)).is_some()
    }
}
