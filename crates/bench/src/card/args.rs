//! The options of cards.

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

/// The workload, the targets and the method.
#[derive(Clone, Debug, Args)]
pub struct CardArgs {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    /// NAME=URL of a target, as for `run`; the first is the database itself, whose peak sets the rates of the other levels
    #[arg(long = "target", required = true)]
    pub(super) targets: Vec<Target>,
    /// Only these statements, as names separated by commas
    #[arg(long, value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Number of connections
    #[arg(long, default_value_t = 16)]
    pub(super) connections: usize,
    /// Rounds for each target at each level; the targets alternate
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Warm-up before the measured interval of each round
    #[arg(long, default_value = "1s")]
    warm_up: Span,
    /// Length of the measured interval of each round
    #[arg(long, default_value = "5s")]
    time: Span,
    /// How statements are sent
    #[arg(long, value_enum, default_value = "prepared")]
    protocol: Protocol,
    /// Background write transactions per second, through the same target, at all levels
    #[arg(long, default_value_t = 0.0)]
    pub(super) writes: f64,
    /// Number of parameters drawn for their distribution
    #[arg(long, default_value_t = 100_000)]
    pub(super) draws: usize,
    /// Number of the database's answers whose rows and bytes are counted
    #[arg(long, default_value_t = 500)]
    pub(super) answers: usize,
    /// Number of writes, for each target and write path, whose visibility is measured; 0 for none
    #[arg(long, default_value_t = 100)]
    pub(super) probes: usize,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Path of the JSON document; the Markdown is written next to it [default: card-WORKLOAD-TIME.json]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Also write an HTML page
    #[arg(long)]
    pub(super) html: Option<PathBuf>,
    /// The command line to record, if it differs from the program's own.
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
