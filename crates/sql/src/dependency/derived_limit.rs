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

use std::collections::HashSet;

use crate::analysis::Cut;
use crate::dependency::answer::{Field, shown_value};

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
        match shown_value(column, field, self.utf8).map(|value| value.order_key()) {
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
