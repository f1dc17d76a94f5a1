//! Rows that NOT EXISTS drops: those whose keys others hold.
//!
//! `FROM item WHERE NOT EXISTS (SELECT 1 FROM done WHERE done.item_id = item.id AND done.state = 'final')`: a row of item whose id is held by such a row of
//! done is dropped. So with K, the keys that these hold, *id is none of K* is a sound predicate of item, as long as K stays what it is; and what
//! changes K is a change of done, whose own tag says so. Nearly all rows may be left: it spares what happens to rows that are through with.
//!
//! # Why this is sound
//!
//! Other predicates may be true of more rows than those that matter, so keys for them may be more than there are. Of K it is the other way round:
//! each of its keys must be held indeed, so nothing may be left out of what is asked for K.
//!
//! * **The sub-select** is of tables that are no parents of others, joined by equalities of columns of one type, compared with constants by equality, all under AND, with one
//!   equality with a column outside, or, for NOT IN, the column that it shows. Nothing else stands in it that might leave out a row. Constants are written
//!   as they are compared (`key_conditions.rs`), or nothing is asked.
//! * **Types** in which equality is that of normal forms, so that a row which the tag spares is one that the database drops.
//! * **Outer joins.** Where the row is extended with NULLs if it is missing, NOT EXISTS is true of the NULLs: not of the nullable side.
//! * **The tags of the tables inside** must not rest on rows of the outer one: if a key leaves K that no outer row has, that must be a hit, since a row that
//!   gets the key later would be shown. So nothing is asked if the rows inside are those with keys of others than themselves.
//! * **NULL** equals no key.

use freshet_types::{Column, ComparedColumn, ValueType};
use sqlparser::ast::{
    BinaryOperator, Distinct, Expr, JoinConstraint, JoinOperator, LimitClause, Query, Select, UnaryOperator,
};

use crate::analyze::Walk;
use crate::analyze::conditions::{Named, atom};
use crate::analyze::derived::{Origin, Reached};
use crate::analyze::scope::Source;
use crate::dependency::join_path::{Held, Ways};
use crate::dependency::key_query::Part;
use crate::dependency::limit_bound::{self, Limit};
use crate::dependency::query_text::quoted;
use crate::dependency::read_set::{Footprint, TableReference};
use crate::predicate::bind::Rows;
use crate::predicate::column_expressions::{equality, question};
use crate::predicate::parameters::Params;
use crate::predicate::{Atom, Question, conjuncts, parameter, unwrapped};

/// All that a sub-select asks of its rows.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// Its tables, by their places among the references of the whole statement.
    places: Vec<usize>,
    equal: Vec<[Held; 2]>,
    tests: Vec<(usize, Atom)>,
    /// What equals a column outside.
    outer: Option<(Held, Named)>,
    limit: Option<Limit>,
}

/// Rows of a reference that are dropped if they have a key that rows inside hold.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    pub(crate) place: usize,
    pub(crate) column: ComparedColumn,
    held: Held,
    inside: Inside,
}

/// What is asked for the keys.
pub(crate) struct Holding {
    pub(crate) key: String,
    pub(crate) from: String,
    pub(crate) conditions: Vec<String>,
}

impl Inside {
    /// The same of the query whose SELECT it is of.
    pub(crate) fn of_query(self, query: &Query) -> Option<Self> {
        let limit = match &query.limit_clause {
            None => None,
            Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by }) if limit_by.is_empty() => {
                Some(Some(parameter(unwrapped(limit))?))
            }
            Some(_) => return None,
        };
        (query.with.is_none() && query.fetch.is_none()).then_some(Self { limit, ..self })
    }
}

/// Whether columns of the type are equal just if their normal forms are.
fn is_exact(mysql: bool, value_type: ValueType) -> bool {
    use ValueType::{Int, OrderedText, Text, Unsigned, Uuid};
    matches!(value_type, Int | Unsigned) || (!mysql && matches!(value_type, OrderedText | Text | Uuid))
}

impl Walk<'_> {
    /// What the innermost block's SELECT asks of its rows, if that is all known.
    pub(crate) fn inside(&self, select: &Select) -> Option<Inside> {
        let distinct = matches!(select.distinct, None | Some(Distinct::Distinct));
        let plain = distinct && crate::dependency::derived_limit::is_ungrouped(select);
        let block = self.blocks.last().filter(|_| plain && self.blocks.len() > 1)?;
        if limit_bound::calls(&select.projection, |_| true) {
            return None;
        }
        let mut all: Vec<&Expr> = select.selection.iter().flat_map(conjuncts).collect();
        let mut items = 0;
        for from in &select.from {
            items += 1 + from.joins.len();
            for join in &from.joins {
                match &join.join_operator {
                    JoinOperator::Join(JoinConstraint::On(on)) | JoinOperator::Inner(JoinConstraint::On(on)) => {
                        all.extend(conjuncts(on));
                    }
                    _ => return None,
                }
            }
        }
        let place = |reference: &crate::analyze::scope::Reference| match &reference.source {
            Source::Table { table, places } if places.len() == 1 && !reference.nullable => {
                self.references.get(places.start).filter(|of| of.table.id == table.id).map(|_| places.start)
            }
            _ => None,
        };
        let places: Vec<usize> = block.references.iter().map(place).collect::<Option<_>>()?;
        let mut inside = Inside { places, equal: Vec::new(), tests: Vec::new(), outer: None, limit: None };
        (items == block.references.len() && all.into_iter().all(|one| self.add_inside(one, &mut inside).is_some()))
            .then_some(inside)
    }

    /// Adds a conjunct; None: it is not understood.
    fn add_inside(&self, conjunct: &Expr, inside: &mut Inside) -> Option<()> {
        let mysql = self.is_mysql();
        let tested = match conjunct {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                if let (Some(left), Some(right)) = (self.named_by_name(left), self.named_by_name(right)) {
                    match (self.held(&left), self.held(&right)) {
                        (Some(one), Some(two)) if one.column.value_type == two.column.value_type => {
                            inside.equal.push([one, two]);
                        }
                        (Some(own), None) if inside.outer.is_none() => inside.outer = Some((own, right)),
                        (None, Some(own)) if inside.outer.is_none() => inside.outer = Some((own, left)),
                        _ => return None,
                    }
                    return Some(());
                }
                equality(left, right)
            }
            Expr::InList { negated: false, .. } => question(conjunct),
            _ => None,
        };
        let (name, question) = tested.filter(|(_, question)| matches!(question, Question::In(_)))?;
        let named = self.named_by(name)?;
        self.of_table(&named)?;
        inside.tests.push(atom(mysql, named.rows.first()?, &question)?);
        Some(())
    }

    fn named_by_name(&self, expr: &Expr) -> Option<Named> {
        self.named_by(crate::predicate::column_name(expr)?)
    }

    /// The column of a table of the innermost block that a name means, if it is of a type whose values are keys.
    fn held(&self, named: &Named) -> Option<Held> {
        let column = self.of_table(named).filter(|column| is_exact(self.is_mysql(), column.value_type))?;
        let place = named.rows.first()?.origin.place;
        Some(Held { place, column: ComparedColumn { name: column.name.clone(), value_type: column.value_type } })
    }

    fn of_table<'n>(&self, named: &'n Named) -> Option<&'n Column> {
        let [Reached { origin: Origin { column, through: false, .. }, nullable: false }] = named.rows.as_slice() else {
            return None;
        };
        (named.block + 1 == self.blocks.len() && !column.generated).then_some(column)
    }

    /// Notes which rows a condition drops by their keys, of the references that it bounds.
    pub(crate) fn note_absent(&mut self, condition: &Expr, bounded: &std::ops::Range<usize>) {
        let absent = conjuncts(condition).into_iter().filter_map(|conjunct| self.absent_by(conjunct));
        let absent: Vec<(usize, Absent)> = absent.collect();
        self.absent.extend(absent.into_iter().filter(|(item, _)| bounded.contains(item)).map(|(_, absent)| absent));
    }

    /// The item of the innermost block and what the conjunct drops of it.
    fn absent_by(&self, conjunct: &Expr) -> Option<(usize, Absent)> {
        let (negated, inner) = match conjunct {
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => (true, unwrapped(expr)),
            other => (false, other),
        };
        // NOT (… AND c IS NOT NULL), which no key is.
        let (inner, beside) = match inner {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } if negated => match unwrapped(right) {
                Expr::IsNotNull(beside) => (unwrapped(left), Some(beside)),
                _ => return None,
            },
            inner => (inner, None),
        };
        let (subquery, is_not, value) = match inner {
            Expr::Exists { subquery, negated } => (subquery, *negated, None),
            Expr::InSubquery { subquery, negated, expr } => (subquery, *negated, Some(expr)),
            _ => return None,
        };
        let shown = self.told_by(subquery).filter(|_| is_not != negated)?;
        let inside = shown.inside.as_deref()?.clone();
        let (held, named) = match (value, &inside.outer, shown.columns.as_slice()) {
            (None, Some((held, named)), _) => (held.clone(), named.clone()),
            // LIMIT would leave out some of the keys.
            (Some(value), None, [column]) if inside.limit.is_none() => {
                let [Origin { place, column, through: false }] = column.origins.as_slice() else { return None };
                let (name, value_type) = (column.name.clone(), column.value_type);
                let held = Held { place: *place, column: ComparedColumn { name, value_type } };
                (Some(held).filter(|held| inside.places.contains(&held.place))?, self.named_by_name(value)?)
            }
            _ => return None,
        };
        let column = self.of_table(&named)?;
        let same = |beside: &Expr| self.named_by_name(beside).and_then(|other| self.held(&other)) == self.held(&named);
        let exact = is_exact(self.is_mysql(), column.value_type) && column.value_type == held.column.value_type;
        if !exact || !beside.is_none_or(|beside| same(beside)) {
            return None;
        }
        let column = ComparedColumn { name: column.name.clone(), value_type: column.value_type };
        Some((named.place, Absent { place: named.rows.first()?.origin.place, column, held, inside }))
    }
}

impl Absent {
    /// The tables that hold the keys.
    pub(crate) fn places(&self) -> &[usize] {
        &self.inside.places
    }
}

impl Footprint {
    /// The references whose rows are dropped by keys that others hold, at most so many, but for those that are told: their places, those of the others,
    /// and what is asked.
    pub(crate) fn absent_parts(
        &self,
        rows: &[Rows],
        ways: &Ways<'_>,
        mut told: Vec<usize>,
        max: usize,
        params: Params<'_>,
    ) -> Vec<(usize, &[usize], Part)> {
        let mut parts = Vec::new();
        for absent in &self.absent {
            let place = absent.place;
            let is_told = told.contains(&place) || self.described_spared(place, &rows[place]).is_some();
            if is_told || rows[place].is_some() || ways.lead_into(absent.places()) || parts.len() >= max {
                continue;
            }
            let Some(holding) = self.holding(absent, params) else { continue };
            let TableReference { table, columns, .. } = &self.references[place];
            let part = Part::of_absent(table.id, columns.clone(), absent.column.clone(), holding);
            told.push(place);
            parts.push((place, absent.places(), part));
        }
        parts
    }

    /// What to ask for the keys; None: it cannot be written so that it is true of no more rows.
    pub(crate) fn holding(&self, absent: &Absent, params: Params<'_>) -> Option<Holding> {
        let Absent { held, inside: Inside { places, equal, tests, limit, .. }, .. } = absent;
        if let Some(limit) = limit {
            self.rows_max(*limit, params).filter(|limit| *limit > 0)?;
        }
        let quoted = |name: &str| quoted(self.dialect, name);
        let only = if self.dialect.is_mysql_family() { "" } else { "ONLY " };
        let alias = |place: usize| places.iter().position(|of| *of == place).map(|at| format!("t{at}"));
        let column =
            |place: usize, column: &ComparedColumn| Some(format!("{}.{}", alias(place)?, quoted(&column.name)));
        let table = |place: &usize| {
            let table = &self.references.get(*place)?.table;
            Some(format!("{only}{}.{} {}", quoted(&table.schema), quoted(&table.name), alias(*place)?))
        };
        let from: Vec<String> = places.iter().map(table).collect::<Option<_>>()?;
        let mut conditions = Vec::new();
        for [one, two] in equal {
            conditions.push(format!("{} = {}", column(one.place, &one.column)?, column(two.place, &two.column)?));
        }
        for (place, atom) in tests {
            let written = self.written_exactly(atom, params)?;
            conditions.extend(written.tests(self.dialect, &column(*place, &atom.column)?));
        }
        let key = column(held.place, &held.column)?;
        (!tests.is_empty()).then(|| Holding { key, from: from.join(", "), conditions })
    }

    /// For people: the column of a reference, and the one that holds the keys of rows that are dropped.
    pub(crate) fn described_absent(&self, place: usize, rows: &Rows, ways: &Ways<'_>) -> Option<String> {
        let is_asked = |absent: &&Absent| {
            absent.place == place && !absent.inside.tests.is_empty() && !ways.lead_into(absent.places())
        };
        let absent = self.absent.iter().find(is_asked)?;
        let table = &self.references.get(absent.held.place)?.table;
        let column = &absent.column.name;
        rows.is_none().then(|| format!("{column} not among the values of {}.{}", table.name, absent.held.column.name))
    }
}
