//! Dates in a statement's normalized query: `date '1998-12-01' - interval '90' day`, `timestamp '2024-06-01 00:00:00'`.
//!
//! They are not parameters, so a comparison with them is computed once for the normalized query. Days and months are added as both families add them:
//! one month later is the same day of the next month, or its last day.

use freshet_types::{Test, Value, ValueType};
use sqlparser::ast::{BinaryOperator, DataType, DateTimeField, Expr, Ident, Interval, TimezoneInfo, Value as Constant};

use crate::predicate::UnboundTest;
use crate::predicate::syntax::{column_name, unwrapped};

/// A range of timestamps, in microseconds from 1970, both ends inclusive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    low: Option<i64>,
    high: Option<i64>,
}

/// The comparison of a column with such a date. A NOT in it is left out.
pub(crate) fn compared(expr: &Expr) -> Option<(&[Ident], UnboundTest)> {
    let (column, span) = match expr {
        Expr::BinaryOp { left, op, right } => match (column_name(left), moment(right)) {
            (Some(column), Some(moment)) => (column, span(op, moment, false)?),
            _ => (column_name(right)?, span(op, moment(left)?, true)?),
        },
        Expr::Between { expr, low, high, negated: _ } => {
            (column_name(expr)?, Span { low: Some(moment(low)?), high: Some(moment(high)?) })
        }
        _ => return None,
    };
    Some((column, UnboundTest::Span(span)))
}

/// `flipped`: the date is on the left.
fn span(op: &BinaryOperator, moment: i64, flipped: bool) -> Option<Span> {
    let (below, above) = (Some(moment.checked_sub(1)?), Some(moment.checked_add(1)?));
    let equal = Some(moment);
    Some(match (op, flipped) {
        (BinaryOperator::Eq, _) => Span { low: equal, high: equal },
        (BinaryOperator::Lt, false) | (BinaryOperator::Gt, true) => Span { low: None, high: below },
        (BinaryOperator::LtEq, false) | (BinaryOperator::GtEq, true) => Span { low: None, high: equal },
        (BinaryOperator::Gt, false) | (BinaryOperator::Lt, true) => Span { low: above, high: None },
        (BinaryOperator::GtEq, false) | (BinaryOperator::LtEq, true) => Span { low: equal, high: None },
        _ => return None,
    })
}

impl Span {
    /// `reach`: how far from UTC the session's time zone may be, if the column is a timestamp.
    pub(crate) fn test(self, column: ValueType, reach: i64) -> Option<Test> {
        let reach = match column {
            ValueType::Date | ValueType::Timestamp => 0,
            ValueType::TimestampTz => reach,
            _ => return None,
        };
        let key = |micros: i64| Value::Moment(micros).order_key();
        let low = self.low.map_or(0, |low| key(low.saturating_sub(reach)));
        let high = self.high.map_or(u64::MAX, |high| key(high.saturating_add(reach)));
        (low <= high).then_some(Test::Within { low, high })
    }
}

/// The timestamp of an expression, if it is certain.
fn moment(expr: &Expr) -> Option<i64> {
    let value = match unwrapped(expr) {
        Expr::TypedString(typed) => {
            let Constant::SingleQuotedString(text) = &typed.value.value else { return None };
            match typed.data_type {
                DataType::Date if text.len() == "2000-01-01".len() => ValueType::Date.normalise_text(text.as_bytes()),
                DataType::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                    ValueType::Timestamp.normalise_text(text.as_bytes())
                }
                _ => None,
            }
        }
        Expr::BinaryOp { left, op: op @ (BinaryOperator::Plus | BinaryOperator::Minus), right } => {
            let Expr::Interval(interval) = unwrapped(right) else { return None };
            let (months, days) = length(interval)?;
            let sign = if *op == BinaryOperator::Plus { 1 } else { -1 };
            Value::Moment(moment(left)?).later(sign * months, sign * days)
        }
        _ => None,
    };
    match value? {
        Value::Moment(micros) if !matches!(micros, i64::MIN | i64::MAX) => Some(micros),
        _ => None,
    }
}

/// Months and days.
pub(crate) fn length(interval: &Interval) -> Option<(i64, i64)> {
    let Interval {
        value,
        leading_field,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    } = interval
    else {
        return None;
    };
    let Expr::Value(value) = unwrapped(value) else { return None };
    let Constant::SingleQuotedString(text) = &value.value else { return None };
    let (number, unit) = match leading_field {
        Some(DateTimeField::Day) => (text.as_str(), "day"),
        Some(DateTimeField::Month) => (text.as_str(), "month"),
        Some(DateTimeField::Year) => (text.as_str(), "year"),
        Some(_) => return None,
        None => text.split_once(' ')?,
    };
    // No server takes more digits.
    let number: i64 =
        number.parse().ok().filter(|_| number.len() <= 5 && number.bytes().all(|b| b.is_ascii_digit()))?;
    match unit {
        "day" | "days" => Some((0, number)),
        "month" | "months" => Some((number, 0)),
        "year" | "years" => Some((number * 12, 0)),
        _ => None,
    }
}
