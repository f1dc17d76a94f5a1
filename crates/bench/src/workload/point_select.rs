//! `point-select`: sysbench's SELECT of one column of one row by its primary key (`oltp_point_select.lua`), one per transaction or several.
//!
//! It is the smallest answer of a database, so it measures the costs of a cache rather than its benefit. With several statements between BEGIN and
//! COMMIT, it measures whether the cache serves them at all in the database's default isolation level.

use std::sync::Arc;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::OnOff;
use super::loading::Data;
use super::sbtest::{C, Tables, WRITES, Writer, digits};
use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

/// The workload.
#[derive(Debug)]
pub(super) struct PointSelect {
    tables: Arc<Tables>,
    per_transaction: u32,
    transactions: bool,
    /// The selects, one for each table, then the background writer's statements.
    statements: Arc<[Statement]>,
}

impl PointSelect {
    pub(super) fn new(tables: Arc<Tables>, per_transaction: u32, transactions: bool) -> Self {
        let mut statements = Vec::new();
        let select = "SELECT c FROM sbtest# WHERE id=$1";
        statements.extend(tables.texts(select).map(|text| Statement::read("point select", &text)));
        for (name, text) in WRITES {
            statements.extend(tables.texts(text).map(|text| Statement::write(name, &text)));
        }
        Self { tables, per_transaction, transactions, statements: statements.into() }
    }
}

impl Workload for PointSelect {
    fn name(&self) -> &'static str {
        "point-select"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Data::settings(&*self.tables);
        settings.extend(self.tables.distributions());
        settings.push(("per-transaction".to_owned(), self.per_transaction.to_string()));
        settings.push(("transactions".to_owned(), OnOff::text(self.transactions).to_owned()));
        settings
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn script(&self, random: Random) -> Script {
        let (tables, per_transaction) = (Arc::clone(&self.tables), self.per_transaction);
        Script::PointSelect(Reader { tables, per_transaction, transactions: self.transactions, random })
    }

    fn writer(&self, random: Random) -> Option<Script> {
        Some(Script::SbtestWriter(Writer::new(Arc::clone(&self.tables), 1, random)))
    }

    fn runs_on_stores(&self) -> Result<()> {
        ensure!(self.tables.count() == 1, "the key in a store is the row's id alone: --tables must be 1");
        Ok(())
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        (self.tables.statement(0, self.tables.table(random)), vec![Value::Int(self.tables.id(random))])
    }

    fn write_affecting(&self, statement: usize, values: &[Value], random: &mut Random) -> Option<(usize, Vec<Value>)> {
        // The statements are ordered by kind, each kind with one for each table: the select, `k`, `c`.
        let update = self.tables.statement(2, statement);
        Some((update, vec![Value::from(digits(C, random)), values.first()?.clone()]))
    }

    fn load<'a>(&'a self, target: &'a Target, bar: &'a ProgressBar) -> Pending<'a, u64> {
        Box::pin(self.tables.load(target, bar))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        Box::pin(self.tables.ready(self.name(), database))
    }
}

/// The script of one connection.
#[derive(Debug)]
pub struct Reader {
    tables: Arc<Tables>,
    per_transaction: u32,
    transactions: bool,
    random: Random,
}

impl Reader {
    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        if self.transactions {
            session.begin().await?;
        }
        // All statements of a transaction use the same table, as in sysbench.
        let table = self.tables.table(&mut self.random);
        let statement = self.tables.statement(0, table);
        for _ in 0..self.per_transaction {
            let id = self.tables.id(&mut self.random);
            session.run(statement, &[Value::Int(id)]).await?;
        }
        if self.transactions {
            session.commit().await?;
        }
        Ok(())
    }
}
