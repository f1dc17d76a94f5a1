//! Outer-join reduction: outer joins that are equivalent to inner joins.
//!
//! `l LEFT JOIN r ON l.k = r.k WHERE r.c = 1`: if a row of l joins no row of r, r.c is NULL and WHERE is not true. So the statement is equivalent to
//! one with an inner join in every state of the database, and its ON bounds both sides. The same holds for any other condition that a row must
//! satisfy and that no row with NULLs for all of r satisfies: the ON of an enclosing join, for the sides that it bounds. In this way WHERE applies
//! through chains of outer joins: `l LEFT JOIN r ON … LEFT JOIN s ON s.k = r.k WHERE s.c = 1`. EXISTS and IN are such conditions, too, if an inner
//! equality with a column of r must be true of a row (`derived.rs`). A FULL JOIN loses one of its sides or both.
//!
//! For RIGHT and FULL JOIN only WHERE is used, since the parser may see another left side than MySQL's servers do (`joins.rs`).

use std::collections::BTreeSet;
use std::ops::Range;

use freshet_types::Reason;
use sqlparser::ast::{BinaryOperator, Expr, JoinOperator, Query, UnaryOperator};

use crate::allowlist::visitor::Counts;
use crate::analyze::Walk;
use crate::analyze::shown::{Named, Outer};
use crate::predicate::syntax::unwrapped;

/// A condition that joined rows must satisfy.
pub(crate) enum Clause<'q> {
    On(&'q Expr),
    /// Columns with these names are equal on both sides.
    Using(Vec<String>),
}

/// A condition and the references (places in the block) that it bounds.
pub(crate) struct Condition<'q> {
    pub(crate) clause: Clause<'q>,
    pub(crate) bounded: Range<usize>,
    /// None: WHERE.
    pub(crate) join: Option<Joined>,
}

/// A join's items (places in the block).
pub(crate) struct Joined {
    pub(crate) left: Range<usize>,
    pub(crate) right: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

impl Kind {
    pub(crate) fn of(operator: &JoinOperator) -> Self {
        match operator {
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => Self::Left,
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Self::Right,
            JoinOperator::FullOuter(_) => Self::Full,
            _ => Self::Inner,
        }
    }

    /// Whether the left and the right side may be extended with NULLs.
    fn may_miss(self) -> [bool; 2] {
        [matches!(self, Self::Right | Self::Full), matches!(self, Self::Left | Self::Full)]
    }
}

impl Joined {
    /// The references that its condition bounds.
    pub(crate) fn bounded(&self) -> Range<usize> {
        match self.kind {
            Kind::Inner => self.left.start..self.right.end,
            Kind::Left => self.right.clone(),
            Kind::Right => self.left.clone(),
            Kind::Full => 0..0,
        }
    }
}

impl Walk<'_> {
    /// Walks the conditions of a block; returns the calls counted in the last one.
    pub(crate) fn walk_conditions(&mut self, conditions: &[Condition<'_>]) -> Result<Counts, Reason> {
        let mut last = Counts::default();
        for Condition { clause, .. } in conditions {
            if let Clause::On(condition) = clause {
                let before = self.counts;
                self.expr(condition)?;
                last = self.counts.since(before);
            }
        }
        Ok(last)
    }

    /// Adds the bounds of the conditions to their references; returns their bounds on rows of outer blocks.
    pub(crate) fn bound_all(&mut self, conditions: &[Condition<'_>]) -> Vec<Outer> {
        let mut outer = Vec::new();
        for Condition { clause, bounded, join } in conditions {
            match (clause, join) {
                (Clause::On(condition), _) => {
                    self.note_anti_joins(condition, bounded);
                    let (bounds, told) = self.bounds_of(condition, bounded);
                    self.add_bounds(bounds);
                    // No row need satisfy an ON.
                    outer.extend(told.into_iter().filter(|_| join.is_none()));
                }
                (Clause::Using(names), Some(join)) => {
                    let bounds = self.bounds_of_using(names, join, bounded);
                    self.add_bounds(bounds);
                }
                (Clause::Using(_), None) => {}
            }
        }
        outer
    }

    /// Turns outer joins into inner joins where other conditions require it.
    pub(crate) fn reduce(&self, conditions: &mut [Condition<'_>]) {
        let rejected: Vec<Needed> = conditions.iter().map(|condition| self.rejected_by(condition)).collect();
        loop {
            let reduced = conditions.iter().enumerate().find_map(|(at, Condition { join, .. })| {
                let join = join.as_ref()?;
                let needs = |side: &Range<usize>, whole: bool| {
                    let needed = |(other, condition): (usize, &Condition<'_>)| {
                        let Range { start, end } = condition.bounded;
                        let around = start <= join.left.start && join.right.end <= end && other != at;
                        let asked = condition.join.is_none() || (around && !whole);
                        asked && rejected.get(other).is_some_and(|all| all.iter().any(|(item, _)| side.contains(item)))
                    };
                    conditions.iter().enumerate().any(needed)
                };
                let whole = join.kind != Kind::Left;
                let [left, right] = join.kind.may_miss();
                let kind = match (left && !needs(&join.left, whole), right && !needs(&join.right, whole)) {
                    (true, true) => Kind::Full,
                    (true, false) => Kind::Right,
                    (false, true) => Kind::Left,
                    (false, false) => Kind::Inner,
                };
                (kind != join.kind).then_some((at, kind))
            });
            let Some((at, kind)) = reduced else { break };
            let Some(condition) = conditions.get_mut(at) else { break };
            if let Some(join) = &mut condition.join {
                join.kind = kind;
                condition.bounded = join.bounded();
            }
        }
    }

    /// The items of the block that must have a row for a condition to be true.
    pub(crate) fn rejected_by(&self, condition: &Condition<'_>) -> Needed {
        match (&condition.clause, &condition.join) {
            (Clause::On(expr), _) => self.needed(expr),
            (Clause::Using(names), Some(Joined { left, right, .. })) => {
                let sides = |name| [left, right].map(|side| self.named_on_side(name, side.clone()));
                names.iter().flat_map(|name| sides(name)).flatten().flat_map(|named| needed_by(&named)).collect()
            }
            (Clause::Using(_), None) => Needed::new(),
        }
    }

    /// The items of the block that must have a row for an expression to be true.
    fn needed(&self, expr: &Expr) -> Needed {
        match unwrapped(expr) {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => &self.needed(left) | &self.needed(right),
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => &self.needed(left) & &self.needed(right),
            Expr::IsTrue(inner) => self.needed(inner),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } | Expr::IsFalse(expr) => self.of_null(expr),
            Expr::IsNotNull(column) => self.of_null(column),
            Expr::Exists { subquery, negated: false } => self.met_inside(subquery),
            Expr::InSubquery { expr: column, subquery, negated: false } => {
                &self.column_of_null(column) | &self.met_inside(subquery)
            }
            // It is false for an empty list.
            Expr::AnyOp { left: column, compare_op: BinaryOperator::Eq, .. } => self.column_of_null(column),
            other => self.of_null(other),
        }
    }

    /// The items of the block for which a row of NULLs makes an expression NULL.
    fn of_null(&self, expr: &Expr) -> Needed {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        match unwrapped(expr) {
            Expr::BinaryOp { left, op: Eq | NotEq | Lt | LtEq | Gt | GtEq, right } => {
                &self.column_of_null(left) | &self.column_of_null(right)
            }
            Expr::InList { expr: column, .. }
            | Expr::Between { expr: column, .. }
            | Expr::Like { any: false, expr: column, .. }
            | Expr::ILike { any: false, expr: column, .. } => self.column_of_null(column),
            column => self.column_of_null(column),
        }
    }

    /// The items of the block that have a value that an inner column equals, if the sub-select has a row.
    fn met_inside(&self, subquery: &Query) -> Needed {
        let of_block = |outer: &&Outer| outer.to.block + 1 == self.scope.blocks.len();
        let outer = self.told_by(subquery).map_or(&[][..], |shown| &shown.outer);
        outer.iter().filter(of_block).flat_map(|outer| needed_by(&outer.to)).collect()
    }

    fn column_of_null(&self, expr: &Expr) -> Needed {
        if let Expr::Subquery(subquery) = unwrapped(expr) {
            return self.met_inside(subquery);
        }
        let named = self.named(expr).filter(|named| named.block + 1 == self.scope.blocks.len());
        named.iter().flat_map(needed_by).collect()
    }
}

/// The item of a column that is not NULL.
fn needed_by(named: &Named) -> Needed {
    let rows = named.rows.iter().map(|reached| Some(reached.origin.place));
    rows.chain([None]).map(|row| (named.place, row)).collect()
}

/// Items of a block that must have a row for a condition to be true, each with the reference whose row must exist.
pub(crate) type Needed = BTreeSet<(usize, Option<usize>)>;
