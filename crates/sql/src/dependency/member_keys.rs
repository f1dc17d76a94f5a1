//! Rows that go are told by the keys of all rows that matter, where images of old rows say little and the answer does not show them.
//!
//! PostgreSQL logs of an old row the columns of the replica identity alone, unless that is FULL; so does MySQL under `binlog_row_image =
//! MINIMAL`. `SELECT count(*) FROM post WHERE author_id = 5` then goes with each update and each delete anywhere in the table. The answer does
//! not show its rows' keys (`result_keys.rs`), as with aggregates, GROUP BY, DISTINCT, OFFSET, sub-selects, nullable sides. So they are read: the keys of all
//! rows of the reference that satisfy its predicate T, by the statement that reads the keys of rows that lead to others (`join_keys.rs`).
//!
//! # Why this is sound
//!
//! Let R be a table reference, T a sound predicate of it, and K the values of the identity's columns in all rows of σ_T(R). The result
//! stays what it is unless a row comes to satisfy T, or changes within it, or goes from it. Then:
//!
//! * Whatever comes to satisfy T has a new image that does, and in which a column that T compares, or the key, changed: [`RowSet::Enters`].
//!   New images are whole, but for what did not change, which passes every test.
//! * Whatever changes within T, or goes from it, is a row of σ_T(R). Its key is in K, or it came after K was read.
//!
//! **K is read later than the answer**, and a row that went between the two readings is in K no more. Such a commit was delivered before the stream
//! passed an end of the log that was read behind K. So until then the fill stays one, commits are held against T as without all this,
//! where what an old image lacks passes, and each that is hit must be in the fill's proof: `set_members` in the cache. Whatever is delivered later
//! is not in K's snapshot, and meets both tags. The simulator has both rules and finds a stale answer without either of them.
//!
//! More rows may be asked for than T leaves: more keys are more rows. So T is written as far as it can be (`key_conditions.rs`), and a reference that is
//! reached by keys of others (`join_path.rs`) is joined to them in the same statement, hence in the same snapshot as these keys.
//!
//! A composite identity is told column by column, a superset. Tags of K mention the identity's columns, too: an update of the key alone
//! changes no answer, but makes K another.
//!
//! More than [`KEYS_MAX`](crate::dependency::key_query::KEYS_MAX) of them, or one without a normal form: T is tested on old and new images.

use std::collections::BTreeSet;
use std::sync::Arc;

use freshet_types::{Columns, ComparedColumn, NamedRows, ReplicaIdentity, RowSet, Table, TableId, Tag, Term, Test};

use crate::analysis::{ReadSet, TableReference};
use crate::dependency::join_path::Ways;
use crate::dependency::key_query::{Key, Select, values_of};
use crate::predicate::bind::{self, Rows};
use crate::predicate::key_types::{compare_alike, compare_by_keys};

/// For people.
pub(crate) const BY_THEIR_KEYS: &str = ", by the keys of these rows";

/// Rows of a table reference that are told by their own keys.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    table: TableId,
    rows: Matching,
    /// The columns of the replica identity.
    key: Vec<ComparedColumn>,
    /// The number of the question for the first of them; the others follow.
    number: usize,
    /// The SELECTs that find the rows, their key being the name of the table; none: they are not asked for.
    selects: Vec<Select>,
    /// The columns that the statement mentions.
    columns: Columns,
}

/// What rows pass.
#[derive(Clone, Debug)]
pub(crate) enum Matching {
    /// One of these conjunctions.
    Constants(Vec<Vec<Term>>),
    /// What the part with this number tells.
    Part(usize),
}

impl Members {
    /// The rows of this reference, asked for by questions from this number on.
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

    /// The part that tells what rows pass.
    pub(crate) fn part(&self) -> Option<usize> {
        if let Matching::Part(number) = self.rows { Some(number) } else { None }
    }

    pub(crate) fn selects(&self) -> &[Select] {
        &self.selects
    }

    pub(crate) fn selects_mut(&mut self) -> &mut Vec<Select> {
        &mut self.selects
    }

    /// Nothing is asked.
    pub(crate) fn leave(&mut self) {
        self.selects.clear();
    }

    /// The number behind those of its questions.
    pub(crate) fn next_number(&self) -> usize {
        self.number + self.key.len()
    }

    pub(crate) fn table(&self) -> TableId {
        self.table
    }

    /// How many questions there are.
    pub(crate) fn questions(&self) -> usize {
        self.key.len()
    }

    pub(crate) fn is_asked(&self) -> bool {
        !self.selects.is_empty() && self.selects.iter().all(|select| select.bounded)
    }

    /// Which rows the tags name.
    pub(crate) fn named(&self) -> NamedRows {
        let mut key = self.key.clone();
        key.sort_unstable();
        NamedRows { table: self.table, key: key.into(), columns: self.with_key(&self.columns) }
    }

    /// Each question with its number.
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

    /// The tags of rows that pass these, or what is constant, by their keys; None: these are not known.
    pub(crate) fn tags(&self, of_part: Option<&[Term]>, rows: &[Key]) -> Option<Vec<Tag>> {
        let conjunctions: Vec<&[Term]> = match (&self.rows, of_part) {
            (_, Some(terms)) => vec![terms],
            (Matching::Constants(conjunctions), None) => conjunctions.iter().map(Vec::as_slice).collect(),
            (Matching::Part(_), None) => return None,
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
    /// The columns of the reference's replica identity, if old images hold no more and their values can be read.
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

    /// The same if old images of the reference's rows lack what one of these conjunctions asks for.
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

    /// For people: whether rows with constants that go are told by their keys.
    pub(crate) fn has_members(&self, place: usize, rows: &Rows) -> bool {
        self.wants_members(place, rows) && self.identity(place).is_some()
    }

    /// Whether they are to be, if their keys can be read.
    pub(crate) fn wants_members(&self, place: usize, rows: &Rows) -> bool {
        let is_keyed = self.limits.keyed.iter().any(|keyed| keyed.place == place);
        !is_keyed && self.lacks(place, rows.iter().flatten().map(Vec::as_slice))
    }

    /// For people: the same of rows to which keys of others lead.
    pub(crate) fn has_led_members(&self, place: usize, rows: &Rows, ways: &Ways<'_>) -> bool {
        let column = ways.reached().find(|(reached, _)| *reached == place);
        let column = column.and_then(|(_, ways)| Some(&ways.first()?.first()?.0.to_column));
        let terms = if let Some([terms]) = rows.as_deref() { terms.as_slice() } else { &[] };
        let by_key = column.map(|column| Term { column: column.clone(), test: Test::NotNull });
        let all: Vec<Term> = terms.iter().cloned().chain(by_key).collect();
        self.lacking(place, std::iter::once(&*all)).is_some()
    }
}
