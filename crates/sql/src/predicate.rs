//! Equality predicates of a condition: `column = constant`.

use sqlparser::ast::{BinaryOperator, Expr, Ident, UnaryOperator, Value};

use crate::functions::{TypeClass, type_class};

/// The constant side of an equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The number of the parameter, from 1.
    pub(crate) parameter: u16,
    /// `-$n`
    pub(crate) negated: bool,
    /// `$n::type`: the type's OID.
    pub(crate) cast: Option<u32>,
}

/// `column = constant`
pub(crate) struct Equality<'q> {
    pub(crate) column: &'q [Ident],
    pub(crate) operand: Operand,
}

/// The expressions that AND connects at the top of a condition.
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

/// The equality that an expression is, if it is one.
pub(crate) fn equality(expr: &Expr) -> Option<Equality<'_>> {
    let (left, right) = match expr {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => (&**left, &**right),
        Expr::InList { expr, list, negated: false } => match list.as_slice() {
            [only] => (&**expr, only),
            _ => return None,
        },
        _ => return None,
    };
    let sides = |column, constant| Some(Equality { column: column_name(column)?, operand: operand(constant)? });
    sides(left, right).or_else(|| sides(right, left))
}

/// Without the brackets around it.
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
pub(crate) fn parameter(expr: &Expr) -> Option<u16> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => name.strip_prefix('$')?.parse().ok().filter(|number| *number > 0),
            _ => None,
        },
        _ => None,
    }
}

fn operand(expr: &Expr) -> Option<Operand> {
    let expr = unwrapped(expr);
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            Some(Operand { parameter: parameter(unwrapped(expr))?, negated: true, cast: None })
        }
        Expr::Cast { expr, data_type, .. } => match type_class(data_type)? {
            TypeClass::Tagged(oid) => {
                Some(Operand { parameter: parameter(unwrapped(expr))?, negated: false, cast: Some(oid) })
            }
            TypeClass::Plain | TypeClass::DateTime => None,
        },
        _ => Some(Operand { parameter: parameter(expr)?, negated: false, cast: None }),
    }
}
