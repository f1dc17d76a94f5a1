//! Calendar dates in UTC.

use std::time::{Duration, UNIX_EPOCH};

/// 9999-12-31 23:59:59, the last time that can be shown.
const LAST: u64 = 253_402_300_799;

/// Seconds since 1970 as `2026-11-22 04:19:00`.
pub(crate) fn date_time(seconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(LAST));
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.trim_end_matches('Z').replace('T', " ")
}

/// The first second of a day, since 1970. None if the text is not a date such as `2026-11-22`.
pub(crate) fn seconds(day: &str) -> Option<u64> {
    let midnight = humantime::parse_rfc3339_weak(&format!("{day} 00:00:00")).ok()?;
    Some(midnight.duration_since(UNIX_EPOCH).ok()?.as_secs())
}
