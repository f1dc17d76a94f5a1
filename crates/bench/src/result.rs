//! A run's results, as one JSON document.
//!
//! Everything in the tables is computed from it, so that an old run can be shown again or compared. `docs/guide/bench.md` describes the schema and
//! its units. Change [`SCHEMA`] with them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::driver::Protocol;
use crate::load::Loop;

/// Version of the document's format.
pub const SCHEMA: u32 = 2;

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program that measured it.
    pub program: String,
    /// Start time in seconds since 1970.
    pub started: u64,
    /// The arguments, with passwords removed.
    pub command: Vec<String>,
    /// Whether the run ended early, by Ctrl-C or because of an error. The document then has the measurements so far.
    pub interrupted: bool,
    /// The client's machine.
    pub machine: Machine,
    /// The targets.
    pub targets: Vec<TargetInfo>,
    /// The method.
    pub method: Method,
    /// A cell for each combination of settings, measured on every target.
    pub cells: Vec<Cell>,
}

impl Run {
    /// The number of wrong answers, over all rounds.
    pub fn wrong_answers(&self) -> u64 {
        let rounds = self.cells.iter().flat_map(|cell| &cell.rounds);
        rounds.filter_map(|round| round.checked.as_ref()).map(|checked| checked.wrong).sum()
    }
}

/// The client's machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Number of processors.
    pub cores: usize,
    /// The processor's name.
    pub processor: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Name and release of the operating system.
    pub system: String,
    /// Load average over the minute before the start.
    pub load_average: f64,
}

/// A target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Its name in this run.
    pub name: String,
    /// Its URL without the password.
    pub url: String,
    /// The version that it reports.
    pub version: String,
    /// Settings of the server that affect the figures.
    pub settings: BTreeMap<String, String>,
    /// Name of the process that listens at the target's address, if it runs on this machine and was sampled.
    pub process: Option<String>,
}

/// The settings that are the same for all cells.
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
    /// Seconds after the measured interval.
    pub cool_down: f64,
    /// Rounds of each target in each cell.
    pub repetitions: usize,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of the client's threads.
    pub threads: usize,
}

/// A combination: a workload with its settings, a number of connections, a rate of writes, and a cache size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the workload.
    pub workload: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// Connections.
    pub connections: usize,
    /// Background write transactions per second.
    pub writes: f64,
    /// The cache size in bytes with which the targets with a start command were started.
    pub cache_size: Option<u64>,
    /// Names of the workload's statements.
    pub statements: Vec<String>,
    /// The rounds, in the order of measuring.
    pub rounds: Vec<Round>,
    /// Failures and their reasons, by target: of a round (`not measured: …`) or of its comparison (`answers not compared: …`).
    #[serde(default)]
    pub failed: BTreeMap<String, String>,
}

/// A round of one target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// Name of the target.
    pub target: String,
    /// The number of the round for this target, from 0.
    pub number: usize,
    /// Figures of the foreground load.
    pub load: Load,
    /// Figures of the background writer.
    pub writes: Option<Load>,
    /// Processor time and memory in the measured interval, by the name of the process (`client` is this program).
    pub processes: BTreeMap<String, Usage>,
    /// Processor time that other processes took on this machine, in cores.
    pub others: f64,
    /// The target's counters in the measured interval.
    pub cache: Option<Cache>,
    /// Samples during the round, with the warm-up, one each second.
    pub series: Vec<Sample>,
    /// The comparison of answers after the round.
    pub checked: Option<Checked>,
}

/// Figures of one kind of load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Length of the measured interval in seconds.
    pub seconds: f64,
    /// Number of transactions.
    pub transactions: u64,
    /// Number of statements, without BEGIN and COMMIT.
    pub queries: u64,
    /// Latency of transactions in nanoseconds: HdrHistogram V2, deflated, base64.
    pub latency: String,
    /// Latency of each statement of the workload, in the same format.
    pub statements: Vec<String>,
    /// Number of rows returned or changed, for each statement of the workload.
    #[serde(default)]
    pub rows: Vec<u64>,
    /// Failed transactions by code.
    pub failures: BTreeMap<String, FailureCount>,
    /// Open loop: lateness of the client itself, in the same format.
    pub lateness: Option<String>,
    /// Transactions that had not ended at the end of the round. They were due in the interval (open loop), or had begun before its end (closed loop).
    pub unfinished: u64,
    /// Number of transactions in each second.
    pub per_second: Vec<u64>,
}

/// Failures of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// Their number.
    pub count: u64,
    /// The text of the first one.
    pub first: String,
}

/// Resources that a process used in the measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds of processor time in user mode, with all descendants.
    pub user: f64,
    /// Seconds of processor time in the kernel.
    pub system: f64,
    /// Bytes of memory at the end: the proportional set size (PSS) if it can be read, otherwise RSS.
    pub memory: u64,
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// Statements served from the cache.
    pub hits: f64,
    /// Statements sent to the database, whose results were cached.
    pub fills: f64,
    /// Statements sent to the database, whose results were not cached.
    pub passed: f64,
    /// Entries removed for any reason.
    pub evictions: f64,
    /// Entries removed because their data changed. 0 if this is not reported.
    #[serde(default)]
    pub changed: f64,
    /// Entries at the end.
    pub entries: f64,
    /// Bytes at the end.
    pub bytes: f64,
    /// Age, in seconds, of the cache's proof that it knows all changes. None if this is not reported, or if there is no proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<f64>,
}

impl Cache {
    /// Share of the statements that were served from the cache.
    pub fn hit_ratio(&self) -> f64 {
        self.hits / (self.hits + self.fills + self.passed).max(1.0)
    }
}

/// A sample of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the round began.
    pub at: f64,
    /// Counters since the process began. Gauges are as they are.
    pub cache: Cache,
    /// Bytes of memory of the target's own process.
    pub memory: u64,
}

/// A comparison of answers without load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Number of answers compared.
    pub answers: u64,
    /// Number of wrong answers.
    pub wrong: u64,
    /// Descriptions of the first few.
    pub examples: Vec<String>,
}
