//! The sort order and LIMIT of the outermost query; `dependency/limit_bound.rs` explains why rows behind the last one do not matter.

use crate::allowlist::mysql_functions::is_aggregate;
use crate::allowlist::names::built_in_name;
use crate::analysis::{Order, RowLimit, SortedLimit};
use crate::analyze::Walk;
use crate::analyze::scope::Block;
use crate::analyze::sort_keys::{Item, first_key, named_column, shown_items};
use crate::predicate::syntax::{column_name, parameter, unwrapped};
use crate::visit::{Visitor, visit};
use std::ops::ControlFlow;

use freshet_types::{Column, ComparedColumn};
use sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, LimitClause,
    OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, Visit,
};

/// Finds the call of a function for which a test is true; the test gets the names of tables in the enclosing sub-selects.
pub(crate) struct Calls<F> {
    is: F,
    inside: Vec<Vec<String>>,
}

impl<F: Fn(&Function, &[Vec<String>]) -> bool> Visitor for Calls<F> {
    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let from = match &*query.body {
            SetExpr::Select(select) => select.from.as_slice(),
            _ => &[],
        };
        let factors = from
            .iter()
            .flat_map(|item| std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation)));
        let name = |factor: &TableFactor| match factor {
            TableFactor::Table { alias: Some(alias), .. } => Some(alias.name.value.clone()),
            TableFactor::Table { name, .. } => Some(name.0.last()?.as_ident()?.value.clone()),
            _ => None,
        };
        self.inside.push(factors.filter_map(name).collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.inside.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if (self.is)(function, &self.inside) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Walk<'_> {
    /// The LIMIT bound of the outermost query; the innermost block is the query's own.
    pub(crate) fn sorted_limit_of(&self, query: &Query) -> Option<SortedLimit> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let limit = limit_of(query)?;
        let block = self.scope.blocks.last()?;
        let items = shown_items(block, select)?;
        let (first, key) = first_key(query, block, &items)?;
        let is_grouped = has_key(block, select, key)?;
        if self.looks_further(select, query.order_by.as_ref(), is_grouped) {
            return None;
        }
        let (in_block, column) = key;
        let is_it = |item: &Item<'_>| item.column.is_some_and(|(of, shown)| of == in_block && shown == column);
        let at = items.iter().position(is_it)?;
        let place = self.sorted_place(key)?;
        let Order { descending, nulls_first } = self.order_of(first);
        let column = ComparedColumn { name: column.name.clone(), value_type: column.value_type };
        Some(SortedLimit {
            place,
            column,
            at,
            width: items.len(),
            descending,
            nulls_first,
            limit,
            derived_columns: Vec::new(),
        })
    }

    /// Whether a function in these reads more rows than the one beside it, or its group. PostgreSQL refuses an aggregate beside a plain column. An
    /// aggregate in a sub-select belongs to the outer query if it names only columns of outer tables, so it belongs to the sub-select if it names
    /// columns of the sub-select's tables, or none.
    pub(crate) fn looks_further(&self, select: &Select, order: Option<&OrderBy>, is_grouped: bool) -> bool {
        let mut calls = Calls {
            is: |function: &Function, inside: &[Vec<String>]| {
                let name = built_in_name(self.context.dialect, &function.name);
                let aggregate = self.is_mysql() && name.is_none_or(|name| is_aggregate(&name.to_ascii_lowercase()));
                function.over.is_some() || (aggregate && !is_grouped && !is_of_inside(function, inside))
            },
            inside: Vec::new(),
        };
        visit(&select.projection, &mut calls).is_break()
            || order.is_some_and(|order| visit(order, &mut calls).is_break())
    }
}

/// Whether an aggregate belongs to the innermost of these sub-selects: `count(*)`, or a column qualified with the name of a table there.
pub(crate) fn is_of_inside(function: &Function, inside: &[Vec<String>]) -> bool {
    let Some(tables) = inside.last() else { return false };
    let FunctionArguments::List(list) = &function.args else { return false };
    let is_inside = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => true,
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(name))) => {
            matches!(name.as_slice(), [table, _] if tables.contains(&table.value))
        }
        _ => false,
    };
    !tables.is_empty() && !list.args.is_empty() && list.args.iter().all(is_inside)
}

/// The number of rows that a query returns; None if it has no limit or the limit is not a parameter.
pub(crate) fn limit_of(query: &Query) -> Option<RowLimit> {
    match (&query.limit_clause, &query.fetch) {
        (
            Some(LimitClause::LimitOffset { limit: Some(limit), .. } | LimitClause::OffsetCommaLimit { limit, .. }),
            None,
        ) => Some(Some(parameter(unwrapped(limit))?)),
        // OFFSET is a clause of its own. The bound includes the rows that WITH TIES adds.
        (None | Some(LimitClause::LimitOffset { limit: None, .. }), Some(fetch)) => match &fetch.quantity {
            Some(quantity) => Some(Some(parameter(unwrapped(quantity))?)),
            None => Some(None),
        },
        _ => None,
    }
}

/// Whether rows are grouped by the key, among others. None if they are grouped otherwise, or into one group.
pub(crate) fn has_key(block: &Block, select: &Select, key: (usize, &Column)) -> Option<bool> {
    let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else { return None };
    let is_key = |expr: &Expr| column_name(expr).and_then(|name| named_column(block, name)) == Some(key);
    let grouped = !exprs.is_empty();
    let plain = modifiers.is_empty() && matches!(select.distinct, None | Some(Distinct::Distinct));
    let has_key = if grouped { exprs.iter().any(is_key) } else { select.having.is_none() };
    (plain && has_key).then_some(grouped)
}

/// Whether a function is called for which this is true.
pub(crate) fn calls(of: &impl Visit, is: impl Fn(&Function) -> bool) -> bool {
    visit(of, &mut Calls { is: |function: &Function, _: &[Vec<String>]| is(function), inside: Vec::new() }).is_break()
}

/// Whether ORDER BY may sort by an expression of the SELECT list, by its number or by its alias.
pub(crate) fn sorts_by_list(query: &Query, select: &Select) -> bool {
    let Some(order_by) = &query.order_by else { return false };
    let OrderByKind::Expressions(order) = &order_by.kind else { return true };
    let is_alias = |name: &Ident| {
        select.projection.iter().any(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.eq_ignore_ascii_case(&name.value),
            _ => false,
        })
    };
    let sorts =
        |OrderByExpr { expr, .. }: &OrderByExpr| matches!(unwrapped(expr), Expr::Value(_)) || names(expr, is_alias);
    order.iter().any(sorts)
}

/// Whether it contains an unqualified name for which this is true.
pub(crate) fn names(of: &impl Visit, is: impl Fn(&Ident) -> bool) -> bool {
    struct Names<F>(F);
    impl<F: Fn(&Ident) -> bool> Visitor for Names<F> {
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(name) if self.0(name) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    visit(of, &mut Names(is)).is_break()
}
