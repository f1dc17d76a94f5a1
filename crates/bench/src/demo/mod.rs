//! `freshet-bench demo`: the value of a cache in front of a real PostgreSQL, MariaDB or MySQL, and a check of its answers.
//!
//! A throw-away server (`base`) gets the movie data of title-5 (`crate::workload::movies`). `freshet serve` is started in front of it as a separate
//! process (`child`). The rest takes about a minute and a half:
//!
//! 1. Every cached answer is compared with the database's own (`check`). Then a read-only load runs in interleaved direct and cached rounds (`load`,
//!    `measure`).
//! 2. The same with background writes (`writer`, `ledger`), while cached answers are checked.
//! 3. The change stream is stopped for three seconds (`stall`).
//!
//! The demo uses only Freshet's external interfaces: its command line, its port and its HTTP endpoints.

mod base;
mod check;
mod child;
mod ledger;
mod load;
mod measure;
mod report;
mod session;
mod stall;
mod writer;

#[cfg(test)]
mod lagging;

use std::sync::Arc;
use std::time::Duration;

use crate::driver::Protocol;
use crate::workload::movies::{self, Size};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::Mutex;

use base::{Base, Control, Which};
use check::{AGE_MAX, Checkers, compare};
use child::Freshet;
use ledger::Ledger;
use load::{Shape, name};
use measure::{Bench, Measured};
use report::{Pair, Report};
use session::{Session, target};
use stall::Stall;
use writer::{Plan, Writer};

/// The demo's database.
pub(crate) const DATABASE: &str = "movies";

/// The number of connections for the text protocol and for writes, if it is one of the chosen ones.
const MIDDLE: usize = 16;
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(15);

/// Options of `freshet-bench demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Major version of PostgreSQL to start [default: the newest installed]
    #[arg(long)]
    pg_version: Option<u32>,
    /// Use MariaDB instead of PostgreSQL
    #[arg(long, conflicts_with_all = ["pg_version", "mysql"])]
    mariadb: bool,
    /// Use MySQL 8.0 instead of PostgreSQL
    #[arg(long, conflicts_with = "pg_version")]
    mysql: bool,
    /// Number of distinct movie titles; the load requests the first 969
    #[arg(long, default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    movies: u32,
    /// Seed of the data and of the load
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Numbers of connections to measure with
    #[arg(long, value_delimiter = ',', default_values_t = [4, 16, 64], value_parser = clap::value_parser!(u16).range(1..=1000))]
    threads: Vec<u16>,
    /// How statements are sent; `both` measures prepared statements at all numbers of connections, and text at 16
    #[arg(long, value_enum, default_value_t = Protocols::Both)]
    protocol: Protocols,
    /// Seconds of one measured round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds of each target with each setting; the targets alternate
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Background writes per second; 0 skips the rounds with writes and the stall
    #[arg(long, default_value_t = 20.0)]
    write_rate: f64,
    /// Percentage of the background writes that go through Freshet; the others bypass it
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100))]
    writes_through: u64,
    /// Memory for the cache
    #[arg(long, default_value = "256MiB")]
    memory: String,
    /// Keep the database and Freshet running afterwards, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Measure the server at this URL instead of starting `freshet serve`; `direct` compares the database with itself
    #[arg(long, hide = true)]
    cached_url: Option<String>,
}

impl DemoArgs {
    const fn which(&self) -> Which {
        match (self.mariadb, self.mysql) {
            (true, _) => Which::Mariadb,
            (_, true) => Which::Mysql,
            _ => Which::Postgres(self.pg_version),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Protocols {
    Prepared,
    Text,
    Both,
}

/// Runs the demo. Wrong answers and a stall with late hits are errors, with exit status 1.
pub async fn run(args: DemoArgs) -> Result<()> {
    let progress = Progress::new();
    let base = start_server(&args, &progress).await?;
    let size = Size { movies: args.movies as usize, seed: args.seed };
    let url = base.url();

    let bar = progress.step("loading rows");
    let rows = movies::load(&target(&url), size, &bar).await?;
    bar.finish_and_clear();

    let mut freshet = None;
    if args.cached_url.is_none() {
        let bar = progress.step("starting Freshet");
        let mut started = Freshet::start(&base, &args.memory)?;
        started.wait_until_ready(&bar).await?;
        bar.finish_and_clear();
        freshet = Some(started);
    }

    let titles = size.popular_titles();
    let demo = Demo {
        cached_url: match (&freshet, args.cached_url.as_deref()) {
            (Some(freshet), _) => freshet.url.clone(),
            (None, Some("direct") | None) => url.clone(),
            (None, Some(other)) => other.to_owned(),
        },
        ledger: Arc::new(Ledger::read(&url, &titles).await?),
        titles: titles.into(),
        args: &args,
        base: &base,
        freshet: freshet.as_ref(),
        control: Mutex::new(Control::open(&base).await?),
        progress: &progress,
    };
    let setting = format!(
        "{}, {rows} rows, {} requested titles, {} processors shared by database, Freshet and load",
        base.version()?,
        demo.titles.len(),
        std::thread::available_parallelism().map_or(1, usize::from),
    );
    let report = demo.measure(setting).await;
    let report = match (report, &freshet) {
        (Err(error), Some(freshet)) => return Err(error.context(format!("Freshet: {}", freshet.log_tail()))),
        (report, _) => report?,
    };
    println!("{}", report.render());
    let failures = report.failures();
    println!("{}", if failures.is_empty() { "All answers were right." } else { "The demo failed." });
    if args.keep {
        keep_running(&base, freshet.as_ref()).await?;
    }
    if let Some(freshet) = freshet {
        freshet.stop().await?;
    }
    ensure!(failures.is_empty(), "the demo failed:\n  {}", failures.join("\n  "));
    Ok(())
}

async fn start_server(args: &DemoArgs, progress: &Progress) -> Result<Base> {
    let which = args.which();
    let bar = progress.step(&format!("starting {}", which.name()));
    // Each connection through Freshet may have its own server connection.
    let connections = 100 + 2 * usize::from(args.threads.iter().copied().max().unwrap_or(1));
    let base = tokio::task::spawn_blocking(move || Base::start(which, connections.max(300))).await??;
    bar.finish_and_clear();
    Ok(base)
}

async fn keep_running(base: &Base, freshet: Option<&Freshet>) -> Result<()> {
    println!("database:  {}", base.client(&base.url()));
    if let Some(freshet) = freshet {
        println!("Freshet:   {}", base.client(&freshet.url));
        println!("metrics:   http://{}/metrics", freshet.http);
        println!("log:       {}", freshet.log_path().display());
    }
    println!("Ctrl-C ends and removes all of it.");
    tokio::signal::ctrl_c().await.context("waiting for Ctrl-C")
}

/// A running database and Freshet, ready to be measured and checked.
struct Demo<'a> {
    args: &'a DemoArgs,
    base: &'a Base,
    freshet: Option<&'a Freshet>,
    cached_url: String,
    control: Mutex<Control>,
    ledger: Arc<Ledger>,
    titles: Arc<[String]>,
    progress: &'a Progress,
}

impl Demo<'_> {
    async fn measure(&self, setting: String) -> Result<Report> {
        let mut report = Report { setting, counters: self.freshet.is_some(), ..Report::default() };
        self.warm_up().await?;
        report.compared.push(self.compare().await?);
        for (protocol, connections) in self.shapes() {
            report.pairs.push(self.pair(protocol, connections, false).await?);
        }
        if self.args.write_rate > 0.0 {
            report.pairs.push(self.pair(self.protocols()[0], self.middle(), true).await?);
            report.stalled = self.stall().await?;
            // After this time the stream has delivered the last write.
            tokio::time::sleep(AGE_MAX).await;
            report.compared.push(self.compare().await?);
        }
        Ok(report)
    }

    fn protocols(&self) -> &'static [Protocol] {
        match self.args.protocol {
            Protocols::Prepared => &[Protocol::Prepared],
            Protocols::Text => &[Protocol::Text],
            Protocols::Both => &[Protocol::Prepared, Protocol::Text],
        }
    }

    /// The number of connections for results that are shown once.
    fn middle(&self) -> usize {
        let counts = &self.args.threads;
        let middle = counts.iter().map(|count| usize::from(*count)).find(|count| *count == MIDDLE);
        middle.unwrap_or_else(|| counts.get(counts.len() / 2).map_or(MIDDLE, |count| usize::from(*count)))
    }

    fn shapes(&self) -> Vec<(Protocol, usize)> {
        let protocols = self.protocols();
        let mut shapes: Vec<_> = self.args.threads.iter().map(|count| (protocols[0], usize::from(*count))).collect();
        shapes.extend(protocols.iter().skip(1).map(|protocol| (*protocol, self.middle())));
        shapes
    }

    fn shape(&self, url: &str, protocol: Protocol, connections: usize) -> Shape {
        let (titles, seed) = (Arc::clone(&self.titles), self.args.seed);
        Shape { url: url.to_owned(), protocol, connections, titles, seed }
    }

    fn writes(&self) -> Plan {
        let through = self.args.writes_through;
        Plan {
            direct_url: self.base.url(),
            cached: (through > 0).then(|| (self.cached_url.clone(), through)),
            per_second: self.args.write_rate,
            seed: self.args.seed,
        }
    }

    /// Sends all queries until the cache serves them. Freshet publishes tables when they are first read, and serves nothing from the cache before
    /// they are published.
    async fn warm_up(&self) -> Result<()> {
        let bar = self.progress.step("warming up");
        let url = self.base.url();
        for protocol in self.protocols() {
            // The database's own buffers are warmed first.
            self.ask_for_everything(&self.shape(&url, *protocol, 8)).await?;
            let deadline = std::time::Instant::now() + WARM_UP_TIMEOUT;
            let shape = self.shape(&self.cached_url, *protocol, 8);
            loop {
                let Some(freshet) = self.freshet else {
                    self.ask_for_everything(&shape).await?;
                    break;
                };
                let before = freshet.metrics().await?;
                self.ask_for_everything(&shape).await?;
                let metrics = freshet.metrics().await?.since(&before);
                let ratio = metrics.hit_ratio();
                if ratio > 0.95 {
                    break;
                }
                if std::time::Instant::now() > deadline {
                    let main = metrics.reasons.first().map_or("none named", |(reason, _)| reason.as_str());
                    let name = name(*protocol);
                    bar.suspend(|| {
                        eprintln!("warning: only {:.0}% of the {name} statements are hits ({main})", ratio * 100.0);
                    });
                    break;
                }
                bar.set_message(format!("warming up: {:.0}% hits", ratio * 100.0));
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn ask_for_everything(&self, shape: &Shape) -> Result<()> {
        let mut tasks = tokio::task::JoinSet::new();
        for part in 0..shape.connections {
            let shape = shape.clone();
            tasks.spawn(async move {
                let mut session = Session::open(&shape.url, shape.protocol).await?;
                for title in shape.titles.iter().skip(part).step_by(shape.connections) {
                    session.transaction(title).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        Ok(())
    }

    async fn compare(&self) -> Result<check::Checked> {
        let bar = self.progress.step("comparing all answers with the database's own");
        let checked = compare(&self.base.url(), &self.cached_url, &self.titles).await?;
        bar.finish_and_clear();
        Ok(checked)
    }

    /// Interleaved direct and cached rounds.
    async fn pair(&self, protocol: Protocol, connections: usize, writing: bool) -> Result<Pair> {
        let with = if writing { ", with writes" } else { "" };
        let label = format!("{}, {connections} connections{with}", name(protocol));
        let bar = self.progress.step(&label);
        let bench = Bench { base: self.base, control: &self.control, freshet: self.freshet, bar: &bar };
        let (mut direct, mut cached) = (Measured::new()?, Measured::new()?);
        let length = Duration::try_from_secs_f64(self.args.seconds).context("--seconds")?;
        let writer = if writing { Some(Writer::start(self.writes(), Arc::clone(&self.ledger)).await?) } else { None };
        for round in 1..=self.args.rounds {
            bar.set_message(format!("{label}, round {round}, database"));
            let url = self.base.url();
            direct.add(&bench.round(&self.shape(&url, protocol, connections), length).await?)?;
            bar.set_message(format!("{label}, round {round}, Freshet"));
            let checkers = match &writer {
                Some(writer) => Some(Checkers::start(&self.cached_url, &self.ledger, &writer.latest()).await?),
                None => None,
            };
            cached.add(&bench.round(&self.shape(&self.cached_url, protocol, connections), length).await?)?;
            if let Some(checkers) = checkers {
                cached.checked.add(checkers.finish().await?);
            }
        }
        if let Some(writer) = writer {
            ensure!(writer.finish().await? > 0, "the background writer wrote nothing");
        }
        bar.finish_and_clear();
        let writes = if writing { self.args.write_rate } else { 0.0 };
        Ok(Pair { protocol, connections, writes, direct, cached })
    }

    async fn stall(&self) -> Result<Option<stall::Stalled>> {
        let Some(freshet) = self.freshet else { return Ok(None) };
        let bar = self.progress.step("stopping the change stream for three seconds");
        let shape = self.shape(&self.cached_url, self.protocols()[0], MIDDLE);
        let stall = Stall { freshet, base: self.base, ledger: &self.ledger, shape, writes: self.writes() };
        let stalled = stall.run().await.context("the stall check")?;
        bar.finish_and_clear();
        Ok(Some(stalled))
    }
}

/// Progress on standard error: bars on a terminal, otherwise a line for each step.
struct Progress {
    terminal: bool,
}

impl Progress {
    fn new() -> Self {
        Self { terminal: std::io::IsTerminal::is_terminal(&std::io::stderr()) }
    }

    fn step(&self, message: &str) -> ProgressBar {
        if !self.terminal {
            eprintln!("{message}");
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg} {pos}/{len} rows");
        if let (true, Ok(style)) = (message == "loading rows", style) {
            bar.set_style(style);
        } else if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}") {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }
}
