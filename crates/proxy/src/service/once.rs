//! What a service logs about its failures.
//!
//! A service tries again and again, so it logs a failure once. Some failures are part of normal operation and end by themselves: the server restarts,
//! the change stream breaks, DDL drops a table between two queries. The stream's follower logs the loss of the stream. Other failures of this kind
//! are logged only if they last.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long a failure that may end by itself must last before it is logged. After this time without failures, the next one counts as another.
const LASTS: Duration = Duration::from_secs(3);

/// Whether an operator must know about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// At once.
    AtOnce,
    /// If it lasts, since it may end by itself.
    IfLasting,
    /// Never, since it is logged elsewhere.
    Never,
}

/// A failure of a service.
pub(crate) trait Failure: Display {
    fn hearing(&self) -> Hearing;
}

/// Logs a message once, until another one is logged.
#[derive(Default)]
pub(crate) struct Once {
    last: Option<String>,
    /// The first and the last time of consecutive failures.
    failing: Option<[Instant; 2]>,
}

impl Once {
    /// Logs a failure unless it was the last message.
    pub(crate) fn warn(&mut self, what: &str, error: &impl Display) {
        let text = error.to_string();
        if self.last.as_ref() != Some(&text) {
            tracing::warn!("{what}: {text}");
            self.last = Some(text);
        }
    }

    /// Logs a failure if an operator must know about it.
    pub(crate) fn warn_of(&mut self, what: &str, error: &impl Failure) {
        let is_heard = match error.hearing() {
            Hearing::AtOnce => true,
            Hearing::IfLasting => self.lasts(Instant::now()),
            Hearing::Never => false,
        };
        if is_heard {
            self.warn(what, error);
        } else {
            tracing::debug!("{what}: {error}");
        }
    }

    /// Counts a failure, and returns whether the failures have lasted.
    fn lasts(&mut self, now: Instant) -> bool {
        let failing = self.failing.filter(|[_, last]| now.saturating_duration_since(*last) < LASTS);
        let [first, _] = failing.unwrap_or([now; 2]);
        self.failing = Some([first, now]);
        now.saturating_duration_since(first) >= LASTS
    }

    /// Records that the service works again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_on_lasts() {
        let (mut once, start) = (Once::default(), Instant::now());
        let mut at = |millis| once.lasts(start + Duration::from_millis(millis));
        assert_eq!([0, 1_000, 2_000, 2_999].map(&mut at), [false; 4]);
        assert!(at(3_000), "all the time");
        // Another failure, much later.
        assert_eq!([60_000, 62_000, 66_000].map(&mut at), [false; 3]);
    }

    #[test]
    fn what_works_again_begins_anew() {
        let (mut once, start) = (Once::default(), Instant::now());
        assert!(!once.lasts(start));
        once.clear();
        assert!(!once.lasts(start + LASTS));
    }
}
