//! The connection of a workload's script.
//!
//! A session counts each statement and its latency in the recorder of its thread, tracks open transactions (so that a failure can be rolled back),
//! and has the connection of the look-aside cache if the target has one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::driver::keyvalue::Memcached;
use crate::driver::{Driver, Failure, Protocol, Row, Rows};
use crate::load::recorder::Recorder;
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

/// One connection of the load.
#[derive(Debug)]
pub struct Session {
    driver: Driver,
    recorder: Rc<RefCell<Recorder>>,
    in_transaction: bool,
    /// The look-aside cache, which is read first.
    pub lookaside: Option<Memcached>,
}

/// The arguments with which a session is opened and reopened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The target.
    pub target: Arc<Target>,
    /// The statements.
    pub statements: Arc<[Statement]>,
    /// The protocol.
    pub protocol: Protocol,
}

impl Session {
    /// Connects.
    pub async fn open(opening: &Opening, recorder: &Rc<RefCell<Recorder>>) -> Result<Self, Failure> {
        let lookaside = match &opening.target.lookaside {
            Some(address) => Some(Memcached::open(address).await?),
            None => None,
        };
        let driver = Driver::open(&opening.target, &opening.statements, opening.protocol).await?;
        Ok(Self { driver, recorder: Rc::clone(recorder), in_transaction: false, lookaside })
    }

    /// Whether the target is a key-value store or an echo server, which have no columns.
    pub const fn stores_values(&self) -> bool {
        matches!(self.driver, Driver::KeyValue(_))
    }

    /// Begins a transaction.
    pub async fn begin(&mut self) -> Result<(), Failure> {
        self.driver.command("BEGIN").await?;
        self.in_transaction = true;
        Ok(())
    }

    /// Commits it.
    pub async fn commit(&mut self) -> Result<(), Failure> {
        self.driver.command("COMMIT").await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Ends the transaction after a failure, so that the next one starts anew.
    pub async fn roll_back(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.in_transaction) {
            self.driver.command("ROLLBACK").await?;
        }
        Ok(())
    }

    /// Runs a statement of the workload; returns the number of rows returned or changed.
    pub async fn run(&mut self, statement: usize, values: &[Value]) -> Result<u64, Failure> {
        let began = Instant::now();
        let count = self.driver.run(statement, values, Rows::Counted).await?;
        self.recorder.borrow_mut().statement(statement, began, count);
        Ok(count)
    }

    /// Runs a statement of the workload and returns its rows.
    pub async fn rows(&mut self, statement: usize, values: &[Value]) -> Result<Vec<Row>, Failure> {
        let (began, mut rows) = (Instant::now(), Vec::new());
        self.driver.run(statement, values, Rows::Kept(&mut rows)).await?;
        self.recorder.borrow_mut().statement(statement, began, rows.len() as u64);
        Ok(rows)
    }

    /// Sends a text and counts it as the statement with this index.
    pub async fn text(&mut self, statement: usize, sql: &str, values: Option<&[Value]>) -> Result<(), Failure> {
        let began = Instant::now();
        let count = self.driver.text(sql, values, Rows::Counted).await?;
        self.recorder.borrow_mut().statement(statement, began, count);
        Ok(())
    }

    /// Counts a statement that the look-aside cache answered with one row.
    pub fn looked_aside(&mut self, statement: usize, began: Instant) {
        self.recorder.borrow_mut().statement(statement, began, 1);
    }
}
