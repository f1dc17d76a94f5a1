//! Where a page ends that the answer does not show.
//!
//! `SELECT title FROM post ORDER BY published DESC LIMIT 10` shows no sort key; `x IN (SELECT id FROM t ORDER BY id LIMIT 3)`, a sorted branch of
//! a UNION, or a page whose rows are counted, show nothing of theirs. How far such rows reach is asked for: the key of the row that would be the last one,
//! by a statement of its own, with those for keys of other rows (`join_keys.rs`).
//!
//! # Why this is sound
//!
//! Let a query, wherever it stands, sort by `R.b` first and show k rows behind o others, without WHERE (or `WHERE 1=1`), so that each row of R makes at least one row that
//! is sorted. Let B be the key of row o + k of R alone, in that order. Then at least o + k sorted rows have a key no further than B, and *no
//! further than B* is a sound predicate of R, as in `limit_bound.rs`: what the query shows is made of rows of R up to B, whatever else it is
//! joined with and whatever the rows of the others are.
//!
//! * **Each row makes one** if R is the only item of FROM, or the first of a chain of LEFT JOINs: there it is extended with NULLs where it meets no other row. Not with
//!   DISTINCT, HAVING, or functions that may make any number of rows of one, none among them. GROUP BY may name a key of R: then a
//!   group holds no two rows of R, and each row is in one.
//! * **Other states.** B is read after the answer. As long as no row up to B changed since, R has o + k rows up to B in the answer's state, too; and what
//!   changed is found among the commits that raced the fill, as with all late tags.
//! * **Fewer rows** than o + k: any row matters. So it is if the key is NULL and NULLs come last; where they come first, the rows with NULL matter, as in `limit_bound.rs`.
//! * Of partitions and of tables with children nothing is asked; of a table that is one, its own rows alone (`ONLY`).
//!
//! Keys lead from the rows up to B to those of other tables (`join_keys.rs`), as from other rows that a sound predicate leaves: read by the same statement, which looks
//! for B itself. Where there is no B, or it is NULL, these keys are not all: any row of those tables matters.
//!
//! It is asked only for references of which any row would matter otherwise: what the answer tells costs nothing.

use std::sync::Arc;

use freshet_types::{ComparedColumn, Dialect, Test};
use sqlparser::ast::{BinaryOperator, Expr, Function, GroupByExpr, LimitClause, Query, Select, SetExpr};

use crate::allowlist::functions::keeps_rows;
use crate::allowlist::visitor::built_in_name;
use crate::analyze::Walk;
use crate::analyze::outer_joins::Kind;
use crate::analyze::scope::Block;
use crate::analyze::sort_keys::{self, Order};
use crate::dependency::limit_bound::{self, Field, Limit};
use crate::dependency::query_text::{as_text, quoted};
use crate::dependency::read_set::{Footprint, ParameterValue};
use crate::predicate::bind::Rows;
use crate::predicate::parameters::Params;
use crate::predicate::{column_name, conjuncts, parameter, unwrapped};
use crate::{Literal, LiteralKind};

/// Ends that are asked for, for one statement.
const ENDS_MAX: usize = 4;

/// A query whose first rows are those of the first rows of a reference.
#[derive(Clone, Debug)]
pub(crate) struct Paged {
    /// The reference, among those of the whole statement.
    pub(crate) place: usize,
    column: ComparedColumn,
    order: Order,
    limit: Limit,
    /// The parameter with the number of rows before.
    offset: Option<u32>,
    /// WHERE says that these are equal.
    equal: Vec<[u32; 2]>,
}

/// What is asked for: the key of the last of so many rows.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The reference, among those of the whole statement.
    pub(crate) place: usize,
    /// Its table, and the column.
    from: String,
    key: String,
    column: ComparedColumn,
    order: Order,
    /// Rows before the last one.
    before: u64,
    dialect: Dialect,
}

impl End {
    /// The question, behind SELECT.
    pub(crate) fn sql(&self) -> String {
        self.row("t0", &as_text(self.dialect, &format!("t0.{}", self.key)))
    }

    /// A condition on rows of the table, under that name: true of those up to the end, if there is one and its key is not NULL.
    pub(crate) fn condition(&self, name: &str) -> String {
        let Self { key, order, .. } = self;
        let compares = if order.descending { ">=" } else { "<=" };
        let nulls = if order.nulls_first { format!(" OR {name}.{key} IS NULL") } else { String::new() };
        format!("({name}.{key} {compares} (SELECT {}){nulls})", self.row("e0", &format!("e0.{key}")))
    }

    /// What the last row shows.
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

    /// Whether these keys are one that is not NULL and says which rows matter.
    pub(crate) fn is_known(&self, keys: &[Option<&[u8]>]) -> bool {
        matches!(keys, [Some(_)]) && self.tests(keys).is_some()
    }

    /// Which rows matter if these are the keys that were read; None: any row.
    pub(crate) fn tests(&self, keys: &[Option<&[u8]>]) -> Option<Vec<Test>> {
        let [key] = keys else { return None };
        sort_keys::up_to(&self.column, self.order, key.map_or(Field::Null, Field::Text), true)
    }

    pub(crate) fn column(&self) -> &ComparedColumn {
        &self.column
    }
}

impl Walk<'_> {
    /// Notes how the query that ends here cuts rows of its first item, the innermost block being its own.
    pub(crate) fn note_paged(&mut self, query: &Query) {
        if self.views.is_outside() {
            let paged = self.paged(query);
            self.paged.extend(paged);
        }
    }

    fn paged(&self, query: &Query) -> Option<Paged> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let limit = limit_bound::limit_of(query)?;
        let offset = match offset_of(query) {
            Some(offset) => Some(parameter(unwrapped(offset))?),
            None => None,
        };
        let block = self.blocks.last()?;
        let items = limit_bound::items(block, select)?;
        let (first, key) = sort_keys::first_key(query, block, &items)?;
        let makes_rows = |function: &Function| {
            let name = built_in_name(self.dialect, &function.name);
            function.over.is_some() || !name.is_some_and(|name| self.is_mysql() || keeps_rows(name))
        };
        let order = query.order_by.as_ref();
        let (in_block, column) = key;
        let place = self.sorted_place(key).filter(|_| in_block == 0)?;
        let groups = match &select.group_by {
            GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
            _ => return None,
        };
        let is_more = limit_bound::calls(&select.projection, makes_rows) || limit_bound::calls(groups, makes_rows);
        if is_more || order.is_some_and(|order| limit_bound::calls(order, makes_rows)) {
            return None;
        }
        let of_first =
            |expr| column_name(expr).and_then(|name| limit_bound::named(block, name)).filter(|(at, _)| *at == 0);
        let is_grouped_by =
            |name: &Arc<str>| groups.iter().filter_map(of_first).any(|(_, column)| column.name == *name);
        let table_key = &self.references.get(place)?.table.key;
        let by_key = !table_key.is_empty() && table_key.iter().all(is_grouped_by);
        // An aggregate without GROUP BY makes one row of all, which PostgreSQL refuses beside a sort key.
        let aggregates = groups.is_empty() && self.looks_further(select, order, false);
        if !(groups.is_empty() || by_key) || aggregates || !shows_each(select, block) {
            return None;
        }
        let equal = equal_constants(select)?;
        let column = ComparedColumn { name: column.name.clone(), value_type: column.value_type };
        Some(Paged { place, column, order: self.order_of(first), limit, offset, equal })
    }
}

/// The number of rows before those that are shown.
fn offset_of(query: &Query) -> Option<&Expr> {
    match &query.limit_clause {
        Some(LimitClause::LimitOffset { offset, .. }) => offset.as_ref().map(|offset| &offset.value),
        Some(LimitClause::OffsetCommaLimit { offset, .. }) => Some(offset),
        None => None,
    }
}

/// The constants that WHERE compares, if it does nothing else: `WHERE 1=1`.
fn equal_constants(select: &Select) -> Option<Vec<[u32; 2]>> {
    let equal = |condition: &Expr| match condition {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            Some([parameter(unwrapped(left))?, parameter(unwrapped(right))?])
        }
        _ => None,
    };
    select.selection.iter().flat_map(conjuncts).map(equal).collect()
}

/// Whether each row of the first item is in a row that is sorted.
fn shows_each(select: &Select, block: &Block) -> bool {
    let [from] = select.from.as_slice() else { return false };
    let plain = select.distinct.is_none() && select.having.is_none();
    let left = from.joins.iter().all(|join| Kind::of(&join.join_operator) == Kind::Left);
    // In brackets there may be a join of another kind.
    plain && left && block.references.len() == 1 + from.joins.len()
}

impl Footprint {
    /// The ends to ask for: of references of which any row would matter, and of which this is not true.
    pub(crate) fn ends(&self, rows: &[Rows], is_told: impl Fn(usize) -> bool, params: Params<'_>) -> Vec<End> {
        let open = |paged: &&Paged| rows.get(paged.place).is_some_and(Option::is_none) && !is_told(paged.place);
        self.paged.iter().filter(open).filter_map(|paged| self.end(paged, params)).take(ENDS_MAX).collect()
    }

    fn end(&self, paged: &Paged, params: Params<'_>) -> Option<End> {
        let Paged { place, column, order, limit, offset, equal } = paged;
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
        Some(End {
            place: *place,
            from: format!("{only}{}.{}", quoted(&table.schema), quoted(&table.name)),
            key: quoted(&column.name),
            column: column.clone(),
            order: *order,
            before: last,
            dialect: self.dialect,
        })
    }

    /// For people: the column up to whose value at the page's end rows matter. The first `unknown` parameters are not known yet.
    pub(crate) fn described_end(&self, place: usize, params: Params<'_>, unknown: u16) -> Option<&ComparedColumn> {
        let paged = self.paged.iter().find(|paged| paged.place == place)?;
        self.may_limit(paged.limit, params, unknown).then_some(&paged.column)
    }
}
