//! What a service logs of its failures.
//!
//! A service tries again and again, so that it says a failure once. Some failures are part of normal life and pass by themselves: the
//! server restarts, the change stream is cut, DDL drops a table between two questions. The loss of the stream is told by the stream's
//! follower; the rest is told only if it lasts.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long a failure that may pass by itself goes on before it is told. So long after the last one, the next is another.
const LASTS: Duration = Duration::from_secs(3);

/// What an operator is to hear of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// It, at once.
    AtOnce,
    /// It, if it lasts: it may pass by itself.
    IfLasting,
    /// Nothing: somebody else has told it.
    Never,
}

/// A failure of a service.
pub(crate) trait Failure: Display {
    fn hearing(&self) -> Hearing;
}

/// Says a thing once until something else is to be said.
#[derive(Default)]
pub(crate) struct Once {
    last: Option<String>,
    /// The first and the last time of those that have failed in a row.
    failing: Option<[Instant; 2]>,
}

impl Once {
    /// Logs a failure unless it was the last thing logged.
    pub(crate) fn warn(&mut self, what: &str, error: &impl Display) {
        let text = error.to_string();
        if self.last.as_ref() != Some(&text) {
            tracing::warn!("{what}: {text}");
            self.last = Some(text);
        }
    }

    /// The same, as far as an operator is to hear of it.
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

    /// It fails now; whether it has done so for a while.
    fn lasts(&mut self, now: Instant) -> bool {
        let failing = self.failing.filter(|[_, last]| now.saturating_duration_since(*last) < LASTS);
        let [first, _] = failing.unwrap_or([now; 2]);
        self.failing = Some([first, now]);
        now.saturating_duration_since(first) >= LASTS
    }

    /// It works again.
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
        // Another one, much later.
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
