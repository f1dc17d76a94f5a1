//! A simulated database: the commit of a transaction is first a record in the log, then flushed, and visible to new snapshots in any order and any
//! time later. The contents of old rows in the log depend on the replica identity.
//!
//! Its visibility proofs are those of PostgreSQL, MySQL or MariaDB.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use freshet_types::{
    Cell, Change, CommitId, Dialect, GtidSet, Lsn, Nanos, Relation, Snapshot, TableId, ValueType, Visible,
};

use crate::rng::Rng;
use crate::set::TxnSet;

pub(crate) const TABLES: usize = 3;
/// Views are relations behind the tables, with the next ids and locks.
pub(crate) const VIEWS: usize = 2;
pub(crate) const COLUMNS: [(&str, ValueType); 4] =
    [("id", ValueType::Int), ("a", ValueType::Int), ("b", ValueType::Text), ("c", ValueType::Numeric)];
/// Values are below this, so that predicates often match rows.
pub(crate) const VALUES: u64 = 5;
pub(crate) const KEYS: u64 = 12;

/// Cells by column; the first is the primary key.
pub(crate) type Row = [Option<u8>; 4];
/// The committed state: rows by primary key of each table, and the table of each view.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) tables: [BTreeMap<u8, Row>; TABLES],
    pub(crate) views: Views,
}
/// The table that each view selects from.
pub(crate) type Views = [usize; VIEWS];
/// Index of a transaction in [`Database::txns`].
pub(crate) type TxnId = usize;

pub(crate) fn table_id(table: usize) -> TableId {
    TableId(16384 + table as u32)
}

/// The text form of a value; numerics in one of several forms.
pub(crate) fn spell(column: usize, value: u8, spelling: u64) -> String {
    match (COLUMNS[column].1, spelling % 3) {
        (ValueType::Text, _) => format!("v{value}"),
        (ValueType::Numeric, 0) => format!("{value}.50"),
        (ValueType::Numeric, 1) => format!("0{value}.5"),
        (ValueType::Numeric, _) => format!("{value}.500"),
        _ => value.to_string(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Its commit record is in the log.
    Logged,
    /// Visible, or aborted.
    Ended,
}

#[derive(Debug)]
enum Op {
    Put(usize, Row),
    Delete(usize, u8),
    Truncate(usize),
    /// A view and the table that it selects from now on.
    Define(usize, usize),
}

#[derive(Debug)]
pub(crate) struct Txn {
    pub(crate) xid: u64,
    pub(crate) phase: Phase,
    ops: Vec<Op>,
    /// The changes that the stream will deliver: writes to tables that were published when they were written.
    pub(crate) published: Vec<Change>,
    /// It redefined a view.
    pub(crate) redefines: bool,
    /// The end of its commit record.
    pub(crate) end: Lsn,
    pub(crate) visible_at: Option<Nanos>,
    /// Locks on tables; true: exclusive.
    locks: BTreeMap<usize, bool>,
}

/// The server.
pub(crate) struct Database {
    pub(crate) dialect: Dialect,
    pub(crate) txns: Vec<Txn>,
    /// Committed transactions in the order of the log.
    pub(crate) log: Vec<TxnId>,
    /// The insert position.
    pub(crate) insert: Lsn,
    pub(crate) flushed: Lsn,
    pub(crate) visible: State,
    pub(crate) visible_set: TxnSet,
    next_xid: u64,
    latest_completed: u64,
    pub(crate) published: [bool; TABLES],
    full_identity: [bool; TABLES],
    relations: Vec<Arc<Relation>>,
    /// How many of its writes redefine a view.
    definitions_per_mille: u64,
    row_locks: HashMap<(usize, u8), TxnId>,
    /// Counts changes of definitions that are not in the stream.
    pub(crate) definition: u64,
    /// When each change of a definition became visible.
    pub(crate) definition_at: Vec<Nanos>,
}

impl Database {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut visible = State::default();
        for table in &mut visible.tables {
            for id in 0..KEYS as u8 {
                if rng.percent(60) {
                    table.insert(id, random_row(rng, id));
                }
            }
        }
        // Some runs cross the wrap of the stream's 32-bit ids.
        let first = if rng.percent(30) { (1 << 32) - rng.between(1, 60) } else { rng.between(700, 9000) };
        let columns: Vec<Arc<str>> = COLUMNS.iter().map(|(name, _)| (*name).into()).collect();
        let relation = |table| Arc::new(Relation { table: table_id(table), columns: columns.clone() });
        Self {
            dialect: [Dialect::Postgres, Dialect::MySql, Dialect::MariaDb][rng.below(3) as usize],
            txns: Vec::new(),
            log: Vec::new(),
            insert: Lsn(1000),
            flushed: Lsn(1000),
            visible,
            visible_set: TxnSet::default(),
            next_xid: first,
            latest_completed: first - 1,
            published: [false; TABLES],
            full_identity: std::array::from_fn(|_| rng.percent(50)),
            definitions_per_mille: if rng.percent(25) { 60 } else { 5 },
            relations: (0..TABLES).map(relation).collect(),
            row_locks: HashMap::new(),
            definition: 0,
            definition_at: vec![0],
        }
    }

    pub(crate) fn begin(&mut self) -> TxnId {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.txns.push(Txn {
            xid,
            phase: Phase::Running,
            ops: Vec::new(),
            published: Vec::new(),
            redefines: false,
            end: Lsn(0),
            visible_at: None,
            locks: BTreeMap::new(),
        });
        self.txns.len() - 1
    }

    /// One write; a write that would wait for a lock is skipped.
    pub(crate) fn write(&mut self, txn: TxnId, rng: &mut Rng) {
        if rng.below(1000) < self.definitions_per_mille {
            self.define(txn, rng);
            return;
        }
        let table = rng.below(TABLES as u64) as usize;
        self.insert.0 += rng.between(20, 200);
        if rng.percent(3) {
            self.truncate(txn, table);
            return;
        }
        let id = rng.below(KEYS) as u8;
        if self.excluded(txn, table) || !self.row_free(txn, table, id) {
            return;
        }
        let old = self.row_as_seen_by(txn, table, id);
        match old {
            None => self.put(txn, table, None, random_row(rng, id), rng),
            Some(old) if rng.percent(25) => self.delete(txn, table, old, rng),
            Some(old) => {
                let mut new = old;
                let column = rng.between(1, 3) as usize;
                new[column] = random_value(rng);
                let other = rng.below(KEYS) as u8;
                let moves = rng.percent(10)
                    && self.row_free(txn, table, other)
                    && self.row_as_seen_by(txn, table, other).is_none();
                if moves {
                    new[0] = Some(other);
                    self.row_locks.insert((table, other), txn);
                }
                self.put(txn, table, Some(old), new, rng);
            }
        }
        self.row_locks.insert((table, id), txn);
    }

    /// CREATE OR REPLACE VIEW: an event trigger puts it into the stream.
    fn define(&mut self, txn: TxnId, rng: &mut Rng) {
        let view = rng.below(VIEWS as u64) as usize;
        self.insert.0 += 100;
        if self.used_by_others(txn, TABLES + view) {
            return;
        }
        let t = &mut self.txns[txn];
        t.locks.insert(TABLES + view, true);
        t.ops.push(Op::Define(view, rng.below(TABLES as u64) as usize));
        t.published.push(Change::Redefined { table: table_id(TABLES + view), name: "view".into() });
        t.redefines = true;
    }

    fn used_by_others(&self, txn: TxnId, relation: usize) -> bool {
        let others = |(at, t): (usize, &Txn)| at != txn && t.phase != Phase::Ended && t.locks.contains_key(&relation);
        self.txns.iter().enumerate().any(others)
    }

    fn truncate(&mut self, txn: TxnId, table: usize) {
        if self.used_by_others(txn, table) {
            return;
        }
        let published = self.published[table];
        let t = &mut self.txns[txn];
        t.locks.insert(table, true);
        t.ops.push(Op::Truncate(table));
        if published {
            t.published.push(Change::AnyRow(table_id(table)));
        }
    }

    fn put(&mut self, txn: TxnId, table: usize, old: Option<Row>, new: Row, rng: &mut Rng) {
        let relation = self.relations[table].clone();
        let change = match old {
            None => Change::Insert { relation, new: image(new, rng) },
            Some(old) => {
                let mut cells = image(new, rng);
                // An unchanged long value is not sent again.
                if old[2] == new[2] && rng.percent(30) {
                    cells[2] = Cell::Absent;
                }
                Change::Update { relation, old: self.old_image(table, old, Some(new), rng), new: cells }
            }
        };
        let t = &mut self.txns[txn];
        if let Some(old) = old.and_then(|old| old[0]).filter(|id| new[0] != Some(*id)) {
            t.ops.push(Op::Delete(table, old));
        }
        t.ops.push(Op::Put(table, new));
        self.publish(txn, table, change);
    }

    fn delete(&mut self, txn: TxnId, table: usize, old: Row, rng: &mut Rng) {
        let change =
            Change::Delete { relation: self.relations[table].clone(), old: self.old_image(table, old, None, rng) };
        self.txns[txn].ops.push(Op::Delete(table, old[0].expect("a key is not null")));
        self.publish(txn, table, change);
    }

    fn publish(&mut self, txn: TxnId, table: usize, change: Change) {
        let published = self.published[table];
        let t = &mut self.txns[txn];
        t.locks.entry(table).or_insert(false);
        if published {
            t.published.push(change);
        }
    }

    /// The old row in the log. With a key identity, an update that does not change the key logs no old row.
    fn old_image(&self, table: usize, old: Row, new: Option<Row>, rng: &mut Rng) -> Box<[Cell]> {
        let mut cells = image(old, rng);
        if !self.full_identity[table] {
            cells[1..].fill(Cell::Absent);
            if new.is_some_and(|new| new[0] == old[0]) && rng.percent(50) {
                cells[0] = Cell::Absent;
            }
        }
        cells
    }

    fn excluded(&self, txn: TxnId, table: usize) -> bool {
        let held = |(at, t): (usize, &Txn)| at != txn && t.phase != Phase::Ended && t.locks.get(&table) == Some(&true);
        self.txns.iter().enumerate().any(held)
    }

    fn row_free(&self, txn: TxnId, table: usize, id: u8) -> bool {
        self.row_locks.get(&(table, id)).is_none_or(|holder| *holder == txn)
    }

    fn row_as_seen_by(&self, txn: TxnId, table: usize, id: u8) -> Option<Row> {
        let mut row = self.visible.tables[table].get(&id).copied();
        for op in &self.txns[txn].ops {
            match op {
                Op::Put(t, new) if *t == table && new[0] == Some(id) => row = Some(*new),
                Op::Delete(t, old) if *t == table && *old == id => row = None,
                Op::Truncate(t) if *t == table => row = None,
                _ => {}
            }
        }
        row
    }

    /// Writes the commit to the log; visibility comes later.
    pub(crate) fn log_commit(&mut self, txn: TxnId) {
        self.insert.0 += 48;
        self.txns[txn].end = self.insert;
        self.txns[txn].phase = Phase::Logged;
        self.log.push(txn);
    }

    pub(crate) fn abort(&mut self, txn: TxnId) {
        self.txns[txn].ops.clear();
        self.end(txn);
    }

    pub(crate) fn make_visible(&mut self, txn: TxnId, now: Nanos) {
        apply(&mut self.visible, &self.txns[txn].ops);
        self.visible_set.insert(txn);
        self.txns[txn].visible_at = Some(now);
        self.end(txn);
    }

    fn end(&mut self, txn: TxnId) {
        self.txns[txn].phase = Phase::Ended;
        self.latest_completed = self.latest_completed.max(self.txns[txn].xid);
        self.row_locks.retain(|_, holder| *holder != txn);
    }

    /// The stream's name of a commit.
    pub(crate) fn commit_id(&self, txn: TxnId) -> CommitId {
        let Txn { xid, end, .. } = self.txns[txn];
        match self.dialect {
            Dialect::Postgres => CommitId::Xid(xid as u32),
            Dialect::MySql => CommitId::Gtid { source: u128::from(xid % 2), number: xid },
            Dialect::MariaDb => CommitId::Position(end),
        }
    }

    /// What every later query sees, in this database's form.
    pub(crate) fn proof(&self) -> Visible {
        let is_visible = |txn: &&TxnId| self.visible_set.contains(**txn);
        match self.dialect {
            Dialect::Postgres => self.snapshot(),
            Dialect::MySql => {
                let mut executed = GtidSet::default();
                for txn in self.log.iter().filter(is_visible) {
                    let xid = self.txns[*txn].xid;
                    executed.add(u128::from(xid % 2), xid);
                }
                Visible::Gtids(executed)
            }
            Dialect::MariaDb => {
                let last = self.log.iter().take_while(is_visible).last();
                Visible::UpTo(last.map_or(Lsn(0), |txn| self.txns[*txn].end))
            }
        }
    }

    /// `pg_current_snapshot()`.
    fn snapshot(&self) -> Visible {
        let running = |t: &&Txn| t.phase != Phase::Ended && t.xid <= self.latest_completed;
        Visible::Snapshot(Snapshot::new(
            self.latest_completed + 1,
            self.txns.iter().filter(running).map(|t| t.xid).collect(),
        ))
    }

    /// Transactions that hold a lock on the table.
    pub(crate) fn writers(&self, table: usize) -> TxnSet {
        let held = |t: &Txn| t.phase != Phase::Ended && t.locks.contains_key(&table);
        (0..self.txns.len()).filter(|at| held(&self.txns[*at])).collect()
    }

    /// The tables that it wrote to.
    pub(crate) fn tables_of(&self, txn: TxnId) -> Vec<TableId> {
        self.txns[txn].locks.keys().map(|relation| table_id(*relation)).collect()
    }

    /// Number of commits that end at this position or before.
    pub(crate) fn logged_up_to(&self, position: Lsn) -> usize {
        self.log.partition_point(|txn| self.txns[*txn].end <= position)
    }

    pub(crate) fn running(&self) -> TxnSet {
        (0..self.txns.len()).filter(|at| self.txns[*at].phase != Phase::Ended).collect()
    }

    /// Whether a reader of the table would have to wait.
    pub(crate) fn locked_exclusively(&self, table: usize) -> bool {
        self.txns.iter().any(|t| t.phase != Phase::Ended && t.locks.get(&table) == Some(&true))
    }

    pub(crate) fn apply_to(&self, state: &mut State, txn: TxnId) {
        apply(state, &self.txns[txn].ops);
    }

    pub(crate) fn change_definition(&mut self, now: Nanos) {
        self.definition += 1;
        self.definition_at.push(now);
    }
}

fn apply(state: &mut State, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Put(table, row) => {
                state.tables[*table].insert(row[0].expect("a key is not null"), *row);
            }
            Op::Delete(table, id) => {
                state.tables[*table].remove(id);
            }
            Op::Truncate(table) => state.tables[*table].clear(),
            Op::Define(view, table) => state.views[*view] = *table,
        }
    }
}

fn random_value(rng: &mut Rng) -> Option<u8> {
    (!rng.percent(10)).then(|| rng.below(VALUES) as u8)
}

fn random_row(rng: &mut Rng, id: u8) -> Row {
    [Some(id), random_value(rng), random_value(rng), random_value(rng)]
}

fn image(row: Row, rng: &mut Rng) -> Box<[Cell]> {
    let cell = |(column, value): (usize, &Option<u8>)| match value {
        None => Cell::Null,
        Some(value) => Cell::Text(spell(column, *value, rng.below(3)).into_bytes().into()),
    };
    row.iter().enumerate().map(cell).collect()
}
