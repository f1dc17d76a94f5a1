//! The workloads: which tables, which statements, which transactions.
//!
//! A [`Workload`] is what all connections share; a [`Script`] is one connection's part in it, with random numbers of its
//! own. Scripts are code rather than lists of statements, since a transaction may need what an earlier statement of it
//! returned.
//!
//! | workload | module | whose |
//! |---|---|---|
//! | `title-5` | `title5`, rows from `movies` | a movie page: five joins by a poor key |
//! | `title-aggregates` | `title_aggregates`, the same rows | a page of statistics about movies |
//! | `point-select` | `point_select`, rows from `sbtest` | sysbench's point selects, 25 per transaction or one |
//! | `oltp-read-only`, `oltp-read-write` | `oltp`, rows from `sbtest` | sysbench's OLTP statements |
//! | `game-rows` | `game_rows` | a game's look-aside cache |
//! | `ycsb` | `ycsb` | YCSB's core workloads, and the share of reads as a sweep |
//! | `taxi-trips` | `taxi` | rows that are written all the time and read while they are new |
//! | `custom` | `custom` | a file of the user's |
//! | `replay` | `replay` | a query log of a server |

pub(crate) mod alone;
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

/// A future that is handed out by a trait that stays usable behind `dyn`.
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
    /// `title-5`, `point-select` …
    fn name(&self) -> &str;

    /// Everything that makes its figures comparable, as `(name, value)`: sizes, distribution, transactions on or off.
    fn settings(&self) -> Vec<(String, String)>;

    /// All statements that its scripts run, by index.
    fn statements(&self) -> Arc<[Statement]>;

    /// The part of one connection.
    fn script(&self, random: Random) -> Script;

    /// The part of the connection of that number, of workloads whose connections differ.
    fn part(&self, _number: usize, random: Random) -> Script {
        self.script(random)
    }

    /// Of a replay: how many of so many connections it needs, and how long it takes. To be asked once before its scripts are.
    fn replays(&self, _connections: usize) -> Option<Replayed> {
        None
    }

    /// Of a replay: its reads with their parameters, in their order.
    fn logged(&self) -> Vec<(Arc<str>, Option<Vec<Value>>)> {
        Vec::new()
    }

    /// The part of a connection that writes in the background, if the workload knows such writes: one transaction each time.
    fn writer(&self, random: Random) -> Option<Script>;

    /// Whether key-value stores and the echo server can do it, and why not: one GET or SET for each of its statements.
    fn runs_on_stores(&self) -> Result<()> {
        bail!("{} runs on SQL servers only", self.name())
    }

    /// A round begins: its scripts are requested next. The rows inserted in earlier rounds are forgotten.
    fn begin_round(&self) {}

    /// Whether it asks a look-aside cache first, where the target has one.
    fn looks_aside(&self) -> bool {
        false
    }

    /// A read and its parameters, drawn as the load draws them, for the comparison of answers.
    fn question(&self, random: &mut Random) -> (usize, Vec<Value>);

    /// A write of the workload that changes the answer to this question, if it knows one: for seeing how soon it is seen.
    fn touch(&self, _statement: usize, _values: &[Value], _random: &mut Random) -> Option<(usize, Vec<Value>)> {
        None
    }

    /// Makes its tables and rows there, in place of any that an earlier load made; tables of others are left alone, with an
    /// error. The number of rows. A key-value target gets the values that the load will ask for.
    fn load<'a>(&'a self, _target: &'a Target, _bar: &'a ProgressBar) -> Pending<'a, u64> {
        Box::pin(async { bail!("{} runs on data that are there already: it has none to load", self.name()) })
    }

    /// To be awaited once before a run, with the database itself: its data are there and of these settings, or an error that
    /// says what to type. Reads from it what the scripts need.
    fn ready<'a>(&'a self, _database: &'a Target) -> Pending<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// What a replay needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replayed {
    /// Connections.
    pub connections: usize,
    /// From its first statement to its end.
    pub seconds: f64,
    /// How many times faster than it was.
    pub speed: f64,
}

/// Makes the workload's data there, with a bar on standard error, and says what it has made.
pub async fn load(workload: &dyn Workload, target: &Target) -> Result<()> {
    let bar = loading::bar();
    let rows = workload.load(target, &bar).await?;
    bar.finish_and_clear();
    eprintln!("{}: {rows} rows of {}", target.name, workload.name());
    Ok(())
}

/// The same, unless data of these settings are there.
pub async fn load_if_missing(workload: &dyn Workload, target: &Target) -> Result<()> {
    if target.family().is_some() && workload.ready(target).await.is_ok() {
        return Ok(());
    }
    load(workload, target).await
}

/// What one connection does. `run` is one transaction.
#[derive(Debug)]
pub enum Script {
    /// One statement alone.
    Alone(alone::Asker),
    /// Of a file.
    Custom(custom::Connection),
    /// Of a server's log.
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
            Self::Alone(script) => script.run(session).await,
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
