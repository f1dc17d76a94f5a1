//! Queries with a LIMIT whose order is that of one reference (`dependency/limit_boundary.rs`).

use crate::allowlist::functions::keeps_rows;
use crate::allowlist::names::built_in_name;
use crate::analysis::LimitBoundary;
use crate::analyze::Walk;
use crate::analyze::limit_bound::{calls, limit_of};
use crate::analyze::outer_joins::Kind;
use crate::analyze::scope::Block;
use crate::analyze::sort_keys::{first_key, named_column, shown_items};
use crate::predicate::syntax::{column_name, conjuncts, parameter, unwrapped};
use std::sync::Arc;

use freshet_types::ComparedColumn;
use sqlparser::ast::{BinaryOperator, Expr, Function, GroupByExpr, LimitClause, Query, Select, SetExpr};

impl Walk<'_> {
    /// Notes the LIMIT of the query that ends here if it follows the order of its first item. The innermost block is the query's own.
    pub(crate) fn note_limit_boundary(&mut self, query: &Query) {
        if self.views.is_outside() {
            let boundary = self.limit_boundary(query);
            self.found.limits.boundaries.extend(boundary);
        }
    }

    pub(crate) fn limit_boundary(&self, query: &Query) -> Option<LimitBoundary> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let limit = limit_of(query)?;
        let offset = match offset_of(query) {
            Some(offset) => Some(parameter(unwrapped(offset))?),
            None => None,
        };
        let block = self.scope.blocks.last()?;
        let items = shown_items(block, select)?;
        let (first, key) = first_key(query, block, &items)?;
        let makes_rows = |function: &Function| {
            let name = built_in_name(self.context.dialect, &function.name);
            function.over.is_some() || !name.is_some_and(|name| self.is_mysql() || keeps_rows(name))
        };
        let order = query.order_by.as_ref();
        let (in_block, column) = key;
        let place = self.sorted_place(key).filter(|_| in_block == 0)?;
        let groups = match &select.group_by {
            GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
            _ => return None,
        };
        let is_more = calls(&select.projection, makes_rows) || calls(groups, makes_rows);
        if is_more || order.is_some_and(|order| calls(order, makes_rows)) {
            return None;
        }
        let of_first = |expr| column_name(expr).and_then(|name| named_column(block, name)).filter(|(at, _)| *at == 0);
        let is_grouped_by =
            |name: &Arc<str>| groups.iter().filter_map(of_first).any(|(_, column)| column.name == *name);
        let table_key = &self.found.references.get(place)?.table.key;
        let by_key = !table_key.is_empty() && table_key.iter().all(is_grouped_by);
        // An aggregate without GROUP BY returns one row for all rows, which PostgreSQL refuses beside a sort key.
        let aggregates = groups.is_empty() && self.looks_further(select, order, false);
        if !(groups.is_empty() || by_key) || aggregates || !shows_each(select, block) {
            return None;
        }
        let equal = equal_constants(select)?;
        let column = ComparedColumn { name: column.name.clone(), value_type: column.value_type };
        Some(LimitBoundary { place, column, order: self.order_of(first), limit, offset, equal })
    }
}

/// The number of skipped rows.
pub(crate) fn offset_of(query: &Query) -> Option<&Expr> {
    match &query.limit_clause {
        Some(LimitClause::LimitOffset { offset, .. }) => offset.as_ref().map(|offset| &offset.value),
        Some(LimitClause::OffsetCommaLimit { offset, .. }) => Some(offset),
        None => None,
    }
}

/// The constants that WHERE compares, if that is all: `WHERE 1=1`.
pub(crate) fn equal_constants(select: &Select) -> Option<Vec<[u32; 2]>> {
    let equal = |condition: &Expr| match condition {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            Some([parameter(unwrapped(left))?, parameter(unwrapped(right))?])
        }
        _ => None,
    };
    select.selection.iter().flat_map(conjuncts).map(equal).collect()
}

/// Whether each row of the first item is in at least one sorted row.
pub(crate) fn shows_each(select: &Select, block: &Block) -> bool {
    let [from] = select.from.as_slice() else { return false };
    let plain = select.distinct.is_none() && select.having.is_none();
    let left = from.joins.iter().all(|join| Kind::of(&join.join_operator) == Kind::Left);
    // Parentheses may contain a join of another kind.
    plain && left && block.references.len() == 1 + from.joins.len()
}
