//! The ledger of writes. It decides whether an answer is right.
//!
//! Three facts of every popular movie title have a counter that only the demo's writer increments: the number of votes, the time of the last update,
//! and the number of added genres. The writer records a version *before* it sends the write, and the time *after* the database acknowledged it. An
//! answer that shows version v is
//!
//! - wrong if v was never sent, or if two rows of one answer show different versions (they are written together);
//! - wrong if version v + 1 was acknowledged earlier than the allowed age before the read was *sent*;
//! - otherwise right: a snapshot within the allowed age contained it.
//!
//! Each of the two clock readings may be off by the time of a call, always in favour of the answer. So an answer that is called wrong is wrong.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::driver::Protocol;
use crate::statement::Statement;
use anyhow::{Context, Result, ensure};

use super::session::{Session, text};

/// A fact of a movie title with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fact {
    /// `title_rating.num_votes`, by UPDATE.
    Votes,
    /// `title.updated`, by UPDATE.
    Updated,
    /// Rows of `title_genre`, by INSERT.
    Genres,
}

impl Fact {
    pub(super) const ALL: [Self; 3] = [Self::Votes, Self::Updated, Self::Genres];
}

/// The time at which a version was acknowledged, and whether its write went through the cache.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    at: Instant,
    through_cache: bool,
}

/// The history of one counter.
#[derive(Debug, Default)]
pub(super) struct Register {
    sent: usize,
    /// Element n is for version n + 1.
    acknowledged: Vec<Acknowledged>,
}

/// The register's verdict on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Right. The answer was this much older than the database when the read was sent.
    Right(Duration),
    /// No write with that version was ever sent.
    NeverWritten,
    /// A newer version had been acknowledged this long before the read was sent.
    TooOld(Duration),
}

impl Register {
    /// Begins the next version, which is about to be written, and returns it.
    fn send(&mut self) -> usize {
        self.sent += 1;
        self.sent
    }

    fn acknowledge(&mut self, through_cache: bool) {
        self.acknowledged.push(Acknowledged { at: Instant::now(), through_cache });
    }

    /// Judges an answer to a read sent at `sent`. An answer may miss writes that bypassed the cache within the last `age_max`. Every read sent after
    /// the acknowledgement of a write through the cache must see the write.
    fn judge(&self, version: usize, sent: Instant, age_max: Duration) -> Verdict {
        if version > self.sent {
            return Verdict::NeverWritten;
        }
        let newer = self.acknowledged.get(version..).unwrap_or_default();
        let missed_by = |write: &Acknowledged| {
            let allowed = if write.through_cache { Duration::ZERO } else { age_max };
            let age = sent.saturating_duration_since(write.at);
            (age > allowed).then_some(age)
        };
        // A later write may be the missed one, since writes through the cache allow no lag.
        if let Some(age) = newer.iter().find_map(missed_by) {
            return Verdict::TooOld(age);
        }
        Verdict::Right(newer.first().map_or(Duration::ZERO, |write| sent.saturating_duration_since(write.at)))
    }
}

/// A popular title and its counters.
#[derive(Debug)]
pub(super) struct Movie {
    pub(super) title: String,
    /// Keys of the title's rows with type `movie`.
    pub(super) ids: Vec<i64>,
    votes_base: i32,
    registers: [Mutex<Register>; 3],
}

impl Movie {
    fn register(&self, fact: Fact) -> MutexGuard<'_, Register> {
        self.registers[fact as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the next version is about to be sent, and returns it.
    pub(super) fn send(&self, fact: Fact) -> usize {
        self.register(fact).send()
    }

    /// Records that the last sent version is acknowledged.
    pub(super) fn acknowledge(&self, fact: Fact, through_cache: bool) {
        self.register(fact).acknowledge(through_cache);
    }

    /// Judges an answer.
    pub(super) fn judge(&self, fact: Fact, version: usize, sent: Instant, age_max: Duration) -> Verdict {
        self.register(fact).judge(version, sent, age_max)
    }

    /// The number of votes in a version.
    pub(super) fn votes(&self, version: usize) -> Result<i32> {
        Ok(self.votes_base + i32::try_from(version)?)
    }

    /// The version with a number of votes.
    pub(super) fn votes_version(&self, votes: i32) -> Result<usize> {
        usize::try_from(votes - self.votes_base).with_context(|| format!("{votes} votes, fewer than at the start"))
    }
}

/// All popular titles.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) movies: Vec<Movie>,
}

impl Ledger {
    /// Reads the keys and the initial state from the database itself.
    pub(super) async fn read(url: &str, titles: &[String]) -> Result<Self> {
        let sql = "SELECT t.title, t.title_id, r.num_votes FROM title t
                   JOIN title_rating r ON r.title_id = t.title_id WHERE t.type = 'movie'";
        let mut session = Session::with(url, Protocol::Text, &[Statement::read("movies", sql)].into()).await?;
        let mut movies: Vec<Movie> = Vec::with_capacity(titles.len());
        let mut rows = session.rows(0, &[]).await.context("reading the popular movies")?;
        rows.sort_unstable();
        for row in &rows {
            let (title, id, votes) = (text(row, 0)?, text(row, 1)?.parse()?, text(row, 2)?.parse()?);
            match movies.last_mut().filter(|movie| movie.title == title) {
                Some(movie) => {
                    ensure!(
                        movie.votes_base == votes,
                        "the votes of {title:?} start with {} and {votes}",
                        movie.votes_base
                    );
                    movie.ids.push(id);
                }
                None if titles.iter().any(|popular| popular == title) => {
                    let registers = Default::default();
                    movies.push(Movie { title: title.to_owned(), ids: vec![id], votes_base: votes, registers });
                }
                None => {}
            }
        }
        ensure!(movies.len() == titles.len(), "{} of {} popular titles were loaded", movies.len(), titles.len());
        Ok(Self { movies })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MAX: Duration = Duration::from_secs(1);

    fn written(through_cache: &[bool]) -> Register {
        let mut register = Register::default();
        for through in through_cache {
            register.send();
            register.acknowledge(*through);
        }
        register
    }

    fn after(register: &Register, version: usize, wait: Duration) -> Instant {
        register.acknowledged[version - 1].at + wait
    }

    #[test]
    fn an_answer_may_be_old_but_not_too_old() {
        let register = written(&[false, false]);
        let soon = after(&register, 2, Duration::from_millis(900));
        assert!(matches!(register.judge(1, soon, AGE_MAX), Verdict::Right(age) if age.as_millis() == 900));
        let late = after(&register, 2, Duration::from_millis(1100));
        assert!(matches!(register.judge(1, late, AGE_MAX), Verdict::TooOld(age) if age.as_millis() == 1100));
        assert_eq!(register.judge(2, late, AGE_MAX), Verdict::Right(Duration::ZERO));
    }

    #[test]
    fn what_was_sent_may_be_seen_before_it_is_acknowledged() {
        let mut register = written(&[false]);
        register.send();
        assert_eq!(register.judge(2, Instant::now(), AGE_MAX), Verdict::Right(Duration::ZERO));
        assert_eq!(register.judge(3, Instant::now(), AGE_MAX), Verdict::NeverWritten);
    }

    #[test]
    fn a_write_through_the_cache_is_seen_at_once() {
        let register = written(&[false, true]);
        let sent = after(&register, 2, Duration::from_millis(1));
        assert!(matches!(register.judge(1, sent, AGE_MAX), Verdict::TooOld(_)));
        // Version 0 misses both writes. It would be allowed to miss only the one that bypassed the cache.
        assert!(matches!(register.judge(0, sent, AGE_MAX), Verdict::TooOld(_)));
        assert_eq!(register.judge(2, sent, AGE_MAX), Verdict::Right(Duration::ZERO));
    }
}
