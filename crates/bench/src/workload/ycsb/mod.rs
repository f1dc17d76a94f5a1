//! `ycsb`: the core workloads A to F of the Yahoo! Cloud Serving Benchmark, and a sweep over the share of reads.
//!
//! The definitions are those of YCSB 0.17 (`workloads/workload[a-f]`, `CoreWorkload.java` and its generators). The statements are those of its JDBC
//! binding.
//!
//! | | operations | keys |
//! |---|---|---|
//! | A | 50% read, 50% update | zipfian |
//! | B | 95% read, 5% update | zipfian |
//! | C | read | zipfian |
//! | D | 95% read, 5% insert | latest |
//! | E | 95% scan of 1 to 100 rows, 5% insert | zipfian |
//! | F | 50% read, 50% read-modify-write | zipfian |
//!
//! A read fetches all fields of a row, an update sets one. All fields are equally likely. In workloads with inserts, `zipfian` draws from twice the
//! loaded rows and draws again if the row does not exist yet. If the hash depended on the number of rows, each insert would make other rows hot.
//! `latest` counts from the newest acknowledged row. All other distributions use the loaded rows.
//!
//! There are three differences. A run has a duration instead of a number of operations, so the range for inserted rows is fixed. Zipf's numbers are
//! drawn exactly instead of by Gray's approximation. A read that finds no row is an error.
//!
//! Key-value stores hold all fields of a row as one value. An update sets the whole value, since memcached cannot change a part. Scans need ordered
//! keys, so E runs on SQL servers only.

mod mix;
mod records;

use std::sync::Arc;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::OnOff;
use super::distribution::{Distribution, Keys, id};
use super::ledger::{Current, Ledger};
use super::loading::{self, Data};
use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

use mix::Operation;
pub(super) use mix::{CoreWorkload, Mix, WriteKind};
pub(super) use records::Records;
use records::key;

/// Indexes of the statements. The updates follow, one for each field.
const READ: usize = 0;
const SCAN: usize = 1;
const INSERT: usize = 2;
const UPDATE: usize = 3;

/// The most rows of a scan (`maxscanlength` of workload E). All lengths from 1 are equally likely.
const SCAN_MAX: usize = 100;
/// In workloads with inserts, `zipfian` draws from this many times the loaded rows.
const ROOM: usize = 2;

/// The workload.
#[derive(Debug)]
pub(super) struct Ycsb {
    shared: Arc<Shared>,
    transactions: bool,
    statements: Arc<[Statement]>,
    ledger: Current,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    records: Records,
    mix: Mix,
    distribution: Distribution,
    /// The keys of all distributions but `latest`, whose range grows.
    keys: Keys,
}

impl Ycsb {
    pub(super) fn new(
        records: Records,
        mix: Mix,
        distribution: Option<Distribution>,
        transactions: bool,
    ) -> Result<Self> {
        ensure!(mix.is_possible(), "--read-share is a percentage: 0 to 100");
        let distribution = distribution.unwrap_or(mix.distribution());
        let room = if distribution == Distribution::Zipfian && mix.inserts() { ROOM } else { 1 };
        let keys = Keys::new(distribution, records.count() * room)?;
        let statements = statements(records.fields()).into();
        let shared = Arc::new(Shared { records, mix, distribution, keys });
        Ok(Self { shared, transactions, statements, ledger: Current::new() })
    }
}

fn statements(fields: usize) -> Vec<Statement> {
    let places: Vec<String> = (1..=fields + 1).map(|number| format!("${number}")).collect();
    let columns = records::columns(fields).join(", ");
    let insert = format!("INSERT INTO usertable (ycsb_key, {columns}) VALUES ({})", places.join(", "));
    let scan = "SELECT * FROM usertable WHERE ycsb_key >= $1 ORDER BY ycsb_key LIMIT $2";
    let mut statements = vec![
        Statement::read("read", "SELECT * FROM usertable WHERE ycsb_key = $1"),
        Statement::read("scan", scan).ordered(),
        Statement::write("insert", &insert),
    ];
    let update = |field| format!("UPDATE usertable SET {field} = $2 WHERE ycsb_key = $1");
    statements.extend(records::columns(fields).into_iter().map(|field| Statement::write("update", &update(field))));
    statements
}

impl Workload for Ycsb {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Data::settings(&self.shared.records);
        settings.extend(self.shared.mix.settings());
        settings.push(("distribution".to_owned(), self.shared.distribution.to_string()));
        settings.push(("transactions".to_owned(), OnOff::text(self.transactions).to_owned()));
        settings
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn begin_round(&self) {
        self.ledger.renew();
    }

    fn script(&self, random: Random) -> Script {
        Script::Ycsb(self.connection(random, false))
    }

    /// The writer only updates.
    fn writer(&self, random: Random) -> Option<Script> {
        Some(Script::Ycsb(self.connection(random, true)))
    }

    fn runs_on_stores(&self) -> Result<()> {
        ensure!(
            !self.shared.mix.scans(),
            "workload e scans rows in the order of their keys, so it runs on SQL servers only"
        );
        Ok(())
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        let number = self.shared.number(&self.ledger.get(), random);
        if self.shared.mix.scans() { (SCAN, scan(number, random).to_vec()) } else { (READ, vec![key(number)]) }
    }

    fn load<'a>(&'a self, target: &'a Target, bar: &'a ProgressBar) -> Pending<'a, u64> {
        // The load replaced the table, so rows of earlier rounds are gone.
        self.ledger.renew();
        Box::pin(self.shared.records.load(target, bar))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        Box::pin(loading::ready(&self.shared.records, self.name(), database))
    }
}

impl Ycsb {
    fn connection(&self, random: Random, only_updates: bool) -> Connection {
        let (shared, ledger) = (Arc::clone(&self.shared), self.ledger.get());
        Connection { shared, ledger, only_updates, transactions: self.transactions, random }
    }
}

impl Shared {
    /// The number of a row that exists.
    fn number(&self, ledger: &Ledger, random: &mut Random) -> u64 {
        let loaded = self.records.count() as u64;
        let rows = loaded + ledger.rows();
        let place = match self.distribution {
            Distribution::Latest(_) => {
                let keys = Keys::new(self.distribution, rows as usize).unwrap_or(self.keys);
                keys.draw(random) as u64
            }
            _ => loop {
                let place = self.keys.draw(random) as u64;
                if place < rows {
                    break place;
                }
            },
        };
        place.checked_sub(loaded).map_or(place, |place| ledger.number(place))
    }
}

fn scan(number: u64, random: &mut Random) -> [Value; 2] {
    [key(number), Value::Int(id(random.below(SCAN_MAX)))]
}

/// The script of one connection.
#[derive(Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    only_updates: bool,
    transactions: bool,
    random: Random,
}

impl Connection {
    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let drawn = self.shared.mix.draw(&mut self.random);
        match if self.only_updates { Operation::Update } else { drawn } {
            Operation::Insert => return self.insert(session).await,
            operation => {
                let number = self.shared.number(&self.ledger, &mut self.random);
                self.begin(session).await?;
                match operation {
                    Operation::Read => found(session, READ, &[key(number)]).await?,
                    Operation::Scan => found(session, SCAN, &scan(number, &mut self.random)).await?,
                    Operation::ReadModifyWrite => {
                        found(session, READ, &[key(number)]).await?;
                        self.update(session, number).await?;
                    }
                    Operation::Update | Operation::Insert => self.update(session, number).await?,
                }
            }
        }
        self.commit(session).await
    }

    /// Updates one field. In a key-value store it sets the whole value.
    async fn update(&mut self, session: &mut Session, number: u64) -> Result<(), Failure> {
        let records = &self.shared.records;
        let mut values = vec![key(number)];
        let field = self.random.below(records.fields());
        let fields = if session.stores_values() { records.fields() } else { 1 };
        values.extend((0..fields).map(|_| Value::from(records.field(&mut self.random))));
        session.run(UPDATE + field, &values).await.map(drop)
    }

    async fn insert(&mut self, session: &mut Session) -> Result<(), Failure> {
        let taken = self.ledger.take();
        let done = self.try_insert(session, taken.number).await;
        self.ledger.settle(taken, done, session).await
    }

    async fn try_insert(&mut self, session: &mut Session, number: u64) -> Result<(), Failure> {
        let records = &self.shared.records;
        let mut values = vec![key(number)];
        values.extend((0..records.fields()).map(|_| Value::from(records.field(&mut self.random))));
        self.begin(session).await?;
        session.run(INSERT, &values).await?;
        self.commit(session).await
    }

    async fn begin(&self, session: &mut Session) -> Result<(), Failure> {
        if self.transactions { session.begin().await } else { Ok(()) }
    }

    async fn commit(&self, session: &mut Session) -> Result<(), Failure> {
        if self.transactions { session.commit().await } else { Ok(()) }
    }
}

/// Reads a row that must exist: it was loaded, or its insert was acknowledged.
async fn found(session: &mut Session, statement: usize, values: &[Value]) -> Result<(), Failure> {
    match session.run(statement, values).await? {
        0 => Err(Failure::no_row(&format!("{:?} was not found", values.first()))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
