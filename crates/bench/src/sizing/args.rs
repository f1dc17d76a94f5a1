//! The options of a sizing.

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

/// The workload, the targets and the check.
#[derive(Clone, Debug, Args)]
pub struct SizingArgs {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    /// NAME=URL of a target, as for `run`; the first is the database itself, from which the sizes of answers are read
    #[arg(long = "target", required = true)]
    pub(super) targets: Vec<Target>,
    /// NAME=COMMAND that starts a cache, with {size} or {mib} in it, as for `run`; without it the prediction is not checked
    #[arg(long = "start", value_parser = crate::run_args::name_and_command)]
    pub(super) starts: Vec<(String, String)>,
    /// Reads in the trace
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) accesses: usize,
    /// Share of the distinct reads in the sample [default: enough for 20,000 answers]
    #[arg(long)]
    pub(super) sample: Option<f64>,
    /// Bytes of an entry in addition to its answer [default: measured by a run with enough memory for all; 900 without --start]
    #[arg(long)]
    pub(super) overhead: Option<f64>,
    /// Connections of the runs that check the prediction
    #[arg(long, default_value_t = 16)]
    pub(super) connections: usize,
    /// Warm-up of these runs, which fills their caches
    #[arg(long, default_value = "5s")]
    warm_up: Span,
    /// Measured interval of these runs
    #[arg(long, default_value = "5s")]
    time: Span,
    /// How statements are sent in these runs
    #[arg(long, value_enum, default_value = "prepared")]
    pub(super) protocol: Protocol,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Path of the JSON document; the Markdown is written next to it [default: sizing-WORKLOAD-TIME.json]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Also write an HTML page
    #[arg(long)]
    pub(super) html: Option<PathBuf>,
    /// The command line to record, if it differs from the program's own.
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
            ensure!(sized, "--start {name}=… has no {{size}} or {{mib}}");
            ensure!(
                self.targets.iter().skip(1).any(|target| target.name == *name),
                "--start {name}=…: there is no such target"
            );
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
