//! Row filters (`predicate/row_filter.rs`): the reference of each.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use freshet_types::{Column, ComparedColumn};
use sqlparser::ast::{Expr, Ident};

use crate::analyze::Walk;
use crate::analyze::shown::Named;
use crate::predicate::row_filter::RowFilter;
use crate::predicate::syntax::column_name;
use crate::predicate::{Atom, Operand, Translated, UnboundTest, operand};
use crate::visit::visit_expressions;

/// The names of one reference's columns.
pub(crate) struct Of {
    place: usize,
    columns: Vec<(Vec<Ident>, ComparedColumn)>,
    nullable: bool,
    through: bool,
}

/// Limit of columns and of expressions in one condition.
pub(crate) const COLUMNS_MAX: usize = 16;

pub(crate) const EXPRESSIONS_MAX: usize = 128;

impl Walk<'_> {
    /// The row filter of a condition, if it concerns one reference only.
    pub(crate) fn translated_by_row(&self, condition: &Expr, truth: bool, bounded: &Range<usize>) -> Translated {
        let Some(names) = names(condition) else { return Translated::Nothing };
        let innermost = self.scope.blocks.len().saturating_sub(1);
        let mut of: Option<Vec<Of>> = None;
        for name in names {
            let here = |named: &Named| named.block == innermost && bounded.contains(&named.place);
            let Some(named) = self.named_by(&name).filter(here) else { return Translated::Nothing };
            let known = of.get_or_insert_with(|| {
                let of = |place| Of { place, columns: Vec::new(), nullable: false, through: false };
                named.rows.iter().map(|reached| of(reached.origin.place)).collect()
            });
            known.retain_mut(|of| {
                let mut rows = named.rows.iter().filter(|reached| reached.origin.place == of.place);
                let (Some(reached), None) = (rows.next(), rows.next()) else { return false };
                let Column { name: column, value_type, .. } = &reached.origin.column;
                of.columns.push((name.clone(), ComparedColumn { name: column.clone(), value_type: *value_type }));
                of.nullable |= reached.nullable;
                of.through |= reached.origin.through;
                true
            });
        }
        let operands: Arc<[Operand]> = operands(condition).into();
        let condition = Arc::new(condition.clone());
        let atoms = of.into_iter().flatten().filter(|of| !(self.is_mysql() && of.through)).filter_map(|of| {
            let (_, column) = of.columns.first()?.clone();
            let (condition, operands) = (condition.clone(), operands.clone());
            let row_filter =
                RowFilter { condition, truth, columns: of.columns.into(), operands, nullable: of.nullable };
            Some((of.place, Some(Atom { column, unbound: UnboundTest::Row(row_filter), through: of.through })))
        });
        let atoms: Vec<_> = atoms.collect();
        if atoms.is_empty() { Translated::Nothing } else { Translated::Of(atoms) }
    }
}

/// The columns that a condition names, each once. None if they are too many or it contains sub-selects.
pub(crate) fn names(condition: &Expr) -> Option<Vec<Vec<Ident>>> {
    let mut names: Vec<Vec<Ident>> = Vec::new();
    let mut left = EXPRESSIONS_MAX;
    let flow = visit_expressions(condition, |expr| {
        left = left.saturating_sub(1);
        if left == 0 || matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. }) {
            return ControlFlow::Break(());
        }
        if !matches!(expr, Expr::Nested(_))
            && let Some(name) = column_name(expr)
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_vec());
        }
        if names.len() > COLUMNS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    (flow.is_continue() && !names.is_empty()).then_some(names)
}

/// The parameters in a condition.
pub(crate) fn operands(condition: &Expr) -> Vec<Operand> {
    let mut found = Vec::new();
    let _ = visit_expressions(condition, |expr| {
        if matches!(expr, Expr::Value(_)) {
            found.extend(operand(expr));
        }
        ControlFlow::Continue(())
    });
    found
}
