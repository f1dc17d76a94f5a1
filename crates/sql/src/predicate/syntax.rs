//! Helpers for the syntax tree of expressions: parentheses, AND, names, parameters.

use sqlparser::ast::{BinaryOperator, Expr, Ident, Value};

/// The operands of AND at the top of a condition.
pub(crate) fn conjuncts(condition: &Expr) -> Vec<&Expr> {
    let mut found = Vec::new();
    let mut open = vec![condition];
    while let Some(expr) = open.pop() {
        match unwrapped(expr) {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([&**left, &**right]),
            other => found.push(other),
        }
    }
    found
}

/// The expression without enclosing parentheses.
pub(crate) fn unwrapped(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// The column that an expression names.
pub(crate) fn column_name(expr: &Expr) -> Option<&[Ident]> {
    match unwrapped(expr) {
        Expr::Identifier(ident) => Some(std::slice::from_ref(ident)),
        Expr::CompoundIdentifier(idents) => Some(idents),
        _ => None,
    }
}

/// The number in `$n`.
pub(crate) fn parameter(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => name.strip_prefix('$')?.parse().ok().filter(|number| *number > 0),
            _ => None,
        },
        _ => None,
    }
}
