//! `custom`: statements and parameters from a file that the user writes (`docs/guide/bench-custom.md` describes it).
//!
//! The file contains what other workloads have in code: parameters with their generators, and transactions with their statements. Once the names in a
//! statement are numbered, it becomes a [`Statement`]. All mistakes that can be found without a database are reported, with their lines, before
//! anything runs.

mod file;
mod parameter;
mod placeholder;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::{Effect, Statement};
use crate::target::Target;
use crate::value::Value;
pub(super) use file::guessed;
use parameter::Parameter;

/// The workload.
#[derive(Debug)]
pub(super) struct Custom {
    name: String,
    shared: Arc<Shared>,
    statements: Arc<[Statement]>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    parameters: Vec<Parameter>,
    transactions: Vec<Transaction>,
    /// The transactions of the background writer.
    writes: Vec<Transaction>,
    /// The reads whose answers are compared, with the weights of their transactions. Reads with sequences are left out.
    reads: Vec<(u64, Step)>,
}

/// A transaction of the file.
#[derive(Debug)]
struct Transaction {
    weight: u64,
    begin: bool,
    steps: Vec<Step>,
    /// Indexes of the parameters of all steps. Each parameter is drawn once for a transaction.
    used: Vec<usize>,
}

/// A statement and the indexes of its parameters.
#[derive(Clone, Debug)]
struct Step {
    statement: usize,
    parameters: Vec<usize>,
}

impl Custom {
    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().map_or_else(|| "custom".into(), std::ffi::OsStr::to_string_lossy);
        Self::parse(&name, &text).with_context(|| path.display().to_string())
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let file = file::parse(text)?;
        let mut statements = Vec::new();
        let mut gather = |transactions: Vec<file::Transaction>| -> Vec<Transaction> {
            let transaction = |transaction: file::Transaction| {
                let mut steps = Vec::new();
                for (statement, parameters) in transaction.statements {
                    steps.push(Step { statement: statements.len(), parameters });
                    statements.push(statement);
                }
                let mut used: Vec<usize> = steps.iter().flat_map(|step| step.parameters.iter().copied()).collect();
                used.sort_unstable();
                used.dedup();
                Transaction { weight: transaction.weight, begin: transaction.begin, steps, used }
            };
            transactions.into_iter().map(transaction).collect()
        };
        let (transactions, writes) = (gather(file.transactions), gather(file.writes));
        let mut reads = Vec::new();
        for transaction in &transactions {
            for step in &transaction.steps {
                let fixed = step.parameters.iter().all(|index| !file.parameters[*index].is_sequence());
                if fixed && statements[step.statement].effect == Effect::Read {
                    reads.push((transaction.weight, step.clone()));
                }
            }
        }
        if reads.is_empty() {
            bail!("no statement reads (without a sequence among its parameters), so there are no answers to compare");
        }
        let shared = Shared { parameters: file.parameters, transactions, writes, reads };
        Ok(Self { name: name.to_owned(), shared: Arc::new(shared), statements: statements.into() })
    }
}

impl Workload for Custom {
    fn name(&self) -> &str {
        &self.name
    }

    /// A hash of everything in the file that affects a run, so that results of different files cannot be compared by mistake.
    fn settings(&self) -> Vec<(String, String)> {
        let mut text = format!("{:?}", self.shared.transactions);
        for statement in self.statements.iter() {
            text.push_str(&statement.prepared_text(crate::target::Family::Postgres));
        }
        for parameter in &self.shared.parameters {
            text.push_str(parameter.described());
        }
        let hash = text.bytes().fold(0, |hash, byte| Random::numbered(hash, u64::from(byte)).next());
        vec![("file".to_owned(), format!("{hash:016x}"))]
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn script(&self, random: Random) -> Script {
        Script::Custom(Connection::new(&self.shared, random, false))
    }

    fn writer(&self, random: Random) -> Option<Script> {
        let writes = !self.shared.writes.is_empty();
        writes.then(|| Script::Custom(Connection::new(&self.shared, random, true)))
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        let reads = &self.shared.reads;
        let (_, step) = weighed(reads, |(weight, _)| *weight, random);
        let value = |index: &usize| self.shared.parameters[*index].draw(random);
        (step.statement, step.parameters.iter().map(value).collect())
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        Box::pin(async {
            for parameter in &self.shared.parameters {
                parameter.prepare(database).await?;
            }
            Ok(())
        })
    }
}

/// A random element of a list that is not empty, by weight.
fn weighed<'a, T>(list: &'a [T], weight: impl Fn(&T) -> u64, random: &mut Random) -> &'a T {
    let sum: u64 = list.iter().map(&weight).sum();
    let mut left = random.below(sum as usize) as u64;
    let found = list.iter().find(|one| {
        let here = weight(one);
        let found = left < here;
        left = left.saturating_sub(here);
        found
    });
    found.unwrap_or(&list[0])
}

/// The script of one connection: of the load, or of the background writer.
#[derive(Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    writing: bool,
    random: Random,
    /// The value of each parameter in this transaction.
    drawn: Vec<Value>,
    /// The parameters of the current statement.
    values: Vec<Value>,
}

impl Connection {
    fn new(shared: &Arc<Shared>, random: Random, writing: bool) -> Self {
        let drawn = vec![Value::Null; shared.parameters.len()];
        Self { shared: Arc::clone(shared), writing, random, drawn, values: Vec::new() }
    }

    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let list = if self.writing { &self.shared.writes } else { &self.shared.transactions };
        let transaction = weighed(list, |transaction| transaction.weight, &mut self.random);
        for index in &transaction.used {
            self.drawn[*index] = self.shared.parameters[*index].draw(&mut self.random);
        }
        if transaction.begin {
            session.begin().await?;
        }
        for step in &transaction.steps {
            self.values.clear();
            self.values.extend(step.parameters.iter().map(|index| self.drawn[*index].clone()));
            session.run(step.statement, &self.values).await?;
        }
        if transaction.begin {
            session.commit().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
