//! `oltp-read-only` and `oltp-read-write`: sysbench's OLTP transactions, with the texts and counts of sysbench 1.0.20 (`oltp_common.lua`,
//! `oltp_read_only.lua`, `oltp_read_write.lua`).
//!
//! A transaction is 10 point selects and one each of four kinds of ranges over 100 ids. The read-write transaction then updates an indexed column of
//! one row and an unindexed column of another, deletes a row and inserts it again. Each statement draws its table, as in sysbench. After a deadlock
//! the transaction starts again with new ids.
//!
//! Two connections that replace the same row at once may also conflict in another way. In READ COMMITTED the second one waits, finds the row deleted,
//! and inserts the row that the first has inserted already. The duplicate key is counted as a failure (sysbench ignores it).

use std::sync::Arc;

use indicatif::ProgressBar;

use super::OnOff;
use super::loading::Data;
use super::sbtest::{self, C, PAD, Tables, Writer, digits};
use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

const POINT_SELECTS: usize = 10;
const RANGE: i64 = 100;

/// `(name, text without the table's number, whether the order is fixed)`
const READS: [(&str, &str, bool); 5] = [
    ("point select", "SELECT c FROM sbtest# WHERE id=$1", false),
    ("simple range", "SELECT c FROM sbtest# WHERE id BETWEEN $1 AND $2", false),
    ("sum range", "SELECT SUM(k) FROM sbtest# WHERE id BETWEEN $1 AND $2", false),
    ("order range", "SELECT c FROM sbtest# WHERE id BETWEEN $1 AND $2 ORDER BY c", true),
    ("distinct range", "SELECT DISTINCT c FROM sbtest# WHERE id BETWEEN $1 AND $2 ORDER BY c", true),
];
/// Index of the sum in [`READS`].
const SUM: usize = 2;
const RANGES: std::ops::Range<usize> = 1..READS.len();
/// The statements are ordered by kind, and each kind has one for each table: first [`READS`], then [`sbtest::WRITES`], then these.
const REPLACEMENTS: [(&str, &str); 2] = [
    ("delete", "DELETE FROM sbtest# WHERE id=$1"),
    ("insert", "INSERT INTO sbtest# (id, k, c, pad) VALUES ($1, $2, $3, $4)"),
];
const UPDATE_K: usize = READS.len();
const UPDATE_C: usize = UPDATE_K + 1;
const DELETE: usize = UPDATE_K + sbtest::WRITES.len();
const INSERT: usize = DELETE + 1;

/// Both workloads.
#[derive(Debug)]
pub(super) struct Oltp {
    tables: Arc<Tables>,
    shape: Shape,
    statements: Arc<[Statement]>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Whether it has the three kinds of changes.
    pub(super) writes: bool,
    /// Whether BEGIN and COMMIT surround each transaction.
    pub(super) transactions: bool,
}

impl Oltp {
    pub(super) fn new(tables: Arc<Tables>, shape: Shape) -> Self {
        let mut statements = Vec::new();
        for (name, text, ordered) in READS {
            statements.extend(tables.texts(text).map(|text| {
                let statement = Statement::read(name, &text);
                if ordered { statement.ordered() } else { statement }
            }));
        }
        for (name, text) in sbtest::WRITES.into_iter().chain(REPLACEMENTS) {
            statements.extend(tables.texts(text).map(|text| Statement::write(name, &text)));
        }
        Self { tables, shape, statements: statements.into() }
    }
}

impl Workload for Oltp {
    fn name(&self) -> &'static str {
        if self.shape.writes { "oltp-read-write" } else { "oltp-read-only" }
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Data::settings(&*self.tables);
        settings.extend(self.tables.distributions());
        settings.push(("transactions".to_owned(), OnOff::text(self.shape.transactions).to_owned()));
        settings
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn script(&self, random: Random) -> Script {
        Script::Oltp(Connection { tables: Arc::clone(&self.tables), shape: self.shape, random })
    }

    fn writer(&self, random: Random) -> Option<Script> {
        Some(Script::SbtestWriter(Writer::new(Arc::clone(&self.tables), UPDATE_K, random)))
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        let kind = random.below(POINT_SELECTS + RANGES.len()).saturating_sub(POINT_SELECTS - 1);
        let (table, id) = (self.tables.table(random), self.tables.id(random));
        let values = if kind == 0 { vec![Value::Int(id)] } else { range(id).to_vec() };
        (self.tables.statement(kind, table), values)
    }

    fn write_affecting(&self, statement: usize, values: &[Value], random: &mut Random) -> Option<(usize, Vec<Value>)> {
        let (kind, table) = (statement / self.tables.count(), statement % self.tables.count());
        let first = values.first()?.clone();
        Some(match kind {
            SUM => (self.tables.statement(UPDATE_K, table), vec![first]),
            _ => (self.tables.statement(UPDATE_C, table), vec![Value::from(digits(C, random)), first]),
        })
    }

    fn load<'a>(&'a self, target: &'a Target, bar: &'a ProgressBar) -> Pending<'a, u64> {
        Box::pin(self.tables.load(target, bar))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        Box::pin(self.tables.ready(self.name(), database))
    }
}

fn range(first: i64) -> [Value; 2] {
    [Value::Int(first), Value::Int(first + RANGE - 1)]
}

/// The script of one connection.
#[derive(Debug)]
pub struct Connection {
    tables: Arc<Tables>,
    shape: Shape,
    random: Random,
}

impl Connection {
    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        if self.shape.transactions {
            session.begin().await?;
        }
        let points = self.statement(0);
        for _ in 0..POINT_SELECTS {
            session.run(points, &[self.id()]).await?;
        }
        for kind in RANGES {
            let statement = self.statement(kind);
            session.run(statement, &range(self.tables.id(&mut self.random))).await?;
        }
        if self.shape.writes {
            self.write(session).await?;
        }
        if self.shape.transactions {
            session.commit().await?;
        }
        Ok(())
    }

    async fn write(&mut self, session: &mut Session) -> Result<(), Failure> {
        session.run(self.statement(UPDATE_K), &[self.id()]).await?;
        let c = Value::from(digits(C, &mut self.random));
        session.run(self.statement(UPDATE_C), &[c, self.id()]).await?;
        let table = self.tables.table(&mut self.random);
        let id = self.id();
        session.run(self.tables.statement(DELETE, table), std::slice::from_ref(&id)).await?;
        let (c, pad) = (digits(C, &mut self.random), digits(PAD, &mut self.random));
        let row = [id, self.id(), Value::from(c), Value::from(pad)];
        session.run(self.tables.statement(INSERT, table), &row).await?;
        Ok(())
    }

    /// Draws a table and returns the statement of this kind for it.
    fn statement(&mut self, kind: usize) -> usize {
        let table = self.tables.table(&mut self.random);
        self.tables.statement(kind, table)
    }

    fn id(&mut self) -> Value {
        Value::Int(self.tables.id(&mut self.random))
    }
}

#[cfg(test)]
mod tests {
    use super::super::distribution::Distribution;
    use super::*;
    use crate::target::Family;

    /// The texts of `stmt_defs` in `oltp_common.lua` of sysbench 1.0.20, in the order of our statements.
    const SYSBENCH: [&str; 9] = [
        "SELECT c FROM sbtest%u WHERE id=?",
        "SELECT c FROM sbtest%u WHERE id BETWEEN ? AND ?",
        "SELECT SUM(k) FROM sbtest%u WHERE id BETWEEN ? AND ?",
        "SELECT c FROM sbtest%u WHERE id BETWEEN ? AND ? ORDER BY c",
        "SELECT DISTINCT c FROM sbtest%u WHERE id BETWEEN ? AND ? ORDER BY c",
        "UPDATE sbtest%u SET k=k+1 WHERE id=?",
        "UPDATE sbtest%u SET c=? WHERE id=?",
        "DELETE FROM sbtest%u WHERE id=?",
        "INSERT INTO sbtest%u (id, k, c, pad) VALUES (?, ?, ?, ?)",
    ];

    fn workload(tables: u32) -> Oltp {
        let tables = Arc::new(Tables::new((tables, 1000), Distribution::Uniform, 1).unwrap());
        Oltp::new(tables, Shape { writes: true, transactions: true })
    }

    #[test]
    fn the_statements_are_those_of_sysbench() {
        let texts: Vec<_> = workload(2).statements.iter().map(|s| s.prepared_text(Family::Mysql)).collect();
        let expected = SYSBENCH.iter().flat_map(|text| ["1", "2"].map(|table| text.replace("%u", table)));
        assert_eq!(texts, expected.collect::<Vec<_>>());
        // If sysbench is installed, compare with its own file too.
        if let Ok(lua) = std::fs::read_to_string("/usr/share/sysbench/oltp_common.lua") {
            for text in SYSBENCH {
                assert!(lua.contains(&format!("\"{text}\"")), "{text}");
            }
        }
    }

    #[test]
    fn drawn_reads_have_the_mix_of_the_load() {
        let (workload, mut random) = (workload(2), Random::new(1));
        let mut counts = [0; 5];
        for _ in 0..14_000 {
            let (statement, values) = workload.draw_read(&mut random);
            let text = workload.statements[statement].prepared_text(Family::Postgres);
            assert!(text.starts_with("SELECT") && text.contains(&format!("${}", values.len())), "{text} {values:?}");
            assert!(!text.contains(&format!("${}", values.len() + 1)), "{text} {values:?}");
            counts[statement / 2] += 1;
        }
        assert!(
            (9700..10_300).contains(&counts[0]) && counts[1..].iter().all(|c| (850..1150).contains(c)),
            "{counts:?}"
        );
    }
}
