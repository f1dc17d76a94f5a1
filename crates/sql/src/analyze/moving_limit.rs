//! Conditions with moving limits (`dependency/moving_limit.rs`).

use crate::analysis::Moving;
use crate::analyze::Walk;
use crate::analyze::derived_limit::is_ungrouped;
use crate::analyze::sort_keys::{named_column, shown_items};
use crate::lex::normalize::VIEWS_BASE;
use crate::predicate::column_expressions::unbound_test;
use crate::predicate::syntax::unwrapped;
use crate::predicate::{Limit, Operand, UnboundTest};
use freshet_types::{ComparedColumn, ValueType};
use sqlparser::ast::{BinaryOperator, Expr, Ident, LimitClause, Query, SetExpr};

/// A column and one of its limits.
pub(crate) struct Tested<'e> {
    column: &'e [Ident],
    limit: Limit,
    is_lower: bool,
    /// The other limit of BETWEEN.
    beside: Option<Operand>,
}

/// Limit of moving limits in one statement.
pub(crate) const MOVING_MAX: usize = 4;

impl Walk<'_> {
    /// The moving limits of the outermost query; the innermost block is the query's own.
    pub(crate) fn moving_of(&self, query: &Query) -> Vec<Moving> {
        self.find_moving(query).unwrap_or_default()
    }

    pub(crate) fn find_moving(&self, query: &Query) -> Option<Vec<Moving>> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let all_of_the_first = match &query.limit_clause {
            None => true,
            Some(LimitClause::LimitOffset { offset, limit_by, .. }) => offset.is_none() && limit_by.is_empty(),
            Some(LimitClause::OffsetCommaLimit { .. }) => false,
        };
        let further = || self.looks_further(select, query.order_by.as_ref(), false);
        if !all_of_the_first || !is_ungrouped(select) || select.distinct.is_some() {
            return None;
        }
        let mut limits = Vec::new();
        add_limits(select.selection.as_ref()?, &mut limits);
        if limits.is_empty() || limits.len() > MOVING_MAX || further() {
            return None;
        }
        let block = self.scope.blocks.last()?;
        let items = shown_items(block, select)?;
        let moving = limits.into_iter().filter_map(|Tested { column: tested, limit, is_lower, beside }| {
            let Limit { operand, included } = limit;
            let (in_block, column) = named_column(block, tested)?;
            let at = items.iter().position(|item| item.column == Some((in_block, column)))?;
            let is_once = self.usages.get(&operand.parameter).is_some_and(|usage| usage.count == 1);
            if !is_once || operand.parameter > VIEWS_BASE || !self.may_move(column.value_type) {
                return None;
            }
            let is_zoned = self.is_mysql() && column.value_type == ValueType::TimestampTz;
            let value_type = if is_zoned { ValueType::Timestamp } else { column.value_type };
            let (column, beside) =
                (ComparedColumn { name: column.name.clone(), value_type }, beside.filter(|_| self.is_mysql()));
            Some(Moving { operand, column, at, width: items.len(), is_lower, included, is_zoned, beside })
        });
        Some(moving.collect())
    }

    /// Whether limits of columns of this type are supported.
    pub(crate) fn may_move(&self, column: ValueType) -> bool {
        use ValueType::{Bytes, Date, Int, Numeric, Timestamp, TimestampTz, Unsigned};
        match column {
            Date | Int | Numeric | Timestamp | TimestampTz | Unsigned => true,
            Bytes => self.is_mysql(),
            _ => false,
        }
    }
}

/// Adds the limits in the operands of AND.
pub(crate) fn add_limits<'e>(condition: &'e Expr, limits: &mut Vec<Tested<'e>>) {
    let condition = unwrapped(condition);
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            add_limits(left, limits);
            return add_limits(right, limits);
        }
        Expr::BinaryOp { .. } | Expr::Between { negated: false, .. } => {}
        _ => return,
    }
    if let Some((column, UnboundTest::Range { low, high, beside: None })) = unbound_test(condition) {
        let other = |limit: Option<Limit>| limit.map(|limit| limit.operand);
        let tested = |limit, is_lower, beside| Tested { column, limit, is_lower, beside };
        limits.extend(low.map(|limit| tested(limit, true, other(high))));
        limits.extend(high.map(|limit| tested(limit, false, other(low))));
    }
}
