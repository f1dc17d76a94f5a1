//! The rows that a round has inserted.
//!
//! Connections that insert concurrently must not choose the same key. A read of the newest row must not read one whose insertion is not complete: a
//! cache that rightly finds nothing would look wrong, and faster than it is. So each insert takes a number here, and reports when the database has
//! acknowledged it; reads see the rows up to the first unacknowledged one. (YCSB has an `AcknowledgedCounterGenerator` for this.)
//!
//! Rounds of different targets write to one database, and so do runs. Numbers begin at the time of the round in microseconds, so no two are equal,
//! and no round needs to know the rows of earlier ones. A round reads the loaded rows and its own, so all rounds begin alike; rows of other rounds
//! are not read.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::driver::Failure;
use crate::session::Session;

/// The rows of one round.
#[derive(Debug)]
pub(super) struct Ledger {
    first: u64,
    rows: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Place of the next row.
    next: u64,
    /// Places whose insert failed: the next inserts try them again, since the rows behind them wait.
    failed: Vec<u64>,
    /// Places that were acknowledged before an earlier one was. As many as are inserted while one insert takes its time.
    ahead: BTreeSet<u64>,
}

/// A row to be inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// Among the round's rows, from 0.
    pub(super) place: u64,
    /// Its number, which no other row of any round has.
    pub(super) number: u64,
    /// It was tried before, and may be there: an insert whose connection was lost may have been committed.
    pub(super) again: bool,
}

impl Ledger {
    /// Of a round that begins now.
    pub(super) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        Self { first: now as u64, rows: AtomicU64::new(0), state: Mutex::default() }
    }

    /// A row for the caller alone, who reports later whether it was inserted.
    pub(super) fn take(&self) -> Taken {
        let mut state = self.state();
        let failed = state.failed.pop();
        let place = failed.unwrap_or(state.next);
        if failed.is_none() {
            state.next += 1;
        }
        Taken { place, number: self.number(place), again: failed.is_some() }
    }

    /// What an attempt to insert it came to. One that finds it there from an earlier attempt has succeeded.
    pub(super) async fn settle(
        &self,
        taken: Taken,
        done: Result<(), Failure>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let done = match done {
            Err(failure) if failure.duplicate() && taken.again => session.roll_back().await,
            done => done,
        };
        match &done {
            Ok(()) => self.acknowledge(taken),
            Err(_) => self.give_back(taken),
        }
        done
    }

    /// The database has it.
    pub(super) fn acknowledge(&self, taken: Taken) {
        let mut state = self.state();
        state.ahead.insert(taken.place);
        let mut rows = self.rows.load(Ordering::Relaxed);
        while state.ahead.remove(&rows) {
            rows += 1;
        }
        self.rows.store(rows, Ordering::Release);
    }

    /// The database does not have it, or it is not known.
    fn give_back(&self, taken: Taken) {
        self.state().failed.push(taken.place);
    }

    /// So many rows, from the first, are acknowledged without a gap.
    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Acquire)
    }

    /// The number of the row at a place.
    pub(super) const fn number(&self, place: u64) -> u64 {
        self.first + place
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ledger of the round that is on.
#[derive(Debug)]
pub(super) struct Current(Mutex<Arc<Ledger>>);

impl Current {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Ledger::new().into()))
    }

    /// A round begins.
    pub(super) fn renew(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Ledger::new().into();
    }

    pub(super) fn get(&self) -> Arc<Ledger> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn rows_are_seen_once_all_before_them_are_acknowledged() {
        let ledger = Ledger::new();
        let [a, b, c, d] = [(); 4].map(|()| ledger.take());
        ledger.acknowledge(b);
        ledger.acknowledge(d);
        assert_eq!(ledger.rows(), 0);
        ledger.acknowledge(a);
        assert_eq!(ledger.rows(), 2);
        ledger.give_back(c);
        let again = ledger.take();
        assert!(again.again && !c.again);
        assert_eq!(again.number, c.number);
        ledger.acknowledge(again);
        assert_eq!((ledger.rows(), ledger.number(3)), (4, d.number));
        assert!(ledger.state().ahead.is_empty());
    }

    #[test]
    fn threads_do_not_share_a_number() {
        let ledger = Ledger::new();
        let numbers: Vec<u64> = std::thread::scope(|scope| {
            let taking = || {
                let take = |_| {
                    let taken = ledger.take();
                    ledger.acknowledge(taken);
                    taken.number
                };
                (0..1000).map(take).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(taking)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 4000);
        assert_eq!(ledger.rows(), 4000);
    }
}
