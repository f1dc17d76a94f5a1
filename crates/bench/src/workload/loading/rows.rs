//! Rows in the bulk form of each family: the text of COPY, or the VALUES of an INSERT.

use std::fmt::Write as _;

use crate::target::Family;

/// One value of a row.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Cell<'a> {
    Null,
    Int(i64),
    /// A value of any type, in its text form.
    Text(&'a str),
}

impl Cell<'_> {
    /// An id or a count.
    pub(in super::super) fn int(number: usize) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// Rows of all tables that are not sent yet.
pub(in super::super) struct Rows {
    family: Family,
    texts: Vec<String>,
    count: u64,
}

impl Rows {
    pub(in super::super) fn new(family: Family, tables: usize) -> Self {
        Self { family, texts: vec![String::new(); tables], count: 0 }
    }

    /// Adds a row to the table with this index.
    pub(in super::super) fn add(&mut self, table: usize, cells: &[Cell<'_>]) {
        let Some(text) = self.texts.get_mut(table) else { return };
        self.count += 1;
        match self.family {
            Family::Postgres => copied(text, cells),
            Family::Mysql => inserted(text, cells),
        }
    }

    /// Number of rows added so far.
    pub(in super::super) fn count(&self) -> u64 {
        self.count
    }

    /// A table's rows, if they are longer than `at_least` bytes.
    pub(in super::super) fn take(&mut self, at_least: usize) -> Option<(usize, String)> {
        let (index, text) = self.texts.iter_mut().enumerate().find(|(_, text)| text.len() > at_least)?;
        Some((index, std::mem::take(text)))
    }
}

fn copied(text: &mut String, cells: &[Cell<'_>]) {
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            text.push('\t');
        }
        match cell {
            Cell::Null => text.push_str("\\N"),
            Cell::Int(number) => {
                let _ = write!(text, "{number}");
            }
            Cell::Text(value) => escaped(text, value, |letter| match letter {
                '\\' => Some("\\\\"),
                '\t' => Some("\\t"),
                '\n' => Some("\\n"),
                '\r' => Some("\\r"),
                _ => None,
            }),
        }
    }
    text.push('\n');
}

fn inserted(text: &mut String, cells: &[Cell<'_>]) {
    text.push_str(if text.is_empty() { "(" } else { ",(" });
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        match cell {
            Cell::Null => text.push_str("NULL"),
            Cell::Int(number) => {
                let _ = write!(text, "{number}");
            }
            Cell::Text(value) => {
                text.push('\'');
                escaped(text, value, |letter| match letter {
                    '\\' => Some("\\\\"),
                    '\'' => Some("''"),
                    _ => None,
                });
                text.push('\'');
            }
        }
    }
    text.push(')');
}

fn escaped(text: &mut String, value: &str, escape: impl Fn(char) -> Option<&'static str>) {
    for letter in value.chars() {
        match escape(letter) {
            Some(escape) => text.push_str(escape),
            None => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_as_each_family_reads_them() {
        let cells = [Cell::Int(-1), Cell::Null, Cell::Text("O'Hara\\\t\n")];
        for (family, expected) in [
            (Family::Postgres, "-1\t\\N\tO'Hara\\\\\\t\\n\n-1\t\\N\tO'Hara\\\\\\t\\n\n"),
            (Family::Mysql, "(-1,NULL,'O''Hara\\\\\t\n'),(-1,NULL,'O''Hara\\\\\t\n')"),
        ] {
            let mut rows = Rows::new(family, 2);
            rows.add(1, &cells);
            rows.add(1, &cells);
            assert_eq!((rows.count(), rows.take(1000)), (2, None));
            assert_eq!(rows.take(0), Some((1, expected.to_owned())));
            assert_eq!(rows.take(0), None);
        }
    }
}
