//! What the walk over a statement (`analyze/`) finds, as plain data: table references and what bounds their rows, join edges, limits, uses of parameters.
//!
//! Nothing here depends on the parameters of an execution; the functions in `dependency/` say what an execution depends on.

use std::collections::BTreeMap;
use std::sync::Arc;

use freshet_types::{Catalog, Columns, ComparedColumn, Dialect, Table, TableId, TypeEffect, ValueType};

use crate::lex::literal::Literal;
use crate::predicate::{Atom, Operand, Predicate};

/// How many rows are shown: the parameter that holds the number; None: one row.
pub(crate) type RowLimit = Option<u32>;

/// What a cacheable statement depends on.
#[derive(Clone, Debug)]
pub struct ReadSet {
    /// The tables whose rows matter, sorted and distinct: they must be covered.
    pub tables: Vec<TableId>,
    /// Relations of which it matters what they are, distinct.
    pub(crate) definitions: Vec<Arc<Table>>,
    /// The views among them whose queries were not walked where their names stand.
    pub(crate) unopened: Vec<Arc<Table>>,
    /// The constants of those that were.
    pub(crate) constants: Vec<Literal>,
    pub(crate) references: Vec<TableReference>,
    /// Equalities between columns of references.
    pub(crate) edges: Vec<Edge>,
    pub(crate) limits: Limits,
    pub(crate) usages: BTreeMap<u32, Usage>,
    /// What values of parameters and constants may still bring.
    pub(crate) effects: Vec<Arc<TypeEffect>>,
    pub(crate) dates: Dates,
    pub(crate) dialect: Dialect,
}

/// A table reference and what bounds its rows.
#[derive(Clone, Debug)]
pub(crate) struct TableReference {
    pub(crate) table: Arc<Table>,
    pub(crate) predicate: Predicate,
    /// The columns that the statement mentions.
    pub(crate) columns: Columns,
}

/// What else says which rows matter: LIMIT clauses, keys that the answer shows, rows that are dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// Where the outermost query sorts and cuts its rows.
    pub(crate) cut: Option<Cut>,
    /// References whose keys the answer shows.
    pub(crate) keyed: Vec<Keyed>,
    /// Queries whose first rows are those of the first rows of a reference.
    pub(crate) paged: Vec<Paged>,
    /// References whose rows are dropped by keys that others hold.
    pub(crate) absent: Vec<Absent>,
    /// Limits that may move without another answer.
    pub(crate) moving: Vec<Moving>,
}

/// What a walk finds that a statement reads.
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

/// Which of dates and times a statement handles.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Dates {
    /// Some literal could be read as a date or time.
    pub(crate) date_time: bool,
    /// It handles values of PostgreSQL's `timetz`.
    pub(crate) zoned: bool,
    /// MySQL and MariaDB: a TIME, which becomes a date by the current one.
    pub(crate) times: bool,
    /// MySQL and MariaDB: a TIME, which meets constants at most.
    pub(crate) shows_times: bool,
}

/// How a statement uses a parameter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) count: u32,
    /// All uses are equality with a column of this type.
    pub(crate) equal_to: Option<ValueType>,
    /// Some use is other than a comparison with a column that is no date.
    pub(crate) may_be_date: bool,
    /// Some use is other than a comparison with a column.
    pub(crate) loose: bool,
    /// MySQL and MariaDB: it is to be an offset from UTC.
    pub(crate) is_offset: bool,
}

/// A row of `to` matters only with a row that has the same value in one of `from`: a condition that bounds `to` says so. Places
/// are those among the references of the whole statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) to: usize,
    pub(crate) to_column: ComparedColumn,
    /// At least one; several if a set operation made one column of them.
    pub(crate) from: Vec<Held>,
    /// Only keys that were read lead on: see [`compare_by_keys`](crate::predicate::key_types::compare_by_keys).
    pub(crate) by_keys: bool,
}

/// A column of a reference whose values are keys of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
}

/// Where a statement sorts and cuts its rows.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// The reference of the first sort key, among those of the whole statement.
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
    /// Which column of the answer shows it, and how many there are.
    pub(crate) at: usize,
    pub(crate) width: usize,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
    pub(crate) limit: RowLimit,
    /// The columns of the answer that show those of the page that is cut; none: the answer is.
    pub(crate) page: Vec<usize>,
}

/// How a sort key sorts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// A query whose first rows are those of the first rows of a reference.
#[derive(Clone, Debug)]
pub(crate) struct Paged {
    /// The reference, among those of the whole statement.
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
    pub(crate) order: Order,
    pub(crate) limit: RowLimit,
    /// The parameter with the number of rows before.
    pub(crate) offset: Option<u32>,
    /// WHERE says that these are equal.
    pub(crate) equal: Vec<[u32; 2]>,
}

/// A table reference whose rows in the answer show their keys.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    /// Among the references of the whole statement.
    pub(crate) place: usize,
    /// The identity's columns, and which columns of the answer show them.
    pub(crate) key: Vec<(ComparedColumn, usize)>,
    /// How many columns the answer has.
    pub(crate) width: usize,
    /// Images of old rows hold the key alone.
    pub(crate) old_by_key: bool,
    /// What cuts rows that are in no order.
    pub(crate) limit: Option<RowLimit>,
    /// They are those of a page, which is cut here.
    pub(crate) page: Option<RowLimit>,
    /// The columns that decide which rows of its table the answer shows.
    pub(crate) selecting: Columns,
    /// They are told by these alone.
    pub(crate) is_selected: bool,
    /// The key is of values that the answer shows, which more rows than those shown may have (`analyze/unordered_limit.rs`).
    pub(crate) by_value: bool,
}

/// All that a sub-select asks of its rows.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// Its tables, by their places among the references of the whole statement.
    pub(crate) places: Vec<usize>,
    pub(crate) equal: Vec<[Held; 2]>,
    pub(crate) tests: Vec<(usize, Atom)>,
    pub(crate) limit: Option<RowLimit>,
}

/// Rows of a reference that are dropped if they have a key that rows inside hold.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
    pub(crate) held: Held,
    pub(crate) inside: Inside,
}

/// A condition `c > p`, `c >= p`, `c < p` or `c <= p`.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    pub(crate) operand: Operand,
    pub(crate) column: ComparedColumn,
    /// The column of the answer that shows it, and how many there are.
    pub(crate) at: usize,
    pub(crate) width: usize,
    /// `c > p` or `c >= p`
    pub(crate) is_lower: bool,
    pub(crate) included: bool,
    /// MySQL's TIMESTAMP, which is read as a DATETIME.
    pub(crate) is_zoned: bool,
    /// What MySQL compares together with it: the other limit of BETWEEN.
    pub(crate) beside: Option<Operand>,
}

impl ReadSet {
    /// Whether it depends on a relation of such a name.
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

    /// Adds that any row matters of the tables that another statement reads. Its literals are its own matter.
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

    /// Whether it depends on no relation at all, but on the session's context only.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.definitions.is_empty()
    }
}

impl Keyed {
    /// The same for another reference to the table.
    pub(crate) fn at(&self, place: usize) -> Self {
        Self { place, ..self.clone() }
    }

    /// The rows of a reference that have values which an answer of so many columns shows, cut in no order.
    pub(crate) fn by_value(place: usize, key: Vec<(ComparedColumn, usize)>, width: usize, limit: RowLimit) -> Self {
        let (old_by_key, is_selected, by_value) = (false, false, true);
        let (limit, page, selecting) = (Some(limit), None, Columns::All);
        Self { place, key, width, old_by_key, limit, page, selecting, is_selected, by_value }
    }

    /// The same where an answer shows a page's columns: by their numbers in both.
    pub(crate) fn of_page(&self, limit: RowLimit, columns: &BTreeMap<usize, usize>, width: usize) -> Option<Self> {
        let column = |(column, at): &(ComparedColumn, usize)| Some((column.clone(), *columns.get(at)?));
        let key = self.key.iter().map(column).collect::<Option<_>>()?;
        Some(Self { key, width, page: Some(limit), ..self.clone() })
    }
}

impl Absent {
    /// The tables that hold the keys.
    pub(crate) fn places(&self) -> &[usize] {
        &self.inside.places
    }
}
