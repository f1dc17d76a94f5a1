//! Whether a query certainly reads its table, even if it returns no row.
//!
//! The servers answer without reading if they see that no row can satisfy the conditions: constants that contradict each other, that are out of range
//! of their column's type, or that are NULL; partitions that cannot contain such rows; LIMIT 0. InnoDB takes no snapshot then. So a read is certain
//! only for queries in which none of this is possible: of one table without partitions, with conditions `column = constant` and `column IN
//! (constants)` under AND and OR. Each constant is a value of its column's type, and AND joins conditions on different columns, so that a row with
//! these constants would satisfy the conditions, whether it exists or not.

use freshet_types::{Table, ValueType};
use sqlparser::ast::{BinaryOperator, Expr, LimitClause, Query, SetExpr};

use crate::lex::literal::LiteralKind;
use crate::predicate::parameters::{Client, Parameter, ParameterValue};
use crate::predicate::syntax::{column_name, parameter, unwrapped};

/// The servers convert longer lists to tables.
const LIST_MAX: usize = 100;

/// Whether a query of this one table certainly reads it. The caller has checked that the query neither groups nor aggregates, or returns a row only
/// for a group.
pub(crate) fn reads(query: &Query, table: &Table, params: &[Parameter<'_>], client: Client) -> bool {
    if client.wide {
        return false;
    }
    let sure = Sure { table, params, as_sent: client.as_sent };
    let SetExpr::Select(select) = &*query.body else { return false };
    let one_table = matches!(&*select.from, [from] if from.joins.is_empty());
    let wants_rows = match &query.limit_clause {
        None => true,
        Some(LimitClause::LimitOffset { limit: Some(limit), .. } | LimitClause::OffsetCommaLimit { limit, .. }) => {
            sure.number(limit).is_some_and(|rows| rows > 0)
        }
        Some(LimitClause::LimitOffset { limit: None, .. }) => false,
    };
    let can_be_met = select.selection.as_ref().is_none_or(|condition| sure.columns(condition).is_some());
    one_table && wants_rows && can_be_met && query.with.is_none() && query.fetch.is_none() && select.having.is_none()
}

struct Sure<'a> {
    table: &'a Table,
    params: &'a [Parameter<'a>],
    /// See [`Client::as_sent`].
    as_sent: bool,
}

impl Sure<'_> {
    /// The columns of a condition that a row could satisfy, by their places; None if this is not known.
    fn columns(&self, condition: &Expr) -> Option<Vec<usize>> {
        match unwrapped(condition) {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                let (mut left, right) = (self.columns(left)?, self.columns(right)?);
                let differ = !right.iter().any(|column| left.contains(column));
                left.extend(right);
                Some(left).filter(|_| differ)
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                let (mut left, right) = (self.columns(left)?, self.columns(right)?);
                let more: Vec<usize> = right.into_iter().filter(|column| !left.contains(column)).collect();
                left.extend(more);
                Some(left)
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let column = self.column(left)?;
                self.fits(column, right).then(|| vec![column])
            }
            Expr::InList { expr, list, negated: false } => {
                let column = self.column(expr)?;
                let fit = list.len() <= LIST_MAX && list.iter().all(|constant| self.fits(column, constant));
                fit.then(|| vec![column])
            }
            _ => None,
        }
    }

    fn column(&self, expr: &Expr) -> Option<usize> {
        let name = &column_name(expr)?.last()?.value;
        self.table.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }

    /// Whether the constant is a value of the column's type.
    fn fits(&self, column: usize, constant: &Expr) -> bool {
        let room = self.table.capacities.get(column).copied().unwrap_or(0);
        let Some(value_type) = self.table.columns.get(column).map(|column| column.value_type) else { return false };
        match value_type {
            ValueType::Int | ValueType::Unsigned => self.number(constant).is_some_and(|number| number <= room),
            _ => self.text(constant).is_some_and(|text| {
                let plain = text.is_ascii() || (self.as_sent && value_type == ValueType::Bytes);
                plain && room > 0 && text.len() as u64 <= room
            }),
        }
    }

    fn value(&self, constant: &Expr) -> Option<ParameterValue<'_>> {
        let at = parameter(unwrapped(constant))?.checked_sub(1)?;
        Some(self.params.get(usize::try_from(at).ok()?)?.value)
    }

    /// A non-negative integer.
    fn number(&self, constant: &Expr) -> Option<u64> {
        let digits = match self.value(constant)? {
            ParameterValue::Integer(number) => return number.try_into().ok(),
            ParameterValue::Literal(literal) if !matches!(literal.kind, LiteralKind::Bytes | LiteralKind::Bits) => {
                &*literal.text
            }
            _ => return None,
        };
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
    }

    fn text(&self, constant: &Expr) -> Option<&[u8]> {
        match self.value(constant)? {
            ParameterValue::Literal(literal) if literal.kind == LiteralKind::String => Some(&literal.text),
            ParameterValue::Text(text) => Some(text),
            _ => None,
        }
    }
}
