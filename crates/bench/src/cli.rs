//! The command line of `freshet-bench`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::card::{self, CardArgs};
use crate::demo::{self, DemoArgs};
use crate::peers;
use crate::report::{self, Document, Entry, PageArgs};
use crate::run_args::{self, RunArgs};
use crate::sizing::{self, SizingArgs};
use crate::suite::{self, SuiteArgs};
use crate::target::Target;
use crate::workload::{self, WorkloadArgs};

/// Measures the effect of a cache on a database: the same load direct and cached, interleaved, with answers compared
#[derive(Debug, Parser)]
#[command(name = "freshet-bench", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Box::pin(dispatch(self.command)))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the effect of a cache on a throw-away PostgreSQL: the same load direct and cached
    Demo(DemoArgs),
    /// Create a workload's tables in the database and fill them
    Load(LoadArgs),
    /// Run a workload against one or more targets, interleaved
    #[command(args_override_self = true)]
    Run(Box<RunArgs>),
    /// Show the results of a run
    Show {
        /// The JSON document of a run
        run: PathBuf,
        /// As Markdown instead of tables for the terminal
        #[arg(long)]
        markdown: bool,
    },
    /// Write an HTML page or CSV from the documents of one or more runs
    Report {
        /// The JSON documents
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Measure the access paths of a workload's reads: inputs, outputs, throughput and latency at three levels of load, freshness
    #[command(args_override_self = true)]
    Card(Box<CardArgs>),
    /// Predict the memory that a cache needs for a workload: its miss ratio by size, checked by runs at two sizes
    #[command(args_override_self = true)]
    Sizing(Box<SizingArgs>),
    /// Compare two runs, cell by cell
    Compare {
        /// The JSON document of the earlier run
        before: PathBuf,
        /// The JSON document of the later run
        after: PathBuf,
    },
    /// Run the project's own measurements on throw-away servers and write their documents
    Suite(SuiteArgs),
    /// Start the installed peers in front of or beside a PostgreSQL, print their targets, and wait for Ctrl-C
    Peers {
        /// The database: NAME=URL  [default: a throw-away PostgreSQL]
        #[arg(long)]
        target: Option<Target>,
    },
    /// Write manual pages and completions of shells
    #[command(hide = true)]
    Pages {
        /// The directory to write to; it is made
        directory: PathBuf,
    },
    /// Answer each request of a fixed size with an answer of a fixed size: a lower bound for the latency of any server
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
    /// The target: NAME=URL, as for `run`; several targets are loaded one after another
    #[arg(long = "target", required = true)]
    targets: Vec<Target>,
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
        Command::Run(args) => run_args::measure(*args).await,
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
                // Several runs may have the same workload.
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
        Command::Pages { directory } => {
            let written = freshet_pages::write(&directory, &Cli::command(), env!("CARGO_PKG_VERSION"));
            written.with_context(|| format!("{} cannot be written", directory.display()))
        }
        Command::Echo { listen, request, answer } => peers::echo::serve(listen, request, answer),
    }
}
