//! Comparisons by order, and of rows of values: the tests of single columns that follow from them.
//!
//! * `(a, b) IN ((5, 1), (4, 2))` implies `a IN (5, 4)` and `b IN (1, 2)`: one conjunction, however many rows the list has. The row with 5 and 2 then
//!   matters as well.
//! * The first pair decides `(a, b) < (6, 4)` unless it is equal, so only `a <= 6` follows. The comparison is NULL if a is. The same holds for `<=`,
//!   `>` and `>=`.
//!
//! All servers compare a value of such a list with its column as in a list for that column alone. So the tests are those of one column, under the
//! same rules. Their negations give no tests. Equality of rows is an equality of each pair (`mod.rs`).

use sqlparser::ast::{BinaryOperator, Expr, Ident};

use crate::predicate::syntax::{column_name, unwrapped};
use crate::predicate::{Limit, UnboundTest, operand, operands};

/// The tests that are true if this comparison is, without a NOT in it. None: it does not compare rows.
pub(crate) fn compared(expr: &Expr) -> Option<Vec<(&[Ident], UnboundTest)>> {
    match expr {
        Expr::InList { expr, list, negated: _ } => {
            let Expr::Tuple(columns) = unwrapped(expr) else { return None };
            Some(among(columns, list).unwrap_or_default())
        }
        Expr::BinaryOp { left, op, right } => {
            let (Expr::Tuple(left), Expr::Tuple(right)) = (unwrapped(left), unwrapped(right)) else { return None };
            let alike = left.len() == right.len();
            let first = || ordered(left.first()?, &or_equal(op)?, right.first()?);
            Some(first().filter(|_| alike).into_iter().collect())
        }
        _ => None,
    }
}

/// The lists of values of each column.
fn among<'e>(columns: &'e [Expr], list: &[Expr]) -> Option<Vec<(&'e [Ident], UnboundTest)>> {
    let row = |row| match unwrapped(row) {
        Expr::Tuple(values) if values.len() == columns.len() => Some(values),
        _ => None,
    };
    let rows: Vec<&Vec<Expr>> = list.iter().map(row).collect::<Option<_>>()?;
    let tests = columns.iter().enumerate().filter_map(|(at, column)| {
        let values = operands(rows.iter().filter_map(|row| row.get(at)))?;
        Some((column_name(column)?, UnboundTest::In(values)))
    });
    Some(tests.collect())
}

fn or_equal(op: &BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator::{Gt, GtEq, Lt, LtEq};
    match op {
        Lt | LtEq => Some(LtEq),
        Gt | GtEq => Some(GtEq),
        _ => None,
    }
}

/// The test of a column from a comparison by order, with the column on either side.
pub(crate) fn ordered<'e>(left: &'e Expr, op: &BinaryOperator, right: &'e Expr) -> Option<(&'e [Ident], UnboundTest)> {
    let (left_is_less, included) = match op {
        BinaryOperator::Lt => (true, false),
        BinaryOperator::LtEq => (true, true),
        BinaryOperator::Gt => (false, false),
        BinaryOperator::GtEq => (false, true),
        _ => return None,
    };
    let limited = |column, constant, below| {
        let limit = Some(Limit { operand: operand(constant)?, included });
        let (low, high) = if below { (None, limit) } else { (limit, None) };
        Some((column_name(column)?, UnboundTest::Range { low, high, beside: None }))
    };
    limited(left, right, left_is_less).or_else(|| limited(right, left, !left_is_less))
}
