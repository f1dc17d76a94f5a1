//! `freshet-bench`: what can be typed, and the plan it makes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use crate::card::{self, CardArgs};
use crate::demo::{self, DemoArgs};
use crate::driver::Protocol;
use crate::load::Loop;
use crate::peers;
use crate::report::{self, Document, Entry, PageArgs};
use crate::result::Method;
use crate::run::{self, Plan};
use crate::sizing::{self, SizingArgs};
use crate::suite::{self, SuiteArgs};
use crate::target::Target;
use crate::units::{MemorySize, Span};
use crate::workload::{self, WorkloadArgs};

/// Measures what a cache does for a database: the same load direct and cached, in turns, with answers compared
#[derive(Debug, Parser)]
#[command(name = "freshet-bench", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Does what was typed.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Box::pin(dispatch(self.command)))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the cache at work on a throw-away PostgreSQL: the same load direct and cached
    Demo(DemoArgs),
    /// Make a workload's tables in the database, and fill them
    Load(LoadArgs),
    /// Run a workload against one or more targets, in turns
    #[command(args_override_self = true)]
    Run(Box<RunArgs>),
    /// Show the results of a run again
    Show {
        /// The JSON document of a run
        run: PathBuf,
        /// As Markdown instead of tables for the terminal
        #[arg(long)]
        markdown: bool,
    },
    /// Write a page of HTML or CSV of the documents of one or more runs
    Report {
        /// The JSON documents
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Cards of a workload's reads: inputs, outputs, throughput and latency at three levels of load, freshness
    #[command(args_override_self = true)]
    Card(Box<CardArgs>),
    /// How much memory a cache needs for a workload: its miss ratio by size, checked by runs at two sizes
    #[command(args_override_self = true)]
    Sizing(Box<SizingArgs>),
    /// Compare two runs, cell by cell
    Compare {
        /// The JSON document of the earlier run
        before: PathBuf,
        /// That of the later one
        after: PathBuf,
    },
    /// Run the project's own measurements on throw-away servers, and write them down
    Suite(SuiteArgs),
    /// Start what is installed of the peers in front of or beside a PostgreSQL, print their targets, and wait for Ctrl-C
    Peers {
        /// The database: NAME=URL  [default: a throw-away PostgreSQL]
        #[arg(long)]
        target: Option<Target>,
    },
    /// Answer requests of a fixed size with answers of a fixed size: the floor that no server can be below
    #[command(hide = true)]
    Echo {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        request: usize,
        #[arg(long)]
        answer: usize,
    },
}

#[derive(Debug, Args)]
struct LoadArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Where to: NAME=URL, as for `run`; several are loaded one after the other
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
}

/// What `run` takes.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) workload: WorkloadArgs,
    /// NAME=URL of a target; the first is the database itself, which the answers of the others are compared with.
    ///
    /// The URL is postgres://, mysql://, memcached://, redis:// or echo://. Behind commas: metrics=http://HOST:PORT/metrics
    /// (or memcached://, redis://, qcache, pool_cache) where its counters of hits are read; lookaside=HOST:PORT of a
    /// memcached that the application asks first.
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
    #[command(flatten)]
    pub(crate) method: MethodArgs,
    /// NAME=COMMAND that starts a target; {size} in it stands for the size of its cache in bytes, {mib} in MiB
    #[arg(long = "start", value_parser = name_and_command)]
    starts: Vec<(String, String)>,
    /// Sizes of the cache, each a cell of its own, for the targets with --start
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<MemorySize>,
    /// Start these targets anew before each of their rounds; best with --warm-up 0s
    #[arg(long)]
    cold: bool,
    /// Where the JSON document goes  [default: bench-WORKLOAD-TIME.json]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Also write the results as Markdown
    #[arg(long)]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
}

/// How to measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct MethodArgs {
    /// Numbers of connections, each a cell of its own
    #[arg(long, value_delimiter = ',', default_value = "16")]
    pub(crate) connections: Vec<usize>,
    /// Rounds for each target in each cell; targets take turns
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Before the measured interval of each round
    #[arg(long, default_value = "2s")]
    pub(crate) warm_up: Span,
    /// The measured interval of each round
    #[arg(long, default_value = "10s")]
    pub(crate) time: Span,
    /// After it, with the load still on
    #[arg(long, default_value = "500ms")]
    pub(crate) cool_down: Span,
    /// Open loop: so many transactions per second over all connections, begun on time whether or not earlier ones were
    /// answered; latency counts from the intended start. Without it each connection begins the next when the last has ended
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Open loop with random (exponential) gaps instead of equal ones
    #[arg(long, requires = "rate")]
    pub(crate) poisson: bool,
    /// How statements are sent
    #[arg(long, value_enum, default_value = "prepared")]
    pub(crate) protocol: Protocol,
    /// Background transactions that write, per second, through the same target; for workloads that know such. Several
    /// rates are a cell each
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pub(crate) writes: Vec<f64>,
    /// Questions asked after each round, of the target and of the database, to compare the answers; 0 for none
    #[arg(long, default_value_t = 200)]
    pub(crate) questions: usize,
    /// How long writes may take to arrive everywhere, before answers are compared
    #[arg(long, default_value = "1100ms")]
    pub(crate) settle: Span,
    /// Of the random numbers: the same seed draws the same keys in the same order
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads of this program; each has its share of the connections and of the arrivals  [default: the number of
    /// processors, 4 at most; 1 with --rate]
    #[arg(long)]
    pub(crate) threads: Option<usize>,
}

impl MethodArgs {
    /// What all cells have in common.
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
            // Arrivals are dealt to the threads beforehand: with several, some wait while connections of others are idle.
            threads: self.threads.unwrap_or(if self.rate.is_some() { 1 } else { cores.min(4) }).max(1),
        })
    }
}

const SPAN_MAX: Duration = Duration::from_secs(86_400);

pub(crate) fn name_and_command(text: &str) -> Result<(String, String), String> {
    let (name, command) = text.split_once('=').ok_or("it is NAME=COMMAND")?;
    Ok((name.to_owned(), command.to_owned()))
}

async fn dispatch(command: Command) -> Result<()> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Load(args) => {
            let workload = args.workload.build()?;
            for target in &args.targets {
                workload::load(workload.as_ref(), target).await.with_context(|| format!("loading {}", target.name))?;
            }
            Ok(())
        }
        Command::Run(args) => measure(*args).await,
        Command::Show { run, markdown } => {
            let run = report::read(&run)?;
            if markdown {
                print!("{}", report::markdown(&run));
            } else {
                run.cells.iter().for_each(|cell| println!("{}", report::cell_table(&run, cell)));
            }
            Ok(())
        }
        Command::Report { runs, page } => {
            ensure!(page.html.is_some() || page.csv.is_some(), "--html FILE or --csv FILE says what to write");
            let (mut entries, mut extras) = (Vec::new(), Vec::new());
            for path in &runs {
                match report::read_any(path)? {
                    Document::Run(run) => entries.push(Entry::of(path, *run)),
                    Document::Extra(extra) => extras.push(*extra),
                }
            }
            if entries.len() > 1 {
                // Several may be of one workload.
                for entry in &mut entries {
                    entry.title.clone_from(&entry.name);
                }
            }
            page.write_all(&entries, &extras)
        }
        Command::Card(args) => card::run(*args).await,
        Command::Sizing(args) => sizing::run(*args).await,
        Command::Compare { before, after } => {
            print!("{}", report::comparison(&report::read(&before)?, &report::read(&after)?));
            Ok(())
        }
        Command::Suite(args) => suite::run(args).await,
        Command::Peers { target } => suite::peers(target).await,
        Command::Echo { listen, request, answer } => peers::echo::serve(listen, request, answer),
    }
}

impl RunArgs {
    /// What is to be measured.
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
            "--sizes means nothing without a --start with {{size}} or {{mib}} in its command"
        );
        let mebibytes = starts.values().any(|command| command.contains("{mib}"));
        let whole = self.sizes.iter().all(|size| size.0.is_multiple_of(1 << 20));
        ensure!(!mebibytes || whole, "{{mib}} in --start needs --sizes in whole MiB");
        ensure!(!self.cold || !starts.is_empty(), "--cold means nothing without --start");
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

async fn measure(args: RunArgs) -> Result<()> {
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
    ensure!(!stop.load(Ordering::Relaxed), "interrupted: {} holds the rounds that had ended", output.display());
    let wrong = entry.run.wrong_answers();
    ensure!(wrong == 0, "{wrong} answers were wrong");
    Ok(())
}
