//! The dependencies of one execution of a statement.
//!
//! Tables and columns are the same for each execution. The parameters decide which rows matter (`predicate/bind.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use freshet_types::{Columns, ComparedColumn, Reason, RowSet, Table, TableId, Tag, Term, Test, Value};

use crate::analysis::{Edge, ReadSet, TableReference};
use crate::dependency::derived_limit::LastRowFinder;
use crate::dependency::join_keys::JoinKeys;
use crate::dependency::join_path::is_open;
use crate::dependency::key_conditions::AccessMethod;
use crate::dependency::limit_bound::LimitBound;
use crate::dependency::member_keys::BY_THEIR_KEYS;
use crate::dependency::result_keys::{BY_KEYS, Keys};
use crate::lex::literal::{Literal, LiteralKind};
use crate::predicate::bind::{self, Rows, is_never};
use crate::predicate::parameters::{Client, Parameter, ParameterValue, Params};
use crate::predicate::{Atom, Operand, UnboundTest};

/// The dependencies of one execution.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The rows and columns that are known before execution.
    pub tags: Vec<Tag>,
    /// The join-key dependencies, whose keys a key query reads.
    pub join_keys: Option<JoinKeys>,
    /// The LIMIT bound, which the last row of the answer gives.
    pub limit_bound: Option<LimitBound>,
    /// The result keys, which all rows of the answer give.
    pub keys: Option<Keys>,
    /// If set, `limit_bound` and `keys` refer to this derived table in the answer, not to the answer.
    pub derived_limit: Option<LastRowFinder>,
}

impl ReadSet {
    /// The tags of one execution.
    pub fn bind(&self, params: &[Parameter<'_>], client: Client) -> Result<Bound, Reason> {
        if self.reads_clock(params) {
            return Err(Reason::ClockLiteral);
        }
        self.refuse_types(params)?;
        self.refuse_completing_times(params)?;
        let params = self.params(params, client);
        let rows = self.rows(params);
        let limit_bound = self.limit_bound(&rows, params);
        let derived_limit = limit_bound.as_ref().and_then(LimitBound::derived_limit);
        let join_keys =
            if self.may_have_join_keys(&rows) { self.join_keys(&rows, limit_bound.as_ref(), params) } else { None };
        let (join_keys, later) = join_keys.unzip();
        let mut later = later.unwrap_or_default();
        let limit_bound = limit_bound.filter(|limit_bound| !later.contains(&limit_bound.place()));
        let keys = self.keys(&rows, &later, limit_bound.as_ref(), params);
        later.extend(keys.iter().flat_map(Keys::places));
        let limit_bound = limit_bound.filter(|limit_bound| !later.contains(&limit_bound.place()));
        later.extend(limit_bound.as_ref().map(LimitBound::place));
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
        Ok(Bound { tags, join_keys, limit_bound, keys, derived_limit })
    }

    /// Whether a key query may be needed. Most statements need none: their constants say which rows matter.
    fn may_have_join_keys(&self, rows: &[Rows]) -> bool {
        let leads_on = |edge: &Edge| rows.get(edge.to).is_some_and(is_open);
        self.edges.iter().any(leads_on)
            || !self.limits.boundaries.is_empty()
            || !self.limits.anti_joins.is_empty()
            || rows.iter().enumerate().any(|(place, rows)| self.wants_members(place, rows))
    }

    /// Whether a constant in the statement's text may be read under the settings at parse time (a date under DateStyle, say) instead of those at
    /// execution. `opaque`: the normalized query still contains quoted text.
    pub fn reads_settings_at_parse(&self, own_params: u16, literals: &[Literal], opaque: bool) -> bool {
        let may_be_date = |number: u32| self.usages.get(&number).is_none_or(|usage| usage.may_be_date);
        let text = |(literal, number): (&Literal, u32)| literal.kind == LiteralKind::String && may_be_date(number);
        self.dates.date_time && (opaque || literals.iter().zip(u32::from(own_params) + 1..).any(text))
    }

    /// For EXPLAIN CACHE: one line for each table reference, and for each view or other relation without rows of its own: which of its rows and
    /// columns matter.
    pub fn describe(&self) -> Vec<String> {
        self.described(self.params(&[], Client::PLAIN), 0)
    }

    /// The same for a text with these literals; the parameters before them are not known. Err: why it is not cached with these literals.
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
            let known = atom.unbound.operands().iter().all(is_known);
            if known { self.test(atom, params) } else { self.sketched(atom) }
        };
        let mut rows: Vec<Rows> =
            self.references.iter().map(|reference| bind::rows(&reference.predicate, test)).collect();
        bind::travel(&mut rows, &self.edges);
        let is_known = |atom: &Atom| atom.unbound.operands().iter().all(is_known);
        let method = |at: usize| {
            let limit_bound =
                self.described_limit_bound(at, params, unknown).is_some_and(|column| self.has_limits(column));
            let by_answer = limit_bound || self.described_open(at, &rows[at], params, unknown) == Some(BY_KEYS);
            let found = self.described_access(at, &rows[at], params, is_known);
            let boundary = rows[at].is_none() && self.described_boundary(at, params, unknown).is_some();
            found.into_iter().chain((by_answer || boundary).then_some(AccessMethod::Answer)).min()
        };
        let paths = self.paths(&rows, method);
        let join_keys = self.described_join_keys(&paths);
        for (place, (TableReference { table, .. }, rows)) in self.references.iter().zip(&rows).enumerate() {
            let conjunctions = rows.iter().flatten().map(|terms| terms.iter().map(described).collect::<Vec<_>>());
            let mut conjunctions: Vec<String> = conjunctions.map(|terms| terms.join(" and ")).collect();
            conjunctions.dedup();
            let mut by_keys = "";
            if let Some((_, keys)) = join_keys.iter().find(|(reached, _)| *reached == place) {
                conjunctions.push(keys.clone());
                conjunctions = vec![conjunctions.join(" and ")];
                by_keys = if self.has_led_members(place, rows, &paths) { BY_THEIR_KEYS } else { "" };
            } else {
                let limit_bound = self.described_limit_bound(place, params, unknown);
                if self.is_keyed(place, rows, limit_bound) {
                    by_keys = ", by the keys of the answer's rows";
                } else if limit_bound.is_none() && method(place).is_some() && self.has_members(place, rows) {
                    by_keys = BY_THEIR_KEYS;
                }
                bound_by(&mut conjunctions, limit_bound);
                if let Some(told) = self.described_open(place, rows, params, unknown) {
                    if conjunctions.is_empty() {
                        conjunctions.push(told.to_owned());
                    } else {
                        by_keys = ", by the keys of the answer's rows";
                    }
                }
                let boundary = self.described_boundary(place, params, unknown);
                if let Some(column) = boundary.filter(|_| rows.is_none() && conjunctions.is_empty()) {
                    conjunctions.push(format!("{} up to the page's last row's", column.name));
                }
                if let Some(Columns::Only(names)) =
                    self.described_spared(place, rows).filter(|_| conjunctions.is_empty())
                {
                    let names = names.join(", ");
                    conjunctions.push(format!("the keys of the answer's rows, and what enters by {names}"));
                }
                if let Some(anti_join) =
                    self.described_anti_join(place, rows, &paths).filter(|_| conjunctions.is_empty())
                {
                    conjunctions.push(anti_join);
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

    /// A test that stands for one with unknown constants.
    fn sketched(&self, atom: &Atom) -> Option<Test> {
        match &atom.unbound {
            UnboundTest::Row(row_filter) => self.row_test(row_filter, None),
            unbound => Some(sketch(unbound)),
        }
    }

    /// The tables of which any row matters, whatever the parameters.
    pub(crate) fn unbounded(&self) -> BTreeSet<TableId> {
        let bound = |reference: &TableReference| bind::rows(&reference.predicate, |atom| self.sketched(atom));
        let mut rows: Vec<Rows> = self.references.iter().map(bound).collect();
        bind::travel(&mut rows, &self.edges);
        let nothing = self.params(&[], Client::PLAIN);
        let paths = self.paths(&rows, |at| self.described_access(at, &rows[at], nothing, |_| false));
        let join_keys = self.described_join_keys(&paths);
        let is_open =
            |place: usize, rows: &Rows| rows.is_none() && join_keys.iter().all(|(reached, _)| *reached != place);
        let open = rows.iter().enumerate().filter(|(place, rows)| is_open(*place, rows));
        open.filter_map(|(place, _)| Some(self.references.get(place)?.table.id)).collect()
    }

    pub(crate) fn params<'p>(&'p self, values: &'p [Parameter<'p>], client: Client) -> Params<'p> {
        let client = Client { utc: client.utc && !self.dialect.is_mysql_family(), ..client };
        Params { values, constants: &self.constants, client }
    }
}

/// Adds to described conjunctions that the last row bounds this column.
fn bound_by(conjunctions: &mut Vec<String>, column: Option<&ComparedColumn>) {
    let Some(bound) = column.map(|column| format!("{} up to the last row's", column.name)) else { return };
    for terms in &mut *conjunctions {
        *terms = format!("{terms} and {bound}");
    }
    if conjunctions.is_empty() {
        conjunctions.push(bound);
    }
}

/// The same for a column.
fn sketch(unbound: &UnboundTest) -> Test {
    match unbound {
        UnboundTest::In(operands) if operands.len() == 1 => Test::In([Value::Int(0)].into()),
        UnboundTest::In(_) | UnboundTest::Any(_) => Test::In([Value::Int(0), Value::Int(1)].into()),
        UnboundTest::Null => Test::Null,
        UnboundTest::Is(value) => Test::In([Value::Bool(*value)].into()),
        UnboundTest::Range { .. } | UnboundTest::Span(_) => Test::Within { low: 0, high: 0 },
        UnboundTest::Like(_) => Test::Begins([].into()),
        UnboundTest::Folded(folding) => sketch(&UnboundTest::In(folding.operands())),
        UnboundTest::NotNull | UnboundTest::Row(_) => Test::NotNull,
        UnboundTest::OfText(unbound) => sketch(unbound),
        UnboundTest::OrNull(unbound) => Test::OrNull(sketch(unbound).into()),
        UnboundTest::Not(_) => Test::Not([].into()),
    }
}

fn described(term: &Term) -> String {
    of_column(&term.column.name, &term.test)
}

pub(crate) fn of_column(name: &str, test: &Test) -> String {
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
