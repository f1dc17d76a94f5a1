//! The result of the walk over a statement (`analyze/`), as plain data: table references with the conditions on their rows, join edges, limits, uses
//! of parameters.
//!
//! Nothing here depends on the parameters of an execution. The functions in `dependency/` compute the dependencies of one execution.

use std::collections::BTreeMap;
use std::sync::Arc;

use freshet_types::{Catalog, Columns, ComparedColumn, Dialect, Table, TableId, TypeEffect, ValueType};

use crate::lex::literal::Literal;
use crate::predicate::{Atom, Operand, Predicate};

/// The number of rows of a LIMIT: the parameter that holds it; None means one row.
pub(crate) type RowLimit = Option<u32>;

/// The dependencies of a cacheable statement.
#[derive(Clone, Debug)]
pub struct ReadSet {
    /// The tables of which rows matter, sorted and distinct. They must be published.
    pub tables: Vec<TableId>,
    /// Relations whose definitions matter, distinct.
    pub(crate) definitions: Vec<Arc<Table>>,
    /// The views of `definitions` whose queries were not analysed as part of the statement.
    pub(crate) unopened: Vec<Arc<Table>>,
    /// The constants of the views that were.
    pub(crate) constants: Vec<Literal>,
    pub(crate) references: Vec<TableReference>,
    /// Equalities between columns of references.
    pub(crate) edges: Vec<Edge>,
    pub(crate) limits: Limits,
    pub(crate) usages: BTreeMap<u32, Usage>,
    /// Effects that values of parameters and constants may still cause.
    pub(crate) effects: Vec<Arc<TypeEffect>>,
    pub(crate) dates: Dates,
    pub(crate) dialect: Dialect,
}

/// A table reference and the conditions that its rows must meet.
#[derive(Clone, Debug)]
pub(crate) struct TableReference {
    pub(crate) table: Arc<Table>,
    pub(crate) predicate: Predicate,
    /// The columns that the statement mentions.
    pub(crate) columns: Columns,
}

/// Other facts that restrict which rows matter: LIMIT clauses, keys in the answer, anti-joins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// The sort order and LIMIT of the outermost query, or of a derived table that its answer shows.
    pub(crate) sorted: Option<SortedLimit>,
    /// References whose keys are columns of the answer.
    pub(crate) result_keys: Vec<ResultKey>,
    /// The LIMIT boundaries that a key query can read.
    pub(crate) boundaries: Vec<LimitBoundary>,
    /// Anti-joins: references whose rows are dropped if another reference has their key.
    pub(crate) anti_joins: Vec<AntiJoin>,
    /// Conditions whose limit may move without changing the answer.
    pub(crate) moving: Vec<Moving>,
}

/// What the walk over a statement collects.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) references: Vec<TableReference>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) limits: Limits,
    /// See [`ReadSet::definitions`].
    pub(crate) definitions: Vec<Arc<Table>>,
    /// See [`ReadSet::unopened`].
    pub(crate) unopened: Vec<Arc<Table>>,
    /// See [`ReadSet::constants`].
    pub(crate) constants: Vec<Literal>,
    /// See [`ReadSet::effects`].
    pub(crate) effects: Vec<Arc<TypeEffect>>,
}

/// The dates and times that a statement handles.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Dates {
    /// Some literal could be read as a date or time.
    pub(crate) date_time: bool,
    /// It handles values of PostgreSQL's `timetz`.
    pub(crate) zoned: bool,
    /// MySQL and MariaDB: it handles a TIME that the current date completes.
    pub(crate) times: bool,
    /// MySQL and MariaDB: it handles a TIME that is compared with constants at most.
    pub(crate) shows_times: bool,
}

/// How a statement uses a parameter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) count: u32,
    /// All uses are equality with a column of this type.
    pub(crate) equal_to: Option<ValueType>,
    /// There is a use other than a comparison with a column that is not a date.
    pub(crate) may_be_date: bool,
    /// There is a use other than a comparison with a column.
    pub(crate) loose: bool,
    /// MySQL and MariaDB: it is used as an offset from UTC.
    pub(crate) is_offset: bool,
}

/// A join edge: a row of `to` matters only if a row in one of `from` has the same value, because a condition on `to` requires it. Places number the
/// references of the whole statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) to: usize,
    pub(crate) to_column: ComparedColumn,
    /// At least one; several if a set operation merges their columns into one.
    pub(crate) from: Vec<ReferenceColumn>,
    /// Only keys that were read can be followed: see [`compare_by_keys`](crate::predicate::key_types::compare_by_keys).
    pub(crate) by_keys: bool,
}

/// A column of a reference whose values are keys of other references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReferenceColumn {
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
}

/// The sort order and LIMIT of the outermost query.
#[derive(Clone, Debug)]
pub(crate) struct SortedLimit {
    /// The reference of the first sort key, by its place in the whole statement.
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
    /// The column of the answer that holds the sort key. `width` is the number of the answer's columns.
    pub(crate) at: usize,
    pub(crate) width: usize,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
    pub(crate) limit: RowLimit,
    /// If the limited rows are those of a derived table: the columns of the answer that hold its columns. Empty otherwise.
    pub(crate) derived_columns: Vec<usize>,
}

/// The direction of a sort key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// The LIMIT boundary of a query, at any place of the statement, whose order is that of the rows of one reference.
#[derive(Clone, Debug)]
pub(crate) struct LimitBoundary {
    /// The reference, by its place in the whole statement.
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
    pub(crate) order: Order,
    pub(crate) limit: RowLimit,
    /// The parameter that holds the OFFSET.
    pub(crate) offset: Option<u32>,
    /// Pairs that WHERE requires to be equal.
    pub(crate) equal: Vec<[u32; 2]>,
}

/// A table reference whose keys are columns of the answer.
#[derive(Clone, Debug)]
pub(crate) struct ResultKey {
    /// By its place in the whole statement.
    pub(crate) place: usize,
    /// The columns of the replica identity, each with the column of the answer that holds it.
    pub(crate) key: Vec<(ComparedColumn, usize)>,
    /// Number of the answer's columns.
    pub(crate) width: usize,
    /// The images of old rows have the key only.
    pub(crate) old_by_key: bool,
    /// The LIMIT, if the rows have no order.
    pub(crate) limit: Option<RowLimit>,
    /// The LIMIT of the derived table that the rows come from.
    pub(crate) derived_limit: Option<RowLimit>,
    /// The columns of the table that decide which of its rows are in the answer.
    pub(crate) selecting: Columns,
    /// Only these columns decide it.
    pub(crate) is_selected: bool,
    /// The key consists of values in the answer, which rows outside the answer may have too (`analyze/unordered_limit.rs`).
    pub(crate) by_value: bool,
}

/// The conditions of a sub-select on its rows.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// Its tables, by their places in the whole statement.
    pub(crate) places: Vec<usize>,
    pub(crate) equal: Vec<[ReferenceColumn; 2]>,
    pub(crate) tests: Vec<(usize, Atom)>,
    pub(crate) limit: Option<RowLimit>,
}

/// An anti-join: rows of a reference are dropped if a row of the sub-select has their key.
#[derive(Clone, Debug)]
pub(crate) struct AntiJoin {
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
    /// The column of the sub-select with the key.
    pub(crate) inner_key: ReferenceColumn,
    pub(crate) inside: Inside,
}

/// A condition `c > p`, `c >= p`, `c < p` or `c <= p`.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    pub(crate) operand: Operand,
    pub(crate) column: ComparedColumn,
    /// The column of the answer that holds it. `width` is the number of the answer's columns.
    pub(crate) at: usize,
    pub(crate) width: usize,
    /// `c > p` or `c >= p`
    pub(crate) is_lower: bool,
    pub(crate) included: bool,
    /// MySQL's TIMESTAMP, read as a DATETIME.
    pub(crate) is_zoned: bool,
    /// The operand that MySQL compares together with it: the other bound of BETWEEN.
    pub(crate) beside: Option<Operand>,
}

impl ReadSet {
    /// Whether it depends on a relation whose name fulfils `is`.
    pub fn names(&self, catalog: &Catalog, is: impl Fn(&str) -> bool) -> bool {
        self.tables.iter().any(|table| catalog.table(*table).is_none_or(|table| is(&table.name)))
            || self.definitions.iter().any(|relation| is(&relation.name))
    }

    pub(crate) fn new(dialect: Dialect, read: Read, usages: BTreeMap<u32, Usage>, dates: Dates) -> Self {
        let Read { references, edges, limits, definitions, unopened, constants, effects } = read;
        let tables = Vec::new();
        let mut read_set = Self {
            tables,
            definitions,
            unopened,
            constants,
            references,
            edges,
            limits,
            usages,
            effects,
            dates,
            dialect,
        };
        read_set.arrange();
        read_set
    }

    /// Adds the tables that another statement reads, of which any row matters. The other statement checks its literals itself.
    pub(crate) fn add_any_row(&mut self, other: Self) {
        let any = |TableReference { table, .. }| TableReference {
            table,
            predicate: Predicate::any_row(),
            columns: Columns::All,
        };
        self.references.extend(other.references.into_iter().map(any));
        self.definitions.extend(other.definitions);
        if self.dialect.is_mysql_family() {
            self.dates.date_time |= other.dates.date_time;
            self.dates.times |= other.dates.times;
            self.dates.shows_times |= other.dates.shows_times;
        }
        self.arrange();
    }

    pub(crate) fn arrange(&mut self) {
        self.tables = self.references.iter().map(|reference| reference.table.id).collect();
        self.tables.sort_unstable();
        self.tables.dedup();
        self.definitions.sort_unstable_by_key(|relation| relation.id);
        self.definitions.dedup_by_key(|relation| relation.id);
    }

    /// Whether it depends on no relation, but only on the session's context.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.definitions.is_empty()
    }
}

impl ResultKey {
    /// The same for another reference to the table.
    pub(crate) fn at(&self, place: usize) -> Self {
        Self { place, ..self.clone() }
    }

    /// The rows of a reference that have the values in an answer of `width` columns, under a LIMIT without an order.
    pub(crate) fn by_value(place: usize, key: Vec<(ComparedColumn, usize)>, width: usize, limit: RowLimit) -> Self {
        let (old_by_key, is_selected, by_value) = (false, false, true);
        let (limit, derived_limit, selecting) = (Some(limit), None, Columns::All);
        Self { place, key, width, old_by_key, limit, derived_limit, selecting, is_selected, by_value }
    }

    /// The same for an answer that shows the columns of a derived table; `columns` maps their numbers there to those in the answer.
    pub(crate) fn of_derived(&self, limit: RowLimit, columns: &BTreeMap<usize, usize>, width: usize) -> Option<Self> {
        let column = |(column, at): &(ComparedColumn, usize)| Some((column.clone(), *columns.get(at)?));
        let key = self.key.iter().map(column).collect::<Option<_>>()?;
        Some(Self { key, width, derived_limit: Some(limit), ..self.clone() })
    }
}

impl AntiJoin {
    /// The tables that hold the keys.
    pub(crate) fn places(&self) -> &[usize] {
        &self.inside.places
    }
}
