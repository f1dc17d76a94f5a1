//! From messages of the output plugin to [`Commit`]s.
//!
//! An old row must not get more values than the stream sent: an unknown cell is [`Cell::Absent`] and may have had any value. PostgreSQL logs old rows
//! by the table's replica identity:
//!
//! | sent with an UPDATE | means | old row here |
//! |---|---|---|
//! | no old tuple | the identity's columns did not change (bit for bit) | those columns from the new row, the rest absent |
//! | `K` | the old values of the identity's columns | those, the rest absent (they are sent as NULL!) |
//! | `O` | the whole old row (FULL) | all |
//!
//! DDL arrives as messages of Freshet's event triggers ([`crate::postgres::triggers`]).

use std::collections::HashMap;
use std::sync::Arc;

use freshet_types::{Cell, Change, Commit, CommitId, Relation, Row, TableId};
use freshet_wire::postgres::pgoutput::{self, Message, OldTuple, Tuple, Value};

use crate::error::Fault;
use crate::postgres::triggers::{self, Ddl};
use crate::transaction_changes::TransactionChanges;

/// Limit of tables in one stream.
const RELATIONS_MAX: usize = 1 << 20;

/// Assembles the open transaction and stores the descriptions of tables.
#[derive(Default)]
pub(crate) struct Assembler {
    relations: HashMap<u32, Known>,
    open: Option<Open>,
}

/// A table's last description.
struct Known {
    relation: Arc<Relation>,
    /// For each column, whether it belongs to the replica identity.
    key: Vec<bool>,
    /// `REPLICA IDENTITY FULL`.
    full: bool,
    /// The whole description, to compare the next one with.
    described: Described,
}

/// A description, with owned strings.
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
    changes: TransactionChanges,
}

impl Assembler {
    /// Whether a transaction is open, so that positions in keepalives do not show what was delivered.
    pub(crate) fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Forgets the open transaction: the server will send it again as a whole. The descriptions of tables are kept, so that a change is noticed.
    pub(crate) fn forget_open(&mut self) {
        self.open = None;
    }

    /// Processes the next message; returns the commit that it completes.
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
            Message::Logical { transactional: true, prefix: triggers::PREFIX, content, .. } => {
                let changes = &mut self.open()?.changes;
                match triggers::read(content) {
                    Ddl::Relations(relations) => changes.redefine(relations),
                    Ddl::Everything => changes.change_everything(),
                }
            }
            // Origins, type names and messages of other programs change no row.
            Message::Origin { .. } | Message::Type { .. } | Message::Logical { .. } => {}
        }
        Ok(None)
    }

    fn begin(&mut self, begin: pgoutput::Begin) -> Result<(), Fault> {
        if self.open.is_some() {
            return Err(Fault::OutOfOrder("Begin within a transaction"));
        }
        self.open = Some(Open { begin, changes: TransactionChanges::new() });
        Ok(())
    }

    fn commit(&mut self, commit: pgoutput::Commit) -> Result<Commit, Fault> {
        let open = self.open.take().ok_or(Fault::OutOfOrder("Commit without Begin"))?;
        if open.begin.commit != commit.commit || commit.end <= commit.commit {
            return Err(Fault::OutOfOrder("Commit and Begin of different transactions"));
        }
        let (changes, redefines) = open.changes.finish();
        Ok(Commit { id: CommitId::Xid(open.begin.xid), end: commit.end, changes, redefines })
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
        // A description comes directly before a row of the table, so the redefinition is part of this transaction or an earlier one.
        if changed { self.push(Change::AnyRow(table)) } else { Ok(()) }
    }

    fn known(&self, oid: u32) -> Result<&Known, Fault> {
        self.relations.get(&oid).ok_or(Fault::OutOfOrder("a row of a table that was not described"))
    }

    fn push(&mut self, change: Change) -> Result<(), Fault> {
        self.open()?.changes.push(change);
        Ok(())
    }

    fn open(&mut self) -> Result<&mut Open, Fault> {
        self.open.as_mut().ok_or(Fault::OutOfOrder("a change outside a transaction"))
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
        // Under FULL an old row is always sent, and every column counts as key: without the old row nothing may be inferred.
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

    /// The cells of a tuple; an unchanged value is taken from the old row, if known.
    fn row(&self, tuple: &Tuple<'_>, before: Option<&Row>) -> Result<Row, Fault> {
        if tuple.len() != self.relation.columns.len() {
            return Err(Fault::OutOfOrder("a row with more or fewer columns than its table"));
        }
        let cell = |(at, value): (usize, &Value<'_>)| match value {
            Value::Null => Ok(Cell::Null),
            Value::Text(text) => Ok(Cell::Text((*text).into())),
            Value::Unchanged => match before.and_then(|row| row.get(at)) {
                None | Some(Cell::Absent) => Ok(Cell::Unchanged),
                Some(known) => Ok(known.clone()),
            },
            Value::Binary(_) => Err(Fault::OutOfOrder("a value in binary form, which was not requested")),
        };
        tuple.iter().enumerate().map(cell).collect()
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
