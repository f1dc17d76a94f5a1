//! The naive oracle: it stores the whole history and computes the answer of each query.

use std::fmt;

use freshet_cache::{Cache, Payload};
use freshet_types::{Lsn, Nanos};

use crate::database::{Database, State};
use crate::query::{Answer, Query};
use crate::set::TxnSet;
use crate::world::STALENESS_MAX;

/// The contents of an entry here: the answer, and the facts that the oracle needs.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) query: Query,
    pub(crate) answer: Answer,
    pub(crate) definition: u64,
    /// The transactions that the query saw.
    pub(crate) saw: TxnSet,
    /// The log end after it.
    pub(crate) read_end: Lsn,
}

impl Payload for Answered {
    fn heap_bytes(&self) -> usize {
        100 + self.answer.len() * 64
    }
}

/// A violated promise.
pub(crate) struct Violation {
    at: Nanos,
    what: String,
}

impl Violation {
    pub(crate) fn new(at: Nanos, what: String) -> Self {
        Self { at, what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}.{:06} ms: {}", self.at / 1_000_000, self.at % 1_000_000, self.what)
    }
}

/// The stream's view of the history.
pub(crate) struct Oracle {
    passed: usize,
    passed_set: TxnSet,
    initial: State,
    state: State,
    definition: u64,
}

impl Oracle {
    pub(crate) fn new(initial: State) -> Self {
        Self { passed: 0, passed_set: TxnSet::default(), state: initial.clone(), initial, definition: 0 }
    }

    /// Number of commits that the stream has passed.
    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    pub(crate) fn pass(&mut self, db: &Database, upto: usize) {
        for txn in &db.log[self.passed..upto] {
            db.apply_to(&mut self.state, *txn);
            self.passed_set.insert(*txn);
        }
        self.passed = upto;
    }

    /// A new process has no state, and its stream starts behind this many commits.
    pub(crate) fn restart(&mut self, db: &Database, passed: usize) {
        *self = Self::new(self.initial.clone());
        self.pass(db, passed);
    }

    pub(crate) fn definition_known(&mut self, definition: u64) {
        self.definition = definition;
    }

    /// The query's answer on the state of everything that the stream has passed and of `more`.
    fn answer(&self, db: &Database, query: &Query, more: &TxnSet) -> Answer {
        if more.is_subset(&self.passed_set) {
            return query.answer(&self.state);
        }
        let mut state = self.state.clone();
        for txn in db.log[self.passed..].iter().filter(|txn| more.contains(**txn)) {
            db.apply_to(&mut state, *txn);
        }
        query.answer(&state)
    }

    /// FRESH: each entry reflects everything delivered. Accounting: the store's bytes are those of its entries.
    ///
    /// The result of a view may be cached under the tags of its previous definition until the stream delivers the new one: it is checked once it can
    /// be served.
    pub(crate) fn check_entries(&self, now: Nanos, db: &Database, cache: &Cache<Answered>) -> Result<(), Violation> {
        let entries = cache.entries();
        let levels = cache.levels(now);
        let applied = levels.applied.map(|end| end.lsn);
        for (_, entry) in &entries {
            let held = &entry.payload;
            // The commits that the tags depend on are delivered before the entry may be served.
            let later = matches!(held.query, Query::Seen(..)) || held.query.leader().is_some();
            if later && applied < Some(held.read_end) {
                continue;
            }
            let expected = self.answer(db, &held.query, &held.saw);
            if held.answer != expected || held.definition < self.definition {
                let missing: Vec<_> = self.passed_set.without(&held.saw).map(|txn| db.txns[txn].xid).collect();
                let text = format!(
                    "FRESH: {:?}\n  entry {:?} definition {}\n  is    {expected:?} definition {}\n  not seen by its query, but delivered: {missing:?}",
                    held.query, held.answer, held.definition, self.definition
                );
                return Err(Violation::new(now, text));
            }
        }
        let bytes: u64 = entries.iter().map(|(_, entry)| entry.weight()).sum();
        if levels.bytes != bytes || levels.entries != entries.len() as u64 || bytes > cache.limits().memory_bytes {
            return Err(Violation::new(now, format!("ACCOUNTING: {levels:?}, entries weigh {bytes}")));
        }
        Ok(())
    }

    /// BOUND, MONOTONIC and ACKNOWLEDGED: a hit reflects everything that was visible D ago, everything that its session has seen, and every write
    /// that was acknowledged to any session.
    pub(crate) fn check_hit(
        &self,
        now: Nanos,
        db: &Database,
        held: &Answered,
        (seen, acknowledged): (&TxnSet, &TxnSet),
    ) -> Result<(), Violation> {
        let limit = now.saturating_sub(STALENESS_MAX);
        let old = |txn: &usize| db.txns[*txn].visible_at.is_some_and(|at| at < limit);
        let bound: TxnSet = (0..db.txns.len()).filter(old).collect();
        for (promise, must) in [("BOUND", &bound), ("MONOTONIC", seen), ("ACKNOWLEDGED", acknowledged)] {
            if must.is_subset(&held.saw) {
                continue;
            }
            let mut all = held.saw.clone();
            all.add(must);
            let expected = self.answer(db, &held.query, &all);
            if held.answer != expected {
                let text = format!("{promise}: {:?}\n  hit {:?}\n  is  {expected:?}", held.query, held.answer);
                return Err(Violation::new(now, text));
            }
        }
        let definition = db.definition_at.iter().rposition(|at| *at < limit).unwrap_or(0);
        if held.definition < definition as u64 {
            return Err(Violation::new(
                now,
                format!("BOUND: definition {} is older than {definition}", held.definition),
            ));
        }
        Ok(())
    }
}
