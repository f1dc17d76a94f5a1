//! The LIMIT of derived tables, and the columns of them that the outermost query returns (`dependency/derived_limit.rs`).

use crate::analysis::{ResultKey, SortedLimit};
use crate::analyze::Walk;
use crate::analyze::limit_bound::limit_of;
use crate::analyze::shown::DerivedLimit;
use crate::analyze::sort_keys::{Item, shown_items};
use crate::visit::{Visitor, visit};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sqlparser::ast::{GroupByExpr, Query, Select, SetExpr};

impl Walk<'_> {
    /// Notes the LIMIT of the query that ends here, and the keys, or else the values, in its answer. The innermost block is the query's own.
    pub(crate) fn note_limit(&mut self, query: &Query, by_values: Vec<ResultKey>) {
        if !self.views.is_outside() {
            return;
        }
        match self.scope.blocks.len() {
            1 => {
                let (of_derived, result_keys) = self.derived_limit_below(query).unwrap_or_default();
                self.found.limits.moving = self.moving_of(query);
                self.found.limits.sorted = self.sorted_limit_of(query).or(of_derived);
                let result_keys = self.result_keys_of(query).into_iter().chain(result_keys).collect();
                self.found.limits.result_keys = self.in_each_branch(result_keys);
                let others = by_values
                    .into_iter()
                    .filter(|of| self.found.limits.result_keys.iter().all(|key| key.place != of.place));
                self.found.limits.result_keys.extend(others.collect::<Vec<_>>());
            }
            2 => self.scope.shown.derived_limit = self.derived_limit_of(query).map(Box::new),
            _ => {}
        }
    }

    /// The LIMIT and keys of a query as a derived table.
    pub(crate) fn derived_limit_of(&self, query: &Query) -> Option<DerivedLimit> {
        let limit = limit_of(query)?;
        // With more rows than LIMIT says, some may be missing in the answer.
        let has_ties = query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties);
        let result_keys = if has_ties { Vec::new() } else { self.result_keys_of(query) };
        Some(DerivedLimit { sorted: self.sorted_limit_of(query), result_keys, limit })
    }

    /// The LIMIT of a derived table, and the keys of its rows, that are in the answer of the outermost query.
    pub(crate) fn derived_limit_below(&self, query: &Query) -> Option<(Option<SortedLimit>, Vec<ResultKey>)> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let block = self.scope.blocks.last()?;
        let tables = block.references.iter().enumerate();
        let mut limited =
            tables.filter_map(|(place, of)| Some((place, of.shown.derived_limit.as_ref().filter(|_| !of.nullable)?)));
        let (place, derived) = limited.next()?;
        let calls = self.looks_further(select, query.order_by.as_ref(), false);
        if calls || !is_ungrouped(select) {
            return None;
        }
        let items = shown_items(block, select)?;
        let shows = |(at, item): (usize, &Item<'_>)| item.shown.filter(|(of, _)| *of == place).map(|(_, of)| (of, at));
        Some(derived.seen_as(&items.iter().enumerate().filter_map(shows).collect(), items.len()))
    }
}

impl DerivedLimit {
    /// Translates columns of the derived table to columns of the answer; `columns` maps their numbers.
    pub(crate) fn seen_as(
        &self,
        columns: &BTreeMap<usize, usize>,
        width: usize,
    ) -> (Option<SortedLimit>, Vec<ResultKey>) {
        let sorted = self.sorted.as_ref().and_then(|sorted| {
            let at = *columns.get(&sorted.at)?;
            Some(SortedLimit { at, width, derived_columns: columns.values().copied().collect(), ..sorted.clone() })
        });
        let result_keys = self.result_keys.iter().filter_map(|key| key.of_derived(self.limit, columns, width));
        (sorted, result_keys.collect())
    }
}

/// Whether a query, or a derived table or common table expression in it, has a LIMIT without an order.
pub(crate) fn leave_rows_open(query: &Query) -> bool {
    struct UnorderedLimit;
    impl Visitor for UnorderedLimit {
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            if is_open(query) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    let from = match &*query.body {
        SetExpr::Select(select) => select.from.as_slice(),
        _ => &[],
    };
    is_open(query)
        || visit(&query.with, &mut UnorderedLimit).is_break()
        || from.iter().any(|item| visit(item, &mut UnorderedLimit).is_break())
}

pub(crate) fn is_open(query: &Query) -> bool {
    limit_of(query).is_some() && query.order_by.is_none()
}

/// Whether each row comes from one joined row.
pub(crate) fn is_ungrouped(select: &Select) -> bool {
    let GroupByExpr::Expressions(groups, modifiers) = &select.group_by else { return false };
    groups.is_empty() && modifiers.is_empty() && select.having.is_none()
}
