//! The rows that one writer owns: which of them it writes next, what they become, and what its reads of them must show.

use super::changes::{Change, owner_of};
use super::ledger::{KeyId, Row, Table};
use super::line::Answer;
use super::stage::{Place, Random, Stage};
use super::{GROUPS, KINDS};

pub(crate) struct OwnRows<'a, P> {
    pub(crate) stage: &'a Stage<P>,
    pub(crate) keys: Vec<KeyId>,
    pub(crate) random: Random,
    /// Keys with a version whose commit was not acknowledged.
    pub(crate) open: Vec<KeyId>,
}

impl<'a, P: Place> OwnRows<'a, P> {
    pub(crate) fn new(stage: &'a Stage<P>, random: Random, keys: Vec<KeyId>) -> Self {
        Self { stage, keys, random, open: Vec::new() }
    }

    pub(crate) fn pick(&mut self) -> KeyId {
        // A few rows are written often, most seldom.
        let among = if self.random.percent(50) { self.keys.len().min(8) } else { self.keys.len() };
        self.keys[self.random.below(among as u64) as usize]
    }

    /// Several keys of one table or of any.
    pub(crate) fn pick_some(&mut self, one_table: bool) -> Vec<KeyId> {
        let mut keys: Vec<KeyId> = (0..=self.random.below(4)).map(|_| self.pick()).collect();
        keys.sort_unstable();
        keys.dedup();
        if one_table {
            let table = keys[0].0;
            keys.retain(|key| key.0 == table);
        }
        keys
    }

    /// What a row becomes next.
    pub(crate) fn next(&mut self, table: Table, now: Option<Row>) -> Option<Row> {
        let other = |random: &mut Random, bound: i32| random.below(bound.unsigned_abs().into()) as i32;
        match now {
            None => Some(Row { grp: other(&mut self.random, GROUPS), kind: other(&mut self.random, KINDS) }),
            Some(_) if self.random.percent(15) => None,
            Some(mut row) => {
                if self.random.percent(30) {
                    row.grp = other(&mut self.random, GROUPS);
                }
                // PostgreSQL: kin of one kind are in a table of their own. MySQL: their house, which changes them, has no kind.
                if self.random.percent(30) && table != Table::Kin {
                    row.kind = other(&mut self.random, KINDS);
                }
                Some(row)
            }
        }
    }

    /// Enters the next version of a key in the ledger, as part of an open transaction.
    pub(crate) fn write(&mut self, key: KeyId, through: bool) -> Change {
        let (_, now) = self.stage.ledger().latest(key);
        let row = self.next(key.0, now);
        self.write_as(key, row, through)
    }

    pub(crate) fn write_as(&mut self, key: KeyId, row: Option<Row>, through: bool) -> Change {
        let mut ledger = self.stage.ledger();
        let (_, now) = ledger.latest(key);
        let version = ledger.write(key, row, through);
        self.open.push(key);
        Change { key, now, row, version }
    }

    /// What commits the open versions is about to be sent.
    pub(crate) fn begin(&self) {
        self.stage.begin(&self.open);
    }

    pub(crate) fn acknowledged(&mut self) {
        self.stage.acknowledge(&self.open);
        self.open.clear();
    }

    /// The leaves of one folder, with the folder. None if this writer owns no leaves.
    pub(crate) fn pick_folder(&mut self) -> Option<(i32, Vec<KeyId>)> {
        let mut leaves: Vec<KeyId> = self.keys.iter().filter(|(table, _)| *table == Table::Leaf).copied().collect();
        let at = self.random.below(leaves.len().max(1) as u64) as usize;
        let folder = owner_of(leaves.get(at)?.1);
        leaves.retain(|(_, id)| owner_of(*id) == folder);
        Some((folder, leaves))
    }

    /// The keys of a table whose rows exist, of one kind if it is given.
    pub(crate) fn existing(&self, table: Table, kind: Option<i32>) -> Vec<KeyId> {
        let all = self.keys.iter().filter(|key| key.0 == table).copied();
        let is_one = |row: Row| kind.is_none_or(|kind| row.kind == kind);
        all.filter(|key| self.stage.ledger().latest(*key).1.is_some_and(is_one)).collect()
    }

    /// Checks the answer to a read of one row, which only this writer changes.
    pub(crate) fn check(&self, sql: &str, answer: &Answer, version: Option<i32>, why: &str) {
        let shown: Vec<_> = answer.rows(0).map(|row| row.get(3).copied().flatten()).collect();
        self.stage.count_reads(1);
        if shown != version.map(|version| Some(version.into())).into_iter().collect::<Vec<_>>() {
            self.stage.violated(format!("{sql}\n  answered version {shown:?}, {why}: {version:?}"));
        }
    }

    /// Checks one row in the answer to a read of the whole table within a transaction that has written the row.
    pub(crate) fn check_among_all(&self, sql: &str, answer: &Answer, id: i32, version: Option<i32>) {
        let mut rows = answer.rows(0).filter(|row| row.first() == Some(&Some(id.into())));
        let shown = rows.next().map(|row| row.get(3).copied().flatten());
        self.stage.count_reads(1);
        if shown != version.map(|version| Some(version.into())) {
            let what = format!("row {id} has version {shown:?}, written in this transaction: {version:?}");
            self.stage.violated(format!("{sql}\n  {what}"));
        }
    }
}
