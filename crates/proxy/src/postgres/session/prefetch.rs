//! The log-end prefetch: after which of its statements a session's next look-up needs the log end.
//!
//! A statement that passes shows the client data, and a later hit must not be older than that: it needs a log end that was asked for afterwards (the
//! watermark). If the session asks for it together with the statement, on its own connection, it arrives with the answer. A look-up that has to wait
//! for a log-end probe of the lease service costs the database and Freshet more, and the client a round trip. But after many statements nobody needs
//! the log end, since the next statement passes, too. Programs repeat themselves. So what followed a statement, and the same statement before it, the
//! last times decides whether to ask. Sessions without look-ups never ask.

use std::sync::Arc;

use crate::statement::registry::Statement;

/// A hash of a statement and of the one before it; different pairs hardly ever have the same.
pub(crate) type Place = u32;

/// Number of remembered pairs: a few times the number of statements in a transaction after which a look-up comes.
const PLACES_MAX: usize = 32;
/// A look-up that needs the log end counts as much as this number of statements after which none does.
const NEEDED: u8 = 2;
/// The score from which on it is asked for. Below, after one in ten statements, say, it is cheaper to wait for a log-end probe that others may want,
/// too.
const ASKED_FROM: u8 = 3;
const SCORE_MAX: u8 = 4;

/// After this number of look-ups without a hit, the next ones are expected to miss, too.
const MISSES_IN_ROW: u8 = 8;

/// What a session has done after its statements.
#[derive(Debug, Default)]
pub(crate) struct Prefetch {
    /// Scores other than 0.
    scores: Vec<(Place, u8)>,
    /// The last statement that was sent since the last look-up; 0: none.
    sent: u64,
    /// The pair of the last statement that showed data, as long as nothing has followed it.
    last: Option<Place>,
    /// The last look-up could not hit, since it lacked the log end.
    lacked: bool,
    /// The kind of the last statement that showed data, if there was no hit since.
    behind: Behind,
    /// Look-ups since the last hit that led to a fill, at most 255.
    misses_in_row: u8,
}

/// What a hit follows directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Another hit, or nothing that matters.
    #[default]
    Hit,
    /// A statement that passed and did not write.
    Read,
    /// A statement that may have written.
    Write,
}

impl Prefetch {
    /// The pair of a statement that is sent now.
    pub(crate) fn place(&mut self, statement: Option<&Arc<Statement>>) -> Place {
        self.sends(statement.map_or(1, |statement| Arc::as_ptr(&statement.query).addr() as u64))
    }

    fn sends(&mut self, statement: u64) -> Place {
        let before = std::mem::replace(&mut self.sent, statement);
        ((statement ^ before.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as Place
    }

    /// Whether the next look-up after this is likely to need the log end: because one did the last times, or because the passing statement is looked
    /// up and lacks it.
    pub(crate) fn expect_end_needed(&mut self, place: Place) -> bool {
        std::mem::take(&mut self.lacked)
            || self.scores.iter().any(|(known, score)| *known == place && *score >= ASKED_FROM)
    }

    /// The statement has shown data; None: the log end cannot be asked for after it. `wrote`: its transaction may have written.
    pub(crate) fn told(&mut self, place: Option<Place>, wrote: bool) {
        self.behind = if wrote { Behind::Write } else { Behind::Read };
        let Some(last) = std::mem::replace(&mut self.last, place) else { return };
        if let Some(at) = self.scores.iter().position(|(known, _)| *known == last)
            && let Some((_, score)) = self.scores.get_mut(at)
        {
            *score -= 1;
            if *score == 0 {
                self.scores.swap_remove(at);
            }
        }
    }

    /// A look-up lacks the position that tells how new the last answer was.
    pub(crate) fn lacked(&mut self) {
        self.needed();
        self.lacked = true;
    }

    /// The current look-up directly follows the session's own write.
    pub(crate) fn is_late(&self) -> bool {
        self.behind == Behind::Write
    }

    /// A look-up hits.
    pub(crate) fn hit(&mut self) -> Behind {
        self.needed();
        std::mem::take(&mut self.behind)
    }

    /// The client was answered from the cache.
    pub(crate) fn note_hit(&mut self) {
        self.misses_in_row = 0;
    }

    /// A look-up leads to a fill.
    pub(crate) fn note_fill(&mut self) {
        self.misses_in_row = self.misses_in_row.saturating_add(1);
    }

    /// Whether the next look-ups are expected to miss.
    pub(crate) fn expects_misses(&self) -> bool {
        self.misses_in_row >= MISSES_IN_ROW
    }

    /// A look-up must know how new the last answer was.
    fn needed(&mut self) {
        self.sent = 0;
        self.lacked = false;
        let Some(last) = self.last.take() else { return };
        if let Some((_, score)) = self.scores.iter_mut().find(|(known, _)| *known == last) {
            *score = (*score + NEEDED).min(SCORE_MAX);
            return;
        }
        if self.scores.len() == PLACES_MAX {
            self.scores.remove(0);
        }
        self.scores.push((last, NEEDED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the log end is asked for after each of these statements, in each round; a look-up follows if `looks_up`.
    fn asked(prefetch: &mut Prefetch, statements: &[u64], times: usize, looks_up: bool) -> Vec<bool> {
        let mut asked = Vec::new();
        for _ in 0..times {
            for number in statements {
                let place = prefetch.sends(number << 6);
                asked.push(prefetch.expect_end_needed(place));
                prefetch.told(Some(place), false);
            }
            if looks_up {
                assert_eq!([prefetch.hit(), prefetch.hit()], [Behind::Read, Behind::Hit]); // counts once
            }
        }
        asked
    }

    #[test]
    fn it_is_asked_for_where_it_was_needed() {
        let mut prefetch = Prefetch::default();
        assert_eq!(asked(&mut prefetch, &[3, 7], 4, true), [false, false, false, false, false, true, false, true]);
        // The same statement twice.
        assert_eq!(asked(&mut prefetch, &[5, 5], 4, true), [false, false, false, false, false, true, false, true]);
        // After one of four.
        for _ in 0..10 {
            let rest = [asked(&mut prefetch, &[4], 3, false), asked(&mut prefetch, &[4], 1, true)].concat();
            assert!(rest.iter().all(|asked| !asked), "{rest:?}");
        }
        // Now nobody needs it any more.
        let rest = asked(&mut prefetch, &[3, 7], 4, false);
        assert!(rest.iter().filter(|asked| **asked).count() <= 2, "{rest:?}");
        prefetch.told(None, false);
        assert_eq!(prefetch.hit(), Behind::Read);
        // A statement that passes, since it lacks the log end, asks for it at once.
        prefetch.lacked();
        assert_eq!(asked(&mut prefetch, &[9, 9], 1, true), [true, false]);
        let place = prefetch.sends(11 << 6);
        prefetch.told(Some(place), true);
        prefetch.lacked(); // and waits
        assert_eq!([prefetch.hit(), prefetch.hit()], [Behind::Write, Behind::Hit]);
        prefetch.told(Some(place), true);
        prefetch.told(Some(place), false);
        assert_eq!(prefetch.hit(), Behind::Read);
        assert!(asked(&mut Prefetch::default(), &[1, 2, 3], 5, false).iter().all(|asked| !asked));
    }
}
