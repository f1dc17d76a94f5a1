//! From events to [`Commit`]s.
//!
//! The log is a sequence of groups of events, each with an identity at its start. The changes of a group become visible together. The end of a group
//! has several forms:
//!
//! | group | begins with | ends with |
//! |---|---|---|
//! | transaction | MySQL: GTID, QUERY `BEGIN`; MariaDB: GTID | XID; QUERY `COMMIT` without a transactional engine |
//! | statement (DDL) | MySQL: GTID; MariaDB: GTID with `FL_STANDALONE` | its QUERY |
//! | prepared transaction | as a transaction; MySQL: QUERY `XA START` for `BEGIN` | QUERY `XA END`, which has its name; XA_PREPARE |
//! | its end, in a group of its own | as a statement | QUERY `XA COMMIT` or `XA ROLLBACK` |
//! | compressed transaction (MySQL) | GTID | the XID within TRANSACTION_PAYLOAD |
//!
//! The log has no savepoints to resolve: the server removes rolled-back changes from the transaction's cache, which it writes at the end. The log
//! does not contain the cascades of foreign keys; the sink knows them.
//!
//! A row gets no more values than its event has: a value that an image leaves out is [`Cell::Absent`](freshet_types::Cell). If a table's columns
//! cannot be named or read, any row of it may have changed.

use std::collections::HashMap;
use std::sync::Arc;

use freshet_types::{Change, Commit, CommitId, Lsn, Relation, TableId};
use freshet_wire::mysql::binlog::{Checksum, Column, Event, Image, Query, Rows, TableMap, split};
use freshet_wire::reader::Reader;

use crate::error::Fault;
use crate::mysql::Schemas;
use crate::mysql::statement::{self, Name, Statement};
use crate::transaction_changes::TransactionChanges;

/// Limit of tables in one group.
const TABLES_MAX: usize = 1 << 16;
/// Limit of prepared transactions in memory; any further one may have changed anything when it is committed.
const PREPARED_MAX: usize = 1000;
/// Limit of the bytes of prepared transactions' rows.
const PREPARED_BYTES_MAX: usize = 64 << 20;
/// Rows in this schema may be accounts, functions or other objects of the server.
const SYSTEM_SCHEMA: &str = "mysql";

/// A finished group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finished {
    /// Its GTID (MySQL).
    pub(super) gtid: Option<(u128, u64)>,
    /// Its commit, if it has one.
    pub(super) commit: Option<Commit>,
    /// The prepared transaction that it committed.
    pub(super) xid: Option<Vec<u8>>,
}

/// Assembles the open group and stores the prepared transactions.
pub(super) struct Assembler {
    schemas: Arc<dyn Schemas>,
    /// `lower_case_table_names`. 0: names are as written; 1: in lower case; 2: compared in lower case.
    name_case: u8,
    relations: HashMap<TableId, Arc<Relation>>,
    open: Option<Open>,
    prepared: HashMap<Vec<u8>, TransactionChanges>,
}

/// The end of the open group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Not known before its first statement (MySQL).
    Undecided,
    /// Its statement ends it.
    Statement,
    /// XID, COMMIT, ROLLBACK or XA_PREPARE ends it.
    Transaction,
}

/// The open group.
struct Open {
    gtid: Option<(u128, u64)>,
    shape: Shape,
    /// Name of the XA transaction.
    xa: Option<Vec<u8>>,
    /// Name of the prepared transaction that it commits.
    committed: Option<Vec<u8>>,
    changes: TransactionChanges,
    tables: HashMap<u64, Known>,
}

/// A table of the group.
#[derive(Clone)]
struct Known {
    table: TableId,
    system: bool,
    /// The columns of its row images, if they are known.
    images: Option<(Arc<Relation>, Arc<[Column]>)>,
}

impl Assembler {
    pub(super) fn new(schemas: Arc<dyn Schemas>, name_case: u8) -> Self {
        Self { schemas, name_case, relations: HashMap::new(), open: None, prepared: HashMap::new() }
    }

    /// Whether a group is open, so that positions do not show what was delivered.
    pub(super) fn in_group(&self) -> bool {
        self.open.is_some()
    }

    /// Forgets the open group: the server will send it again as a whole.
    pub(super) fn forget_open(&mut self) {
        self.open = None;
    }

    /// Processes the next event, which ends at `end`; returns the group that it finishes.
    pub(super) fn take(&mut self, event: Event<'_>, end: Lsn) -> Result<Option<Finished>, Fault> {
        match event {
            Event::Gtid { source, number } => self.begin(Some((source, number)), Shape::Undecided)?,
            Event::MariadbGtid(gtid) => {
                self.begin(None, if gtid.is_standalone() { Shape::Statement } else { Shape::Transaction })?;
            }
            Event::Query(query) => return self.query(&query, end),
            Event::Xid | Event::XaPrepare { one_phase: true } => return self.commit(end).map(Some),
            Event::XaPrepare { one_phase: false } => return self.prepare().map(Some),
            Event::TableMap(map) => self.describe(&map)?,
            Event::Rows(rows) => self.rows(&rows)?,
            Event::PartialUpdate { table } => {
                let change = Change::AnyRow(self.known(table)?.table);
                self.open()?.changes.push(change);
            }
            Event::Statement => self.open()?.changes.change_everything(),
            Event::Payload(Some(events)) => return self.payload(&events, end),
            Event::Payload(None) => {
                self.open()?.changes.change_everything();
                return self.commit(end).map(Some);
            }
            Event::Incident => return Err(Fault::Incident),
            Event::Unsupported(what) => return Err(Fault::Unsupported(what)),
            Event::AnonymousGtid => {
                return Err(Fault::Unsupported("a transaction without a GTID (gtid_mode is not ON)"));
            }
            Event::Format { .. } | Event::Rotate { .. } | Event::Stop if self.in_group() => {
                return Err(Fault::OutOfOrder("a file that ends within a group"));
            }
            Event::Format { .. }
            | Event::Rotate { .. }
            | Event::Stop
            | Event::Heartbeat { .. }
            | Event::Information => {}
        }
        Ok(None)
    }

    fn begin(&mut self, gtid: Option<(u128, u64)>, shape: Shape) -> Result<(), Fault> {
        if self.open.is_some() {
            return Err(Fault::OutOfOrder("a group within a group"));
        }
        self.open = Some(Open {
            gtid,
            shape,
            xa: None,
            committed: None,
            changes: TransactionChanges::new(),
            tables: HashMap::new(),
        });
        Ok(())
    }

    fn open(&mut self) -> Result<&mut Open, Fault> {
        self.open.as_mut().ok_or(Fault::OutOfOrder("a change outside a group"))
    }

    fn finish(&mut self) -> Result<Open, Fault> {
        self.open.take().ok_or(Fault::OutOfOrder("the end of a group without its start"))
    }

    fn commit(&mut self, end: Lsn) -> Result<Finished, Fault> {
        let open = self.finish()?;
        let id = match open.gtid {
            Some((source, number)) => CommitId::Gtid { source, number },
            None => CommitId::Position(end),
        };
        let (changes, redefines) = open.changes.finish();
        let commit = Some(Commit { id, end, changes, redefines });
        Ok(Finished { gtid: open.gtid, commit, xid: open.committed })
    }

    /// Stores the changes of a prepared transaction until it is committed.
    fn prepare(&mut self) -> Result<Finished, Fault> {
        let open = self.finish()?;
        let xid = open.xa.ok_or(Fault::OutOfOrder("XA PREPARE without XA END"))?;
        let bytes: usize = self.prepared.values().map(TransactionChanges::bytes).sum();
        if self.prepared.len() < PREPARED_MAX && bytes + open.changes.bytes() <= PREPARED_BYTES_MAX {
            self.prepared.insert(xid, open.changes);
        }
        Ok(Finished { gtid: open.gtid, commit: None, xid: None })
    }

    fn query(&mut self, query: &Query<'_>, end: Lsn) -> Result<Option<Finished>, Fault> {
        let shape = self.open()?.shape;
        match statement::read(query.schema, &query.sql) {
            Statement::Begin | Statement::XaStart => self.open()?.shape = Shape::Transaction,
            Statement::XaEnd(xid) => self.open()?.xa = Some(xid),
            // With rows, only a transaction without XID ends so. Rolled-back changes are reported as well: more than necessary, never less.
            Statement::Commit | Statement::Rollback => return self.commit(end).map(Some),
            other => {
                if matches!(other, Statement::DefineAndFill(_)) && shape == Shape::Undecided {
                    self.open()?.shape = Shape::Transaction;
                }
                self.change(other)?;
                if self.open()?.shape != Shape::Transaction {
                    return self.commit(end).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn change(&mut self, statement: Statement) -> Result<(), Fault> {
        match statement {
            Statement::Truncate(name) => match self.table(&name) {
                Some(table) => self.open()?.changes.push(Change::AnyRow(table)),
                None => self.open()?.changes.change_everything(),
            },
            Statement::Define(names) | Statement::DefineAndFill(names) => {
                let named = |name: &Name| Some((self.table(name)?, Arc::from(name.table.as_str())));
                match names.iter().map(named).collect() {
                    Some(relations) => self.open()?.changes.redefine(relations),
                    None => self.open()?.changes.change_everything(),
                }
            }
            Statement::XaCommit(xid) => {
                let prepared = self.prepared.remove(&xid);
                let open = self.open()?;
                open.committed = Some(xid);
                match prepared {
                    Some(prepared) => open.changes = prepared,
                    None => open.changes.change_everything(),
                }
            }
            Statement::XaRollback(xid) => {
                self.prepared.remove(&xid);
            }
            Statement::Nothing => {}
            _ => self.open()?.changes.change_everything(),
        }
        Ok(())
    }

    /// None if the statement's spelling does not identify the table, or it is one of the server's own.
    fn table(&self, name: &Name) -> Option<TableId> {
        if name.schema.eq_ignore_ascii_case(SYSTEM_SCHEMA) {
            return None;
        }
        match self.name_case {
            0 => Some(self.schemas.table(&name.schema, &name.table)),
            1 => Some(self.schemas.table(&name.schema.to_ascii_lowercase(), &name.table.to_ascii_lowercase())),
            _ => None,
        }
    }

    fn payload(&mut self, events: &[u8], end: Lsn) -> Result<Option<Finished>, Fault> {
        let mut events = Reader::new(events);
        let mut finished = None;
        while let Some(event) = split(&mut events)? {
            let (_, event) = Event::decode(event, Checksum::None)?;
            if finished.is_some() || matches!(event, Event::Payload(_)) {
                return Err(Fault::OutOfOrder("a payload that goes on behind its transaction"));
            }
            finished = self.take(event, end)?;
        }
        Ok(finished)
    }

    fn describe(&mut self, map: &TableMap<'_>) -> Result<(), Fault> {
        let table = self.schemas.table(map.schema, map.name);
        let images = map.columns.as_ref().and_then(|columns| {
            Some((self.relation(table, map.names.as_deref(), columns.len())?, Arc::from(columns.as_slice())))
        });
        let known = Known { table, system: map.schema == SYSTEM_SCHEMA, images };
        let tables = &mut self.open()?.tables;
        if tables.len() >= TABLES_MAX && !tables.contains_key(&map.id) {
            return Err(Fault::OutOfOrder("too many tables in a group"));
        }
        tables.insert(map.id, known);
        Ok(())
    }

    /// The names of a table's columns: those in the event, else those of the catalogue if their number matches.
    fn relation(&mut self, table: TableId, names: Option<&[&str]>, count: usize) -> Option<Arc<Relation>> {
        let known = self.relations.get(&table);
        let columns: Vec<Arc<str>> = if let Some(names) = names {
            let same = |known: &&Arc<Relation>| known.columns.iter().map(|name| &**name).eq(names.iter().copied());
            if let Some(known) = known.filter(same) {
                return Some(known.clone());
            }
            names.iter().map(|name| Arc::from(*name)).collect()
        } else {
            let columns = self.schemas.columns(table).filter(|columns| columns.len() == count)?;
            if let Some(known) = known.filter(|known| *known.columns == *columns) {
                return Some(known.clone());
            }
            columns.to_vec()
        };
        let relation = Arc::new(Relation { table, columns });
        self.relations.insert(table, relation.clone());
        Some(relation)
    }

    fn known(&mut self, number: u64) -> Result<Known, Fault> {
        let known = self.open()?.tables.get(&number).cloned();
        known.ok_or(Fault::OutOfOrder("a row of a table that was not described"))
    }

    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), Fault> {
        if rows.is_dummy() {
            return Ok(());
        }
        let known = self.known(rows.table)?;
        let changes = &mut self.open()?.changes;
        if known.system {
            changes.change_everything();
            return Ok(());
        }
        let Some((relation, columns)) = known.images else {
            changes.push(Change::AnyRow(known.table));
            return Ok(());
        };
        let Some(images) = rows.images(&columns)? else {
            changes.push(Change::AnyRow(known.table));
            return Ok(());
        };
        for image in images {
            let relation = relation.clone();
            changes.push(match image? {
                Image::Write(new) => Change::Insert { relation, new },
                Image::Update(old, new) => Change::Update { relation, old, new },
                Image::Delete(old) => Change::Delete { relation, old },
            });
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
