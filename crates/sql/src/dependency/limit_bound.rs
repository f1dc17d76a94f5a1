//! The LIMIT bound: rows that sort behind the last row of `ORDER BY … LIMIT` do not matter, and the answer itself has this row.
//!
//! # Why this is sound
//!
//! Let R be a table reference of the outermost block, `R.b` the first sort key, LIMIT k with or without OFFSET o, and let the answer have k rows. Let
//! B be the key of the last row, and T any sound predicate of R. Then `T AND R.b` *not after B* is a sound predicate of R:
//!
//! * The server sorts joined rows, each with the key of its row of R, whatever else is joined. At least o + k of them have a key not after B, and the
//!   answer is made of the first o + k.
//! * A joined row with a key not after B has a row of R with this key, for which T is true if WHERE is. As long as none of these rows of R changes,
//!   is inserted or deleted, these joined rows are the same, and so are the first o + k of them. Joined rows that a later row of R adds or removes
//!   sort behind them.
//!
//! So T need not contain all of WHERE: a row that comes to satisfy the part that T lacks has a new image, and this image is tested. T may be true of
//! any row. The value of LIMIT and OFFSET does not matter either: the bound is the answer's last row. If the answer has fewer than k rows, a row
//! further behind would be in it: then T alone is the predicate.
//!
//! The answer has one snapshot, and the fill began before it. If a commit that the answer does not reflect touches rows up to B, it is among the
//! commits that arrived during the fill, as with all deferred tags.
//!
//! * **Ties** are included: so is the bound.
//! * **NULLs** sort first or last. If they sort first, a row with NULL always matters. If the last row's key is NULL itself, only rows with NULL
//!   matter or, if they sort last, all rows.
//! * **Outer joins.** A row of R behind B must not prevent a joined row with NULLs in its place: R is on no nullable side.
//! * **Join paths from R to other tables** (`join_keys.rs`) start at the rows up to B, or at more. By the above, the statement returns the same as
//!   with `R.b` *not after B* in its WHERE, as long as nothing changes that its tags name: its first o + k joined rows are made of rows of R up to B
//!   and of rows that join these.
//! * **GROUP BY** is allowed if the key is one of its columns: all rows of a group have the key. The same holds for rows that DISTINCT merges, since
//!   the key is in the SELECT list, and for rows that a set-returning function makes of one row.
//! * **Not allowed** are window functions, which read rows behind; aggregates without GROUP BY, which PostgreSQL refuses beside a plain column, but
//!   MySQL may accept; set operations; statements after which FOUND_ROWS() is to return the total.
//! * **Types** whose order is that of their order keys, and whose values the answer contains exactly: no floats, which servers round in output; no
//!   texts of MySQL, of which `max_sort_length` decides how much is compared.

use freshet_types::{Columns, ComparedColumn, RowSet, TableId, Tag, Term, Test, Value, ValueType};

use crate::allowlist::types::oid;
use crate::analysis::{Order, ReadSet, RowLimit, SortedLimit};
use crate::dependency::answer::{Field, up_to};
use crate::dependency::derived_limit::LastRowFinder;
use crate::lex::literal::{Literal, LiteralKind};
use crate::predicate::bind::{self, Rows};
use crate::predicate::parameters::{ParameterValue, Params};

/// The LIMIT bound of a table reference: gives its tags once the last row of the answer is known.
#[derive(Clone, Debug)]
pub struct LimitBound {
    table: TableId,
    columns: Columns,
    rows: Rows,
    sorted: SortedLimit,
    limit: u64,
    /// Texts of the answer are in UTF-8.
    utf8: bool,
}

impl LimitBound {
    /// The column of the answer with the sort key.
    pub fn column(&self) -> usize {
        self.sorted.at
    }

    /// The reference that it bounds.
    pub(crate) fn place(&self) -> usize {
        self.sorted.place
    }

    /// Finds the last row of the derived table, if the LIMIT is that of one.
    pub(crate) fn derived_limit(&self) -> Option<LastRowFinder> {
        let Self { sorted, limit, utf8, .. } = self;
        (!sorted.derived_columns.is_empty()).then(|| LastRowFinder {
            sorted: sorted.clone(),
            limit: *limit,
            utf8: *utf8,
        })
    }

    /// The sort key's column.
    pub(crate) fn sorted_by(&self) -> &ComparedColumn {
        &self.sorted.column
    }

    /// The tags for an answer of `rows` rows whose last one has these values.
    pub fn deferred_tags(&self, rows: u64, last: &[Field<'_>]) -> Vec<Tag> {
        self.conjunctions(rows, last).into_iter().map(|terms| self.tag(terms)).collect()
    }

    /// The condition on the rows that matter then: a disjunction of these conjunctions. An empty conjunction is true of any row.
    pub(crate) fn conjunctions(&self, rows: u64, last: &[Field<'_>]) -> Vec<Vec<Term>> {
        let any = [Vec::new()];
        let conjunctions = self.rows.as_deref().unwrap_or(&any);
        let Some(tests) = self.bound(rows, last) else { return conjunctions.to_vec() };
        tests.iter().flat_map(|test| conjunctions.iter().filter_map(|terms| self.with(terms, test))).collect()
    }

    /// The tests of the key, of which one must pass; None if the answer gives no bound.
    pub(crate) fn bound(&self, rows: u64, last: &[Field<'_>]) -> Option<Vec<Test>> {
        let is_full = rows >= self.limit && last.len() == self.sorted.width;
        last.get(self.sorted.at).filter(|_| is_full).and_then(|field| self.tests(*field))
    }

    /// The tests of rows that matter if this is the last row's key; None: any row.
    fn tests(&self, last: Field<'_>) -> Option<Vec<Test>> {
        let SortedLimit { column, descending, nulls_first, .. } = &self.sorted;
        up_to(column, Order { descending: *descending, nulls_first: *nulls_first }, last, self.utf8)
    }

    /// The conjunction with the test added; None if no row passes both.
    fn with(&self, terms: &[Term], test: &Test) -> Option<Vec<Term>> {
        let column = &self.sorted.column;
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
    /// The LIMIT bound of this execution, if it has a limit.
    pub(crate) fn limit_bound(&self, rows: &[Rows], params: Params<'_>) -> Option<LimitBound> {
        let sorted = self.limits.sorted.clone()?;
        let reference = self.references.get(sorted.place)?;
        let limit = self.rows_max(sorted.limit, params).filter(|limit| *limit > 0)?;
        let (table, columns) = (reference.table.id, reference.columns.clone());
        Some(LimitBound {
            table,
            columns,
            rows: rows.get(sorted.place)?.clone(),
            sorted,
            limit,
            utf8: params.client.utf8,
        })
    }

    /// The number of rows; None if none is given, or not as a plain number.
    pub(crate) fn rows_max(&self, limit: RowLimit, params: Params<'_>) -> Option<u64> {
        let Some(number) = limit else { return Some(1) };
        let param = params.get_number(number)?;
        let digits = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        match param.value {
            ParameterValue::Text(text) => digits(text),
            ParameterValue::Literal(Literal { kind: LiteralKind::Number, text }) => digits(text),
            ParameterValue::Integer(number) => number.try_into().ok(),
            ParameterValue::Binary(bytes) => {
                // Another use of the parameter may have made it a float.
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

    /// For EXPLAIN CACHE: the column that bounds the rows of the reference by the answer's last row. The first `unknown` parameters are not known
    /// yet.
    pub(crate) fn described_limit_bound(
        &self,
        place: usize,
        params: Params<'_>,
        unknown: u16,
    ) -> Option<&ComparedColumn> {
        let sorted = self.limits.sorted.as_ref().filter(|sorted| sorted.place == place)?;
        self.may_limit(sorted.limit, params, unknown).then_some(&sorted.column)
    }

    /// For EXPLAIN CACHE: whether there is a limit, or may be one.
    pub(crate) fn may_limit(&self, limit: RowLimit, params: Params<'_>, unknown: u16) -> bool {
        let is_open = params.values.is_empty() || limit.is_some_and(|number| number <= u32::from(unknown));
        is_open || self.rows_max(limit, params).is_some_and(|limit| limit > 0)
    }
}
