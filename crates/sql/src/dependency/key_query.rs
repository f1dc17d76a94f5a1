//! The key query of one table's rows (`join_keys.rs`), and the tags from its answer.

use freshet_types::{Columns, ComparedColumn, RowSet, TableId, Tag, Term, Test, Value, ValueType};

use crate::dependency::limit_boundary::BoundaryQuery;

/// Limit of keys of one table. With more, any row of the table matters.
pub(crate) const KEYS_MAX: usize = 1_000;

/// A key with the number of its keyed table. None is NULL.
pub type Key = (usize, Option<Vec<u8>>);

/// Rows of a table that are given by keys or by a LIMIT boundary.
#[derive(Clone, Debug)]
pub(crate) struct KeyedTable {
    pub(crate) table: TableId,
    /// The SELECTs that together return all keys; empty if they are not read.
    pub(crate) selects: Vec<Select>,
    /// The column with the key.
    pub(crate) column: ComparedColumn,
    /// Other tests of the rows.
    pub(crate) terms: Vec<Term>,
    pub(crate) columns: Columns,
    /// If set, the query asks for a LIMIT boundary, not for keys.
    pub(crate) boundary: Option<BoundaryQuery>,
    /// An anti-join: rows with these keys do not matter.
    pub(crate) anti_join: bool,
}

/// A SELECT for keys, without the number of the keyed table in the SELECT list.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    /// The expression of the key.
    pub(crate) key: String,
    /// The FROM clause.
    pub(crate) from: String,
    /// Conditions joined by AND.
    pub(crate) conditions: Vec<String>,
    /// A condition restricts the rows at the start of the path.
    pub(crate) bounded: bool,
    /// An index may find these rows, so that not each row must be tested.
    pub(crate) finds: bool,
    /// The start of the path, if the answer will bound its rows and is not yet known.
    pub(crate) by_answer: Option<usize>,
    /// The start of the path, if a LIMIT boundary bounds its rows.
    pub(crate) boundary: Option<usize>,
}

impl Select {
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.from.len() + self.conditions.iter().map(String::len).sum::<usize>()
    }
}

/// The SELECT of an anti-join.
pub(crate) struct AntiJoinSelect {
    pub(crate) key: String,
    pub(crate) from: String,
    pub(crate) conditions: Vec<String>,
}

impl KeyedTable {
    /// The SELECTs for its keys. None if one of them is not restricted.
    pub(crate) fn asked(&self) -> &[Select] {
        if self.selects.iter().all(|select| select.bounded) { &self.selects } else { &[] }
    }

    /// All tests of its rows, as far as they are known before the keys are.
    pub(crate) fn all_terms(&self) -> Vec<Term> {
        let key = Term { column: self.column.clone(), test: Test::NotNull };
        self.terms.iter().cloned().chain([key]).collect()
    }

    /// Whether order keys have the same order as the values.
    pub(crate) fn has_order(&self) -> bool {
        use ValueType::{Date, Int, Numeric, Timestamp, Unsigned};
        matches!(self.column.value_type, Date | Int | Numeric | Timestamp | Unsigned)
    }

    pub(crate) fn is_asked(&self) -> bool {
        !self.asked().is_empty() || self.boundary.is_some()
    }

    /// Rows up to a LIMIT boundary.
    pub(crate) fn of_boundary(table: TableId, columns: Columns, boundary: BoundaryQuery) -> Self {
        let column = boundary.column().clone();
        Self {
            table,
            selects: Vec::new(),
            column,
            terms: Vec::new(),
            columns,
            boundary: Some(boundary),
            anti_join: false,
        }
    }

    /// Rows without the keys of an anti-join.
    pub(crate) fn of_anti_join(
        table: TableId,
        columns: Columns,
        column: ComparedColumn,
        holding: AntiJoinSelect,
    ) -> Self {
        let AntiJoinSelect { key, from, conditions } = holding;
        let select = Select { key, from, conditions, bounded: true, finds: true, by_answer: None, boundary: None };
        Self { table, selects: vec![select], column, terms: Vec::new(), columns, boundary: None, anti_join: true }
    }

    /// The tags from an answer; None if there is no answer.
    pub(crate) fn tags(&self, number: usize, rows: Option<&[Key]>, ranges: bool) -> Vec<Tag> {
        let Some(boundary) = &self.boundary else {
            return self.tag(rows.and_then(|rows| values_of(&self.column, number, rows)), ranges).into_iter().collect();
        };
        let keys = keys_of(number, rows.unwrap_or_default());
        let of_test = |test| {
            let term = Term { column: self.column.clone(), test };
            Tag { table: self.table, rows: RowSet::Where([term].into()), columns: self.columns.clone() }
        };
        match boundary.tests(&keys) {
            Some(tests) => tests.into_iter().map(of_test).collect(),
            None => vec![Tag { table: self.table, rows: RowSet::Any, columns: self.columns.clone() }],
        }
    }

    /// The tag of these keys; without a key no row of the table matters.
    pub(crate) fn tag(&self, keys: Option<Vec<Value>>, ranges: bool) -> Option<Tag> {
        let mut terms = self.terms.clone();
        match keys {
            Some(keys) if self.anti_join => {
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

/// The keys of one keyed table.
pub(crate) fn keys_of(number: usize, rows: &[Key]) -> Vec<Option<&[u8]>> {
    rows.iter().filter(|(keyed, _)| *keyed == number).map(|(_, key)| key.as_deref()).collect()
}

/// The keys as values of a column, sorted and distinct; None if they are too many or one has no normal form.
pub(crate) fn values_of(column: &ComparedColumn, number: usize, rows: &[Key]) -> Option<Vec<Value>> {
    // NULL equals nothing.
    let texts = keys_of(number, rows).into_iter().flatten();
    let form = |text| match column.value_type {
        // The other column may have another numeric type.
        ValueType::Int | ValueType::Unsigned | ValueType::Numeric => ValueType::Numeric.normalise_text(text),
        own => own.normalise_text(text),
    };
    let mut keys: Vec<Value> = texts.map(form).collect::<Option<_>>()?;
    keys.sort_unstable();
    keys.dedup();
    (keys.len() <= KEYS_MAX).then_some(keys)
}
