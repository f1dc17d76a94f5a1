//! `freshet-bench card`: the facts about an access path that a team needs before it relies on it.
//!
//! A card has five facts about each reading statement of a workload: the input (parameters, their distribution, tables), the output (columns, rows,
//! bytes), the throughput at low, normal and peak load, the latency at each, and the freshness of its results. They are measured for each target, so
//! that the cache can be compared with the database.
//!
//! The peak is a closed loop of the statement alone. Low and normal load are open loops at a tenth and at half of the peak of the *first* target. All
//! targets get the same load, since the question is what today's load costs with a cache. The rounds and their method are those of `run`. Freshness
//! is measured separately (`freshness`), by writes and the first answers that show them.

mod args;
mod document;
mod freshness;
mod inputs;
mod outputs;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

pub use args::CardArgs;
pub use document::{Card, Cards, Freshness, Inputs, LEVELS, Level, Outputs, Parameter, Quantiles, SCHEMA, Seen};

use crate::load::Loop;
use crate::report;
use crate::result::Run;
use crate::run::{self, Plan};
use crate::target::Target;
use crate::workload::Workload;
use crate::workload::single_statement::{SingleStatement, reads};

/// Settings that are the same for all statements.
struct Bench<'a> {
    args: &'a CardArgs,
    workload: Arc<dyn Workload>,
    /// The first is the database.
    targets: &'a [Target],
    /// Directory for the documents of single rounds.
    scratch: &'a Path,
    command: Vec<String>,
    stop: Arc<AtomicBool>,
}

/// Makes the cards and writes the document.
pub async fn run(args: CardArgs) -> Result<()> {
    let stop = run::stop_on_interrupt();
    let output = args.output();
    let scratch = output.with_extension("round.json");
    let command = args.command.clone().unwrap_or_else(|| std::env::args().skip(1).collect());
    let command = run::without_secrets(command);
    let workload = args.workload.build()?;
    let targets = &args.targets;
    let bench = Bench { args: &args, workload, targets, scratch: &scratch, command, stop: Arc::clone(&stop) };
    let cards = bench.cards().await;
    let _ = std::fs::remove_file(&scratch);
    let cards = cards?;
    std::fs::write(&output, serde_json::to_vec(&cards)?).with_context(|| output.display().to_string())?;
    let text = report::card::markdown(&cards);
    std::fs::write(output.with_extension("md"), &text).with_context(|| output.display().to_string())?;
    println!("{text}\nall of it: {}", output.display());
    if let Some(html) = &args.html {
        report::write_extras(html, &[report::Extra::Cards(cards)])?;
    }
    ensure!(!stop.load(Ordering::Relaxed), "interrupted: there are cards of the finished statements only");
    Ok(())
}

impl Bench<'_> {
    async fn cards(&self) -> Result<Cards> {
        let database = self.targets.first().context("a card needs a target")?;
        ensure!(database.family().is_some(), "{}: the first target is the database, an SQL server", database.name);
        self.workload.ready(database).await.with_context(|| format!("the data on {}", database.name))?;
        ensure!(self.workload.replays(1).is_none(), "a log has no access paths that can be measured alone: use custom");
        let all = reads(self.workload.as_ref());
        ensure!(!all.is_empty(), "{} has no read that can be measured alone", self.workload.name());
        for name in &self.args.only {
            ensure!(all.contains(name), "--only {name}: {} has {}", self.workload.name(), all.join(", "));
        }
        let mut cards = Vec::new();
        for name in all.iter().filter(|name| self.args.only.is_empty() || self.args.only.contains(name)) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            cards.push(self.card(name, database).await.with_context(|| name.clone())?);
        }
        Ok(Cards {
            cards: SCHEMA,
            workload: self.workload.name().to_owned(),
            settings: self.workload.settings().into_iter().collect(),
            command: self.command.clone(),
            statements: cards,
        })
    }

    async fn card(&self, name: &str, database: &Target) -> Result<Card> {
        let statement = Arc::new(SingleStatement::new(Arc::clone(&self.workload), name));
        let inputs = inputs::of(&statement, self.args.draws, self.args.seed);
        let outputs = outputs::of(&statement, database, self.args.answers, self.args.seed).await?;
        let mut levels = Vec::new();
        let peak = self.level(&statement, Loop::Closed).await?;
        let rate = report::card::rate_of_first(&peak).context("nothing was measured at the peak")?;
        for (level, share) in LEVELS.iter().zip([0.1, 0.5]) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let run = self.level(&statement, Loop::Open { rate: (rate * share).max(1.0), poisson: true }).await?;
            levels.push(Level { name: (*level).to_owned(), run });
        }
        levels.push(Level { name: LEVELS[2].to_owned(), run: peak });
        let mut fresh = BTreeMap::new();
        for target in self.targets.iter().filter(|target| target.family() == database.family()) {
            let probes =
                freshness::Probes { statement: &statement, database, count: self.args.probes, seed: self.args.seed };
            if let Some(found) = probes.of(target).await.with_context(|| format!("freshness of {}", target.name))? {
                fresh.insert(target.name.clone(), found);
            }
        }
        Ok(Card { name: name.to_owned(), text: statement.text(), inputs, outputs, levels, freshness: fresh })
    }

    /// Measures all targets, interleaved, at one pace.
    async fn level(&self, statement: &Arc<SingleStatement>, pace: Loop) -> Result<Run> {
        let mut method = self.args.method()?;
        method.pace = pace;
        if pace != Loop::Closed {
            method.threads = 1;
        }
        let (workload, scratch) = (Arc::clone(statement) as Arc<dyn Workload>, self.scratch.to_owned());
        let plan = Plan::of_one_cell(workload, self.targets.to_vec(), self.args.connections, method, scratch);
        let plan = Plan { writes: vec![self.args.writes], command: self.command.clone(), ..plan };
        let mut run = run::run(plan, &self.stop).await?;
        for round in run.cells.iter_mut().flat_map(|cell| &mut cell.rounds) {
            // For a single statement they repeat the figures of the transactions.
            round.load.statements.clear();
        }
        Ok(run)
    }
}
