//! Dates of the calendar, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment: date and time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) year: u64,
    pub(crate) month: u64,
    pub(crate) day: u64,
    pub(crate) hour: u64,
    pub(crate) minute: u64,
    pub(crate) second: u64,
    pub(crate) micros: u32,
}

impl Moment {
    /// A time before 1970 counts as the beginning of 1970.
    pub(crate) fn of(at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = since.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds % 86_400 / 3600, seconds / 60 % 60, seconds % 60);
        Self { year, month, day, hour, minute, second, micros: since.subsec_micros() }
    }
}

/// The date of a day after 1970-01-01. A year is taken to begin in March, so that leap days are last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}
