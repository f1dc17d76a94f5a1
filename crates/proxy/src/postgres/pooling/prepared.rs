//! The shared prepared statements on one server connection.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::quality::RandomState;

use crate::postgres::pooling::entries::Entry;

/// A statement that is prepared there.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    entry: Arc<Entry>,
    /// When its `Parse` was sent: see [`super::entries::Entries::tick`].
    at: u64,
    /// It was prepared or used amid settings or definitions of one session, and must not stay for others.
    is_private: bool,
    used: u64,
}

impl Prepared {
    pub(crate) fn new(entry: Arc<Entry>, at: u64, is_private: bool) -> Self {
        Self { entry, at, is_private, used: at }
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

/// All of them. Messages that were sent count as executed: what the server skips is taken back.
#[derive(Debug, Default)]
pub(crate) struct PreparedThere {
    by_number: HashMap<u64, Prepared, RandomState>,
    uses: u64,
}

impl PreparedThere {
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Whether it is prepared there, and no earlier than `since`: a table may have changed before that, and the server refuses a statement whose
    /// columns have changed since it was prepared.
    pub(crate) fn has(&self, entry: &Entry, since: u64) -> bool {
        self.by_number.get(&entry.number).is_some_and(|prepared| prepared.at >= since)
    }

    /// It is used.
    pub(crate) fn note_use(&mut self, entry: &Entry) {
        self.uses += 1;
        if let Some(prepared) = self.by_number.get_mut(&entry.number) {
            prepared.used = self.uses;
        }
    }

    /// It is planned, perhaps, amid settings or definitions of one session.
    pub(crate) fn note_private(&mut self, entry: &Entry) {
        if let Some(prepared) = self.by_number.get_mut(&entry.number) {
            prepared.is_private = true;
        }
    }

    pub(crate) fn insert(&mut self, prepared: Prepared) {
        self.uses += 1;
        self.by_number.insert(prepared.entry.number, Prepared { used: self.uses, ..prepared });
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Prepared> {
        self.by_number.remove(&number)
    }

    /// The one that was used longest ago, of those that may go.
    pub(crate) fn oldest(&self, may_go: impl Fn(&Entry) -> bool) -> Option<u64> {
        let all = self.by_number.values().filter(|prepared| may_go(&prepared.entry));
        all.min_by_key(|prepared| prepared.used).map(|prepared| prepared.entry.number)
    }

    /// Removes those that must not stay for other sessions.
    pub(crate) fn take_private(&mut self) -> Vec<Prepared> {
        self.by_number.extract_if(|_, prepared| prepared.is_private).map(|(_, prepared)| prepared).collect()
    }

    /// Removes those that were used longest ago, so that no more than these are left.
    pub(crate) fn take_above(&mut self, most: usize) -> Vec<Prepared> {
        let mut taken = Vec::new();
        while self.len() > most
            && let Some(oldest) = self.oldest(|_| true)
        {
            taken.extend(self.remove(oldest));
        }
        taken
    }

    /// Removes all.
    pub(crate) fn take_all(&mut self) -> Vec<Prepared> {
        self.by_number.drain().map(|(_, prepared)| prepared).collect()
    }

    /// What is known here was prepared before the connection came, which has these.
    pub(crate) fn join(&mut self, there: Self) {
        for (number, prepared) in there.by_number {
            self.by_number.entry(number).or_insert(prepared);
        }
        self.uses = self.uses.max(there.uses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::pooling::entries::Entries;

    #[test]
    fn the_one_used_longest_ago_is_the_oldest() {
        let entries = Arc::new(Entries::default());
        let entry = |text: &[u8], reads_settings| entries.intern(text, reads_settings, &Arc::default());
        let (a, b, c) = (entry(b"a", false), entry(b"b", true), entry(b"c", false));
        let mut there = PreparedThere::default();
        for (entry, at) in [(&a, 5), (&b, 6), (&c, 7)] {
            there.insert(Prepared::new(entry.clone(), at, false));
        }
        there.note_use(&a);
        assert_eq!(
            (there.oldest(|_| true), there.oldest(|entry| !entry.reads_settings)),
            (Some(b.number), Some(c.number))
        );
        assert!(there.has(&a, 5) && !there.has(&a, 6));
        there.insert(Prepared::new(c.clone(), 8, true));
        assert_eq!((there.take_private().len(), there.len(), there.has(&c, 0)), (1, 2, false));
        let mut used = PreparedThere::default();
        used.insert(Prepared::new(c.clone(), 8, false));
        used.note_private(&c);
        assert_eq!(used.take_private().len(), 1);
        let mut fresh = PreparedThere::default();
        fresh.insert(Prepared::new(a.clone(), 9, false));
        fresh.join(there);
        assert!(fresh.has(&a, 9) && fresh.has(&b, 6));
        assert_eq!((fresh.take_above(1).len(), fresh.take_above(1).len(), fresh.len()), (1, 0, 1));
    }
}
