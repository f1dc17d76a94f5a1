//! Conditions and the references that they bound: predicates, and equality with columns of other references.

use std::collections::BTreeSet;
use std::ops::Range;

use freshet_types::{Column, ComparedColumn, ValueType};
use sqlparser::ast::{BinaryOperator, Expr, Ident, Query};

use crate::analysis::{Edge, ReferenceColumn};
use crate::analyze::Walk;
use crate::analyze::outer_joins::Joined;
use crate::analyze::shown::{Bounds, Origin, Outer, Reached, ShownColumn};
use crate::predicate::key_types::{compare_alike, compare_by_keys, is_whole};
use crate::predicate::syntax::{conjuncts, unwrapped};
use crate::predicate::{Atom, Predicate, Translated, Translator, UnboundTest};

/// Limit of edges in one statement; without further ones more rows matter.
const EDGES_MAX: usize = 256;

impl Walk<'_> {
    /// The bounds of a condition: on the references in `bounded`, and on rows of outer blocks.
    pub(crate) fn bounds_of(&self, condition: &Expr, bounded: &Range<usize>) -> (Bounds, Vec<Outer>) {
        let (mysql, innermost) = (self.is_mysql(), self.scope.blocks.len().saturating_sub(1));
        let resolve = |idents: &[Ident], unbound: &UnboundTest| {
            let Some(named) = self.named_by(idents) else { return Vec::new() };
            let here = named.block == innermost && bounded.contains(&named.place);
            let nulls = named.nulls.iter().filter(|_| here && unbound.rejects_null());
            let never = nulls.flat_map(|null| null.places.clone()).map(|place| (place, None));
            let atoms = named.rows.iter().filter(|_| here).filter_map(|reached| atom(mysql, reached, unbound));
            atoms.map(|(place, atom)| (place, Some(atom))).chain(never).collect()
        };
        let of_scalars = conjuncts(condition).into_iter().filter_map(|conjunct| self.translated_by_scalar(conjunct));
        let mut predicates = Vec::new();
        let of_row = |expr: &Expr, truth: bool| self.translated_by_row(expr, truth, bounded);
        let translator = Translator { of_column: &resolve, of_row: &of_row };
        for translated in std::iter::once(Translated::by(condition, &translator)).chain(of_scalars) {
            let mut places = BTreeSet::new();
            translated.note_places(&mut places);
            predicates.extend(places.into_iter().map(|place| (place, translated.of(place))));
        }
        let (edges, outer) = self.equal_columns(condition, bounded);
        (Bounds { predicates, edges }, outer)
    }

    /// Adds bounds to their references.
    pub(crate) fn add_bounds(&mut self, Bounds { predicates, edges }: Bounds) {
        for (place, predicate) in predicates {
            let Some(reference) = self.found.references.get_mut(place) else { continue };
            let before = std::mem::replace(&mut reference.predicate, Predicate::any_row());
            reference.predicate = before.and(predicate);
        }
        self.found.edges.extend(edges);
        self.found.edges.truncate(EDGES_MAX);
    }

    /// The same for USING: the columns with these names are equal on both sides, if it is certain which columns they are.
    pub(crate) fn bounds_of_using(&self, names: &[String], join: &Joined, bounded: &Range<usize>) -> Bounds {
        let mut edges = Vec::new();
        for name in names {
            let sides = [&join.left, &join.right].map(|side| self.named_on_side(name, side.clone()));
            let [Some(left), Some(right)] = sides else { continue };
            for (to, from) in [(&left, &right), (&right, &left)] {
                if bounded.contains(&to.place) {
                    self.connect(&to.rows, &from.origins, &mut edges);
                }
            }
        }
        Bounds { predicates: Vec::new(), edges }
    }

    /// The equalities between columns at the top of a condition: for references that it bounds, and for those of outer blocks.
    fn equal_columns(&self, condition: &Expr, bounded: &Range<usize>) -> (Vec<Edge>, Vec<Outer>) {
        let (mut edges, mut outer) = (Vec::new(), Vec::new());
        for conjunct in conjuncts(condition) {
            for Outer { to, from } in self.equalities(conjunct) {
                if to.block + 1 < self.scope.blocks.len() {
                    outer.push(Outer { to, from });
                } else if bounded.contains(&to.place) {
                    self.connect(&to.rows, &from, &mut edges);
                }
            }
            if let Expr::InSubquery { expr, subquery, negated: false } = conjunct {
                // It is true for no row with another value inside.
                for (value, shown) in self.compared_with(expr, subquery) {
                    self.connect(&shown.reached, &self.origins(value), &mut edges);
                }
            }
        }
        (edges, outer)
    }

    /// Pairs of columns that have the same value if a conjunct is true.
    fn equalities(&self, conjunct: &Expr) -> Vec<Outer> {
        let inside = |subquery: &Query| self.told_by(subquery).map_or_else(Vec::new, |shown| shown.outer.clone());
        let pair = |to: &Expr, from: &Expr| {
            let from = Some(self.origins(from)).filter(|from| !from.is_empty())?;
            Some(Outer { to: self.named(to)?, from })
        };
        match conjunct {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match (unwrapped(left), unwrapped(right)) {
                (Expr::Tuple(left), Expr::Tuple(right)) if left.len() == right.len() => {
                    left.iter().zip(right).flat_map(|(one, two)| [pair(one, two), pair(two, one)]).flatten().collect()
                }
                (left, right) => {
                    // A scalar sub-select without a row is NULL.
                    let of_scalar = |side: &Expr| match side {
                        Expr::Subquery(subquery) => inside(subquery),
                        _ => Vec::new(),
                    };
                    let pairs = [pair(left, right), pair(right, left)].into_iter().flatten();
                    pairs.chain(of_scalar(left)).chain(of_scalar(right)).collect()
                }
            },
            Expr::InSubquery { expr, subquery, negated: false } => {
                let pair = |(value, shown): (&Expr, &ShownColumn)| {
                    let from = Some(shown.origins.clone()).filter(|from| !from.is_empty())?;
                    Some(Outer { to: self.named(value)?, from })
                };
                self.compared_with(expr, subquery).into_iter().filter_map(pair).chain(inside(subquery)).collect()
            }
            Expr::Exists { subquery, negated: false } => inside(subquery),
            _ => Vec::new(),
        }
    }

    /// The left side of `IN (SELECT …)`: each value with the column that it is compared with.
    fn compared_with<'e>(&'e self, values: &'e Expr, subquery: &Query) -> Vec<(&'e Expr, &'e ShownColumn)> {
        let columns = self.told_by(subquery).map_or(&[][..], |shown| &shown.columns);
        let values = match unwrapped(values) {
            Expr::Tuple(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        if values.len() == columns.len() { values.iter().zip(columns).collect() } else { Vec::new() }
    }

    /// Adds an edge: rows of these columns matter only with a row that has the same value in one of those, if these are known.
    fn connect(&self, to: &[Reached], from: &[Origin], edges: &mut Vec<Edge>) {
        // An edge within one reference gives nothing: its rows would find themselves.
        let is_same = |from: &Origin| to.iter().any(|to| to.origin.place == from.place);
        if from.is_empty() || from.iter().any(is_same) {
            return;
        }
        for Reached { origin, .. } in to {
            let one = origin.column.value_type;
            let by_keys = from.iter().any(|from| compare_by_keys(one, from.column.value_type));
            let leads = |from: &Origin| {
                let two = from.column.value_type;
                let rounds = self.is_mysql() && (origin.through || from.through) && (one != two || !is_whole(one));
                !rounds && (compare_by_keys(one, two) || compare_alike(one, two))
            };
            if from.iter().all(leads) {
                let reference_column =
                    |from: &Origin| ReferenceColumn { place: from.place, column: compared(&from.column) };
                edges.push(Edge {
                    to: origin.place,
                    to_column: compared(&origin.column),
                    from: from.iter().map(reference_column).collect(),
                    by_keys,
                });
            }
        }
    }
}

fn compared(column: &Column) -> ComparedColumn {
    ComparedColumn { name: column.name.clone(), value_type: column.value_type }
}

/// The test of a unbound about the rows of one reference.
pub(crate) fn atom(
    mysql: bool,
    Reached { nullable, origin }: &Reached,
    unbound: &UnboundTest,
) -> Option<(usize, Atom)> {
    let Origin { place, column, through } = origin;
    // Rows that a sub-select merges are equal, but may be spelled differently.
    let mut column = compared(column);
    let unbound = unbound.for_column(column.value_type)?;
    let told = tests_rows(mysql, *nullable, column.value_type, unbound) && !(*through && unbound.is_by_spelling());
    column.value_type = unbound.compares(column.value_type);
    told.then(|| (*place, Atom { column, unbound: unbound.clone(), through: *through }))
}

/// Whether the unbound test is one of the rows of a reference: see `mod.rs`.
fn tests_rows(mysql: bool, nullable: bool, column: ValueType, unbound: &UnboundTest) -> bool {
    use ValueType::{Bytea, Bytes, DateTime, ExactText, OrderedText, Other, Time, TimeTz};
    use ValueType::{Date, Float4, Float8, Int, Numeric, Timestamp, TimestampTz, Unsigned};
    match unbound {
        UnboundTest::In(_) | UnboundTest::Any(_) => !matches!(column, Other | DateTime | Time | TimeTz),
        // In MySQL, IS NULL is true of a zero date in a column that is NOT NULL; elsewhere it is true of a composite value of NULLs.
        UnboundTest::Null => !nullable && if mysql { !column.is_date() } else { column != Other },
        UnboundTest::Range { .. } => {
            let number = matches!(column, Int | Unsigned | Numeric | Float4 | Float8);
            let text = matches!(column, OrderedText | ExactText | Bytea | Bytes);
            number || text || matches!(column, Date | Timestamp | TimestampTz)
        }
        UnboundTest::Span(_) => matches!(column, Date | Timestamp | TimestampTz),
        UnboundTest::Is(_) => column == ValueType::Bool,
        UnboundTest::OfText(_) => false,
        // NULL satisfies none of them, except the last, which consists of two that were tested.
        UnboundTest::NotNull
        | UnboundTest::Not(_)
        | UnboundTest::Like(_)
        | UnboundTest::Folded(_)
        | UnboundTest::OrNull(_)
        | UnboundTest::Row(_) => true,
    }
}
