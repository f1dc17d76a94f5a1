//! A run's results, as one JSON document.
//!
//! Everything in the tables is computed from this, so that an old run can be shown again or compared. `docs/guide/bench.md` describes schema and
//! units for readers; change [`SCHEMA`] with them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::driver::Protocol;
use crate::load::Loop;

/// Version of the document's form.
pub const SCHEMA: u32 = 2;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program that measured.
    pub program: String,
    /// When it began: seconds since 1970.
    pub started: u64,
    /// The arguments, with passwords removed.
    pub command: Vec<String>,
    /// Ended early, by Ctrl-C or because of an error; what is there was measured.
    pub interrupted: bool,
    /// Where it ran.
    pub machine: Machine,
    /// Against what.
    pub targets: Vec<TargetInfo>,
    /// How.
    pub method: Method,
    /// One for each combination that was measured on every target.
    pub cells: Vec<Cell>,
}

impl Run {
    /// Answers that were not the database's, over all rounds.
    pub fn wrong_answers(&self) -> u64 {
        let rounds = self.cells.iter().flat_map(|cell| &cell.rounds);
        rounds.filter_map(|round| round.checked.as_ref()).map(|checked| checked.wrong).sum()
    }
}

/// The client's machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// Their name.
    pub processor: String,
    /// Bytes.
    pub memory: u64,
    /// Name and release of the operating system.
    pub system: String,
    /// Average over the minute before the start.
    pub load_average: f64,
}

/// One target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Its name in this run.
    pub name: String,
    /// Its URL without the password.
    pub url: String,
    /// What it says of itself.
    pub version: String,
    /// Settings of the server that matter for figures.
    pub settings: BTreeMap<String, String>,
    /// Names of the processes that were sampled, if they run on this machine: the one that listens at the target's address.
    pub process: Option<String>,
}

/// What is the same for all cells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Method {
    /// Prepared or text.
    pub protocol: Protocol,
    /// Closed or open loop.
    pub pace: Loop,
    /// Seconds before the measured interval.
    pub warm_up: f64,
    /// Seconds of the measured interval.
    pub measured: f64,
    /// Seconds after it.
    pub cool_down: f64,
    /// Rounds of each target in each cell.
    pub repetitions: usize,
    /// Of the random numbers.
    pub seed: u64,
    /// Threads of the client.
    pub threads: usize,
}

/// One combination: a workload with its settings, a number of connections, a rate of writes, a size of the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the workload.
    pub workload: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// Connections.
    pub connections: usize,
    /// Background transactions that write, per second.
    pub writes: f64,
    /// Size of the cache that the targets with a start command were started with, in bytes.
    pub cache_size: Option<u64>,
    /// Names of the workload's statements.
    pub statements: Vec<String>,
    /// In the order of measuring.
    pub rounds: Vec<Round>,
    /// What could not be done, and why, by target: a round (`not measured: …`) or its comparison (`answers not compared: …`).
    #[serde(default)]
    pub failed: BTreeMap<String, String>,
}

/// One target's round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// Name of the target.
    pub target: String,
    /// Which round of this target, from 0.
    pub number: usize,
    /// What the load measured.
    pub load: Load,
    /// What the background writer measured.
    pub writes: Option<Load>,
    /// Processor time and memory in the measured interval, by name of the process (`client` is this program).
    pub processes: BTreeMap<String, Usage>,
    /// Cores' worth of processor time that others took on this machine.
    pub others: f64,
    /// What the target's counters counted in the measured interval.
    pub cache: Option<Cache>,
    /// Samples during the round, warm-up included, one a second.
    pub series: Vec<Sample>,
    /// Comparison of answers after the round.
    pub checked: Option<Checked>,
}

/// What one kind of load measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Seconds measured.
    pub seconds: f64,
    /// Transactions.
    pub transactions: u64,
    /// Statements, without BEGIN and COMMIT.
    pub queries: u64,
    /// Latency of transactions in nanoseconds: HdrHistogram V2, deflated, base64.
    pub latency: String,
    /// The same for each statement of the workload.
    pub statements: Vec<String>,
    /// Rows that they returned or changed, for each statement of the workload.
    #[serde(default)]
    pub rows: Vec<u64>,
    /// Failed transactions by code.
    pub failures: BTreeMap<String, FailureCount>,
    /// Open loop: the client's own lateness, in the same form.
    pub lateness: Option<String>,
    /// Not ended when the round did: of those due in the interval (open loop), or begun before its end (closed loop).
    pub unfinished: u64,
    /// Transactions in each second.
    pub per_second: Vec<u64>,
}

/// Failures of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// How many.
    pub count: u64,
    /// The first one's text.
    pub first: String,
}

/// What a process used in the measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds of processor time in user mode, all descendants included.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
    /// Bytes in memory at the end, proportional shares of what is shared (PSS) where that can be read, else RSS.
    pub memory: u64,
}

/// What a cache counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// Answered from the cache.
    pub hits: f64,
    /// Sent to the database and cached.
    pub fills: f64,
    /// Sent to the database and not cached.
    pub passed: f64,
    /// Entries removed, for whatever reason.
    pub evictions: f64,
    /// Of these, because of a change of their data; 0 where this is not reported.
    #[serde(default)]
    pub changed: f64,
    /// Entries at the end.
    pub entries: f64,
    /// Bytes at the end.
    pub bytes: f64,
    /// The age, in seconds, of the cache's proof that it knows of all changes; none where it is not reported, or there is no proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<f64>,
}

impl Cache {
    /// Share of the statements that were served from the cache.
    pub fn hit_ratio(&self) -> f64 {
        self.hits / (self.hits + self.fills + self.passed).max(1.0)
    }
}

/// One sample of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the round began.
    pub at: f64,
    /// Counters since the process began; gauges as they are.
    pub cache: Cache,
    /// Bytes in memory of the target's own process.
    pub memory: u64,
}

/// Comparison of answers at a quiet point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Answers compared.
    pub answers: u64,
    /// Answers that were not the database's.
    pub wrong: u64,
    /// The first few, described.
    pub examples: Vec<String>,
}
