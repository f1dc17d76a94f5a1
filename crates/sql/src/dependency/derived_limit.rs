//! A derived table, or a common table expression, with LIMIT.
//!
//! `SELECT … FROM (SELECT … FROM book ORDER BY id LIMIT 20) AS page LEFT JOIN author ON author.book_id = page.id` is how an ORM reads a page of rows
//! together with the rows that belong to them. If the answer contains all rows of the derived table, it shows the LIMIT bound (`limit_bound.rs`) and
//! the keys of the rows (`result_keys.rs`) here too. It does not matter then what the statement does with these rows.
//!
//! # Why this is sound
//!
//! Let the derived table have LIMIT k, and let the answer show some of its columns unchanged. Each row of the answer has values of one row of the
//! derived table, since no outer join replaces them by NULLs and nothing is grouped. So the answer has no more different values than the derived
//! table has rows. If it has k different ones, the derived table has k rows, and each of them is in the answer. Then the last sort key in the answer
//! is that of the derived table's last row, and the keys in the answer are all of its keys. So what `limit_bound.rs` and `result_keys.rs` prove for a
//! statement holds for the derived table, and everything computed from its rows stays the same with them.
//!
//! If there are fewer than k, the derived table may have fewer rows, or equal rows, or rows that a condition or a join excludes. Then its bound is
//! unknown.
//!
//! Only items of the outermost FROM qualify: no other query block and no LATERAL row changes what they return. A common table expression that is
//! named twice does not qualify, since it may return other rows each time. `WITH TIES` returns more rows than LIMIT says: the bound includes them,
//! but some of their keys may be missing.

use std::collections::HashSet;

use crate::analysis::SortedLimit;
use crate::dependency::answer::{Field, shown_value};

/// Finds the last row of a derived table in the rows of an answer.
#[derive(Clone, Debug)]
pub struct LastRowFinder {
    pub(crate) sorted: SortedLimit,
    pub(crate) limit: u64,
    /// Texts of the answer are in UTF-8.
    pub(crate) utf8: bool,
}

/// The end of an answer, or of the derived table in it.
#[derive(Debug)]
pub struct AnswerEnd<'a> {
    /// Its number of rows, or a lower bound of it.
    pub rows: u64,
    /// The values of the last row; empty if they cannot be read.
    pub last: Vec<Field<'a>>,
}

impl<'a> AnswerEnd<'a> {
    /// The end of an answer's rows; `read` returns the values of one.
    pub fn of<R>(
        derived: Option<&LastRowFinder>,
        rows: impl Iterator<Item = R>,
        read: impl Fn(&R) -> Vec<Field<'a>>,
    ) -> Self {
        if let Some(derived) = derived {
            return derived.of(rows.map(|row| read(&row)));
        }
        let (count, last) = rows.fold((0, None), |(count, _), row| (count + 1, Some(row)));
        Self { rows: count, last: last.map_or_else(Vec::new, |row| read(&row)) }
    }
}

impl LastRowFinder {
    /// The columns of the answer that are read.
    pub fn columns(&self) -> &[usize] {
        &self.sorted.derived_columns
    }

    fn of<'a>(&self, rows: impl Iterator<Item = Vec<Field<'a>>>) -> AnswerEnd<'a> {
        let mut different = HashSet::new();
        let mut last: Option<(Reach, Vec<Field<'a>>)> = None;
        for row in rows {
            let shown: Option<Vec<Field<'_>>> = self.columns().iter().map(|at| row.get(*at).copied()).collect();
            let Some(shown) = shown.filter(|_| row.len() == self.sorted.width) else {
                return AnswerEnd { rows: 0, last: Vec::new() };
            };
            different.insert(shown);
            let reach = self.reach(&row);
            if last.as_ref().is_none_or(|(furthest, _)| *furthest < reach) {
                last = Some((reach, row));
            }
            // All further rows are among these, or sort no later.
            if different.len() as u64 >= self.limit {
                break;
            }
        }
        AnswerEnd { rows: different.len() as u64, last: last.map_or_else(Vec::new, |(_, row)| row) }
    }

    /// The position of a row in the sort order.
    fn reach(&self, row: &[Field<'_>]) -> Reach {
        let SortedLimit { column, at, descending, nulls_first, .. } = &self.sorted;
        let field = row.get(*at).copied().unwrap_or(Field::Other);
        match shown_value(column, field, self.utf8).map(|value| value.order_key()) {
            Some(key) => Reach::To(if *descending { u64::MAX - key } else { key }),
            None if field == Field::Null && *nulls_first => Reach::First,
            None => Reach::Unknown,
        }
    }
}

/// A position in the sort order, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// A NULL that sorts first.
    First,
    To(u64),
    /// A NULL that sorts last, or a value that cannot be read.
    Unknown,
}
