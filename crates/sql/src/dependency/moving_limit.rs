//! Moving limits: one answer for all values of a parameter up to the next row that it decides on.
//!
//! An application reads a session's row by `session_key = 'k' AND expire_date > '<now>'`. The parameter has a new value each time, so no text comes
//! twice. But the answer shows how long it stays the same: until `<now>` reaches the `expire_date` in it.
//!
//! # Why this is sound
//!
//! Let `R.c > p` be one of the conditions that WHERE of the outermost block joins by AND. Let p have no other use, and let each row of the answer
//! A(p₀) contain c. Let the statement neither group nor aggregate, and have neither DISTINCT, OFFSET nor window functions: each row of the answer is
//! made of one joined row.
//!
//! * For p ≥ p₀, the joined rows that satisfy WHERE are those that satisfy it for p₀ and whose c is greater than p. The condition is tested on joined
//!   rows, so this holds whatever else is joined and on whatever side of an outer join R is.
//! * If each c in A(p₀) is greater than p, all rows of A(p₀) are among these. Without LIMIT they are all of them. With LIMIT they are the first of a
//!   larger set, so they are also the first of this one.
//! * So A(p) = A(p₀) for p₀ ≤ p < min c; with `>=` for p₀ ≤ p ≤ min c; mirrored for `<` and `<=`. If A(p₀) has no row, no A(p) with p ≥ p₀ has one.
//!   With several such conditions, each parameter may move within its own bounds.
//!
//! Both answers are functions of the same database state: A(p) is a function of A(p₀) and p alone. So the tags stay the same: as long as the entry of
//! p₀ is valid, it is valid for p.
//!
//! The answer says nothing about values beyond p₀ in the other direction, where rows may appear that A(p₀) does not contain. The largest c gives no
//! bound, and neither does the first row alone. OFFSET is excluded, since some of the skipped rows may leave.
//!
//! * **NULL** satisfies no comparison, so no row of an answer contains it. If one does, the answer gives no bounds.
//! * **Values** are read only if their form is certain, and are compared as integers or microseconds: p by the rules of `predicate/bind.rs` for a
//!   column of this type, c by those for answers. MySQL prints and compares a TIMESTAMP in the session's time zone, in which an hour may occur twice.
//!   It is read as a DATETIME if the zone is one offset from UTC, since the order is the same then, and within the years of every TIMESTAMP, since
//!   the servers compare values that they cannot convert in another way. MySQL compares the three operands of BETWEEN together: its limits are read
//!   if both are compared exactly.
//! * **Fractions.** MySQL may compare a date of the binary protocol without its fraction, and with it a moment later, under another plan. So such a limit
//!   is any value e of its second, and one answer is that of another limit if the argument holds for each e₀ and each e.
//! * **Errors.** The server refuses a parameter that is out of range of its type. So a parameter may move only within the smallest integer type that
//!   contains the value of p.

use freshet_types::{Value, ValueType};

use crate::analysis::{Moving, ReadSet};
use crate::dependency::answer::{Field, shown_value};
use crate::predicate::parameters::{Client, Parameter, ParameterValue, Params};

/// Digits of a time in MediaWiki's form, `YYYYMMDDhhmmss`. Texts of this length have the order of their numbers.
const DIGITS: usize = 14;

/// In microseconds.
const SECOND: i64 = 1_000_000;

/// From 1971 to 2037, in microseconds: a TIMESTAMP can have these years at every offset from UTC.
const ZONED: std::ops::Range<i64> = 31_536_000_000_000..2_145_916_800_000_000;

/// The value of each moving limit of an execution: the least and the greatest value that the server may compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions(Box<[(i64, i64)]>);

/// The range, both ends inclusive, in which each limit may move without changing the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach(Box<[(i64, i64)]>);

impl Reach {
    /// Whether an execution with these limits has the same answer.
    pub fn covers(&self, positions: &Positions) -> bool {
        let is_within = |((low, high), (least, most)): (&(i64, i64), &(i64, i64))| low <= least && most <= high;
        self.0.len() == positions.0.len() && self.0.iter().zip(&positions.0).all(is_within)
    }
}

impl Moving {
    /// The range in which a limit that is one of these values may move, if all values in the answer are within `shown`.
    fn bounds(&self, (least, most): (i64, i64), shown: Option<(i64, i64)>) -> (i64, i64) {
        let step = i64::from(!self.included);
        let (lowest, highest) = if self.column.value_type.is_date() { (i64::MIN, i64::MAX) } else { of_width(most) };
        if self.is_lower {
            let end = shown.map_or(i64::MAX, |(least, _)| least.saturating_sub(step));
            (most, end.min(highest))
        } else {
            let end = shown.map_or(i64::MIN, |(_, most)| most.saturating_add(step));
            (end.max(lowest), least)
        }
    }

    fn shown(&self, row: &[Field<'_>], utf8: bool) -> Option<i64> {
        let field = row.get(self.at).filter(|_| row.len() == self.width)?;
        // The normal form has no trailing zero bytes, but they count in the order.
        if self.column.value_type == ValueType::Bytes && !matches!(field, Field::Text(bytes) if bytes.len() == DIGITS) {
            return None;
        }
        number(self.column.value_type, &shown_value(&self.column, *field, utf8)?)
    }
}

/// The range of the smallest integer type that contains the number.
fn of_width(number: i64) -> (i64, i64) {
    if i16::try_from(number).is_ok() {
        (i16::MIN.into(), i16::MAX.into())
    } else if i32::try_from(number).is_ok() {
        (i32::MIN.into(), i32::MAX.into())
    } else {
        (i64::MIN, i64::MAX)
    }
}

/// A value as a number in the server's order.
fn number(column: ValueType, value: &Value) -> Option<i64> {
    match (column, value) {
        (_, Value::Int(number) | Value::Moment(number)) => Some(*number),
        (ValueType::Bytes, Value::Text(digits)) if digits.len() == DIGITS => {
            let is_number = digits.iter().all(u8::is_ascii_digit);
            std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
        }
        _ => None,
    }
}

impl ReadSet {
    /// The numbers of the parameters that are moving limits.
    pub fn moving_parameters(&self) -> impl Iterator<Item = u32> {
        self.limits.moving.iter().map(|moving| moving.operand.parameter)
    }

    /// Whether all of them limit dates and times, so that they are probably the clock. Other limits may recur, as those of pagination do.
    pub fn moves_with_clock(&self) -> bool {
        self.limits
            .moving
            .iter()
            .all(|moving| moving.column.value_type.is_date() || moving.column.value_type == ValueType::Bytes)
    }

    /// The columns of the answer with the limited values.
    pub fn moving_columns(&self) -> impl Iterator<Item = usize> {
        self.limits.moving.iter().map(|moving| moving.at)
    }

    /// Appends to a key the conditions that [`Positions`] and [`Reach`] of this statement refer to.
    pub fn write_moving(&self, key: &mut Vec<u8>) {
        key.push(self.limits.moving.len() as u8);
        for Moving { operand, column, at, is_lower, included, is_zoned, .. } in &self.limits.moving {
            key.extend_from_slice(&operand.parameter.to_le_bytes());
            key.extend_from_slice(&(*at as u64).to_le_bytes());
            let kind = column.value_type as u8;
            let flags = [*is_lower, *included, operand.negated, *is_zoned].map(u8::from);
            key.push(kind);
            key.extend_from_slice(&flags);
        }
    }

    /// The values of its moving limits; None if it has none or one cannot be read.
    pub fn positions(&self, params: &[Parameter<'_>], client: Client) -> Option<Positions> {
        if !client.utc && self.dialect.is_mysql_family() && self.limits.moving.iter().any(|moving| moving.is_zoned) {
            return None;
        }
        let params = self.params(params, client);
        let positions =
            self.limits.moving.iter().map(|moving| self.position(moving, params)).collect::<Option<Box<_>>>()?;
        (!positions.is_empty()).then_some(Positions(positions))
    }

    fn position(&self, moving: &Moving, params: Params<'_>) -> Option<(i64, i64)> {
        let column = moving.column.value_type;
        let is_known = |at: &i64| !moving.is_zoned || ZONED.contains(at);
        if let ParameterValue::Fraction(micros) = params.get(moving.operand)?.value {
            let second = micros.div_euclid(SECOND) * SECOND;
            let is_plain = !moving.operand.negated && moving.operand.cast.is_none() && moving.beside.is_none();
            let is_plain = is_plain && column == ValueType::Timestamp && self.dialect.is_mysql_family();
            return (is_plain && is_known(&second) && is_known(&micros)).then_some((second, second + SECOND));
        }
        let value = self.value(column, moving.operand, params)?;
        // MySQL compares a date with a time of day without truncation.
        let is_cut = || self.value(ValueType::Timestamp, moving.operand, params).as_ref() != Some(&value);
        if column == ValueType::Date && self.dialect.is_mysql_family() && is_cut() {
            return None;
        }
        let is_exact =
            |beside| self.values(column, &[moving.operand, beside], params).is_some_and(|both| both.len() == 2);
        if !moving.beside.is_none_or(is_exact) {
            return None;
        }
        number(column, &value).filter(is_known).map(|at| (at, at))
    }

    /// The ranges around `at` within which the answer stays one of these rows; `read` returns the values of one. None if they are unknown.
    pub fn reach<'a, R>(
        &self,
        at: &Positions,
        rows: impl Iterator<Item = R>,
        read: impl Fn(&R) -> Vec<Field<'a>>,
        utf8: bool,
    ) -> Option<Reach> {
        let mut shown: Vec<Option<(i64, i64)>> = vec![None; self.limits.moving.len()];
        for row in rows {
            let fields = read(&row);
            for (moving, shown) in self.limits.moving.iter().zip(&mut shown) {
                let value = moving.shown(&fields, utf8)?;
                let (least, most) = shown.unwrap_or((value, value));
                *shown = Some((least.min(value), most.max(value)));
            }
        }
        let limits = self.limits.moving.iter().zip(&at.0).zip(shown);
        let reach: Box<_> = limits.map(|((moving, at), shown)| moving.bounds(*at, shown)).collect();
        // An answer that contradicts its own conditions was misread.
        reach.iter().all(|(low, high)| low <= high).then_some(Reach(reach))
    }
}
