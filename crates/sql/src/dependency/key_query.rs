//! What is asked for the keys of one table's rows (`join_keys.rs`), and the tags that they tell.

use freshet_types::{Columns, ComparedColumn, RowSet, TableId, Tag, Term, Test, Value, ValueType};

use crate::dependency::limit_boundary::End;

/// Keys of one part beyond which any row of the table matters.
pub(crate) const KEYS_MAX: usize = 1_000;

/// A key with the number of its part; None: NULL.
pub type Key = (usize, Option<Vec<u8>>);

/// Rows of a table that are told by keys, or by how far they reach.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) table: TableId,
    /// The SELECTs whose keys are its keys, all together; none: they are not asked for.
    pub(crate) selects: Vec<Select>,
    /// Holds the key.
    pub(crate) column: ComparedColumn,
    /// What else is known of the rows.
    pub(crate) terms: Vec<Term>,
    pub(crate) columns: Columns,
    /// Not keys are asked for, but how far rows reach.
    pub(crate) end: Option<End>,
    /// Rows with these keys do not matter.
    pub(crate) absent: bool,
}

/// A SELECT for keys, behind the words that number it.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    /// The key.
    pub(crate) key: String,
    /// The tables.
    pub(crate) from: String,
    /// Joined by AND.
    pub(crate) conditions: Vec<String>,
    /// Something bounds the rows where the way begins.
    pub(crate) bounded: bool,
    /// They can be found by it: not each has to be tested.
    pub(crate) finds: bool,
    /// The reference where it begins, if the answer is to bound its rows and is not known yet.
    pub(crate) cut: Option<usize>,
    /// The same, if its rows reach as far as is asked for.
    pub(crate) end: Option<usize>,
}

/// What is asked for the keys.
pub(crate) struct Holding {
    pub(crate) key: String,
    pub(crate) from: String,
    pub(crate) conditions: Vec<String>,
}

impl Part {
    /// What is asked for its keys: not all rows of a table.
    pub(crate) fn asked(&self) -> &[Select] {
        if self.selects.iter().all(|select| select.bounded) { &self.selects } else { &[] }
    }

    /// All that its rows pass, as far as it is known before the keys are.
    pub(crate) fn all_terms(&self) -> Vec<Term> {
        let key = Term { column: self.column.clone(), test: Test::NotNull };
        self.terms.iter().cloned().chain([key]).collect()
    }

    /// Whether all values between two keys have order keys between theirs.
    pub(crate) fn has_order(&self) -> bool {
        use ValueType::{Date, Int, Numeric, Timestamp, Unsigned};
        matches!(self.column.value_type, Date | Int | Numeric | Timestamp | Unsigned)
    }

    pub(crate) fn is_asked(&self) -> bool {
        !self.asked().is_empty() || self.end.is_some()
    }

    /// Rows that reach as far as is asked for.
    pub(crate) fn of_end(table: TableId, columns: Columns, end: End) -> Self {
        let column = end.column().clone();
        Self { table, selects: Vec::new(), column, terms: Vec::new(), columns, end: Some(end), absent: false }
    }

    /// Rows but for those with keys that others hold.
    pub(crate) fn of_absent(table: TableId, columns: Columns, column: ComparedColumn, holding: Holding) -> Self {
        let Holding { key, from, conditions } = holding;
        let select = Select { key, from, conditions, bounded: true, finds: true, cut: None, end: None };
        Self { table, selects: vec![select], column, terms: Vec::new(), columns, end: None, absent: true }
    }

    /// The tags that an answer tells; None: there is none.
    pub(crate) fn tags(&self, number: usize, rows: Option<&[Key]>, ranges: bool) -> Vec<Tag> {
        let Some(end) = &self.end else {
            return self.tag(rows.and_then(|rows| values_of(&self.column, number, rows)), ranges).into_iter().collect();
        };
        let keys = keys_of(number, rows.unwrap_or_default());
        let of_test = |test| {
            let term = Term { column: self.column.clone(), test };
            Tag { table: self.table, rows: RowSet::Where([term].into()), columns: self.columns.clone() }
        };
        match end.tests(&keys) {
            Some(tests) => tests.into_iter().map(of_test).collect(),
            None => vec![Tag { table: self.table, rows: RowSet::Any, columns: self.columns.clone() }],
        }
    }

    /// No key: no row of its table matters.
    pub(crate) fn tag(&self, keys: Option<Vec<Value>>, ranges: bool) -> Option<Tag> {
        let mut terms = self.terms.clone();
        match keys {
            Some(keys) if self.absent => {
                let test = Test::OrNull(Test::Not(keys.into()).into());
                terms.push(Term { column: self.column.clone(), test });
            }
            Some(keys) if keys.is_empty() => return None,
            Some(keys) if ranges => {
                let of_keys = || keys.iter().map(Value::order_key);
                let (low, high) = (of_keys().min()?, of_keys().max()?);
                terms.push(Term { column: self.column.clone(), test: Test::Within { low, high } });
            }
            Some(keys) => terms.push(Term { column: self.column.clone(), test: Test::In(keys.into()) }),
            None => {}
        }
        terms.sort_by(|a, b| a.column.cmp(&b.column));
        let rows = if terms.is_empty() { RowSet::Any } else { RowSet::Where(terms.into()) };
        Some(Tag { table: self.table, rows, columns: self.columns.clone() })
    }
}

/// The keys of one part.
pub(crate) fn keys_of(number: usize, rows: &[Key]) -> Vec<Option<&[u8]>> {
    rows.iter().filter(|(part, _)| *part == number).map(|(_, key)| key.as_deref()).collect()
}

/// The same as values of a column, sorted and distinct; None: too many, or one that has no normal form.
pub(crate) fn values_of(column: &ComparedColumn, number: usize, rows: &[Key]) -> Option<Vec<Value>> {
    // NULL equals nothing.
    let texts = keys_of(number, rows).into_iter().flatten();
    let form = |text| match column.value_type {
        // The other column may be of another type of number.
        ValueType::Int | ValueType::Unsigned | ValueType::Numeric => ValueType::Numeric.normalise_text(text),
        own => own.normalise_text(text),
    };
    let mut keys: Vec<Value> = texts.map(form).collect::<Option<_>>()?;
    keys.sort_unstable();
    keys.dedup();
    (keys.len() <= KEYS_MAX).then_some(keys)
}
