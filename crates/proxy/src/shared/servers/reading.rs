//! What is known of a server as one that answers reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshet_types::Nanos;
use tokio::sync::Notify;

use crate::pool::{Group, PoolKey};

/// Pause after a read that the server has broken. It doubles with each further one, up to the second value.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Of more logins that failed, those are forgotten whose pause is over.
const LOGINS_MAX: usize = 1000;

/// Reads at one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFigures {
    /// It has answered them; of the primary: those that its weight has brought there.
    pub answered: u64,
    /// Of these, it had not replayed enough of the log, but nothing in between touched the statement.
    pub lagging: u64,
    /// It could have answered them, but had not replayed enough of the log: they went to the primary.
    pub behind: u64,
    /// It has failed, or has changed meanwhile: they were run again at the primary.
    pub run_again: u64,
}

/// Whose read it is: the pool, and the start-up packet.
pub(crate) type Who = (Arc<PoolKey>, Group);

/// Why a read is run again, if more of them would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The connection failed, or there was none.
    Server,
    /// The server does not let the user in, or has other settings for it.
    Login,
}

/// No reads before a time, and the length of that pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Pause {
    fn after(before: Option<Self>) -> Self {
        let length = before.map_or(PAUSE.0, |before| (before.length * 2).min(PAUSE.1));
        Self { until: Instant::now() + length, length }
    }

    fn lasts(self) -> bool {
        Instant::now() < self.until
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// When the question of its last answer was sent.
    asked_at: Nanos,
    /// It has not answered the last one in time.
    is_late: bool,
    /// Notified when it must be asked at once.
    wanted: Arc<Notify>,
    figures: ReadFigures,
    /// Reads under way.
    in_use: usize,
    turns: u64,
    /// It has broken reads.
    paused: Option<Pause>,
    /// It has not let these in as it should.
    logins: HashMap<Who, Pause>,
}

impl Reading {
    /// It has answered a question that was sent at this time.
    pub(super) fn answered(&mut self, asked_at: Nanos) {
        (self.asked_at, self.is_late) = (asked_at, false);
    }

    pub(super) fn asked_at(&self) -> Nanos {
        self.asked_at
    }

    pub(super) fn note_late(&mut self) {
        self.is_late = true;
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    pub(super) fn wanted(&self) -> &Arc<Notify> {
        &self.wanted
    }

    pub(super) fn figures(&self) -> ReadFigures {
        self.figures
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    pub(super) fn is_paused(&self, who: &Who) -> bool {
        let is_login_paused = || !self.logins.is_empty() && self.logins.get(who).is_some_and(|pause| pause.lasts());
        self.paused.is_some_and(Pause::lasts) || is_login_paused()
    }

    /// The number of reads that have begun here, for their order.
    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    pub(super) fn begin(&mut self) {
        self.in_use += 1;
        self.turns += 1;
    }

    pub(super) fn end(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
    }

    /// A read was answered; `lags`: by a server that had not reached the floor.
    pub(super) fn note_answered(&mut self, who: &Who, lags: bool) {
        self.figures.answered += 1;
        self.figures.lagging += u64::from(lags);
        self.paused = None;
        if !self.logins.is_empty() {
            self.logins.remove(who);
        }
    }

    /// A read that a replica could have answered goes to this server, which is the primary.
    pub(super) fn note_primary(&mut self) {
        self.turns += 1;
        self.figures.answered += 1;
    }

    pub(super) fn note_behind(&mut self) {
        self.figures.behind += 1;
    }

    /// A read is run again. Returns whether its login is left out from now on.
    pub(super) fn note_run_again(&mut self, trouble: Option<Trouble>, who: &Who) -> bool {
        self.figures.run_again += 1;
        match trouble {
            None => false,
            Some(Trouble::Server) => {
                self.paused = Some(Pause::after(self.paused));
                false
            }
            Some(Trouble::Login) => {
                let before = self.logins.get(who).copied();
                if before.is_some_and(Pause::lasts) {
                    return false; // one that was under way
                }
                if self.logins.len() >= LOGINS_MAX {
                    self.logins.retain(|_, pause| pause.lasts());
                }
                self.logins.insert(who.clone(), Pause::after(before));
                before.is_none()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(user: &str) -> Who {
        (Arc::new(PoolKey { database: "shop".into(), user: user.into() }), Group::of(user.as_bytes()))
    }

    #[test]
    fn a_server_that_breaks_reads_is_left_alone_for_a_while() {
        let (mut reading, who) = (Reading::default(), who("a"));
        reading.note_run_again(None, &who);
        assert!(!reading.is_paused(&who));
        reading.note_run_again(Some(Trouble::Server), &who);
        reading.note_run_again(Some(Trouble::Server), &who);
        assert!(reading.is_paused(&who) && reading.paused.is_some_and(|pause| pause.length == 2 * PAUSE.0));
        reading.note_answered(&who, true);
        assert!(!reading.is_paused(&who));
        assert_eq!(reading.figures(), ReadFigures { answered: 1, lagging: 1, behind: 0, run_again: 3 });
    }

    #[test]
    fn a_login_that_fails_leaves_the_server_to_others() {
        let (mut reading, a, b) = (Reading::default(), who("a"), who("b"));
        assert!(reading.note_run_again(Some(Trouble::Login), &a) && !reading.note_run_again(Some(Trouble::Login), &a));
        assert!(reading.is_paused(&a) && !reading.is_paused(&b));
        reading.note_answered(&b, false);
        assert!(reading.is_paused(&a));
        reading.note_answered(&a, false);
        assert!(!reading.is_paused(&a));
    }

    #[test]
    fn a_server_that_is_late_is_so_until_it_answers() {
        let mut reading = Reading::default();
        reading.note_late();
        assert!(reading.is_late());
        reading.answered(7);
        assert!(!reading.is_late() && reading.asked_at() == 7);
    }
}
