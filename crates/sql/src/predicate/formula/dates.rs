//! Date and time functions: parts of dates and of timestamps without a zone, or in a session in UTC; truncation; addition of intervals.
//!
//! An interval is a constant here: a number of months, days and microseconds, added in this order (`timestamp_pl_interval`). Microseconds are added
//! to a timestamp with a zone as to any other; months and days only in a session in UTC. One form of an interval is read, which has the same meaning
//! under all settings of `IntervalStyle`: `[n day[s][,]] [h]:mm:ss[.ffffff]`. A time of day has the form `hh:mm:ss[.ffffff]`.

use freshet_types::{Formula, Operation, Part, Value, ValueType};
use sqlparser::ast::{DataType, Expr, Value as Constant};

use crate::predicate::date_arithmetic;
use crate::predicate::formula::Kind::{Clock, Of, Wide};
use crate::predicate::formula::{Reading, Typed, number};
use crate::predicate::syntax::{parameter, unwrapped};

impl Reading<'_> {
    /// A part of a date or of a timestamp without a zone.
    pub(super) fn part(&self, name: &str, of: &Expr) -> Option<Typed> {
        let (of, kind) = self.typed(of).filter(|(_, kind)| self.is_local(*kind))?;
        let mysql = self.is_mysql();
        let part = match &*name.to_ascii_lowercase() {
            "year" => Part::Year,
            "quarter" => Part::Quarter,
            "month" => Part::Month,
            "day" => Part::Day,
            "isoyear" if !mysql => Part::IsoYear,
            "week" if !mysql => Part::Week,
            "doy" if !mysql => Part::DayOfYear,
            "dow" if !mysql => Part::DayOfWeek,
            "isodow" if !mysql => {
                let day = (Formula::Part(Part::DayOfWeek, of.into()), Wide);
                let from_monday = self.arithmetic(Operation::Add, day, (number(6), Wide))?;
                let day = self.arithmetic(Operation::Remainder, from_monday, (number(7), Wide))?;
                let (day, _) = self.arithmetic(Operation::Add, day, (number(1), Wide))?;
                return Some((day, Of(ValueType::Numeric)));
            }
            _ if kind == Of(ValueType::Date) => return None,
            "hour" => Part::Hour,
            "minute" => Part::Minute,
            "second" => {
                if mysql {
                    Part::Second
                } else {
                    Part::Seconds
                }
            }
            _ => return None,
        };
        let kind = if mysql { ValueType::Int } else { ValueType::Numeric };
        Some((Formula::Part(part, of.into()), Of(kind)))
    }

    /// A timestamp without a zone, truncated to a unit of time.
    pub(super) fn floored(&self, unit: &str, of: &Expr, to: ValueType) -> Option<Typed> {
        let (of, kind) = self.typed(of).filter(|(_, kind)| self.is_local(*kind))?;
        let to = match kind {
            _ if to == ValueType::Date => to,
            // The result would be a timestamp in the session's time zone.
            Of(ValueType::Date) => return None,
            Of(own) => own,
            _ => return None,
        };
        let part = match &*unit.to_ascii_lowercase() {
            "year" => Part::Year,
            "quarter" => Part::Quarter,
            "month" => Part::Month,
            "week" => Part::Week,
            "day" => Part::Day,
            "hour" => Part::Hour,
            "minute" => Part::Minute,
            "second" => Part::Second,
            _ => return None,
        };
        Some((Formula::Floor(part, of.into()), Of(to)))
    }

    /// `… AT TIME ZONE 'UTC'`
    pub(super) fn at_utc(&self, of: &Expr, zone: &Expr) -> Option<Typed> {
        // Behind these words a text stays in the normalized query.
        let Expr::Value(zone) = unwrapped(zone) else { return None };
        let Constant::SingleQuotedString(zone) = &zone.value else { return None };
        let (of, kind) = self.typed(of)?;
        let kind = match kind {
            Of(ValueType::TimestampTz) => ValueType::Timestamp,
            Of(ValueType::Timestamp) => ValueType::TimestampTz,
            _ => return None,
        };
        (!self.is_mysql() && zone.eq_ignore_ascii_case("utc")).then_some((of, Of(kind)))
    }

    /// `…::time`
    pub(super) fn time(&self, of: &Expr) -> Option<Typed> {
        if self.is_mysql() {
            return None;
        }
        if parameter(unwrapped(of)).is_some() {
            return Some((self.time_of_day(of)?, Clock));
        }
        let (of, kind) = self.typed(of).filter(|(_, kind)| self.is_local(*kind) && *kind != Of(ValueType::Date))?;
        debug_assert!(matches!(kind, Of(ValueType::Timestamp | ValueType::TimestampTz)), "{kind:?}");
        Some((Formula::Part(Part::Time, of.into()), Clock))
    }

    /// A constant time of day.
    pub(super) fn time_of_day(&self, constant: &Expr) -> Option<Formula> {
        match self.params {
            None => Some(number(0)),
            Some(_) => Value::time_of_day(&self.plain_text(constant)?).map(number),
        }
    }

    /// A timestamp plus or minus an interval.
    pub(super) fn later(&self, operation: Operation, left: &Expr, right: &Expr) -> Option<Typed> {
        let (of, interval) = match operation {
            Operation::Add => match self.interval(left) {
                Some(interval) => (right, interval),
                None => (left, self.interval(right)?),
            },
            Operation::Subtract => (left, self.interval(right)?.map(std::ops::Neg::neg)),
            _ => return None,
        };
        let [months, days, _] = interval;
        let (of, kind) = self.typed(of)?;
        let kind = match kind {
            Of(ValueType::Date | ValueType::Timestamp) => ValueType::Timestamp,
            Of(ValueType::TimestampTz) if self.is_local(kind) || (months, days) == (0, 0) => ValueType::TimestampTz,
            _ => return None,
        };
        Some((Formula::Later(interval, of.into()), Of(kind)))
    }

    /// Months, days and microseconds of a constant interval.
    fn interval(&self, expr: &Expr) -> Option<[i64; 3]> {
        match unwrapped(expr) {
            _ if self.is_mysql() => None,
            Expr::Interval(interval) => date_arithmetic::length(interval).map(|(months, days)| [months, days, 0]),
            Expr::Cast { expr, data_type: DataType::Interval { fields: None, precision: None }, .. } => {
                parameter(unwrapped(expr))?;
                match self.params {
                    None => Some([0; 3]),
                    Some(_) => length(std::str::from_utf8(&self.plain_text(expr)?).ok()?),
                }
            }
            _ => None,
        }
    }
}

/// Months, days and microseconds.
fn length(text: &str) -> Option<[i64; 3]> {
    let digits = |text: &str| text.len() <= 5 && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = |text: &str| text.parse().ok().filter(|_| digits(text));
    let (days, time) = match text.split_once(' ') {
        None => (0, text),
        Some((days, rest)) => {
            let rest = rest.strip_prefix("days").or_else(|| rest.strip_prefix("day"))?;
            let time = rest.strip_prefix(", ").or_else(|| rest.strip_prefix(' '));
            (number(days)?, time.or(rest.is_empty().then_some("0:00:00"))?)
        }
    };
    let (hours, rest) = time.split_once(':')?;
    let hours: i64 = number(hours)?;
    let rest = Value::time_of_day(format!("00:{rest}").as_bytes())?;
    Some([0, days, hours * 3_600_000_000 + rest])
}

#[cfg(test)]
mod tests {
    #[test]
    fn intervals_have_one_spelling() {
        for (text, expected) in [
            ("0:00:00", Some([0, 0, 0])),
            ("01:30:00.5", Some([0, 0, 5_400_500_000])),
            ("100:00:01", Some([0, 0, 360_001_000_000])),
            ("1 day", Some([0, 1, 0])),
            ("12 days, 0:00:01", Some([0, 12, 1_000_000])),
            ("2 days 1:00:00", Some([0, 2, 3_600_000_000])),
            ("-1:00:00", None),
            ("1 day 1:00", None),
            ("1 month", None),
            ("1:60:00", None),
            ("1 day ago", None),
            ("1", None),
            ("", None),
            ("P1D", None),
        ] {
            assert_eq!(super::length(text), expected, "{text}");
        }
    }
}
