//! sysbench's tables, which `point-select` and the OLTP workloads share.
//!
//! The schema, the names and the form of the values are those of sysbench 1.0.20 (`oltp_common.lua`). So both programs can run on the data of either
//! program's load. Ids are 1 to the number of rows.

use std::sync::Arc;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::distribution::{Distribution, Keys, id};
use super::loading::{self, Cell, Data, Database, Rows, State, Table};
use crate::driver::Failure;
use crate::driver::keyvalue::Connection;
use crate::random::Random;
use crate::session::Session;
use crate::target::{Family, Target};
use crate::value::Value;

/// The tables of a run.
#[derive(Debug)]
pub(super) struct Tables {
    count: usize,
    rows: usize,
    distribution: Distribution,
    keys: Keys,
    /// The distribution of the background writer's rows, if it differs.
    written: Option<(Distribution, Keys)>,
    seed: u64,
}

impl Tables {
    pub(super) fn new((count, rows): (u32, u32), distribution: Distribution, seed: u64) -> Result<Self> {
        let (count, rows) = (count as usize, rows as usize);
        Ok(Self { count, rows, distribution, keys: Keys::new(distribution, rows)?, written: None, seed })
    }

    /// Sets another distribution for the rows that the background writer updates.
    pub(super) fn written_by(self, distribution: Distribution) -> Result<Self> {
        Ok(Self { written: Some((distribution, Keys::new(distribution, self.rows)?)), ..self })
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) fn distributions(&self) -> impl Iterator<Item = (String, String)> {
        let written = self.written.as_ref().map(|(distribution, _)| ("writes-distribution", distribution));
        let all = std::iter::once(("distribution", &self.distribution)).chain(written);
        all.map(|(name, distribution)| (name.to_owned(), distribution.to_string()))
    }

    /// The text for each table. `#` is replaced with the table's number.
    pub(super) fn texts(&self, text: &str) -> impl Iterator<Item = String> {
        (1..=self.count).map(move |table| text.replace('#', &table.to_string()))
    }

    /// Index of the statement of a kind for a table. Statements are ordered by kind, each kind with one for each table.
    pub(super) fn statement(&self, kind: usize, table: usize) -> usize {
        kind * self.count + table
    }

    /// A random table, counted from 0.
    pub(super) fn table(&self, random: &mut Random) -> usize {
        random.below(self.count)
    }

    /// The random numbers of a row. The first of them make its `c`.
    fn of_row(&self, table: usize, id: usize) -> Random {
        Random::numbered(Random::numbered(self.seed, table as u64).next(), id as u64)
    }

    /// Creates the tables. A key-value target gets the values of `c` by id instead.
    pub(super) async fn load(&self, target: &Target, bar: &ProgressBar) -> Result<u64> {
        if target.family().is_some() {
            return loading::load(self, target, bar).await;
        }
        ensure!(self.count == 1, "{} is a key-value store: --tables must be 1", target.name);
        bar.set_length(self.rows as u64);
        let mut connection = Connection::open(&target.kind).await?;
        for id in 1..=self.rows {
            let c = digits(C, &mut self.of_row(0, id));
            connection.set(&id.to_string(), c.as_bytes()).await?;
            bar.inc(1);
        }
        Ok(self.rows as u64)
    }

    /// Checks that the tables exist: those of our load with these settings, or sysbench's with enough rows.
    pub(super) async fn ready(&self, workload: &str, target: &Target) -> Result<()> {
        let mut database = Database::open(target).await?;
        let state = loading::state(self, &mut database).await?;
        if let State::Foreign(_) = state {
            for number in 1..=self.count {
                let table = format!("sbtest{number}");
                let sql = format!("SELECT max(id) FROM {table}");
                let found = match database.comment(&table).await? {
                    Some(_) => database.texts(&sql).await?,
                    None => Vec::new(),
                };
                let last = found.into_iter().flatten().flatten().next();
                let last: usize = last.and_then(|text| text.parse().ok()).unwrap_or(0);
                ensure!(
                    last >= self.rows,
                    "{table} was made by another program and has {last} rows, not {}",
                    self.rows
                );
            }
            return Ok(());
        }
        loading::explain(&state, (workload, &loading::settings_text(self)), target)
    }

    /// A random id.
    pub(super) fn id(&self, random: &mut Random) -> i64 {
        id(self.keys.draw(random))
    }
}

impl Data for Tables {
    fn kind(&self) -> &'static str {
        "sbtest"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let texts = [("tables", self.count as u64), ("rows", self.rows as u64), ("data-seed", self.seed)];
        texts.map(|(name, number)| (name.to_owned(), number.to_string())).into()
    }

    fn tables(&self, family: Family) -> Vec<Table> {
        let rows = self.rows;
        let table = |number: usize| {
            let name = format!("sbtest{number}");
            let mut after = vec![format!("CREATE INDEX k_{number} ON {name}(k)")];
            let id = match family {
                Family::Postgres => {
                    after.push(format!("SELECT setval(pg_get_serial_sequence('{name}', 'id'), {rows})"));
                    "SERIAL"
                }
                Family::Mysql => "INTEGER NOT NULL AUTO_INCREMENT",
            };
            let columns = format!(
                "id {id}, k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL"
            );
            Table { name, columns, key: "id", after }
        };
        (1..=self.count).map(table).collect()
    }

    fn steps(&self) -> u64 {
        (self.count * self.rows) as u64
    }

    /// Adds one row. Tables alternate, so that all connections are busy.
    fn step(&self, number: u64, rows: &mut Rows) -> Result<()> {
        let (table, id) = (number as usize % self.count, number as usize / self.count + 1);
        let mut random = self.of_row(table, id);
        let c = digits(C, &mut random);
        let (k, pad) = (1 + random.below(self.rows), digits(PAD, &mut random));
        rows.add(table, &[Cell::int(id), Cell::int(k), Cell::Text(&c), Cell::Text(&pad)]);
        Ok(())
    }
}

/// Groups of eleven digits joined by dashes: ten groups are 119 characters.
pub(super) fn digits(groups: usize, random: &mut Random) -> String {
    let mut text = String::with_capacity(groups * 12);
    for group in 0..groups {
        if group > 0 {
            text.push('-');
        }
        text.extend((0..11).map(|_| char::from(b'0' + random.below(10) as u8)));
    }
    text
}

/// Groups in `c`.
pub(super) const C: usize = 10;
/// Groups in `pad`.
pub(super) const PAD: usize = 5;

/// `(name, text)` of the background writer's statements: `k`, then `c`.
pub(super) const WRITES: [(&str, &str); 2] = [
    ("index update", "UPDATE sbtest# SET k=k+1 WHERE id=$1"),
    ("non-index update", "UPDATE sbtest# SET c=$1 WHERE id=$2"),
];

/// Updates `k` or `c` of one row at a time, drawn by the load's distribution unless another is set.
#[derive(Debug)]
pub struct Writer {
    tables: Arc<Tables>,
    /// Index of the first kind of [`WRITES`] among the workload's kinds.
    first: usize,
    random: Random,
}

impl Writer {
    pub(super) fn new(tables: Arc<Tables>, first: usize, random: Random) -> Self {
        Self { tables, first, random }
    }

    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let random = &mut self.random;
        let table = self.tables.table(random);
        let id = match &self.tables.written {
            Some((_, keys)) => id(keys.draw(random)),
            None => self.tables.id(random),
        };
        let id = Value::Int(id);
        if random.below(2) == 0 {
            session.run(self.tables.statement(self.first, table), &[id]).await?;
        } else {
            let values = [Value::from(digits(C, random)), id];
            session.run(self.tables.statement(self.first + 1, table), &values).await?;
        }
        Ok(())
    }
}
