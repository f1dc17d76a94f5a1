//! Dates and times as microseconds, so that they are ordered as numbers.
//!
//! Only one spelling is read: `YYYY-MM-DD[ hh:mm:ss[.ffffff]]`. It means the same under every setting of both
//! families. From PostgreSQL, a `T` in the middle, an offset at the end, and `infinity` are read as well. All else
//! has no normal form: years before Christ or beyond 9999, impossible days, MySQL's zero dates.

use crate::{Part, Value, ValueType};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// 2000-01-01, the epoch of PostgreSQL's binary format, in days from 1970-01-01.
const EPOCH_DAYS: i64 = 10_957;
/// 0001-01-01 and 9999-12-31, in days from 1970-01-01.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// Later than all moments; the second is earlier than all.
const INFINITY: i64 = i64::MAX;
const MINUS_INFINITY: i64 = i64::MIN;

/// The moment in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Microseconds from 1970-01-01, in UTC, or in an unknown zone if the text has no offset.
    pub(super) micros: i64,
    /// Whether the text has an offset; None for the two infinities.
    pub(super) has_offset: Option<bool>,
}

impl Moment {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"infinity" => return Some(Self { micros: INFINITY, has_offset: None }),
            b"-infinity" => return Some(Self { micros: MINUS_INFINITY, has_offset: None }),
            _ => {}
        }
        let (date, rest) = text.split_at_checked(10)?;
        let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = date else { return None };
        let days = days(number(&[*y1, *y2, *y3, *y4])?, number(&[*m1, *m2])?, number(&[*d1, *d2])?)?;
        let midnight = days * DAY;
        let [b' ' | b'T', time @ ..] = rest else {
            return rest.is_empty().then_some(Self { micros: midnight, has_offset: Some(false) });
        };
        let (time, rest) = time.split_at_checked(8)?;
        let [h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
        let (hours, minutes, seconds) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
        if hours > 23 || minutes > 59 || seconds > 59 {
            return None;
        }
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => {
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let (digits, rest) = rest.split_at_checked(digits)?;
                (fraction(digits)?, rest)
            }
            rest => (0, rest),
        };
        let offset = if rest.is_empty() { 0 } else { offset(rest)? };
        let micros = midnight + ((hours * 60 + minutes) * 60 + seconds - offset) * SECOND + fraction;
        Some(Self { micros, has_offset: Some(!rest.is_empty()) })
    }
}

/// The day's first microsecond.
pub(super) fn midnight(micros: i64) -> i64 {
    if matches!(micros, INFINITY | MINUS_INFINITY) { micros } else { micros.div_euclid(DAY) * DAY }
}

/// PostgreSQL's `date` in binary format.
pub(super) fn of_days(days: i32) -> Option<i64> {
    match days {
        i32::MAX => Some(INFINITY),
        i32::MIN => Some(MINUS_INFINITY),
        days => Some(i64::from(days) + EPOCH_DAYS).filter(|days| DAYS.contains(days)).map(|days| days * DAY),
    }
}

/// PostgreSQL's `timestamp` in binary format.
pub(super) fn of_micros(micros: i64) -> Option<i64> {
    if matches!(micros, INFINITY | MINUS_INFINITY) {
        return Some(micros);
    }
    micros.checked_add(EPOCH_DAYS * DAY).filter(|micros| DAYS.contains(&micros.div_euclid(DAY)))
}

/// The moment so many months and then days later; None if out of range. A day beyond the end of the month becomes its
/// last day, as in both families (`timestamp_pl_interval`, `date_add_interval`).
pub(super) fn later(micros: i64, months: i64, more_days: i64) -> Option<i64> {
    if matches!(micros, INFINITY | MINUS_INFINITY) {
        return None;
    }
    let (before, rest) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (year, month, day) = civil(before);
    let month = (year * 12 + month - 1).checked_add(months)?;
    let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
    let first = (day - 3..=day).rev().find_map(|day| days(year, month, day))?;
    let day = first.checked_add(more_days).filter(|day| (1..=9999).contains(&year) && DAYS.contains(day))?;
    Some(day * DAY + rest)
}

/// The moment so many microseconds later; None if out of range.
pub(super) fn plus(micros: i64, more: i64) -> Option<i64> {
    if matches!(micros, INFINITY | MINUS_INFINITY) {
        return None;
    }
    micros.checked_add(more).filter(|micros| DAYS.contains(&micros.div_euclid(DAY)))
}

/// The microseconds since midnight of a time in the spelling `hh:mm:ss[.ffffff]`.
pub(super) fn time_of_day(text: &[u8]) -> Option<i64> {
    let moment = Moment::parse(&[b"1970-01-01 ", text].concat())?;
    (moment.has_offset == Some(false)).then_some(moment.micros)
}

/// A part of a moment, as both families count it; None for an infinite one.
pub(crate) fn part_of(micros: i64, part: Part) -> Option<Value> {
    let (year, month, day, since, rest) = fields(micros)?;
    let seconds = rest / SECOND;
    Some(Value::Int(match part {
        Part::Year => year,
        Part::IsoYear => iso_week(since).0,
        Part::Quarter => (month - 1) / 3 + 1,
        Part::Month => month,
        Part::Week => iso_week(since).1,
        Part::Day => day,
        Part::DayOfYear => since - days(year, 1, 1)? + 1,
        // 1970-01-01 was a Thursday.
        Part::DayOfWeek => (since + 4).rem_euclid(7),
        Part::Hour => seconds / 3_600,
        Part::Minute => seconds / 60 % 60,
        Part::Second => seconds % 60,
        Part::Time => rest,
        Part::Seconds => {
            let text = format!("{}.{:06}", seconds % 60, rest % SECOND);
            return ValueType::Numeric.normalise_text(text.as_bytes());
        }
    }))
}

/// The start of the year, month or other unit that contains a moment. None for an infinite one, or for a part without
/// a start.
pub(crate) fn floor_to(micros: i64, part: Part) -> Option<i64> {
    let (year, month, _, since, rest) = fields(micros)?;
    let of_time = |unit: i64| Some(since * DAY + rest / unit * unit);
    match part {
        Part::Year => days(year, 1, 1).map(|days| days * DAY),
        Part::Quarter => days(year, (month - 1) / 3 * 3 + 1, 1).map(|days| days * DAY),
        Part::Month => days(year, month, 1).map(|days| days * DAY),
        // Weeks begin on Monday.
        Part::Week => Some((since - (since + 3).rem_euclid(7)) * DAY),
        Part::Day => Some(since * DAY),
        Part::Hour => of_time(3_600 * SECOND),
        Part::Minute => of_time(60 * SECOND),
        Part::Second => of_time(SECOND),
        Part::IsoYear | Part::DayOfYear | Part::DayOfWeek | Part::Seconds | Part::Time => None,
    }
}

/// Year, month, day, days from 1970-01-01 and microseconds of the day.
fn fields(micros: i64) -> Option<(i64, i64, i64, i64, i64)> {
    let (since, rest) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (year, month, day) = DAYS.contains(&since).then(|| civil(since))?;
    Some((year, month, day, since, rest))
}

/// The year and week of ISO 8601: those of the Thursday in the same week.
fn iso_week(since: i64) -> (i64, i64) {
    let thursday = since - (since + 3).rem_euclid(7) + 3;
    let (year, ..) = civil(thursday);
    let first = days(year, 1, 1).unwrap_or(thursday);
    (year, (thursday - first) / 7 + 1)
}

/// The text in the spelling that is read.
pub(super) fn text(micros: i64) -> String {
    match micros {
        INFINITY => return "infinity".to_owned(),
        MINUS_INFINITY => return "-infinity".to_owned(),
        _ => {}
    }
    let (days, rest) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (seconds, fraction) = (rest / SECOND, rest % SECOND);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{:02}.{fraction:06}", seconds % 60)
}

/// Year, month and day of a day counted from 1970-01-01, which is 0.
pub fn civil(days: i64) -> (i64, i64, i64) {
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days: years begin with March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
}

/// Parses the fraction in microseconds; more digits would be rounded.
fn fraction(digits: &[u8]) -> Option<i64> {
    let missing = 6u32.checked_sub(u32::try_from(digits.len()).ok()?).filter(|missing| *missing < 6)?;
    Some(number(digits)? * 10i64.pow(missing))
}

/// Days from 1970-01-01; the same source, `days_from_civil`.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if year == 0 || !(1..=last).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Seconds east of Greenwich.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, rest) = match text {
        b"Z" => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes, seconds) = match rest {
        [h1, h2] => (number(&[*h1, *h2])?, 0, 0),
        [h1, h2, b':', m1, m2] => (number(&[*h1, *h2])?, number(&[*m1, *m2])?, 0),
        [h1, h2, b':', m1, m2, b':', s1, s2] => (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?),
        _ => return None,
    };
    // `MAX_TZDISP_HOUR`
    let valid = hours <= 15 && minutes <= 59 && seconds <= 59;
    valid.then_some(sign * ((hours * 60 + minutes) * 60 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<(i64, Option<bool>)> {
        Moment::parse(text.as_bytes()).map(|moment| (moment.micros, moment.has_offset))
    }

    #[test]
    fn one_spelling_is_read() {
        for (text, expected) in [
            ("1970-01-01", 0),
            ("1970-01-01 00:00:01", SECOND),
            ("1970-01-01T00:00:00.5", SECOND / 2),
            ("1969-12-31 23:59:59.999999", -1),
            ("2000-02-29", (EPOCH_DAYS + 59) * DAY),
            ("0001-01-01", DAYS.start() * DAY),
            ("9999-12-31", DAYS.end() * DAY),
        ] {
            assert_eq!(micros(text), Some((expected, Some(false))), "{text}");
        }
        for text in ["1970-01-01 02:00:00+02", "1969-12-31 22:30:00-01:30", "1970-01-01 00:00:00Z"] {
            assert_eq!(micros(text), Some((0, Some(true))), "{text}");
        }
        for text in [
            "",
            "1970",
            "1970-1-1",
            "1970-02-29",
            "1970-13-01",
            "0000-00-00",
            "0000-01-01",
            "1970-00-01",
            "1970-01-00",
            "10000-01-01",
            "1970-01-01 ",
            "1970-01-01 24:00:00",
            "1970-01-01 10:00",
            "1970-01-01 00:00:60",
            "19700101",
            "1970-01-01 00:00:00.",
            "1970-01-01 00:00:00.1234567",
            "1970-01-01 00:00:00 UTC",
            "1970-01-01 BC",
            "1970-01-01 00:00:00+16",
            "1970-01-01+02",
            "now",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
    }

    #[test]
    fn months_and_days_later() {
        for (text, months, days, expected) in [
            ("1998-12-01", 0, -90, "1998-09-02"),
            ("1993-07-01", 3, 0, "1993-10-01"),
            ("2024-01-31", 1, 0, "2024-02-29"),
            ("2023-01-29 10:00:00", 1, 1, "2023-03-01 10:00:00"),
            ("2024-03-31", -1, 0, "2024-02-29"),
            ("2024-02-29", 12, 0, "2025-02-28"),
            ("2024-01-15", -13, 0, "2022-12-15"),
        ] {
            let of = |text: &str| micros(text).unwrap().0;
            assert_eq!(later(of(text), months, days), Some(of(expected)), "{text}");
        }
        assert_eq!(later(*DAYS.end() * DAY, 0, 1), None);
        assert_eq!(later(*DAYS.start() * DAY, -1, 40), None);
    }

    #[test]
    fn what_is_written_is_read() {
        for days in (DAYS).step_by(997).chain([-1, 0, 1, 59, 60, *DAYS.end()]) {
            for rest in [0, 1, DAY - 1, 12 * 3600 * SECOND + 30 * SECOND] {
                let moment = days * DAY + rest;
                assert_eq!(micros(&text(moment)), Some((moment, Some(false))), "{}", text(moment));
                assert_eq!(midnight(moment), days * DAY);
            }
        }
        assert_eq!(of_days(0), micros("2000-01-01").map(|(micros, _)| micros));
        assert_eq!(of_micros(-1), micros("1999-12-31 23:59:59.999999").map(|(micros, _)| micros));
        assert_eq!(of_days(i32::MAX - 1), None);
        assert_eq!(of_days(i32::MAX), micros("infinity").map(|(micros, _)| micros));
    }
}
