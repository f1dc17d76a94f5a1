//! Figures for people: only significant digits, with the unit in the header or after the figure.

use crate::calendar;

/// Latencies are stored in nanoseconds and shown in milliseconds.
const NANOSECONDS_PER_MS: f64 = 1e6;

/// The mark for a missing value.
pub(super) const NONE: &str = "–";

/// A rate or a count: at least three digits if it is small, thousands separated if it is large.
pub(super) fn number(value: f64) -> String {
    if value.abs() < 100.0 && value.fract() != 0.0 {
        let digits = if value.abs() < 10.0 { 2 } else { 1 };
        return format!("{value:.digits$}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A whole number.
pub(super) fn count(value: u64) -> String {
    number(value as f64)
}

/// Nanoseconds as milliseconds, without the unit.
pub(super) fn milliseconds(nanoseconds: f64) -> String {
    let value = nanoseconds / NANOSECONDS_PER_MS;
    let digits = if value < 10.0 {
        3
    } else if value < 100.0 {
        2
    } else {
        1
    };
    format!("{value:.digits$}")
}

/// A share as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A ratio with ×.
pub(super) fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}×") } else { NONE.to_owned() }
}

/// Bytes in the largest unit in which the figure is at least 1.
pub(super) fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value.fract() != 0.0);
    format!("{value:.digits$} {}", units[unit])
}

/// Seconds since 1970 as `2026-11-22 04:19 UTC`.
pub(super) fn date(seconds: u64) -> String {
    let text = calendar::date_time(seconds);
    format!("{} UTC", text.get(..16).unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_are_worth_it() {
        let numbers = [0.0, 0.126, 12.34, 123.4, 1_234.5, 1_234_567.0, -1_234.0].map(number);
        assert_eq!(numbers, ["0", "0.13", "12.3", "123", "1,234", "1,234,567", "-1,234"]);
        assert_eq!([0, 7, 99, 100, 1_000].map(count), ["0", "7", "99", "100", "1,000"]);
        assert_eq!(
            [0.0, 93_412.0, 12_345_678.0, 1_234_567_890.0].map(milliseconds),
            ["0.000", "0.093", "12.35", "1234.6"]
        );
        assert_eq!(
            [0.0, 1_023.0, 65_536.0, 1_572_864.0, 3e9].map(bytes),
            ["0 B", "1023 B", "64 KiB", "1.5 MiB", "2.8 GiB"]
        );
        assert_eq!([2.0 / 3.0, f64::INFINITY, f64::NAN].map(times), ["0.67×", NONE, NONE]);
        assert_eq!(percent(0.123_46), "12.3%");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let known = [(0, "1970-01-01 00:00"), (951_782_399, "2000-02-28 23:59"), (951_782_400, "2000-02-29 00:00")];
        let more = [(1_709_251_200, "2024-03-01 00:00"), (1_795_321_140, "2026-11-22 04:19")];
        for (seconds, text) in known.into_iter().chain(more) {
            assert_eq!(date(seconds), format!("{text} UTC"));
        }
    }
}
