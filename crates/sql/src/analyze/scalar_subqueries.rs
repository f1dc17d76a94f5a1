//! Equalities with scalar sub-selects: `(SELECT s.d FROM s WHERE s.id = r.s_id) = 'x'`.
//!
//! A scalar sub-select without a row is NULL, which equals nothing. So if the equality is true, a row satisfies the inner WHERE, as for EXISTS, and
//! an equality there with a column of an outer row bounds that row ([`Outer`](crate::analyze::shown::Outer)).
//!
//! In addition, rows of s whose d is not the constant x may be deleted if there never was more than one row: where the equality was false, it becomes
//! NULL, which is not true either. Nothing else matters at the top of a condition, ON of an outer join included. There is at most one row if the
//! inner WHERE requires that the key of s, its only table, equals columns of the outer row of the same types: a converted value might equal several
//! keys. Without the key, a deleted row might be the second row that makes the statement fail. Aggregates, LIMIT and the like exclude this rule, as
//! in any sub-select (`derived.rs`).

use std::sync::Arc;

use freshet_types::ValueType;
use sqlparser::ast::{BinaryOperator, Expr, Select};

use crate::analyze::Walk;
use crate::analyze::conditions::atom;
use crate::analyze::scope::{Reference, Source};
use crate::analyze::shown::Origin;
use crate::predicate::syntax::{conjuncts, unwrapped};
use crate::predicate::{Translated, UnboundTest, operand};

impl Walk<'_> {
    /// The bounds of `(SELECT …) = 'x'` on the rows in the sub-select.
    pub(crate) fn translated_by_scalar(&self, conjunct: &Expr) -> Option<Translated> {
        let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = conjunct else { return None };
        let sides = (unwrapped(left), unwrapped(right));
        let ((Expr::Subquery(subquery), constant) | (constant, Expr::Subquery(subquery))) = sides else { return None };
        let shown = self.told_by(subquery).filter(|shown| shown.is_single)?;
        let ([column], unbound) = (shown.columns.as_slice(), UnboundTest::In(vec![operand(constant)?])) else {
            return None;
        };
        let atoms = column.rows(true).into_iter().filter_map(|reached| atom(self.is_mysql(), &reached, &unbound));
        Some(Translated::Of(atoms.map(|(place, atom)| (place, Some(atom))).collect()))
    }

    /// Whether the key of the innermost block's only table equals columns of outer rows of the same types.
    pub(crate) fn is_single(&self, select: &Select) -> bool {
        let reference = self.scope.blocks.last().map_or(&[][..], |block| &block.references);
        let [Reference { source: Source::Table { places, .. }, .. }] = reference else { return false };
        let Some(table) = self.found.references.get(places.start).filter(|_| places.len() == 1) else { return false };
        let conditions = select.selection.as_ref().map_or_else(Vec::new, conjuncts);
        let is_met = |name: &Arc<str>, one: &Expr, two: &Expr| {
            let (Some(own), Some(outer)) = (self.named(one), self.named(two)) else { return false };
            let [Origin { place, column, .. }] = own.origins.as_slice() else { return false };
            let alike = |origin: &Origin| origin.column.value_type == column.value_type;
            let is_outer = outer.block + 1 < self.scope.blocks.len() && !outer.origins.is_empty();
            let exact = matches!(column.value_type, ValueType::Int | ValueType::Unsigned | ValueType::Uuid);
            is_outer && exact && *place == places.start && column.name == *name && outer.origins.iter().all(alike)
        };
        let is_equal = |name| {
            conditions.iter().any(|condition| match condition {
                Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                    is_met(name, left, right) || is_met(name, right, left)
                }
                _ => false,
            })
        };
        let key = &table.table.key;
        !key.is_empty() && key.iter().all(is_equal)
    }
}
