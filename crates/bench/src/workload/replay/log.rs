//! A query log in any of its forms: statements with their times and sessions.
//!
//! Statements that cannot be sent again are left out and counted by reason. Otherwise a replay that lacks a part of the load would be taken for the
//! whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::calendar;
use crate::value::Value;

/// Microseconds since 1970, or since any other time that is the same for the whole log.
pub(super) type Micros = i64;

pub(super) const SECOND: Micros = 1_000_000;

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Logged {
    /// The time at which it began.
    pub(super) at: Micros,
    /// The session of its connection.
    pub(super) session: String,
    pub(super) text: Arc<str>,
    /// The values of `$1` …, if it was sent with parameters.
    pub(super) values: Option<Vec<Value>>,
}

/// The contents of a log.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// In the order of the log.
    pub(super) statements: Vec<Logged>,
    /// Number of statements left out, by reason.
    pub(super) left_out: BTreeMap<String, u64>,
    /// Whether the log's times are whole seconds. Statements of the same second are then spread over it.
    pub(super) coarse: bool,
}

impl Log {
    pub(super) fn leave_out(&mut self, reason: &str) {
        *self.left_out.entry(reason.to_owned()).or_default() += 1;
    }
}

/// Parses `2026-11-24 07:16:03.123`, also with a T instead of the blank or without a fraction. Returns the number of bytes too. The time zone is
/// ignored, since it is the same in the whole log.
pub(super) fn date(text: &str) -> Option<(Micros, usize)> {
    let (day, rest) = (text.get(..10)?, text.get(10..)?);
    let day = calendar::seconds(day)?;
    ensure_one_of(rest.chars().next()?, [' ', 'T'])?;
    let (time, length) = clock(rest.get(1..)?)?;
    Some((i64::try_from(day).ok()? * SECOND + time, 11 + length))
}

/// Parses `07:16:03.123456` or `7:16:03` into microseconds. Returns the number of bytes too.
pub(super) fn clock(text: &str) -> Option<(Micros, usize)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(text.len());
    let mut parts = text.get(..end)?.splitn(3, ':');
    let (hour, minute) = (parts.next()?.parse::<i64>().ok()?, parts.next()?.parse::<i64>().ok()?);
    let (seconds, fraction) = parts.next().map(|last| last.split_once('.').unwrap_or((last, "")))?;
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let seconds = (hour * 60 + minute) * 60 + seconds.parse::<i64>().ok()?;
    Some((seconds * SECOND + digits.parse::<i64>().ok()?, end))
}

fn ensure_one_of(found: char, these: [char; 2]) -> Option<()> {
    these.contains(&found).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_all_forms() {
        assert_eq!(date("1970-01-02 00:00:01 UTC"), Some((86_401 * SECOND, 19)));
        assert_eq!(date("2026-11-24T07:16:03.123456Z"), Some((1_795_504_563 * SECOND + 123_456, 26)));
        assert_eq!(date("2026-11-24 07:16:03.5 CET [7]").map(|(at, _)| at % SECOND), Some(500_000));
        assert_eq!(clock("7:16:03\t"), Some((26_163 * SECOND, 7)));
        assert_eq!((date("LOG:  x"), date("2026-11-24"), date("ä026-11-24 1:1:1")), (None, None, None));
    }
}
