//! From messages of the output plugin to [`Commit`]s.
//!
//! What matters here is to say no more of the old row than the stream said: a cell that is not known is
//! [`Cell::Absent`] and may have been anything. PostgreSQL logs old rows by the table's replica identity:
//!
//! | sent with an UPDATE | means | old row here |
//! |---|---|---|
//! | no old tuple | the identity's columns did not change (bit for bit) | those columns from the new row, the rest absent |
//! | `K` | the identity's columns as they were | those, the rest absent (they are sent as NULL!) |
//! | `O` | the whole old row (FULL) | all |
//!
//! A transaction is held in bounded memory: by rows ([`ChangeSet::push`]) and by bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use freshet_model::{Cell, Change, ChangeSet, Commit, Relation, Row, TableId};
use freshet_wire::pg::pgoutput::{self, Message, OldTuple, Tuple, Value};

use crate::error::Fault;

/// Bytes of one transaction's values beyond which its tables are taken as changed in any row.
const TRANSACTION_BYTES_MAX: usize = 32 << 20;
/// Memory of one cell beside its text.
const CELL_OVERHEAD_BYTES: usize = size_of::<Cell>();
/// Tables that one stream may describe.
const RELATIONS_MAX: usize = 1 << 20;

/// Holds the open transaction and what the tables look like.
#[derive(Default)]
pub(crate) struct Assembler {
    relations: HashMap<u32, Known>,
    open: Option<Open>,
}

/// A table as last described.
struct Known {
    relation: Arc<Relation>,
    /// For each column whether it belongs to the replica identity.
    key: Vec<bool>,
    /// `REPLICA IDENTITY FULL`.
    full: bool,
    /// Everything the description said, to compare the next one with.
    described: Described,
}

/// A description, owned.
#[derive(PartialEq, Eq)]
struct Described {
    schema: String,
    name: String,
    replica_identity: u8,
    columns: Vec<(bool, String, u32, i32)>,
}

/// The transaction between its Begin and its Commit.
struct Open {
    begin: pgoutput::Begin,
    changes: ChangeSet,
    bytes: usize,
    /// The tables of `changes`, once it holds nothing but whole tables.
    coarse: Option<HashSet<TableId>>,
}

impl Assembler {
    /// Whether a transaction is open, so that positions in keepalives say nothing of it.
    pub(crate) fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Takes the next message; returns the commit that it completes.
    pub(crate) fn take(&mut self, message: Message<'_>) -> Result<Option<Commit>, Fault> {
        match message {
            Message::Begin(begin) => self.begin(begin)?,
            Message::Commit(commit) => return self.commit(commit).map(Some),
            Message::Relation(relation) => self.describe(&relation)?,
            Message::Insert { relation, new } => {
                let known = self.known(relation)?;
                let new = known.row(&new, None)?;
                let change = Change::Insert { relation: known.relation.clone(), new };
                self.push(change)?;
            }
            Message::Update { relation, old, new } => {
                let known = self.known(relation)?;
                let change = known.update(old.as_ref(), &new)?;
                self.push(change)?;
            }
            Message::Delete { relation, old } => {
                let known = self.known(relation)?;
                let old = known.old_row(&old)?;
                let change = Change::Delete { relation: known.relation.clone(), old };
                self.push(change)?;
            }
            Message::Truncate { relations, .. } => {
                for relation in relations {
                    self.push(Change::AnyRow(TableId(relation)))?;
                }
            }
            // Where a transaction came from, what a type is called, and messages to others change no row.
            Message::Origin { .. } | Message::Type { .. } | Message::Logical { .. } => {}
        }
        Ok(None)
    }

    fn begin(&mut self, begin: pgoutput::Begin) -> Result<(), Fault> {
        if self.open.is_some() {
            return Err(Fault::OutOfOrder("Begin within a transaction"));
        }
        self.open = Some(Open { begin, changes: ChangeSet::none(), bytes: 0, coarse: None });
        Ok(())
    }

    fn commit(&mut self, commit: pgoutput::Commit) -> Result<Commit, Fault> {
        let open = self.open.take().ok_or(Fault::OutOfOrder("Commit without Begin"))?;
        if open.begin.commit != commit.commit || commit.end <= commit.commit {
            return Err(Fault::OutOfOrder("Commit and Begin of different transactions"));
        }
        Ok(Commit { xid: open.begin.xid, end: commit.end, changes: open.changes })
    }

    fn describe(&mut self, message: &pgoutput::Relation<'_>) -> Result<(), Fault> {
        let table = TableId(message.oid);
        let described = Described::new(message);
        let changed = match self.relations.get(&message.oid) {
            Some(known) if known.described == described => return Ok(()),
            Some(_) => true,
            None if self.relations.len() >= RELATIONS_MAX => return Err(Fault::OutOfOrder("too many relations")),
            None => false,
        };
        let columns = message.columns.iter().map(|c| Arc::from(c.name)).collect();
        let known = Known {
            relation: Arc::new(Relation { table, columns }),
            key: message.columns.iter().map(|c| c.key).collect(),
            full: message.replica_identity == b'f',
            described,
        };
        self.relations.insert(message.oid, known);
        // A description comes right before a row of the table, so the change belongs to this transaction at the latest.
        if changed { self.push(Change::AnyRow(table)) } else { Ok(()) }
    }

    fn known(&self, oid: u32) -> Result<&Known, Fault> {
        self.relations.get(&oid).ok_or(Fault::OutOfOrder("a row of a table that was not described"))
    }

    fn push(&mut self, change: Change) -> Result<(), Fault> {
        let open = self.open.as_mut().ok_or(Fault::OutOfOrder("a change outside a transaction"))?;
        open.push(change);
        Ok(())
    }
}

impl Open {
    fn push(&mut self, change: Change) {
        let table = change.table();
        if let Some(tables) = &mut self.coarse {
            if tables.insert(table) {
                self.changes.push(Change::AnyRow(table));
            }
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes_of(&change));
        self.changes.push(change);
        if self.bytes > TRANSACTION_BYTES_MAX
            && let ChangeSet::Rows(rows) = &mut self.changes
        {
            let tables: HashSet<TableId> = rows.iter().map(Change::table).collect();
            *rows = tables.iter().map(|table| Change::AnyRow(*table)).collect();
            self.coarse = Some(tables);
        }
    }
}

/// The memory that a change takes.
fn bytes_of(change: &Change) -> usize {
    let row = |row: &Row| -> usize {
        let text = |cell: &Cell| if let Cell::Text(text) = cell { text.len() } else { 0 };
        row.iter().map(|cell| CELL_OVERHEAD_BYTES + text(cell)).sum()
    };
    match change {
        Change::Insert { new, .. } => row(new),
        Change::Update { old, new, .. } => row(old) + row(new),
        Change::Delete { old, .. } => row(old),
        Change::AnyRow(_) => 0,
    }
}

impl Described {
    fn new(message: &pgoutput::Relation<'_>) -> Self {
        let column = |c: &pgoutput::Column<'_>| (c.key, c.name.to_owned(), c.type_oid, c.type_modifier);
        Self {
            schema: message.schema.to_owned(),
            name: message.name.to_owned(),
            replica_identity: message.replica_identity,
            columns: message.columns.iter().map(column).collect(),
        }
    }
}

impl Known {
    fn update(&self, old: Option<&OldTuple<'_>>, new: &Tuple<'_>) -> Result<Change, Fault> {
        let relation = self.relation.clone();
        if let Some(old) = old {
            let old = self.old_row(old)?;
            let new = self.row(new, Some(&old))?;
            return Ok(Change::Update { relation, old, new });
        }
        let new = self.row(new, None)?;
        // Under FULL an old row is always sent and every column counts as key: nothing may be inferred without it.
        let unchanged = |(cell, key): (&Cell, &bool)| if *key && !self.full { cell.clone() } else { Cell::Absent };
        let old = new.iter().zip(&self.key).map(unchanged).collect();
        Ok(Change::Update { relation, old, new })
    }

    fn old_row(&self, old: &OldTuple<'_>) -> Result<Row, Fault> {
        match old {
            OldTuple::Full(tuple) => self.row(tuple, None),
            OldTuple::Key(tuple) => {
                let mut row = self.row(tuple, None)?;
                for (cell, key) in row.iter_mut().zip(&self.key) {
                    if !key {
                        *cell = Cell::Absent;
                    }
                }
                Ok(row)
            }
        }
    }

    /// The cells of a tuple; a value that did not change is taken from the row before, as far as that is known.
    fn row(&self, tuple: &Tuple<'_>, before: Option<&Row>) -> Result<Row, Fault> {
        if tuple.len() != self.relation.columns.len() {
            return Err(Fault::OutOfOrder("a row with more or fewer columns than its table"));
        }
        let cell = |(at, value): (usize, &Value<'_>)| match value {
            Value::Null => Ok(Cell::Null),
            Value::Text(text) => Ok(Cell::Text((*text).into())),
            Value::Unchanged => Ok(before.and_then(|row| row.get(at)).cloned().unwrap_or(Cell::Absent)),
            Value::Binary(_) => Err(Fault::OutOfOrder("a value in binary form, which was not asked for")),
        };
        tuple.iter().enumerate().map(cell).collect()
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
