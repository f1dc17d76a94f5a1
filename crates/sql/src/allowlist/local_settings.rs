//! PostgreSQL: whether a query that calls `set_config` changes settings for its transaction alone.

use std::ops::ControlFlow;

use freshet_types::Dialect;
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Query, TableFactor, Value};

use crate::allowlist::names::built_in_name;
use crate::visit::{Visitor, visit};

/// No setting outlives the transaction: the last argument of each call of `set_config` says so.
pub(crate) fn sets_locally(query: &Query) -> bool {
    visit(query, &mut Calls).is_continue()
}

/// Breaks at a call that may change a setting for longer.
struct Calls;

impl Visitor for Calls {
    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { args: Some(_), .. } | TableFactor::Function { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if !is_local(function) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// It is another function, or changes the setting for the transaction alone.
fn is_local(function: &Function) -> bool {
    if built_in_name(Dialect::Postgres, &function.name) != Some("set_config") {
        return true;
    }
    let FunctionArguments::List(list) = &function.args else { return false };
    let is_true = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => value.value == Value::Boolean(true),
        _ => false,
    };
    matches!(list.args.as_slice(), [_, _, last] if is_true(last))
}
