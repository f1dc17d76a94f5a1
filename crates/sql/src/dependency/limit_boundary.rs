//! The LIMIT boundary of a query whose sort keys are not in the answer.
//!
//! `SELECT title FROM post ORDER BY published DESC LIMIT 10` does not return its sort key. `x IN (SELECT id FROM t ORDER BY id LIMIT 3)`, a sorted
//! branch of a UNION, or a derived table whose rows are counted return no row of theirs. So the key query (`join_keys.rs`) reads the boundary of
//! these rows: the key of the row that would be the last.
//!
//! # Why this is sound
//!
//! Let a query, at any place of the statement, sort by `R.b` first and return k rows behind an OFFSET of o, without WHERE (or with `WHERE 1=1`), so
//! that each row of R makes at least one sorted row. Let B be the key of row o + k of R alone, in this order. Then at least o + k sorted rows have a
//! key not after B, and *not after B* is a sound predicate of R, as in `limit_bound.rs`: the query's rows are made of rows of R up to B, whatever the
//! other tables are and whatever their rows.
//!
//! * **Each row makes one** if R is the only item of FROM, or the first of a chain of LEFT JOINs, which extends it with NULLs if it joins no other
//!   row. Not allowed are DISTINCT, HAVING and set-returning functions, which may make no row of one. GROUP BY may name a key of R: then a group has
//!   one row of R, and each row is in one.
//! * **Other states.** B is read after the answer. As long as no row up to B has changed since, R has o + k rows up to B in the answer's state, too.
//!   A change is among the commits that arrived during the fill, as with all deferred tags.
//! * **Fewer rows** than o + k: any row matters. So it does if the key is NULL and NULLs sort last. If they sort first, the rows with NULL matter, as
//!   in `limit_bound.rs`.
//! * Partitioned tables and tables with children have no key query. For a table that is a child or a partition, it reads the table's own rows
//!   (`ONLY`).
//!
//! Join paths start at the rows up to B (`join_keys.rs`), as at other rows that a sound predicate selects. The same statement reads their keys and
//! computes B itself. If there is no B, or it is NULL, these keys are not all: any row of those tables matters.
//!
//! The boundary is read only for references of which any row would matter otherwise: a bound from the answer costs nothing.

use freshet_types::{ComparedColumn, Dialect, Test};

use crate::analysis::{LimitBoundary, Order, ReadSet};
use crate::dependency::answer::{Field, up_to};
use crate::dependency::query_text::{as_text, quoted};
use crate::lex::literal::{Literal, LiteralKind};
use crate::predicate::bind::Rows;
use crate::predicate::parameters::{ParameterValue, Params};

/// Limit of boundaries that one statement reads.
const BOUNDARIES_MAX: usize = 4;

/// The query for a LIMIT boundary: the key of row number `before + 1`.
#[derive(Clone, Debug)]
pub(crate) struct BoundaryQuery {
    /// The reference, by its place in the whole statement.
    pub(crate) place: usize,
    /// Its table, as a FROM item.
    from: String,
    key: String,
    column: ComparedColumn,
    order: Order,
    /// Rows before the last one.
    before: u64,
    dialect: Dialect,
}

impl BoundaryQuery {
    /// The query without its SELECT keyword.
    pub(crate) fn sql(&self) -> String {
        self.row("t0", &as_text(self.dialect, &format!("t0.{}", self.key)))
    }

    /// A condition on rows of the table, under this name: true of those up to the boundary, if there is one and its key is not NULL.
    pub(crate) fn condition(&self, name: &str) -> String {
        let Self { key, order, .. } = self;
        let compares = if order.descending { ">=" } else { "<=" };
        let nulls = if order.nulls_first { format!(" OR {name}.{key} IS NULL") } else { String::new() };
        format!("({name}.{key} {compares} (SELECT {}){nulls})", self.row("e0", &format!("e0.{key}")))
    }

    /// An expression of the last row.
    fn row(&self, name: &str, shown: &str) -> String {
        let Self { from, key, order, before, dialect, .. } = self;
        let direction = if order.descending { " DESC" } else { "" };
        let nulls = match order.nulls_first {
            _ if dialect.is_mysql_family() => "",
            true => " NULLS FIRST",
            false => " NULLS LAST",
        };
        format!("{shown} FROM {from} {name} ORDER BY {name}.{key}{direction}{nulls} LIMIT 1 OFFSET {before}")
    }

    /// Whether these keys are one that is not NULL and gives a predicate.
    pub(crate) fn is_known(&self, keys: &[Option<&[u8]>]) -> bool {
        matches!(keys, [Some(_)]) && self.tests(keys).is_some()
    }

    /// The tests of rows that matter if these keys were read; None: any row.
    pub(crate) fn tests(&self, keys: &[Option<&[u8]>]) -> Option<Vec<Test>> {
        let [key] = keys else { return None };
        up_to(&self.column, self.order, key.map_or(Field::Null, Field::Text), true)
    }

    pub(crate) fn column(&self) -> &ComparedColumn {
        &self.column
    }
}

impl ReadSet {
    /// The boundaries to read: of references of which any row would matter, except where `is_told` is true.
    pub(crate) fn boundary_queries(
        &self,
        rows: &[Rows],
        is_told: impl Fn(usize) -> bool,
        params: Params<'_>,
    ) -> Vec<BoundaryQuery> {
        let open = |boundary: &&LimitBoundary| {
            rows.get(boundary.place).is_some_and(Option::is_none) && !is_told(boundary.place)
        };
        self.limits
            .boundaries
            .iter()
            .filter(open)
            .filter_map(|boundary| self.boundary_query(boundary, params))
            .take(BOUNDARIES_MAX)
            .collect()
    }

    fn boundary_query(&self, boundary: &LimitBoundary, params: Params<'_>) -> Option<BoundaryQuery> {
        let LimitBoundary { place, column, order, limit, offset, equal } = boundary;
        let number = |number: u32| match params.get_number(number)?.value {
            ParameterValue::Literal(Literal { kind: LiteralKind::Number, text }) => Some(text),
            _ => None,
        };
        let is_true = |[one, two]: &[u32; 2]| number(*one).is_some_and(|one| number(*two) == Some(one));
        if !equal.iter().all(is_true) {
            return None;
        }
        let before = match offset {
            Some(offset) => self.rows_max(Some(*offset), params)?,
            None => 0,
        };
        let last = self.rows_max(*limit, params)?.checked_sub(1)?.checked_add(before)?;
        let table = &self.references.get(*place)?.table;
        let quoted = |name: &str| quoted(self.dialect, name);
        let only = if self.dialect.is_mysql_family() { "" } else { "ONLY " };
        Some(BoundaryQuery {
            place: *place,
            from: format!("{only}{}.{}", quoted(&table.schema), quoted(&table.name)),
            key: quoted(&column.name),
            column: column.clone(),
            order: *order,
            before: last,
            dialect: self.dialect,
        })
    }

    /// For EXPLAIN CACHE: the column whose value at the LIMIT boundary bounds the rows. The first `unknown` parameters are not known yet.
    pub(crate) fn described_boundary(&self, place: usize, params: Params<'_>, unknown: u16) -> Option<&ComparedColumn> {
        let boundary = self.limits.boundaries.iter().find(|boundary| boundary.place == place)?;
        self.may_limit(boundary.limit, params, unknown).then_some(&boundary.column)
    }
}
