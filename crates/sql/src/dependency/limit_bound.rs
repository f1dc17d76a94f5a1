//! Rows behind the last one that `ORDER BY … LIMIT` shows do not matter, and the answer itself says where that is.
//!
//! # Why this is sound
//!
//! Let R be a table reference of the outermost block, `R.b` the first sort key, LIMIT k with or without OFFSET o, and let the
//! answer have k rows. Let B be the key of the last of them, and T any sound predicate of R. Then `T AND R.b` *no further than
//! B* is a sound predicate of R:
//!
//! * What is sorted are joined rows, each with the key of the row of R in it, whatever else is joined. At least o + k of them
//!   have a key no further than B, and the answer is made of the first o + k.
//! * A joined row with such a key holds a row of R with such a key, for which T is true if WHERE is. As long as none of those
//!   changes, comes or goes, these joined rows are the same: the first o + k of them, too. What a row of R further behind adds
//!   or takes away is sorted behind them.
//!
//! So T need not be all that WHERE says: a row that comes to satisfy what T leaves out has a new image, and that is what counts.
//! T may be any row. Nor does it matter where LIMIT comes from, or how large OFFSET is: the answer's last row is the bound. If
//! there are fewer rows than k, what is further behind would be shown: then T alone is the predicate.
//!
//! The answer is of one snapshot, and the fill began before it: a commit that the answer does not reflect and that touches rows
//! up to B is found among those that raced the fill, as with all deferred tags.
//!
//! * **Ties** are within: the bound is included.
//! * **NULLs** come first or last. Where they come first a row of NULL matters always; if the last row's key is NULL itself, those
//!   alone do, or, where they come last, all rows.
//! * **Outer joins.** A row of R behind B must not be the reason why a joined row with NULLs in its place does not exist: R is
//!   on no nullable side.
//! * **Keys that lead from R to others** (`join_keys.rs`) are read from the rows up to B, or from more. By the above the statement is what it
//!   were with `R.b` *no further than B* in its WHERE, as long as nothing changes that its tags name: its first o + k joined rows are
//!   made of rows of R up to B, and of rows that meet these.
//! * **GROUP BY**, if the key is one of its columns: a group is made of rows that have its key. So are the rows that DISTINCT makes
//!   one, since the key is shown, and those that a function makes of one.
//! * **Not with** window functions, which look at rows behind; nor aggregates without GROUP BY, which PostgreSQL refuses beside a
//!   plain column, and MySQL need not; nor set operations. Nor if FOUND_ROWS() is to tell how many rows there are.
//! * **Types** whose order is that of their order keys, and whose values the answer shows exactly: no floats, which servers
//!   round where they show them; no texts of MySQL, of which `max_sort_length` decides how much is compared.

use freshet_types::{Columns, ComparedColumn, RowSet, TableId, Tag, Term, Test, Value, ValueType};

use crate::allowlist::types::oid;
use crate::analysis::{Cut, Order, ReadSet, RowLimit};
use crate::dependency::answer::{Field, up_to};
use crate::dependency::derived_limit::Furthest;
use crate::lex::literal::{Literal, LiteralKind};
use crate::predicate::bind::{self, Rows};
use crate::predicate::parameters::{ParameterValue, Params};

/// The rows of one table that matter, once the last row of the answer is known.
#[derive(Clone, Debug)]
pub struct Top {
    table: TableId,
    columns: Columns,
    rows: Rows,
    cut: Cut,
    limit: u64,
    /// Texts of the answer are in UTF-8.
    utf8: bool,
}

impl Top {
    /// The column of the answer that tells it.
    pub fn column(&self) -> usize {
        self.cut.at
    }

    /// The reference whose rows it tells of.
    pub(crate) fn place(&self) -> usize {
        self.cut.place
    }

    /// What finds the last row of the page that it tells of, if the answer's last row is not that one.
    pub(crate) fn page(&self) -> Option<Furthest> {
        let Self { cut, limit, utf8, .. } = self;
        (!cut.page.is_empty()).then(|| Furthest { cut: cut.clone(), limit: *limit, utf8: *utf8 })
    }

    /// The column that its rows are sorted by.
    pub(crate) fn sorted_by(&self) -> &ComparedColumn {
        &self.cut.column
    }

    /// The tags of an answer of so many rows, the last of which holds these values.
    pub fn deferred_tags(&self, rows: u64, last: &[Field<'_>]) -> Vec<Tag> {
        self.conjunctions(rows, last).into_iter().map(|terms| self.tag(terms)).collect()
    }

    /// What the rows have that matter then: one of these conjunctions. An empty one: any row.
    pub(crate) fn conjunctions(&self, rows: u64, last: &[Field<'_>]) -> Vec<Vec<Term>> {
        let any = [Vec::new()];
        let conjunctions = self.rows.as_deref().unwrap_or(&any);
        let Some(tests) = self.bound(rows, last) else { return conjunctions.to_vec() };
        tests.iter().flat_map(|test| conjunctions.iter().filter_map(|terms| self.with(terms, test))).collect()
    }

    /// Of which its key passes one; None: the answer does not say how far its rows reach.
    pub(crate) fn bound(&self, rows: u64, last: &[Field<'_>]) -> Option<Vec<Test>> {
        let is_full = rows >= self.limit && last.len() == self.cut.width;
        last.get(self.cut.at).filter(|_| is_full).and_then(|field| self.tests(*field))
    }

    /// Where the rows are that matter if this is the last one's key; None: anywhere.
    fn tests(&self, last: Field<'_>) -> Option<Vec<Test>> {
        let Cut { column, descending, nulls_first, .. } = &self.cut;
        up_to(column, Order { descending: *descending, nulls_first: *nulls_first }, last, self.utf8)
    }

    /// The conjunction with the test; None if no row passes both.
    fn with(&self, terms: &[Term], test: &Test) -> Option<Vec<Term>> {
        let column = &self.cut.column;
        let mut terms = terms.to_vec();
        let mut known = terms.iter().filter(|term| term.column == *column).map(|term| &term.test);
        let passes_none = match test {
            Test::Null => known.any(|known| !known.may_pass_null()),
            _ => known.any(|known| *known == Test::Null),
        };
        if passes_none {
            return None;
        }
        match terms.iter_mut().find(|term| term.column == *column && bind::finds(&term.test)) {
            Some(known) => known.test = bind::both(known.test.clone(), test.clone()),
            None => terms.push(Term { column: column.clone(), test: test.clone() }),
        }
        terms.sort_unstable_by(|a, b| a.column.cmp(&b.column));
        Some(terms)
    }

    fn tag(&self, terms: Vec<Term>) -> Tag {
        let rows = if terms.is_empty() { RowSet::Any } else { RowSet::Where(terms.into()) };
        Tag { table: self.table, rows, columns: self.columns.clone() }
    }
}

impl ReadSet {
    /// What the answer's last row will tell, if this execution has a limit.
    pub(crate) fn top(&self, rows: &[Rows], params: Params<'_>) -> Option<Top> {
        let cut = self.limits.cut.clone()?;
        let reference = self.references.get(cut.place)?;
        let limit = self.rows_max(cut.limit, params).filter(|limit| *limit > 0)?;
        let (table, columns) = (reference.table.id, reference.columns.clone());
        Some(Top { table, columns, rows: rows.get(cut.place)?.clone(), cut, limit, utf8: params.client.utf8 })
    }

    /// The number of rows; None: none is given, or not as a plain number.
    pub(crate) fn rows_max(&self, limit: RowLimit, params: Params<'_>) -> Option<u64> {
        let Some(number) = limit else { return Some(1) };
        let param = params.get_number(number)?;
        let digits = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        match param.value {
            ParameterValue::Text(text) => digits(text),
            ParameterValue::Literal(Literal { kind: LiteralKind::Number, text }) => digits(text),
            ParameterValue::Integer(number) => number.try_into().ok(),
            ParameterValue::Binary(bytes) => {
                // Another use of it may have made it a float.
                let integer = match param.declared_type {
                    0 | oid::UNKNOWN => self.usages.get(&number)?.count == 1,
                    declared => matches!(declared, oid::INT2 | oid::INT4 | oid::INT8),
                };
                match ValueType::Int.normalise_binary(bytes).filter(|_| integer)? {
                    Value::Int(number) => number.try_into().ok(),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// For people: the column that bounds the rows of the reference, if the answer's last row says so. The first `unknown` parameters are not
    /// known yet.
    pub(crate) fn described_cut(&self, place: usize, params: Params<'_>, unknown: u16) -> Option<&ComparedColumn> {
        let cut = self.limits.cut.as_ref().filter(|cut| cut.place == place)?;
        self.may_limit(cut.limit, params, unknown).then_some(&cut.column)
    }

    /// For people: whether there is a limit, or may be one.
    pub(crate) fn may_limit(&self, limit: RowLimit, params: Params<'_>, unknown: u16) -> bool {
        let is_open = params.values.is_empty() || limit.is_some_and(|number| number <= u32::from(unknown));
        is_open || self.rows_max(limit, params).is_some_and(|limit| limit > 0)
    }
}
