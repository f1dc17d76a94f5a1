//! Parts of dates and of moments without a zone, or in a session in UTC, and what they are cut to.

use freshet_model::{Formula, Operation, Part, ValueType};
use sqlparser::ast::{Expr, Value as Constant};

use super::Kind::{Of, Wide};
use super::{Reading, Typed, number};
use crate::predicate::unwrapped;

impl Reading<'_> {
    /// A part of a date or of a moment without a zone.
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

    /// The beginning of a unit of time, of a moment without a zone.
    pub(super) fn floored(&self, unit: &str, of: &Expr, to: ValueType) -> Option<Typed> {
        let (of, kind) = self.typed(of).filter(|(_, kind)| self.is_local(*kind))?;
        let to = match kind {
            _ if to == ValueType::Date => to,
            // It would become a moment in the zone of the session.
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
        // Behind these words a text stays in the shape.
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
}
