//! The workloads: their tables, their statements and their transactions.
//!
//! A [`Workload`] is shared by all connections. Each connection runs its own [`Script`] with its own random numbers. Scripts are code rather than
//! lists of statements, since a transaction may use what one of its earlier statements returned.
//!
//! | workload | module | what it does |
//! |---|---|---|
//! | `title-5` | `title5`, rows from `movies` | a movie page: five joins by an unselective key |
//! | `title-aggregates` | `title_aggregates`, the same rows | a page of statistics about movies |
//! | `point-select` | `point_select`, rows from `sbtest` | sysbench's point selects, 25 per transaction or one |
//! | `oltp-read-only`, `oltp-read-write` | `oltp`, rows from `sbtest` | sysbench's OLTP statements |
//! | `game-rows` | `game_rows` | a game with a look-aside cache |
//! | `ycsb` | `ycsb` | YCSB's core workloads, and a sweep over the share of reads |
//! | `taxi-trips` | `taxi` | rows that are written all the time and read while they are new |
//! | `custom` | `custom` | a file that the user writes |
//! | `replay` | `replay` | the query log of a server |

mod args;
mod custom;
pub mod distribution;
mod game_rows;
mod ledger;
mod loading;
pub mod movies;
mod oltp;
mod point_select;
mod replay;
mod sbtest;
pub(crate) mod single_statement;
mod taxi;
mod title5;
mod title_aggregates;
mod ycsb;

use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Result, bail};
use indicatif::ProgressBar;

pub use args::{WorkloadArgs, WorkloadName};

use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::Statement;
use crate::target::Target;
use crate::value::Value;

/// The future of a trait method. It is boxed, so that the trait can be used as `dyn`.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A switch whose default depends on the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnOff {
    /// Yes
    On,
    /// No
    Off,
}

impl OnOff {
    const fn text(on: bool) -> &'static str {
        if on { "on" } else { "off" }
    }
}

/// A workload with its settings.
pub trait Workload: Send + Sync + std::fmt::Debug {
    /// The name: `title-5`, `point-select` …
    fn name(&self) -> &str;

    /// All settings that affect the figures, as `(name, value)`: sizes, distribution, transactions on or off.
    fn settings(&self) -> Vec<(String, String)>;

    /// All statements of the scripts. Scripts refer to them by index.
    fn statements(&self) -> Arc<[Statement]>;

    /// The script of one connection.
    fn script(&self, random: Random) -> Script;

    /// The script of a connection by its number, for workloads whose connections differ.
    fn part(&self, _number: usize, random: Random) -> Script {
        self.script(random)
    }

    /// For a replay: the number of connections that it needs, out of those given, and its duration. To be called once before its scripts are made.
    fn replays(&self, _connections: usize) -> Option<Replayed> {
        None
    }

    /// For a replay: the reads of the log with their parameters, in order.
    fn logged(&self) -> Vec<(Arc<str>, Option<Vec<Value>>)> {
        Vec::new()
    }

    /// The script of a connection that writes in the background, if the workload has such writes. A run of it is one transaction.
    fn writer(&self, random: Random) -> Option<Script>;

    /// An error that says why, if key-value stores and the echo server cannot run the workload as one GET or SET for each statement.
    fn runs_on_stores(&self) -> Result<()> {
        bail!("{} runs on SQL servers only", self.name())
    }

    /// Begins a round. The scripts of the round are made next. Rows inserted in earlier rounds are not read any more.
    fn begin_round(&self) {}

    /// Whether it reads from a look-aside cache first, if the target has one.
    fn looks_aside(&self) -> bool {
        false
    }

    /// Draws a read and its parameters as the load does, for the comparison of answers.
    fn draw_read(&self, random: &mut Random) -> (usize, Vec<Value>);

    /// A write that changes the answer of this read, if the workload has one. It serves to measure how soon a change is visible.
    fn write_affecting(
        &self,
        _statement: usize,
        _values: &[Value],
        _random: &mut Random,
    ) -> Option<(usize, Vec<Value>)> {
        None
    }

    /// Creates the tables and rows on the target and returns the number of rows. Tables of an earlier load are replaced; any other table of the same
    /// name is an error. A key-value target gets the values that the load requests.
    fn load<'a>(&'a self, _target: &'a Target, _bar: &'a ProgressBar) -> Pending<'a, u64> {
        Box::pin(async { bail!("{} runs on existing data: it loads none", self.name()) })
    }

    /// Prepares a run on the database. If the data do not exist with these settings, the error names the command to run. Reads from the database what
    /// the scripts need. To be awaited once.
    fn ready<'a>(&'a self, _database: &'a Target) -> Pending<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// What a replay needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replayed {
    /// Number of connections.
    pub connections: usize,
    /// Duration from the first statement to the end.
    pub seconds: f64,
    /// How many times faster it runs than the log.
    pub speed: f64,
}

/// Loads the workload's data with a progress bar on standard error, and reports what was created.
pub async fn load(workload: &dyn Workload, target: &Target) -> Result<()> {
    let bar = loading::bar();
    let rows = workload.load(target, &bar).await?;
    bar.finish_and_clear();
    eprintln!("{}: {rows} rows of {}", target.name, workload.name());
    Ok(())
}

/// Loads the data unless they exist with these settings.
pub async fn load_if_missing(workload: &dyn Workload, target: &Target) -> Result<()> {
    if target.family().is_some() && workload.ready(target).await.is_ok() {
        return Ok(());
    }
    load(workload, target).await
}

/// The script of one connection. A run is one transaction.
#[derive(Debug)]
pub enum Script {
    /// One statement alone.
    SingleStatement(single_statement::Connection),
    /// A transaction of the user's file.
    Custom(custom::Connection),
    /// The next statement of a query log.
    Replay(replay::Player),
    /// Point selects.
    PointSelect(point_select::Reader),
    /// Updates of single rows of sysbench's tables.
    SbtestWriter(sbtest::Writer),
    /// sysbench's OLTP transactions.
    Oltp(oltp::Connection),
    /// A player's visit.
    GameRows(game_rows::Player),
    /// Updates of players.
    GameRowsWriter(game_rows::Writer),
    /// A movie page.
    Title5(title5::Reader),
    /// Changes of movies.
    Title5Writer(title5::Writer),
    /// Statistics about movies.
    TitleAggregates(title_aggregates::Reader),
    /// Trips that begin and end, and pages about them.
    TaxiTrips(taxi::Connection),
    /// One of YCSB's operations.
    Ycsb(ycsb::Connection),
}

impl Script {
    /// Of a replay: when its next transaction is due, since the round's start; None if there is none any more.
    pub(crate) fn due(&self) -> Option<std::time::Duration> {
        if let Self::Replay(player) = self { player.due() } else { None }
    }

    /// Runs one transaction.
    pub async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        match self {
            Self::SingleStatement(script) => script.run(session).await,
            Self::Custom(script) => script.run(session).await,
            Self::Replay(script) => script.run(session).await,
            Self::PointSelect(script) => script.run(session).await,
            Self::SbtestWriter(script) => script.run(session).await,
            Self::Oltp(script) => script.run(session).await,
            Self::GameRows(script) => script.run(session).await,
            Self::GameRowsWriter(script) => script.run(session).await,
            Self::Title5(script) => script.run(session).await,
            Self::Title5Writer(script) => script.run(session).await,
            Self::TitleAggregates(script) => script.run(session).await,
            Self::TaxiTrips(script) => script.run(session).await,
            Self::Ycsb(script) => script.run(session).await,
        }
    }
}

#[cfg(test)]
mod tests;
