//! The arguments of cards.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use clap::Args;
use freshet_units::Span;

use crate::driver::Protocol;
use crate::load::Loop;
use crate::result::Method;
use crate::target::Target;
use crate::workload::WorkloadArgs;

/// Which cards, of what, measured how.
#[derive(Clone, Debug, Args)]
pub struct CardArgs {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    /// NAME=URL of a target, as for `run`; the first is the database itself, whose peak sets the rates of the other levels
    #[arg(long = "target", required = true)]
    pub(super) targets: Vec<Target>,
    /// Only these statements, by their names and comma
    #[arg(long, value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Connections
    #[arg(long, default_value_t = 16)]
    pub(super) connections: usize,
    /// Rounds for each target at each level; targets take turns
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Before the measured interval of each round
    #[arg(long, default_value = "1s")]
    warm_up: Span,
    /// The measured interval of each round
    #[arg(long, default_value = "5s")]
    time: Span,
    /// How statements are sent
    #[arg(long, value_enum, default_value = "prepared")]
    protocol: Protocol,
    /// Background transactions that write, per second, through the same target, at all levels
    #[arg(long, default_value_t = 0.0)]
    pub(super) writes: f64,
    /// Parameters drawn to see how they are distributed
    #[arg(long, default_value_t = 100_000)]
    pub(super) draws: usize,
    /// Answers of the database looked at for rows and bytes
    #[arg(long, default_value_t = 500)]
    pub(super) answers: usize,
    /// Writes whose effect is looked for, for each target and way of writing; 0 for none
    #[arg(long, default_value_t = 100)]
    pub(super) probes: usize,
    /// Of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Where the JSON document goes, and beside it the Markdown  [default: card-WORKLOAD-TIME.json]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Also write a page of HTML
    #[arg(long)]
    pub(super) html: Option<PathBuf>,
    /// What is written down as the command line, if it is not the program's own.
    #[arg(skip)]
    pub(crate) command: Option<Vec<String>>,
}

impl CardArgs {
    pub(super) fn output(&self) -> PathBuf {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let usual = || PathBuf::from(format!("card-{}-{began}.json", self.workload.workload.text()));
        self.output.clone().unwrap_or_else(usual)
    }

    pub(super) fn method(&self) -> Result<Method> {
        ensure!(self.rounds > 0 && self.connections > 0, "rounds and connections are at least 1");
        ensure!(!self.time.0.is_zero(), "--time is more than 0");
        ensure!(self.writes >= 0.0 && self.writes.is_finite(), "--writes is 0 or more");
        ensure!(self.draws > 0 && self.answers > 0, "--draws and --answers are at least 1");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Method {
            protocol: self.protocol,
            pace: Loop::Closed,
            warm_up: self.warm_up.0.as_secs_f64(),
            measured: self.time.0.as_secs_f64(),
            cool_down: 0.2,
            repetitions: self.rounds,
            seed: self.seed,
            threads: cores.min(4),
        })
    }
}
