//! The options of `freshet-bench run`, and its plan.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use freshet_units::{MemorySize, Span};

use crate::driver::Protocol;
use crate::load::Loop;
use crate::report::{self, Entry, PageArgs};
use crate::result::Method;
use crate::run::{self, Plan};
use crate::target::Target;
use crate::workload::WorkloadArgs;

/// The options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) workload: WorkloadArgs,
    /// NAME=URL of a target; the first one is the database itself, with which the answers of the others are compared
    ///
    /// The URL is postgres://, mysql://, memcached://, redis:// or echo://. Two settings may follow after commas. metrics=http://HOST:PORT/metrics
    /// (or memcached://, redis://, qcache, pool_cache) is the source of its counters of hits. lookaside=HOST:PORT is a memcached that the application
    /// reads first.
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
    #[command(flatten)]
    pub(crate) method: MethodArgs,
    /// NAME=COMMAND that starts a target; {size} is replaced with its cache size in bytes, {mib} with MiB
    #[arg(long = "start", value_parser = name_and_command)]
    starts: Vec<(String, String)>,
    /// Cache sizes for the targets with --start, each a cell
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<MemorySize>,
    /// Restart the targets with --start before each of their rounds; best with --warm-up 0s
    #[arg(long)]
    cold: bool,
    /// Path of the JSON document [default: bench-WORKLOAD-TIME.json]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Also write the results as Markdown
    #[arg(long)]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
}

/// The options of measuring.
#[derive(Clone, Debug, Args)]
pub(crate) struct MethodArgs {
    /// Numbers of connections, each a cell
    #[arg(long, value_delimiter = ',', default_value = "16")]
    pub(crate) connections: Vec<usize>,
    /// Rounds for each target in each cell; the rounds of all targets are interleaved
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Warm-up before the measured interval of each round
    #[arg(long, default_value = "2s")]
    pub(crate) warm_up: Span,
    /// Length of the measured interval of each round
    #[arg(long, default_value = "10s")]
    pub(crate) time: Span,
    /// Time after the measured interval in which the load continues
    #[arg(long, default_value = "500ms")]
    pub(crate) cool_down: Span,
    /// Open loop: this number of transactions per second over all connections, started on time whether or not earlier ones have ended; latency counts
    /// from the intended start. Without it, each connection starts its next transaction when the last one has ended
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Open loop with random (exponential) gaps instead of equal ones
    #[arg(long, requires = "rate")]
    pub(crate) poisson: bool,
    /// How statements are sent
    #[arg(long, value_enum, default_value = "prepared")]
    pub(crate) protocol: Protocol,
    /// Background write transactions per second, through the same target, for workloads with background writes; each of several rates is a cell
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pub(crate) writes: Vec<f64>,
    /// Number of reads after each round whose answers are compared with the database's; 0 for none
    #[arg(long, default_value_t = 200)]
    pub(crate) questions: usize,
    /// Time for writes to arrive everywhere before answers are compared
    #[arg(long, default_value = "1100ms")]
    pub(crate) settle: Span,
    /// Seed of the random numbers; the same seed draws the same keys in the same order
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads of this program; connections and arrivals are divided among them [default: the number of processors, at most 4; 1 with --rate]
    #[arg(long)]
    pub(crate) threads: Option<usize>,
}

impl MethodArgs {
    /// The settings that all cells have in common.
    pub(crate) fn method(&self) -> Result<Method> {
        ensure!(self.rounds > 0 && self.connections.iter().all(|n| *n > 0), "rounds and connections are at least 1");
        ensure!(self.rate.is_none_or(|rate| rate > 0.0 && rate.is_finite()), "--rate is more than 0");
        ensure!(self.writes.iter().all(|rate| *rate >= 0.0 && rate.is_finite()), "--writes is 0 or more");
        let spans = [self.warm_up, self.time, self.cool_down, self.settle];
        ensure!(spans.iter().all(|span| span.0 <= SPAN_MAX), "a span of time is a day at most");
        ensure!(!self.time.0.is_zero(), "--time is more than 0");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pace = self.rate.map_or(Loop::Closed, |rate| Loop::Open { rate, poisson: self.poisson });
        Ok(Method {
            protocol: self.protocol,
            pace,
            warm_up: self.warm_up.0.as_secs_f64(),
            measured: self.time.0.as_secs_f64(),
            cool_down: self.cool_down.0.as_secs_f64(),
            repetitions: self.rounds,
            seed: self.seed,
            // Arrivals are divided among the threads beforehand. With several threads, an arrival may wait for a connection while connections of
            // other threads are free.
            threads: self.threads.unwrap_or(if self.rate.is_some() { 1 } else { cores.min(4) }).max(1),
        })
    }
}

const SPAN_MAX: Duration = Duration::from_secs(86_400);

pub(crate) fn name_and_command(text: &str) -> Result<(String, String), String> {
    let (name, command) = text.split_once('=').ok_or("it is NAME=COMMAND")?;
    Ok((name.to_owned(), command.to_owned()))
}

impl RunArgs {
    /// The plan of the run.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let workloads = self.workload.build_all()?;
        let workload = workloads.first().cloned().context("no workload")?;
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let usual = || PathBuf::from(format!("bench-{}-{began}.json", workload.name()));
        let sizes = match self.sizes.as_slice() {
            [] => vec![None],
            sizes => sizes.iter().map(|size| Some(size.0)).collect(),
        };
        let starts: BTreeMap<String, String> = self.starts.iter().cloned().collect();
        ensure!(starts.len() == self.starts.len(), "two --start for the same target");
        let sized = |command: &String| command.contains("{size}") || command.contains("{mib}");
        ensure!(
            self.sizes.is_empty() || starts.values().any(sized),
            "--sizes needs a --start with {{size}} or {{mib}} in its command"
        );
        let mebibytes = starts.values().any(|command| command.contains("{mib}"));
        let whole = self.sizes.iter().all(|size| size.0.is_multiple_of(1 << 20));
        ensure!(!mebibytes || whole, "{{mib}} in --start needs --sizes in whole MiB");
        ensure!(!self.cold || !starts.is_empty(), "--cold needs --start");
        Ok(Plan {
            targets: self.targets.clone(),
            connections: self.method.connections.clone(),
            writes: self.method.writes.clone(),
            sizes,
            starts,
            cold: self.cold,
            method: self.method.method()?,
            questions: self.method.questions,
            settle: self.method.settle.0,
            output: self.output.clone().unwrap_or_else(usual),
            command: run::without_secrets(std::env::args().skip(1)),
            workload,
            workloads,
        }
        .replaying())
    }
}

pub(crate) async fn measure(args: RunArgs) -> Result<()> {
    let plan = args.plan()?;
    let output = plan.output.clone();
    let stop = run::stop_on_interrupt();
    let document = run::run(plan, &stop).await?;
    if let Some(path) = args.markdown {
        std::fs::write(&path, report::markdown(&document)).with_context(|| path.display().to_string())?;
    }
    let entry = Entry::of(&output, document);
    args.page.write(std::slice::from_ref(&entry))?;
    println!("all of it: {}", output.display());
    ensure!(!stop.load(Ordering::Relaxed), "interrupted: {} has the complete rounds", output.display());
    let wrong = entry.run.wrong_answers();
    ensure!(wrong == 0, "{wrong} answers were wrong");
    Ok(())
}
