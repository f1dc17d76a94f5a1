//! Behind which of its statements a session's next look-up needs the log end.
//!
//! A statement that passes tells the client of data, and a hit must not go behind that: it needs a log end that was asked for
//! later (the watermark). Asked for together with the statement, on the session's own connection, it is there with the answer;
//! a look-up that has to wait for a log-end probe of the lease's costs the database and Freshet more, and the client a way
//! there and back. But behind many a statement nobody needs it: another statement follows that passes, too. Programs repeat
//! themselves, so what came behind a statement the last times, and behind the same one before it, says whether to ask. Sessions
//! that look nothing up never ask.

use std::sync::Arc;

use crate::statement::registry::Statement;

/// A statement behind another, as a number: different ones hardly ever have the same.
pub(crate) type Place = u32;

/// Remembered places: a few times as many as a transaction has statements behind which something is looked up.
const PLACES_MAX: usize = 32;
/// A look-up that needs it is worth so many statements behind which none does.
const NEEDED: u8 = 2;
/// From this on it is asked for: behind one in ten statements, say, it is cheaper to wait for a log-end probe that others may want, too.
const ASKED_FROM: u8 = 3;
const SCORE_MAX: u8 = 4;

/// Look-ups that all missed, after which the next ones are expected to miss, too.
const MISSES_IN_ROW: u8 = 8;

/// What a session has done behind its statements.
#[derive(Debug, Default)]
pub(crate) struct Prefetch {
    /// Scores that are not 0.
    scores: Vec<(Place, u8)>,
    /// The last statement that was sent since something was looked up; 0: none.
    sent: u64,
    /// The place of the last one that told of data, as long as nothing has come behind it.
    last: Option<Place>,
    /// The last look-up could not hit for want of it.
    lacked: bool,
    /// What the last one was that told of data, if nothing has hit since.
    behind: Behind,
    /// Look-ups since the last hit that led to a fill, 255 at most.
    misses_in_row: u8,
}

/// What a hit comes right behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Another, or nothing that would matter.
    #[default]
    Hit,
    /// What passed and did not write.
    Read,
    /// What may have written.
    Write,
}

impl Prefetch {
    /// The place of a statement that is sent now.
    pub(crate) fn place(&mut self, statement: Option<&Arc<Statement>>) -> Place {
        self.sends(statement.map_or(1, |statement| Arc::as_ptr(&statement.query).addr() as u64))
    }

    fn sends(&mut self, statement: u64) -> Place {
        let before = std::mem::replace(&mut self.sent, statement);
        ((statement ^ before.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as Place
    }

    /// The next look-up behind this is likely to need the log end: if the last times one did, or if what passes is looked up and lacks it.
    pub(crate) fn expect_end_needed(&mut self, place: Place) -> bool {
        std::mem::take(&mut self.lacked)
            || self.scores.iter().any(|(known, score)| *known == place && *score >= ASKED_FROM)
    }

    /// The statement has told of data; None: nothing can be asked for behind it. `wrote`: its transaction may have written.
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

    /// A look-up lacks what would tell how new the last statement's answer was.
    pub(crate) fn lacked(&mut self) {
        self.needed();
        self.lacked = true;
    }

    /// What is looked up now comes right behind the session's own write.
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

    /// The next look-ups are expected to miss.
    pub(crate) fn expects_misses(&self) -> bool {
        self.misses_in_row >= MISSES_IN_ROW
    }

    /// A look-up needs to know how new the last statement's answer was.
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

    /// What is asked behind each of these statements, each time they come; then something is looked up, if it is.
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
        // Behind one of four.
        for _ in 0..10 {
            let rest = [asked(&mut prefetch, &[4], 3, false), asked(&mut prefetch, &[4], 1, true)].concat();
            assert!(rest.iter().all(|asked| !asked), "{rest:?}");
        }
        // Now nobody needs it any more.
        let rest = asked(&mut prefetch, &[3, 7], 4, false);
        assert!(rest.iter().filter(|asked| **asked).count() <= 2, "{rest:?}");
        prefetch.told(None, false);
        assert_eq!(prefetch.hit(), Behind::Read);
        // What passes since it lacks the end asks for it at once.
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
