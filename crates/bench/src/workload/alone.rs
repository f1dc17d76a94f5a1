//! One statement of a workload as a workload of its own, with the parameters that the whole workload draws.

use std::sync::Arc;

use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::{Effect, Statement};
use crate::target::{Family, Target};
use crate::value::Value;

/// Questions drawn to see which statements there are, and at most for one of them. One that is rarer has no card.
const DRAWS_MAX: usize = 20_000;

/// Names of the statements by which a workload reads, in the order of its statements.
pub(crate) fn reads(workload: &dyn Workload) -> Vec<String> {
    let statements = workload.statements();
    let mut random = Random::new(1);
    let mut asked = vec![false; statements.len()];
    for _ in 0..DRAWS_MAX / 10 {
        if let Some(asked) = asked.get_mut(workload.question(&mut random).0) {
            *asked = true;
        }
    }
    let mut names: Vec<String> = Vec::new();
    for (statement, asked) in statements.iter().zip(asked) {
        if asked && statement.effect == Effect::Read && !names.contains(&statement.name) {
            names.push(statement.name.clone());
        }
    }
    names
}

/// The workload. Statements of one name (the same for each of several tables) are one.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) whole: Arc<dyn Workload>,
    name: String,
    statements: Arc<[Statement]>,
}

impl Alone {
    pub(crate) fn new(whole: Arc<dyn Workload>, name: &str) -> Self {
        let statements = whole.statements();
        Self { whole, name: name.to_owned(), statements }
    }

    /// Its text as PostgreSQL prepares it; of several the first's.
    pub(crate) fn text(&self) -> String {
        self.texts().next().unwrap_or_default()
    }

    /// Of all statements of its name.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> {
        self.statements.iter().filter(|one| one.name == self.name).map(|one| one.prepared_text(Family::Postgres))
    }

    /// None if it does not come up.
    pub(crate) fn draw(&self, random: &mut Random) -> Option<(usize, Vec<Value>)> {
        let of_this = |(statement, _): &(usize, Vec<Value>)| self.statements[*statement].name == self.name;
        (0..DRAWS_MAX).map(|_| self.whole.question(random)).find(of_this)
    }
}

impl Workload for Alone {
    fn name(&self) -> &str {
        self.whole.name()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = self.whole.settings();
        settings.push(("statement".to_owned(), self.name.clone()));
        settings
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn script(&self, random: Random) -> Script {
        let alone = Self { whole: Arc::clone(&self.whole), name: self.name.clone(), statements: self.statements() };
        Script::Alone(Asker { alone, random })
    }

    fn writer(&self, random: Random) -> Option<Script> {
        self.whole.writer(random)
    }

    fn runs_on_stores(&self) -> anyhow::Result<()> {
        self.whole.runs_on_stores()
    }

    fn question(&self, random: &mut Random) -> (usize, Vec<Value>) {
        self.draw(random).unwrap_or_else(|| self.whole.question(random))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        self.whole.ready(database)
    }
}

/// One connection's part: the statement, again and again.
#[derive(Debug)]
pub struct Asker {
    alone: Alone,
    random: Random,
}

impl Asker {
    /// Runs it once.
    pub(crate) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let (statement, values) = self.alone.question(&mut self.random);
        session.run(statement, &values).await.map(|_| ())
    }
}
