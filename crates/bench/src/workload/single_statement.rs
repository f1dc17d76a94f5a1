//! A workload made of one statement of another workload. Parameters are drawn as in the whole workload.

use std::sync::Arc;

use super::{Pending, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::{Effect, Statement};
use crate::target::{Family, Target};
use crate::value::Value;

/// Reads drawn to list the statements, and the most drawn to find one of them. A rarer statement gets no card.
const DRAWS_MAX: usize = 20_000;

/// Names of the reads of a workload, in the order of its statements.
pub(crate) fn reads(workload: &dyn Workload) -> Vec<String> {
    let statements = workload.statements();
    let mut random = Random::new(1);
    let mut asked = vec![false; statements.len()];
    for _ in 0..DRAWS_MAX / 10 {
        if let Some(asked) = asked.get_mut(workload.draw_read(&mut random).0) {
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

/// The workload. Statements with the same name (one for each of several tables) count as one.
#[derive(Debug)]
pub(crate) struct SingleStatement {
    pub(crate) whole: Arc<dyn Workload>,
    name: String,
    statements: Arc<[Statement]>,
}

impl SingleStatement {
    pub(crate) fn new(whole: Arc<dyn Workload>, name: &str) -> Self {
        let statements = whole.statements();
        Self { whole, name: name.to_owned(), statements }
    }

    /// The text as PostgreSQL prepares it: the first one, if several statements have the name.
    pub(crate) fn text(&self) -> String {
        self.texts().next().unwrap_or_default()
    }

    /// The texts of all statements with the name.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> {
        self.statements.iter().filter(|one| one.name == self.name).map(|one| one.prepared_text(Family::Postgres))
    }

    /// Draws parameters for the statement. None if no draw chose it.
    pub(crate) fn draw(&self, random: &mut Random) -> Option<(usize, Vec<Value>)> {
        let of_this = |(statement, _): &(usize, Vec<Value>)| self.statements[*statement].name == self.name;
        (0..DRAWS_MAX).map(|_| self.whole.draw_read(random)).find(of_this)
    }
}

impl Workload for SingleStatement {
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
        let workload = Self { whole: Arc::clone(&self.whole), name: self.name.clone(), statements: self.statements() };
        Script::SingleStatement(Connection { workload, random })
    }

    fn writer(&self, random: Random) -> Option<Script> {
        self.whole.writer(random)
    }

    fn runs_on_stores(&self) -> anyhow::Result<()> {
        self.whole.runs_on_stores()
    }

    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>) {
        self.draw(random).unwrap_or_else(|| self.whole.draw_read(random))
    }

    fn ready<'a>(&'a self, database: &'a Target) -> Pending<'a, ()> {
        self.whole.ready(database)
    }
}

/// The script of one connection, which repeats the statement.
#[derive(Debug)]
pub struct Connection {
    workload: SingleStatement,
    random: Random,
}

impl Connection {
    pub(crate) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let (statement, values) = self.workload.draw_read(&mut self.random);
        session.run(statement, &values).await.map(|_| ())
    }
}
