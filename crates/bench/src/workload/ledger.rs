//! The rows that the connections of one round insert.
//!
//! Connections that insert concurrently must not choose the same key. A read of the newest row must not choose a row whose insert is not complete: a
//! cache that rightly finds nothing would look wrong, and faster than it is. So each insert takes a number here and reports when the database has
//! acknowledged it. Reads choose from the rows up to the first unacknowledged one. (YCSB has an `AcknowledgedCounterGenerator` for this.)
//!
//! All rounds and all runs write to the same database. The numbers of a round begin at its start time in microseconds, so no two are equal, and no
//! round needs to know the rows of earlier ones. A round reads the loaded rows and those that it inserted itself, so all rounds begin alike.

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
    /// Index of the next row.
    next: u64,
    /// Indexes whose insert failed. The next inserts try them again, since later rows are not read before these are acknowledged.
    failed: Vec<u64>,
    /// Indexes that were acknowledged while an earlier one was not. There are at most as many as are inserted during one slow insert.
    ahead: BTreeSet<u64>,
}

/// A row that a connection is to insert.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// Its index in the round, from 0.
    pub(super) place: u64,
    /// Its number, which is unique over all rounds.
    pub(super) number: u64,
    /// An earlier insert failed but may have been committed: its connection may have been lost after the commit.
    pub(super) again: bool,
}

impl Ledger {
    /// The ledger of a round that begins now.
    pub(super) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        Self { first: now as u64, rows: AtomicU64::new(0), state: Mutex::default() }
    }

    /// Gives the caller a row to insert. The caller reports the result later.
    pub(super) fn take(&self) -> Taken {
        let mut state = self.state();
        let failed = state.failed.pop();
        let place = failed.unwrap_or(state.next);
        if failed.is_none() {
            state.next += 1;
        }
        Taken { place, number: self.number(place), again: failed.is_some() }
    }

    /// Records the result of an insert. A repeated insert that finds its row has succeeded.
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

    /// Records that the database has the row.
    pub(super) fn acknowledge(&self, taken: Taken) {
        let mut state = self.state();
        state.ahead.insert(taken.place);
        let mut rows = self.rows.load(Ordering::Relaxed);
        while state.ahead.remove(&rows) {
            rows += 1;
        }
        self.rows.store(rows, Ordering::Release);
    }

    /// Records that the database does not have the row, or that this is unknown.
    fn give_back(&self, taken: Taken) {
        self.state().failed.push(taken.place);
    }

    /// Number of rows that are acknowledged without a gap.
    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Acquire)
    }

    /// The number of a row, by its index.
    pub(super) const fn number(&self, place: u64) -> u64 {
        self.first + place
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ledger of the current round.
#[derive(Debug)]
pub(super) struct Current(Mutex<Arc<Ledger>>);

impl Current {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Ledger::new().into()))
    }

    /// Begins a round.
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
