//! Expressions that test one column.

use freshet_types::ValueType;
use sqlparser::ast::{ArrayElemTypeDef, BinaryOperator, DataType, Expr, Ident, Value};

use crate::allowlist::types::{comparable_type, enum_name, oid};
use crate::predicate::syntax::{column_name, parameter, unwrapped};
use crate::predicate::{Limit, Operand, UnboundTest, date_arithmetic, like, operand, operands, row_comparisons};

/// The test of an equality, with the column on either side.
pub(crate) fn equality<'e>(left: &'e Expr, right: &'e Expr) -> Option<(&'e [Ident], UnboundTest)> {
    let sides = |column: &'e Expr, constant: &'e Expr| {
        let unbound = match unwrapped(constant) {
            Expr::Value(value) if let Value::Boolean(value) = value.value => UnboundTest::Is(value),
            constant => UnboundTest::In(vec![operand(constant)?]),
        };
        of_column(column, unbound)
    };
    let folded = |column, constant| like::folded(column, std::iter::once(constant));
    sides(left, right).or_else(|| sides(right, left)).or_else(|| folded(left, right)).or_else(|| folded(right, left))
}

/// The test of a column, or of a column cast to text.
fn of_column(column: &Expr, unbound: UnboundTest) -> Option<(&[Ident], UnboundTest)> {
    match like::as_text(column) {
        (true, column) => Some((column_name(column)?, UnboundTest::OfText(unbound.into()))),
        (false, column) => Some((column_name(column)?, unbound)),
    }
}

/// PostgreSQL's text and varchar.
pub(crate) fn is_plain_text(value_type: ValueType) -> bool {
    matches!(value_type, ValueType::Text | ValueType::OrderedText)
}

/// Whether the expression contains a NOT, which `unbound_test` leaves out.
pub(crate) fn is_negated(expr: &Expr) -> bool {
    match expr {
        Expr::Between { negated, .. }
        | Expr::InList { negated, .. }
        | Expr::Like { negated, .. }
        | Expr::ILike { negated, .. } => *negated,
        Expr::AllOp { .. } => true,
        _ => false,
    }
}

/// The test that an expression is, if it is a known one. A NOT in it is left out.
pub(crate) fn unbound_test(expr: &Expr) -> Option<(&[Ident], UnboundTest)> {
    match expr {
        // A boolean column.
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => Some((column_name(expr)?, UnboundTest::Is(true))),
        Expr::BinaryOp { left, op, right } => {
            row_comparisons::ordered(left, op, right).or_else(|| date_arithmetic::compared(expr))
        }
        Expr::Between { expr: tested, low, high, negated: _ } => {
            // MySQL compares all three operands in one way, which an unknown operand would determine.
            let limit = |expr| operand(expr).map(|operand| Some(Limit { operand, included: true }));
            match (limit(low), limit(high)) {
                (Some(low), Some(high)) => Some((column_name(tested)?, UnboundTest::Range { low, high, beside: None })),
                _ => date_arithmetic::compared(expr),
            }
        }
        Expr::InList { expr, list, negated: _ } => {
            operands(list).and_then(|list| of_column(expr, UnboundTest::In(list))).or_else(|| like::folded(expr, list))
        }
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, is_some: _ }
        | Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
            let unbound = match unwrapped(right) {
                Expr::Array(array) => UnboundTest::In(operands(&array.elem)?),
                Expr::Cast {
                    expr, data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)), ..
                } if let (Expr::Array(array), true) = (unwrapped(expr), like::is_text(element)) => {
                    UnboundTest::In(operands(&array.elem)?)
                }
                array => UnboundTest::Any(array_operand(array)?),
            };
            of_column(left, unbound)
        }
        Expr::Like { .. } | Expr::ILike { .. } => like::matching(expr),
        Expr::IsNull(expr) => Some((column_name(expr)?, UnboundTest::Null)),
        Expr::IsNotNull(expr) => Some((column_name(expr)?, UnboundTest::NotNull)),
        _ => None,
    }
}

fn array_operand(expr: &Expr) -> Option<Operand> {
    match expr {
        Expr::Cast { expr, data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)), .. } => {
            let parameter = parameter(unwrapped(expr))?;
            let cast = enum_name(element).map_or_else(|| comparable_type(element), |_| Some(oid::ANYENUM))?;
            Some(Operand { parameter, negated: false, cast: Some(cast) })
        }
        _ => Some(Operand { parameter: parameter(expr)?, negated: false, cast: None }),
    }
}
