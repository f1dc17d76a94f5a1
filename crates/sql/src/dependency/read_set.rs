//! What a statement depends on, before and after its parameters are known.
//!
//! The tables and columns are the same for each execution; which rows matter is told by its parameters (`predicate/bind.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use freshet_types::{
    Catalog, Columns, ComparedColumn, Dialect, Reason, RowSet, Table, TableId, Tag, Term, Test, TypeEffect, Value,
    ValueType,
};

use crate::dependency::anti_join::Absent;
use crate::dependency::join_keys::is_never;
use crate::dependency::join_path::{Edge, is_open};
use crate::dependency::key_conditions::Start;
use crate::dependency::limit_bound::Cut;
use crate::dependency::limit_boundary::Paged;
use crate::dependency::member_keys::BY_THEIR_KEYS;
use crate::dependency::moving_limit::Moving;
use crate::dependency::result_keys::{BY_KEYS, Keyed};
use crate::predicate::bind::{self, Rows};
use crate::predicate::parameters::{Client, Params};
use crate::predicate::{Atom, Operand, Predicate, Question};
use crate::{Furthest, Keys, Lineage, Literal, LiteralKind, Top};

/// A parameter of one execution: the statement's own, then the literals of its text.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// Its value.
    pub value: ParameterValue<'a>,
    /// The type OID in Parse; 0 if it was left to the server (also for literals).
    pub declared_type: u32,
}

/// A parameter's value.
#[derive(Clone, Copy, Debug)]
pub enum ParameterValue<'a> {
    /// NULL
    Null,
    /// In text format.
    Text(&'a [u8]),
    /// In binary format.
    Binary(&'a [u8]),
    /// From the statement's text.
    Literal(&'a Literal),
    /// MySQL and MariaDB: an integer of the binary protocol.
    Integer(i128),
    /// MySQL and MariaDB: DATE, DATETIME or TIMESTAMP of the binary protocol, as [`freshet_types::Value::Moment`] if it is of whole
    /// seconds and one that both servers take.
    Moment(Option<i64>),
    /// MySQL and MariaDB: TIME of the binary protocol, which the current date may complete.
    Time,
    /// MySQL and MariaDB: bytes of the binary protocol.
    Bytes(&'a [u8]),
    /// MySQL and MariaDB: anything else of the binary protocol: floats, LOBs sent in pieces, types that are not known.
    Opaque,
}

/// What one execution depends on.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The rows and columns.
    pub tags: Vec<Tag>,
    /// What is to be read to know the rows of tags that are told later.
    pub lineage: Option<Lineage>,
    /// What the last row of the answer tells of further rows.
    pub top: Option<Top>,
    /// What all of its rows tell of rows that go.
    pub keys: Option<Keys>,
    /// The end that both ask for is not that of the answer, but of this page among its rows.
    pub page: Option<Furthest>,
}

/// What a cacheable statement depends on.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub struct Footprint {
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
    pub(crate) cut: Option<Cut>,
    /// References whose keys the answer shows.
    pub(crate) keyed: Vec<Keyed>,
    /// Queries whose first rows are those of the first rows of a reference.
    pub(crate) paged: Vec<Paged>,
    /// References whose rows are dropped by keys that others hold.
    pub(crate) absent: Vec<Absent>,
    /// Limits that may move without another answer.
    pub(crate) moving: Vec<Moving>,
    pub(crate) usages: BTreeMap<u32, Usage>,
    /// What values of parameters and constants may still bring.
    pub(crate) effects: Vec<Arc<TypeEffect>>,
    /// Some literal could be read as a date or time.
    pub(crate) date_time: bool,
    /// It handles values of `timetz`.
    pub(crate) zoned: bool,
    /// MySQL and MariaDB: a TIME, which becomes a date by the current one.
    pub(crate) times: bool,
    /// MySQL and MariaDB: a TIME, which meets constants at most.
    pub(crate) shows_times: bool,
    pub(crate) dialect: Dialect,
}

impl Footprint {
    /// Whether it depends on a relation of such a name.
    pub fn names(&self, catalog: &Catalog, is: impl Fn(&str) -> bool) -> bool {
        self.tables.iter().any(|table| catalog.table(*table).is_none_or(|table| is(&table.name)))
            || self.definitions.iter().any(|relation| is(&relation.name))
    }
}

/// A table reference and what bounds its rows.
#[derive(Clone, Debug)]
pub(crate) struct TableReference {
    pub(crate) table: Arc<Table>,
    pub(crate) predicate: Predicate,
    /// The columns that the statement mentions.
    pub(crate) columns: Columns,
}

/// What a statement reads.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) references: Vec<TableReference>,
    pub(crate) edges: Vec<Edge>,
    /// Where its rows are sorted and cut.
    pub(crate) cut: Option<Cut>,
    /// See [`Footprint::keyed`].
    pub(crate) keyed: Vec<Keyed>,
    /// See [`Footprint::paged`].
    pub(crate) paged: Vec<Paged>,
    /// See [`Footprint::absent`].
    pub(crate) absent: Vec<Absent>,
    /// See [`Footprint::moving`].
    pub(crate) moving: Vec<Moving>,
    /// See [`Footprint::definitions`].
    pub(crate) definitions: Vec<Arc<Table>>,
    /// See [`Footprint::unopened`].
    pub(crate) unopened: Vec<Arc<Table>>,
    /// See [`Footprint::constants`].
    pub(crate) constants: Vec<Literal>,
    /// See [`Footprint::effects`].
    pub(crate) effects: Vec<Arc<TypeEffect>>,
}

/// Which of dates and times a statement handles.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Dates {
    pub(crate) date_time: bool,
    /// PostgreSQL's `timetz`.
    pub(crate) zoned: bool,
    /// MySQL's TIME.
    pub(crate) times: bool,
    /// That meets constants at most.
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

impl Footprint {
    pub(crate) fn new(dialect: Dialect, read: Read, usages: BTreeMap<u32, Usage>, dates: Dates) -> Self {
        let Read { references, edges, cut, keyed, paged, absent, moving, definitions, unopened, constants, effects } =
            read;
        let Dates { date_time, zoned, times, shows_times } = dates;
        let tables = Vec::new();
        let mut footprint = Self {
            tables,
            definitions,
            unopened,
            constants,
            references,
            edges,
            cut,
            keyed,
            paged,
            absent,
            moving,
            usages,
            effects,
            date_time,
            zoned,
            times,
            shows_times,
            dialect,
        };
        footprint.arrange();
        footprint
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
            self.date_time |= other.date_time;
            self.times |= other.times;
            self.shows_times |= other.shows_times;
        }
        self.arrange();
    }

    fn arrange(&mut self) {
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

    pub(crate) fn params<'p>(&'p self, values: &'p [Parameter<'p>], client: Client) -> Params<'p> {
        let Client { utf8, as_sent, wide, plain_backslash, utc, raw: _ } = client;
        let utc = utc && !self.dialect.is_mysql_family();
        Params { values, constants: &self.constants, utf8, as_sent, wide, plain_backslash, utc }
    }

    /// The tags of one execution.
    pub fn bind(&self, params: &[Parameter<'_>], client: Client) -> Result<Bound, Reason> {
        if self.reads_clock(params) {
            return Err(Reason::ClockLiteral);
        }
        self.refuse_types(params)?;
        self.refuse_completing_times(params)?;
        let params = self.params(params, client);
        let rows = self.rows(params);
        let top = self.top(&rows, params);
        let page = top.as_ref().and_then(Top::page);
        let lineage = if self.may_have_lineage(&rows) { self.lineage(&rows, top.as_ref(), params) } else { None };
        let (lineage, later) = lineage.unzip();
        let mut later = later.unwrap_or_default();
        let top = top.filter(|top| !later.contains(&top.place()));
        let keys = self.keys(&rows, &later, top.as_ref(), params);
        later.extend(keys.iter().flat_map(Keys::places));
        let top = top.filter(|top| !later.contains(&top.place()));
        later.extend(top.as_ref().map(Top::place));
        let known = self.references.iter().zip(rows).enumerate().filter(|(place, _)| !later.contains(place));
        let known: Vec<(&TableReference, Rows)> = known.map(|(_, bound)| bound).collect();
        let mut any: BTreeMap<TableId, Columns> = BTreeMap::new();
        for (reference, _) in known.iter().filter(|(_, rows)| rows.is_none()) {
            let columns = any.entry(reference.table.id).or_insert_with(|| reference.columns.clone());
            if reference.columns == Columns::All {
                *columns = Columns::All;
            }
        }
        let any_row =
            |(table, columns): (&TableId, &Columns)| Tag { table: *table, rows: RowSet::Any, columns: columns.clone() };
        let mut tags: Vec<Tag> = Vec::with_capacity(self.references.len() + self.definitions.len());
        tags.extend(any.iter().map(any_row));
        let definition =
            |relation: &Arc<Table>| Tag { table: relation.id, rows: RowSet::Definition, columns: Columns::All };
        tags.extend(self.definitions.iter().map(definition));
        let never = known.iter().filter(|(_, rows)| is_never(rows));
        tags.extend(never.map(|(reference, _)| definition(&reference.table)));
        for (reference, rows) in known.into_iter().filter(|(reference, _)| !any.contains_key(&reference.table.id)) {
            for conjunction in rows.into_iter().flatten() {
                let (table, columns) = (reference.table.id, reference.columns.clone());
                let tag = Tag { table, rows: RowSet::Where(conjunction.into()), columns };
                if !tags.contains(&tag) {
                    tags.push(tag);
                }
            }
        }
        tags.extend(later.iter().map(|place| {
            let reference = &self.references[*place];
            Tag { table: reference.table.id, rows: RowSet::Later, columns: reference.columns.clone() }
        }));
        Ok(Bound { tags, lineage, top, keys, page })
    }

    /// Whether keys may have to be read; not so of most statements, whose constants say which rows matter.
    fn may_have_lineage(&self, rows: &[Rows]) -> bool {
        let leads_on = |edge: &Edge| rows.get(edge.to).is_some_and(is_open);
        self.edges.iter().any(leads_on)
            || !self.paged.is_empty()
            || !self.absent.is_empty()
            || rows.iter().enumerate().any(|(place, rows)| self.wants_members(place, rows))
    }

    /// Whether a constant in the statement's text may be read under the settings in force when it is parsed (a date
    /// under DateStyle, say), rather than those of the execution. `opaque`: the shape still holds quoted text.
    pub fn reads_settings_at_parse(&self, own_params: u16, literals: &[Literal], opaque: bool) -> bool {
        let may_be_date = |number: u32| self.usages.get(&number).is_none_or(|usage| usage.may_be_date);
        let text = |(literal, number): (&Literal, u32)| literal.kind == LiteralKind::String && may_be_date(number);
        self.date_time && (opaque || literals.iter().zip(u32::from(own_params) + 1..).any(text))
    }

    /// One line per table reference, and per view or other relation without rows of its own, for people: what of it
    /// matters.
    pub fn describe(&self) -> Vec<String> {
        self.described(self.params(&[], Client::PLAIN), 0)
    }

    /// The same for a text with these literals; what its own parameters will be, before them, is not known. Err: why it is not
    /// cached with them.
    pub fn describe_text(&self, own_params: u16, literals: &[Literal], client: Client) -> Result<Vec<String>, Reason> {
        let own = std::iter::repeat_n(ParameterValue::Null, own_params.into());
        let values = own.chain(literals.iter().map(ParameterValue::Literal));
        let params: Vec<Parameter<'_>> = values.map(|value| Parameter { value, declared_type: 0 }).collect();
        self.bind(&params, client)?;
        Ok(self.described(self.params(&params, client), own_params))
    }

    fn described(&self, params: Params<'_>, unknown: u16) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let is_known = |operand: &Operand| operand.parameter > u32::from(unknown) && params.get(*operand).is_some();
        let test = |atom: &Atom| {
            let known = atom.question.operands().iter().all(is_known);
            if known { self.test(atom, params) } else { self.sketched(atom) }
        };
        let mut rows: Vec<Rows> =
            self.references.iter().map(|reference| bind::rows(&reference.predicate, test)).collect();
        bind::travel(&mut rows, &self.edges);
        let is_known = |atom: &Atom| atom.question.operands().iter().all(is_known);
        let starts = |at: usize| {
            let top = self.described_cut(at, params, unknown).is_some_and(|column| self.has_limits(column));
            let cut = top || self.described_open(at, &rows[at], params, unknown) == Some(BY_KEYS);
            let start = self.described_start(at, &rows[at], params, is_known);
            let end = rows[at].is_none() && self.described_end(at, params, unknown).is_some();
            start.into_iter().chain((cut || end).then_some(Start::Cut)).min()
        };
        let ways = self.ways(&rows, starts);
        let lineage = self.described_lineage(&ways);
        for (place, (TableReference { table, .. }, rows)) in self.references.iter().zip(&rows).enumerate() {
            let conjunctions = rows.iter().flatten().map(|terms| terms.iter().map(described).collect::<Vec<_>>());
            let mut conjunctions: Vec<String> = conjunctions.map(|terms| terms.join(" and ")).collect();
            conjunctions.dedup();
            let mut by_keys = "";
            if let Some((_, keys)) = lineage.iter().find(|(reached, _)| *reached == place) {
                conjunctions.push(keys.clone());
                conjunctions = vec![conjunctions.join(" and ")];
                by_keys = if self.has_led_members(place, rows, &ways) { BY_THEIR_KEYS } else { "" };
            } else {
                let cut = self.described_cut(place, params, unknown);
                if self.is_keyed(place, rows, cut) {
                    by_keys = ", by the keys of the answer's rows";
                } else if cut.is_none() && starts(place).is_some() && self.has_members(place, rows) {
                    by_keys = BY_THEIR_KEYS;
                }
                bound_by(&mut conjunctions, cut);
                if let Some(told) = self.described_open(place, rows, params, unknown) {
                    if conjunctions.is_empty() {
                        conjunctions.push(told.to_owned());
                    } else {
                        by_keys = ", by the keys of the answer's rows";
                    }
                }
                let end = self.described_end(place, params, unknown);
                if let Some(end) = end.filter(|_| rows.is_none() && conjunctions.is_empty()) {
                    conjunctions.push(format!("{} up to the page's last row's", end.name));
                }
                if let Some(Columns::Only(names)) =
                    self.described_spared(place, rows).filter(|_| conjunctions.is_empty())
                {
                    let names = names.join(", ");
                    conjunctions.push(format!("the keys of the answer's rows, and what enters by {names}"));
                }
                if let Some(absent) = self.described_absent(place, rows, &ways).filter(|_| conjunctions.is_empty()) {
                    conjunctions.push(absent);
                }
            }
            let of_none = if is_never(rows) { "no row" } else { "any row" };
            let rows = if conjunctions.is_empty() { of_none.to_owned() } else { conjunctions.join(" or ") };
            lines.push(format!("{}.{}: {rows}{by_keys}", table.schema, table.name));
        }
        lines.extend(self.definitions.iter().map(|r| format!("{}.{}: its definition", r.schema, r.name)));
        lines.dedup();
        lines
    }

    /// A test in the place of one whose constants are not known.
    fn sketched(&self, atom: &Atom) -> Option<Test> {
        match &atom.question {
            Question::Row(residual) => self.row_test(residual, None),
            question => Some(sketch(question)),
        }
    }

    /// The tables of which any row matters, whatever the parameters are.
    pub(crate) fn unbounded(&self) -> BTreeSet<TableId> {
        let bound = |reference: &TableReference| bind::rows(&reference.predicate, |atom| self.sketched(atom));
        let mut rows: Vec<Rows> = self.references.iter().map(bound).collect();
        bind::travel(&mut rows, &self.edges);
        let nothing = self.params(&[], Client::PLAIN);
        let ways = self.ways(&rows, |at| self.described_start(at, &rows[at], nothing, |_| false));
        let lineage = self.described_lineage(&ways);
        let is_open =
            |place: usize, rows: &Rows| rows.is_none() && lineage.iter().all(|(reached, _)| *reached != place);
        let open = rows.iter().enumerate().filter(|(place, rows)| is_open(*place, rows));
        open.filter_map(|(place, _)| Some(self.references.get(place)?.table.id)).collect()
    }
}

/// Adds to conjunctions in words that the last row bounds this column.
fn bound_by(conjunctions: &mut Vec<String>, column: Option<&ComparedColumn>) {
    let Some(cut) = column.map(|column| format!("{} up to the last row's", column.name)) else { return };
    for terms in &mut *conjunctions {
        *terms = format!("{terms} and {cut}");
    }
    if conjunctions.is_empty() {
        conjunctions.push(cut);
    }
}

/// The same of a column.
fn sketch(question: &Question) -> Test {
    match question {
        Question::In(operands) if operands.len() == 1 => Test::In([Value::Int(0)].into()),
        Question::In(_) | Question::Any(_) => Test::In([Value::Int(0), Value::Int(1)].into()),
        Question::Null => Test::Null,
        Question::Is(value) => Test::In([Value::Bool(*value)].into()),
        Question::Range { .. } | Question::Span(_) => Test::Within { low: 0, high: 0 },
        Question::Like(_) => Test::Begins([].into()),
        Question::Folded(folding) => sketch(&Question::In(folding.operands())),
        Question::NotNull | Question::Row(_) => Test::NotNull,
        Question::OfText(question) => sketch(question),
        Question::OrNull(question) => Test::OrNull(sketch(question).into()),
        Question::Not(_) => Test::Not([].into()),
    }
}

fn described(term: &Term) -> String {
    of_column(&term.column.name, &term.test)
}

fn of_column(name: &str, test: &Test) -> String {
    match test {
        Test::OrNull(test) => format!("{} or null", of_column(name, test)),
        Test::In(values) if values.len() == 1 => format!("{name} = …"),
        Test::In(_) => format!("{name} in (…)"),
        Test::Null => format!("{name} is null"),
        Test::Within { .. } => format!("{name} within a range"),
        Test::Begins(_) => format!("the beginning of {name}"),
        Test::NotNull => format!("{name} is not null"),
        Test::Not(_) => format!("{name} other than …"),
        Test::Like(pattern) if pattern.negated => format!("{name} not like …"),
        Test::Like(_) => format!("{name} like …"),
        Test::Row(test) => format!("a condition on {}", test.columns.join(", ")),
    }
}
