//! Conditions on one table reference: tests of its columns by constants, as a disjunction of conjunctions.
//!
//! The input is the syntax tree of a condition; the output is a [`Predicate`] for each table reference that the condition bounds. `bind.rs` inserts
//! the constants of one execution, `formula/` does the same for conditions on a whole row, and `parameters.rs` defines the constants.
//!
//! A predicate contains only unbound tests; binding decides whether a constant can be compared in a known way (`bind.rs`). A condition that is not
//! understood holds for any row, so it is dropped from a conjunction, and it makes a whole disjunction unknown. Parts beyond the limits are dropped
//! in the same way: fewer tests mean more rows.
//!
//! NOT asks when a condition is false, which differs from not being true. AND is false if one side is, OR if both are, a comparison if its opposite
//! is true. So NULL satisfies neither.

pub(crate) mod arrays;
pub(crate) mod bind;
pub(crate) mod column_expressions;
pub(crate) mod date_arithmetic;
pub(crate) mod forms;
pub(crate) mod formula;
pub(crate) mod key_types;
pub(crate) mod like;
pub(crate) mod mysql_values;
pub(crate) mod parameters;
pub(crate) mod row_comparisons;
pub(crate) mod row_filter;
pub(crate) mod syntax;

use std::collections::BTreeSet;

use freshet_types::{ComparedColumn, ValueType};
use sqlparser::ast::{BinaryOperator, Expr, Ident, UnaryOperator};

use crate::allowlist::types::{comparable_type, enum_name, oid};
use crate::predicate::column_expressions::{equality, is_negated, is_plain_text, unbound_test};
use crate::predicate::date_arithmetic::Span;
use crate::predicate::like::{Folding, Matching};
use crate::predicate::row_filter::RowFilter;
use crate::predicate::syntax::{parameter, unwrapped};

/// Limit of conjunctions in one predicate.
const CONJUNCTIONS_MAX: usize = 16;

/// Limit of tests in one conjunction.
const TESTS_MAX: usize = 16;

/// The constant side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The number of the parameter, from 1.
    pub(crate) parameter: u32,
    /// `-$n`
    pub(crate) negated: bool,
    /// `$n::type`: the type's OID; that of the elements if the operand is an array. In MySQL and MariaDB, a function that returns the bytes of a
    /// text.
    pub(crate) cast: Option<u32>,
}

/// One end of a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) operand: Operand,
    pub(crate) included: bool,
}

/// A test whose constants are not known yet.
#[derive(Clone, Debug)]
pub(crate) enum UnboundTest {
    /// `=` and `IN`: equal to at least one.
    In(Vec<Operand>),
    /// `= ANY(array)`
    Any(Operand),
    /// `IS NULL`
    Null,
    /// `IS NOT NULL`
    NotNull,
    /// `<`, `<=`, `>`, `>=`, `BETWEEN`. `NOT BETWEEN` becomes two of these, each with the other's limit in `beside`.
    Range { low: Option<Limit>, high: Option<Limit>, beside: Option<Operand> },
    /// The same with dates in the normalized query.
    Span(Span),
    /// `LIKE`, `NOT LIKE`
    Like(Matching),
    /// `upper(t.c) = upper(…)` and the like: equal to one of these when both are in one case.
    Folded(Folding),
    /// `<>`, `NOT IN`, `<> ALL(array)`: equal to none of these.
    Not(Box<UnboundTest>),
    /// `OR t.c IS NULL`
    OrNull(Box<UnboundTest>),
    /// `t.c`, `NOT t.c`, `t.c = true` and the like.
    Is(bool),
    /// The same of `t.c::text`.
    OfText(Box<UnboundTest>),
    /// A condition on the row, in which this column occurs.
    Row(RowFilter),
}

impl UnboundTest {
    /// The constants of the comparison.
    pub(crate) fn operands(&self) -> Vec<Operand> {
        match self {
            Self::In(operands) => operands.clone(),
            Self::Folded(folding) => folding.operands(),
            Self::Any(operand) => vec![*operand],
            Self::Like(matching) => std::iter::once(matching.pattern).chain(matching.escape).collect(),
            Self::Null | Self::NotNull | Self::Is(_) | Self::Span(_) => Vec::new(),
            Self::Row(row_filter) => row_filter.operands.to_vec(),
            Self::Not(unbound) | Self::OrNull(unbound) | Self::OfText(unbound) => unbound.operands(),
            Self::Range { low, high, beside } => {
                low.iter().chain(high).map(|limit| limit.operand).chain(*beside).collect()
            }
        }
    }

    /// The test for a column of that type. None if it is unknown. A `varchar` is compared as text in any case.
    pub(crate) fn for_column(&self, column: ValueType) -> Option<&Self> {
        match self {
            Self::OfText(unbound) => is_plain_text(column).then_some(&**unbound),
            unbound => Some(unbound),
        }
    }

    /// A test that excludes few rows: no index supports it, or only one of its parts.
    fn is_weak(&self) -> bool {
        match self {
            Self::NotNull | Self::Not(_) | Self::Like(_) | Self::OrNull(_) | Self::Row(_) => true,
            Self::Range { beside, .. } => beside.is_some(),
            Self::OfText(unbound) => unbound.is_weak(),
            Self::In(_) | Self::Any(_) | Self::Null | Self::Folded(_) | Self::Is(_) | Self::Span(_) => false,
        }
    }

    /// It may be true of one value and not of another value that equals it.
    pub(crate) fn is_by_spelling(&self) -> bool {
        matches!(self, Self::Like(_) | Self::Not(_) | Self::OrNull(_))
    }

    /// It is not true of NULL.
    pub(crate) fn rejects_null(&self) -> bool {
        !matches!(self, Self::Null | Self::OrNull(_) | Self::Row(_))
    }

    /// When it is false: if one of these is true.
    fn denied(self) -> Vec<Self> {
        let flipped = |limit: Limit| Limit { included: !limit.included, ..limit };
        match self {
            Self::In(_) | Self::Any(_) => vec![Self::Not(self.into())],
            Self::Not(unbound) => vec![*unbound],
            Self::Null | Self::OrNull(_) | Self::Folded(_) | Self::Span(_) => vec![Self::NotNull],
            Self::NotNull => vec![Self::Null],
            Self::Row(row_filter) => vec![Self::Row(RowFilter { truth: !row_filter.truth, ..row_filter })],
            Self::OfText(unbound) => unbound.denied().into_iter().map(|one| Self::OfText(one.into())).collect(),
            Self::Is(value) => vec![Self::Is(!value)],
            Self::Like(matching) => vec![Self::Like(Matching { negated: !matching.negated, ..matching })],
            Self::Range { low, high, beside } => {
                let below = low.map(|limit| Self::Range {
                    low: None,
                    high: Some(flipped(limit)),
                    beside: high.map(|limit| limit.operand).or(beside),
                });
                let above = high.map(|limit| Self::Range {
                    low: Some(flipped(limit)),
                    high: None,
                    beside: low.map(|limit| limit.operand).or(beside),
                });
                below.into_iter().chain(above).collect()
            }
        }
    }
}

/// A test of a column.
#[derive(Clone, Debug)]
pub(crate) struct Atom {
    pub(crate) column: ComparedColumn,
    pub(crate) unbound: UnboundTest,
    /// It tests the column of a sub-select.
    pub(crate) through: bool,
}

/// Maps a test of a column to the references whose rows it restricts, by their places, with the test of each. None: no row passes.
type Resolve<'r> = dyn Fn(&[Ident], &UnboundTest) -> Vec<(usize, Option<Atom>)> + 'r;

/// How conditions are translated.
pub(crate) struct Translator<'m> {
    pub(crate) of_column: &'m Resolve<'m>,
    /// For a condition that is not such a test and must be true or false.
    pub(crate) of_row: &'m dyn Fn(&Expr, bool) -> Translated,
}

/// The understood part of a condition.
pub(crate) enum Translated {
    Both(Box<Translated>, Box<Translated>),
    Either(Box<Translated>, Box<Translated>),
    /// Tests of the references in these places.
    Of(Vec<(usize, Option<Atom>)>),
    Nothing,
}

/// A condition on the rows that matter: a disjunction of these conjunctions. An empty conjunction is true of any row, an empty disjunction of none.
#[derive(Clone, Debug)]
pub(crate) struct Predicate(Vec<Vec<Atom>>);

impl Predicate {
    pub(crate) fn any_row() -> Self {
        Self(vec![Vec::new()])
    }

    pub(crate) fn conjunctions(&self) -> &[Vec<Atom>] {
        &self.0
    }

    fn is_any_row(&self) -> bool {
        self.0.iter().any(Vec::is_empty)
    }

    /// Whether each row must be tested in one of its conjunctions.
    fn is_weak(&self) -> bool {
        self.0.iter().any(|conjunction| conjunction.iter().all(|atom| atom.unbound.is_weak()))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        if other.is_any_row() {
            return self;
        }
        if self.is_any_row() {
            return other;
        }
        // One conjunction that an index supports is better than several with more tests.
        let finds = |of: &Self| of.0.len() == 1 && !of.is_weak();
        if finds(&self) && other.0.len() > 1 && other.is_weak() {
            return self;
        }
        if finds(&other) && self.0.len() > 1 && self.is_weak() {
            return other;
        }
        if self.0.len() * other.0.len() > CONJUNCTIONS_MAX {
            return if other.0.len() < self.0.len() { other } else { self };
        }
        let both = |one: &Vec<Atom>, two: &Vec<Atom>| one.iter().chain(two).take(TESTS_MAX).cloned().collect();
        Self(self.0.iter().flat_map(|one| other.0.iter().map(move |two| both(one, two))).collect())
    }

    fn or(mut self, other: Self) -> Self {
        if self.is_any_row() || other.is_any_row() {
            return Self::any_row();
        }
        for conjunction in other.0 {
            match listed(&conjunction) {
                Some((column, more)) => match self.0.iter_mut().find_map(|known| list_of(known, column)) {
                    Some(list) => list.extend(more),
                    None => self.0.push(conjunction),
                },
                None => self.0.push(conjunction),
            }
        }
        if self.0.len() > CONJUNCTIONS_MAX { Self::any_row() } else { self }
    }
}

/// The column and the values of a conjunction that is one list of values.
fn listed(conjunction: &[Atom]) -> Option<(&ComparedColumn, &[Operand])> {
    match conjunction {
        [Atom { column, unbound: UnboundTest::In(list), .. }] => Some((column, list)),
        _ => None,
    }
}

/// The values of a conjunction that is a list of this column, to add more.
fn list_of<'c>(conjunction: &'c mut [Atom], wanted: &ComparedColumn) -> Option<&'c mut Vec<Operand>> {
    match conjunction {
        [Atom { column, unbound: UnboundTest::In(list), .. }] if column == wanted => Some(list),
        _ => None,
    }
}

impl Translated {
    /// The translation of a condition that is true.
    pub(crate) fn by(condition: &Expr, translator: &Translator<'_>) -> Self {
        Self::when(condition, true, translator)
    }

    /// The translation of a condition that is true, or false, by `truth`.
    fn when(condition: &Expr, truth: bool, translator: &Translator<'_>) -> Self {
        use BinaryOperator::{And, Or};
        match unwrapped(condition) {
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => Self::when(expr, !truth, translator),
            Expr::BinaryOp { left, op: op @ (And | Or), right } => {
                let (left, right) = (Self::when(left, truth, translator), Self::when(right, truth, translator));
                Self::joined(left, right, (*op == And) == truth)
            }
            // These conditions are false also of unknown values.
            Expr::IsTrue(inner) if truth => Self::when(inner, true, translator),
            Expr::IsFalse(inner) if truth => Self::when(inner, false, translator),
            other => match Self::tested(other, truth, translator.of_column) {
                Self::Nothing => (translator.of_row)(other, truth),
                translated => translated,
            },
        }
    }

    /// The translation as far as the condition is a test of a column by constants.
    fn tested(condition: &Expr, truth: bool, resolve: &Resolve<'_>) -> Self {
        use BinaryOperator::{Eq, NotEq, Spaceship};
        match condition {
            Expr::BinaryOp { left, op: op @ (Eq | NotEq), right } => match (unwrapped(left), unwrapped(right)) {
                // True only if all pairs are equal, false only if one is not.
                (Expr::Tuple(left), Expr::Tuple(right)) if left.len() == right.len() => {
                    let truth = (*op == Eq) == truth;
                    let parts = left.iter().zip(right);
                    let parts = parts.map(|(left, right)| Self::test(equality(left, right), truth, resolve));
                    parts.reduce(|before, part| Self::joined(before, part, truth)).unwrap_or(Self::Nothing)
                }
                _ => {
                    let equality = equality(left, right).or_else(|| date_arithmetic::compared(unwrapped(condition)));
                    Self::test(equality, (*op == Eq) == truth, resolve)
                }
            },
            Expr::BinaryOp { left, op: Spaceship, right } | Expr::IsNotDistinctFrom(left, right) => {
                Self::same(left, right, truth, resolve)
            }
            Expr::IsDistinctFrom(left, right) => Self::same(left, right, !truth, resolve),
            other => {
                let truth = is_negated(other) != truth;
                match row_comparisons::compared(other) {
                    Some(tests) if truth => {
                        let tests = tests.into_iter().map(|test| Self::test(Some(test), true, resolve));
                        tests.reduce(|one, two| Self::joined(one, two, true)).unwrap_or(Self::Nothing)
                    }
                    Some(_) => Self::Nothing,
                    None => Self::test(unbound_test(other), truth, resolve),
                }
            }
        }
    }

    /// Whether two values are the same, with NULL as a value.
    fn same(left: &Expr, right: &Expr, truth: bool, resolve: &Resolve<'_>) -> Self {
        // A NULL constant has no normal form.
        let equality = equality(left, right);
        if truth {
            // The constant may be NULL, which is the same as NULL: the branches for NULL stay.
            let of_rows = |idents: &[Ident], unbound: &UnboundTest| {
                resolve(idents, unbound).into_iter().filter(|(_, atom)| atom.is_some()).collect()
            };
            return Self::test(equality, true, &of_rows);
        }
        let null = equality.as_ref().map(|(column, _)| (*column, UnboundTest::Null));
        Self::joined(Self::test(equality, false, resolve), Self::test(null, true, resolve), false)
    }

    fn joined(left: Self, right: Self, both: bool) -> Self {
        if !both
            && let (Self::Of(left), Self::Of(right)) = (&left, &right)
            && let ([(place, Some(one))], [(other_place, Some(two))]) = (left.as_slice(), right.as_slice())
        {
            let of_same = place == other_place && one.column.name == two.column.name;
            let or_null = match (&one.unbound, &two.unbound) {
                (UnboundTest::Null, unbound) if unbound.is_weak() => Some((two, unbound)),
                (unbound, UnboundTest::Null) if unbound.is_weak() => Some((one, unbound)),
                _ => None,
            };
            if let Some((atom, unbound)) = or_null.filter(|_| of_same) {
                let unbound = UnboundTest::OrNull(unbound.clone().into());
                return Self::Of(vec![(*place, Some(Atom { unbound, ..atom.clone() }))]);
            }
        }
        if both { Self::Both(left.into(), right.into()) } else { Self::Either(left.into(), right.into()) }
    }

    fn test(unbound: Option<(&[Ident], UnboundTest)>, truth: bool, resolve: &Resolve<'_>) -> Self {
        let Some((column, unbound)) = unbound else { return Self::Nothing };
        let tests = if truth { vec![unbound] } else { unbound.denied() };
        let translated = tests.iter().map(|unbound| Self::Of(resolve(column, unbound)));
        translated.reduce(|one, two| Self::joined(one, two, false)).unwrap_or(Self::Nothing)
    }

    /// Adds the places of the references that it may restrict.
    pub(crate) fn note_places(&self, places: &mut BTreeSet<usize>) {
        match self {
            Self::Both(one, two) | Self::Either(one, two) => {
                one.note_places(places);
                two.note_places(places);
            }
            Self::Of(tests) => places.extend(tests.iter().map(|(place, _)| place)),
            Self::Nothing => {}
        }
    }

    /// The predicate of the reference in this place.
    pub(crate) fn of(&self, wanted: usize) -> Predicate {
        match self {
            Self::Both(one, two) => one.of(wanted).and(two.of(wanted)),
            Self::Either(one, two) => one.of(wanted).or(two.of(wanted)),
            Self::Of(tests) => {
                let tests = tests.iter().filter(|(place, _)| *place == wanted).map(|(_, atom)| atom.clone());
                let tests: Option<Vec<Atom>> = tests.collect();
                Predicate(tests.into_iter().collect())
            }
            Self::Nothing => Predicate::any_row(),
        }
    }
}

/// The operands of a list; None if an element is not a constant.
pub(crate) fn operands<'e>(list: impl IntoIterator<Item = &'e Expr>) -> Option<Vec<Operand>> {
    list.into_iter().map(operand).collect::<Option<Vec<_>>>().filter(|operands| !operands.is_empty())
}

pub(crate) fn operand(expr: &Expr) -> Option<Operand> {
    let expr = unwrapped(expr);
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            Some(Operand { parameter: parameter(unwrapped(expr))?, negated: true, cast: None })
        }
        Expr::Cast { expr, data_type, .. } => {
            let (cast, inner) = match enum_name(data_type) {
                // Of other casts only those to an enum are analysed.
                Some(_) => (oid::ANYENUM, like::as_text(expr).1),
                None => (comparable_type(data_type)?, &**expr),
            };
            Some(Operand { parameter: parameter(unwrapped(inner))?, negated: false, cast: Some(cast) })
        }
        Expr::Function(function) => {
            let (name, of) = mysql_values::bytes_of(function)?;
            Some(Operand { parameter: parameter(of)?, negated: false, cast: Some(name) })
        }
        _ => Some(Operand { parameter: parameter(expr)?, negated: false, cast: None }),
    }
}
