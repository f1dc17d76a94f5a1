//! The LIMIT of derived tables, and the columns of them that the outermost query returns (`dependency/derived_limit.rs`).

use crate::analysis::{Cut, Keyed};
use crate::analyze::Walk;
use crate::analyze::limit_bound::limit_of;
use crate::analyze::shown::Page;
use crate::analyze::sort_keys::{Item, shown_items};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sqlparser::ast::{GroupByExpr, Query, Select, SetExpr, Visit, Visitor};

impl Walk<'_> {
    /// Notes the LIMIT of the query that ends here, and the keys, or else the values, in its answer. The innermost block is the query's own.
    pub(crate) fn note_cut(&mut self, query: &Query, by_values: Vec<Keyed>) {
        if !self.views.is_outside() {
            return;
        }
        match self.scope.blocks.len() {
            1 => {
                let (of_page, keyed) = self.page_below(query).unwrap_or_default();
                self.found.limits.moving = self.moving_of(query);
                self.found.limits.cut = self.cut_of(query).or(of_page);
                let keyed = self.keyed_by(query).into_iter().chain(keyed).collect();
                self.found.limits.keyed = self.in_each_branch(keyed);
                let others = by_values
                    .into_iter()
                    .filter(|of| self.found.limits.keyed.iter().all(|keyed| keyed.place != of.place));
                self.found.limits.keyed.extend(others.collect::<Vec<_>>());
            }
            2 => self.scope.shown.page = self.page_of(query).map(Box::new),
            _ => {}
        }
    }

    /// The LIMIT and keys of a query as a derived table.
    pub(crate) fn page_of(&self, query: &Query) -> Option<Page> {
        let limit = limit_of(query)?;
        // With more rows than LIMIT says, some may be missing in the answer.
        let has_ties = query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties);
        let keyed = if has_ties { Vec::new() } else { self.keyed_by(query) };
        Some(Page { cut: self.cut_of(query), keyed, limit })
    }

    /// The LIMIT of a derived table, and the keys of its rows, that are in the answer of the outermost query.
    pub(crate) fn page_below(&self, query: &Query) -> Option<(Option<Cut>, Vec<Keyed>)> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let block = self.scope.blocks.last()?;
        let pages = block.references.iter().enumerate();
        let mut pages = pages.filter_map(|(place, of)| Some((place, of.shown.page.as_ref().filter(|_| !of.nullable)?)));
        let (place, page) = pages.next()?;
        let calls = self.looks_further(select, query.order_by.as_ref(), false);
        if calls || !is_ungrouped(select) {
            return None;
        }
        let items = shown_items(block, select)?;
        let shows = |(at, item): (usize, &Item<'_>)| item.shown.filter(|(of, _)| *of == place).map(|(_, of)| (of, at));
        Some(page.seen_as(&items.iter().enumerate().filter_map(shows).collect(), items.len()))
    }
}

impl Page {
    /// Translates columns of the derived table to columns of the answer; `columns` maps their numbers.
    pub(crate) fn seen_as(&self, columns: &BTreeMap<usize, usize>, width: usize) -> (Option<Cut>, Vec<Keyed>) {
        let cut = self.cut.as_ref().and_then(|cut| {
            let at = *columns.get(&cut.at)?;
            Some(Cut { at, width, page: columns.values().copied().collect(), ..cut.clone() })
        });
        let keyed = self.keyed.iter().filter_map(|keyed| keyed.of_page(self.limit, columns, width));
        (cut, keyed.collect())
    }
}

/// Whether a query, or a derived table or common table expression in it, has a LIMIT without an order.
pub(crate) fn leave_rows_open(query: &Query) -> bool {
    struct Pages;
    impl Visitor for Pages {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            if is_open(query) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    let from = match &*query.body {
        SetExpr::Select(select) => select.from.as_slice(),
        _ => &[],
    };
    is_open(query)
        || query.with.visit(&mut Pages).is_break()
        || from.iter().any(|item| item.visit(&mut Pages).is_break())
}

pub(crate) fn is_open(query: &Query) -> bool {
    limit_of(query).is_some() && query.order_by.is_none()
}

/// Whether each row comes from one joined row.
pub(crate) fn is_ungrouped(select: &Select) -> bool {
    let GroupByExpr::Expressions(groups, modifiers) = &select.group_by else { return false };
    groups.is_empty() && modifiers.is_empty() && select.having.is_none()
}
