//! Dates of the calendar, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freshet_types::civil;

/// A moment: date and time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
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
        let (year, month, day) = civil(i64::try_from(seconds / 86_400).unwrap_or_default());
        let (hour, minute, second) = (seconds % 86_400 / 3600, seconds / 60 % 60, seconds % 60);
        Self { year, month, day, hour, minute, second, micros: since.subsec_micros() }
    }
}
