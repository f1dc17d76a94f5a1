//! A page of rows in FROM: a derived table, or a common table expression, that LIMIT cuts.
//!
//! `SELECT … FROM (SELECT … FROM book ORDER BY id LIMIT 20) AS page LEFT JOIN author ON author.book_id = page.id` is how an ORM reads a
//! page together with what belongs to its rows. How far the page reaches (`limit_bound.rs`), and which keys its rows have (`result_keys.rs`), the
//! answer says here, too, if it shows all rows of the page: what the statement makes of them is no matter then.
//!
//! # Why this is sound
//!
//! Let the page be cut at k rows, and let the answer show some of its columns as they are. Each row of the answer holds values of one row
//! of the page, since no outer join puts NULLs in their place and nothing is grouped. So there are no more different
//! ones among them than the page has rows. If there are k, the page has k rows, and each of them is in the answer: the furthest
//! sort key among them is that of the page's last row, and their keys are all that the page has. What `limit_bound.rs` and `result_keys.rs`
//! say of a statement holds of the page then, and with the page's rows all stays that is made of them.
//!
//! If there are fewer, the page may have fewer, or rows that are alike, or some that a condition or a join leaves out: nothing is
//! said then of how far it reaches.
//!
//! Only items of the outermost FROM are looked at: no other block, and no row beside (LATERAL), makes them other ones; and no common table
//! expression that is named twice, which may be another page each time. `WITH TIES` shows more rows than LIMIT says: the bound
//! includes them, but their keys may not all be known.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use sqlparser::ast::{GroupByExpr, Query, Select, SetExpr, Visit, Visitor};

use crate::analyze::Walk;
use crate::dependency::limit_bound::{self, Cut, Field, Item, Limit};
use crate::dependency::result_keys::Keyed;

/// How a derived table is cut. Its columns are meant where an answer's are with a statement.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    cut: Option<Cut>,
    keyed: Vec<Keyed>,
    limit: Limit,
}

/// Finds the last row of a page among the rows of an answer.
#[derive(Clone, Debug)]
pub struct Furthest {
    pub(crate) cut: Cut,
    pub(crate) limit: u64,
    /// Texts of the answer are in UTF-8.
    pub(crate) utf8: bool,
}

/// How an answer, or the page that it shows, ends.
#[derive(Debug)]
pub struct End<'a> {
    /// How many rows it has, or at least.
    pub rows: u64,
    /// The values of the last one; none if they cannot be read.
    pub last: Vec<Field<'a>>,
}

impl<'a> End<'a> {
    /// That of an answer's rows; `read` tells the values of one.
    pub fn of<R>(page: Option<&Furthest>, rows: impl Iterator<Item = R>, read: impl Fn(&R) -> Vec<Field<'a>>) -> Self {
        if let Some(page) = page {
            return page.of(rows.map(|row| read(&row)));
        }
        let (count, last) = rows.fold((0, None), |(count, _), row| (count + 1, Some(row)));
        Self { rows: count, last: last.map_or_else(Vec::new, |row| read(&row)) }
    }
}

impl Furthest {
    /// The columns of the answer that tell.
    pub fn columns(&self) -> &[usize] {
        &self.cut.page
    }

    fn of<'a>(&self, rows: impl Iterator<Item = Vec<Field<'a>>>) -> End<'a> {
        let mut different = HashSet::new();
        let mut last: Option<(Reach, Vec<Field<'a>>)> = None;
        for row in rows {
            let shown: Option<Vec<Field<'_>>> = self.columns().iter().map(|at| row.get(*at).copied()).collect();
            let Some(shown) = shown.filter(|_| row.len() == self.cut.width) else {
                return End { rows: 0, last: Vec::new() };
            };
            different.insert(shown);
            let reach = self.reach(&row);
            if last.as_ref().is_none_or(|(furthest, _)| *furthest < reach) {
                last = Some((reach, row));
            }
            // All that come are among these, or as far.
            if different.len() as u64 >= self.limit {
                break;
            }
        }
        End { rows: different.len() as u64, last: last.map_or_else(Vec::new, |(_, row)| row) }
    }

    /// How far behind a row is sorted.
    fn reach(&self, row: &[Field<'_>]) -> Reach {
        let Cut { column, at, descending, nulls_first, .. } = &self.cut;
        let field = row.get(*at).copied().unwrap_or(Field::Other);
        match limit_bound::value(column, field, self.utf8).map(|value| value.order_key()) {
            Some(key) => Reach::To(if *descending { u64::MAX - key } else { key }),
            None if field == Field::Null && *nulls_first => Reach::First,
            None => Reach::Unknown,
        }
    }
}

/// How far behind a row is sorted, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// A NULL that comes first.
    First,
    To(u64),
    /// A NULL that comes last, or what cannot be read.
    Unknown,
}

impl Page {
    /// Where an answer shows what the page does: the columns of it that show columns of the page, by their numbers in both.
    fn seen_as(&self, columns: &BTreeMap<usize, usize>, width: usize) -> (Option<Cut>, Vec<Keyed>) {
        let cut = self.cut.as_ref().and_then(|cut| {
            let at = *columns.get(&cut.at)?;
            Some(Cut { at, width, page: columns.values().copied().collect(), ..cut.clone() })
        });
        let keyed = self.keyed.iter().filter_map(|keyed| keyed.of_page(self.limit, columns, width));
        (cut, keyed.collect())
    }
}

impl Walk<'_> {
    /// Notes how the query that ends here cuts its rows and which keys it shows, or else which values, the innermost block being its own.
    pub(crate) fn note_cut(&mut self, query: &Query, by_values: Vec<Keyed>) {
        if !self.views.is_outside() {
            return;
        }
        match self.blocks.len() {
            1 => {
                let (of_page, keyed) = self.page_below(query).unwrap_or_default();
                self.moving = self.moving_of(query);
                self.cut = self.cut_of(query).or(of_page);
                let keyed = self.keyed_by(query).into_iter().chain(keyed).collect();
                self.keyed = self.in_each_branch(keyed);
                let others = by_values.into_iter().filter(|of| self.keyed.iter().all(|keyed| keyed.place != of.place));
                self.keyed.extend(others.collect::<Vec<_>>());
            }
            2 => self.shown.page = self.page_of(query).map(Box::new),
            _ => {}
        }
    }

    /// The page that a query is.
    fn page_of(&self, query: &Query) -> Option<Page> {
        let limit = limit_bound::limit_of(query)?;
        // Of more rows than LIMIT says some may not be shown.
        let has_ties = query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties);
        let keyed = if has_ties { Vec::new() } else { self.keyed_by(query) };
        Some(Page { cut: self.cut_of(query), keyed, limit })
    }

    /// How a page is cut whose rows the outermost query shows, and the keys of these.
    fn page_below(&self, query: &Query) -> Option<(Option<Cut>, Vec<Keyed>)> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let block = self.blocks.last()?;
        let pages = block.references.iter().enumerate();
        let mut pages = pages.filter_map(|(place, of)| Some((place, of.shown.page.as_ref().filter(|_| !of.nullable)?)));
        let (place, page) = pages.next()?;
        let calls = self.looks_further(select, query.order_by.as_ref(), false);
        if calls || !is_ungrouped(select) {
            return None;
        }
        let items = limit_bound::items(block, select)?;
        let shows = |(at, item): (usize, &Item<'_>)| item.shown.filter(|(of, _)| *of == place).map(|(_, of)| (of, at));
        Some(page.seen_as(&items.iter().enumerate().filter_map(shows).collect(), items.len()))
    }
}

/// Whether a query, or a derived table or common table expression in it, has a LIMIT and no order.
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

fn is_open(query: &Query) -> bool {
    limit_bound::limit_of(query).is_some() && query.order_by.is_none()
}

/// Whether each row comes of one joined row.
pub(crate) fn is_ungrouped(select: &Select) -> bool {
    let GroupByExpr::Expressions(groups, modifiers) = &select.group_by else { return false };
    groups.is_empty() && modifiers.is_empty() && select.having.is_none()
}
