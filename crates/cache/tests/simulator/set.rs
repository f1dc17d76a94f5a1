//! Sets of transactions as bits, since the oracle compares many.

use crate::database::TxnId;

#[derive(Clone, Debug, Default)]
pub(crate) struct TxnSet(Vec<u64>);

impl TxnSet {
    pub(crate) fn insert(&mut self, txn: TxnId) {
        let word = txn / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (txn % 64);
    }

    pub(crate) fn contains(&self, txn: TxnId) -> bool {
        self.word(txn / 64) >> (txn % 64) & 1 == 1
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, theirs) in self.0.iter_mut().zip(&other.0) {
            *word |= theirs;
        }
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().enumerate().all(|(at, word)| word & !other.word(at) == 0)
    }

    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        self.0.iter().enumerate().all(|(at, word)| word & other.word(at) == 0)
    }

    pub(crate) fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = TxnId> + 'a {
        (0..self.0.len() * 64).filter(|txn| self.contains(*txn) && !other.contains(*txn))
    }

    fn word(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or(0)
    }
}

impl FromIterator<TxnId> for TxnSet {
    fn from_iter<I: IntoIterator<Item = TxnId>>(txns: I) -> Self {
        let mut set = Self::default();
        for txn in txns {
            set.insert(txn);
        }
        set
    }
}
