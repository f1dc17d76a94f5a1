//! The arguments of a sizing.

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

/// Of what, and how it is checked.
#[derive(Clone, Debug, Args)]
pub struct SizingArgs {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    /// NAME=URL of a target, as for `run`; the first is the database itself, which is asked for the sizes of answers
    #[arg(long = "target", required = true)]
    pub(super) targets: Vec<Target>,
    /// NAME=COMMAND that starts a cache, with {size} or {mib} in it, as for `run`. Without one nothing is checked
    #[arg(long = "start", value_parser = crate::run_args::name_and_command)]
    pub(super) starts: Vec<(String, String)>,
    /// Reads in the trace
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) accesses: usize,
    /// Share of the questions that is looked at  [default: so many that 20,000 answers are asked for]
    #[arg(long)]
    pub(super) sample: Option<f64>,
    /// Bytes that an entry takes beside its answer  [default: measured by a run with room for all; 900 without --start]
    #[arg(long)]
    pub(super) overhead: Option<f64>,
    /// Connections of the runs that check
    #[arg(long, default_value_t = 16)]
    pub(super) connections: usize,
    /// Before the measured interval of these runs: they fill their caches
    #[arg(long, default_value = "5s")]
    warm_up: Span,
    /// The measured interval of these runs
    #[arg(long, default_value = "5s")]
    time: Span,
    /// How statements are sent in them
    #[arg(long, value_enum, default_value = "prepared")]
    pub(super) protocol: Protocol,
    /// Of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Where the JSON document goes, and beside it the Markdown  [default: sizing-WORKLOAD-TIME.json]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Also write a page of HTML
    #[arg(long)]
    pub(super) html: Option<PathBuf>,
    /// What is written down as the command line, if it is not the program's own.
    #[arg(skip)]
    pub(crate) command: Option<Vec<String>>,
}

impl SizingArgs {
    pub(super) fn output(&self) -> PathBuf {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let usual = || PathBuf::from(format!("sizing-{}-{began}.json", self.workload.workload.text()));
        self.output.clone().unwrap_or_else(usual)
    }

    pub(super) fn check(&self) -> Result<()> {
        ensure!((1_000..=100_000_000).contains(&self.accesses), "--accesses is from 1000 to 100000000");
        ensure!(self.sample.is_none_or(|rate| rate > 0.0 && rate <= 1.0), "--sample is above 0 and at most 1");
        ensure!(self.overhead.is_none_or(|bytes| (0.0..1e9).contains(&bytes)), "--overhead is 0 or more");
        ensure!(!self.time.0.is_zero() && self.connections > 0, "--time and --connections are more than 0");
        for (name, command) in &self.starts {
            let sized = command.contains("{size}") || command.contains("{mib}");
            ensure!(sized, "--start {name}=…: there is no {{size}} or {{mib}} in it");
            ensure!(self.targets.iter().skip(1).any(|target| target.name == *name), "--start {name}=…: no such cache");
        }
        Ok(())
    }

    pub(super) fn method(&self) -> Method {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Method {
            protocol: self.protocol,
            pace: Loop::Closed,
            warm_up: self.warm_up.0.as_secs_f64(),
            measured: self.time.0.as_secs_f64(),
            cool_down: 0.2,
            repetitions: 1,
            seed: self.seed,
            threads: cores.min(4),
        }
    }
}
