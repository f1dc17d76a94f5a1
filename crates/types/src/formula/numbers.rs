//! Numbers: their order, and arithmetic as far as nothing is rounded.

use std::cmp::Ordering;

use super::Operation;
use crate::{Value, ValueType};

/// The digits up to which numbers are computed, so that neither side rounds.
const DIGITS_MAX: usize = 15;

/// The order of two numbers; as doubles, if one of them is a double.
pub(super) fn order(left: &Value, right: &Value) -> Option<Ordering> {
    let number = |value: &Value| match value {
        // MySQL takes truth values as numbers.
        Value::Bool(truth) => Value::Int((*truth).into()),
        other => other.clone(),
    };
    match (number(left), number(right)) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(&right)),
        (left @ Value::Float(_), right) | (left, right @ Value::Float(_)) => {
            match (left.to_float()?, right.to_float()?) {
                (Value::Float(left), Value::Float(right)) => Some(left.cmp(&right)),
                _ => None,
            }
        }
        // Equal decimals have one normal form.
        (left, right) if left == right => matches!(left, Value::Decimal(_)).then_some(Ordering::Equal),
        (left, right) => {
            let (left, right) = aligned(Digits::of(&left)?, Digits::of(&right)?)?;
            Some(left.cmp(&right))
        }
    }
}

/// A decimal: an integer, and the number of its digits behind the point.
#[derive(Clone, Copy)]
struct Digits {
    number: i128,
    scale: u32,
}

impl Digits {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(Self { number: (*number).into(), scale: 0 }),
            Value::Decimal(text) if text.len() <= 2 * DIGITS_MAX => {
                let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
                let digits = format!("{whole}{fraction}");
                Some(Self { number: digits.parse().ok()?, scale: u32::try_from(fraction.len()).ok()? })
            }
            _ => None,
        }
    }

    fn value(self) -> Option<Value> {
        let digits = self.number.unsigned_abs().to_string();
        let scale = usize::try_from(self.scale).ok()?;
        let digits = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = digits.split_at_checked(digits.len() - scale)?;
        let sign = if self.number < 0 { "-" } else { "" };
        ValueType::Numeric.normalise_text(format!("{sign}{whole}.{fraction}").as_bytes())
    }
}

/// The integers of two decimals, scaled to the same number of digits behind the point.
fn aligned(left: Digits, right: Digits) -> Option<(i128, i128)> {
    let scale = left.scale.max(right.scale);
    let widened = |of: Digits| of.number.checked_mul(10i128.checked_pow(scale - of.scale)?);
    Some((widened(left)?, widened(right)?))
}

pub(super) fn arithmetic(operation: Operation, (low, high): (i64, i64), left: &Value, right: &Value) -> Option<Value> {
    use Operation::{Add, Multiply, Remainder, Subtract};
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            let result = match operation {
                Add => left.checked_add(*right),
                Subtract => left.checked_sub(*right),
                Multiply => left.checked_mul(*right),
                // Division by zero is an error, or NULL.
                Remainder => left.checked_rem(*right),
            };
            result.filter(|result| (low..=high).contains(result)).map(Value::Int)
        }
        (Value::Float(_), _) | (_, Value::Float(_)) => {
            let (left, right) = (left.to_float()?.double()?, right.to_float()?.double()?);
            let result = match operation {
                Add => left + right,
                Subtract => left - right,
                Multiply => left * right,
                Remainder => return None,
            };
            // A result beyond all doubles, or below the least, is an error.
            (result.is_finite() && (result == 0.0 || result.is_normal())).then(|| Value::of_double(result))
        }
        _ => {
            let (left, right) = (Digits::of(left)?, Digits::of(right)?);
            let fits = |of: Digits| of.number.unsigned_abs() < 10u128.pow(DIGITS_MAX as u32) && of.scale <= 15;
            if !fits(left) || !fits(right) {
                return None;
            }
            let result = match operation {
                Add | Subtract => {
                    let (one, two) = aligned(left, right)?;
                    let number = if operation == Add { one.checked_add(two)? } else { one.checked_sub(two)? };
                    Digits { number, scale: left.scale.max(right.scale) }
                }
                Multiply => Digits { number: left.number.checked_mul(right.number)?, scale: left.scale + right.scale },
                Remainder => return None,
            };
            (low == i64::MIN || result.number >= 0).then(|| result.value()).flatten()
        }
    }
}
