//! Behind which of its statements a session's next look-up needs the end of the log.
//!
//! A statement that passes tells the client of data, and a hit must not go behind that: it needs an end of the log that was asked for
//! later (the floor). Asked for together with the statement, on the session's own connection, it is there with the answer; a look-up that has to wait for a reading
//! of the lease's costs the database and Freshet more, and the client a way there and back. But behind many a statement nobody
//! needs it: another statement follows that passes, too. Programs repeat themselves, so what came behind a statement the last times
//! says whether to ask. Sessions that look nothing up never ask.

use std::sync::Arc;

use crate::registry::Statement;

/// Which of the remembered statements it may be; 0: of an unknown one.
pub(crate) type Place = u8;

/// As many as differ, more or less, in a transaction.
const PLACES: usize = 16;
/// A look-up that needs it is worth so many statements behind which none does.
const NEEDED: u8 = 2;
const SCORE_MAX: u8 = 3;

/// What a session has done behind its statements.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    scores: [u8; PLACES],
    /// The last statement that told of data, as long as nothing has come behind it.
    last: Option<Place>,
}

impl Habits {
    /// Different statements may have the same place: then they are taken for one.
    pub(crate) fn place(statement: Option<&Arc<Statement>>) -> Place {
        let Some(statement) = statement else { return 0 };
        let hash = (Arc::as_ptr(&statement.shape).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 60) as Place
    }

    /// The next look-up behind this statement is likely to need the end of the log.
    pub(crate) fn needs_end(&self, place: Place) -> bool {
        self.score(place) >= NEEDED
    }

    /// The statement has told of data; None: nothing can be asked for behind it.
    pub(crate) fn told(&mut self, place: Option<Place>) {
        if let Some(last) = std::mem::replace(&mut self.last, place) {
            self.set(last, self.score(last).saturating_sub(1));
        }
    }

    /// A look-up needs to know what the last statement told.
    pub(crate) fn needed(&mut self) {
        if let Some(last) = self.last.take() {
            self.set(last, (self.score(last) + NEEDED).min(SCORE_MAX));
        }
    }

    fn score(&self, place: Place) -> u8 {
        self.scores.get(usize::from(place)).copied().unwrap_or_default()
    }

    fn set(&mut self, place: Place, score: u8) {
        if let Some(known) = self.scores.get_mut(usize::from(place)) {
            *known = score;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_for_where_it_was_needed() {
        let (read, write) = (3, 7);
        let mut habits = Habits::default();
        let mut asked = Vec::new();
        for _ in 0..3 {
            for place in [read, write] {
                asked.push(habits.needs_end(place));
                habits.told(Some(place));
            }
            habits.needed();
            habits.needed(); // counts once
        }
        assert_eq!(asked, [false, false, false, true, false, true]);
        // Now nobody needs it any more.
        let asked: Vec<bool> = (0..4)
            .map(|_| {
                let asked = habits.needs_end(write);
                habits.told(Some(write));
                asked
            })
            .collect();
        assert_eq!(asked, [true, true, true, false]);
        habits.told(None);
        habits.needed();
        assert!(!habits.needs_end(read) && !habits.needs_end(write) && !habits.needs_end(0));
    }
}
