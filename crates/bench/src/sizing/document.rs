//! A sizing as one JSON document (`docs/guide/bench.md` describes it).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::result::Run;

/// Version of the document's form.
pub const SCHEMA: u32 = 1;

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sizing {
    /// [`SCHEMA`]; by this name the document is told from others.
    pub sizing: u32,
    /// The workload.
    pub workload: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// The arguments, with passwords removed.
    pub command: Vec<String>,
    /// What the curve was made of.
    pub trace: Trace,
    /// Bytes of an entry beside its answer's values.
    pub overhead: Overhead,
    /// Miss ratio by size, from nothing to where nothing is gained.
    pub curve: Vec<Point>,
    /// Where it bends, in bytes; none if it does not.
    pub knee: Option<f64>,
    /// Predictions and what runs at those sizes measured.
    pub checks: Vec<Check>,
    /// The runs themselves.
    pub runs: Vec<Run>,
}

/// A trace of accesses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    /// Reads in it.
    pub accesses: u64,
    /// The first of them, which only fill the cache.
    pub warm: u64,
    /// Different questions.
    pub distinct: u64,
    /// Share of the questions whose accesses were looked at.
    pub rate: f64,
    /// Of these, answers whose sizes were read from the database.
    pub answers: u64,
    /// Average bytes of an answer as it is sent, over the different questions.
    pub answer_bytes: f64,
}

/// What an entry takes beside its answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// Bytes.
    pub bytes: f64,
    /// It was measured: bytes by entries of a cache that held all of it; otherwise it was given or assumed.
    pub measured: bool,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Size.
    pub bytes: f64,
    /// Share of accesses that miss.
    pub miss_ratio: f64,
}

/// A run at a size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Which: `knee`, `half of it`.
    pub name: String,
    /// The cache.
    pub target: String,
    /// What it was started with, bytes.
    pub size: u64,
    /// Bytes of entries that it held at the end.
    pub held: f64,
    /// Entries at the end.
    pub entries: f64,
    /// Predicted for the size, for as many accesses as the run made.
    pub predicted: f64,
    /// Predicted for the bytes that it held.
    pub predicted_held: f64,
    /// As the cache counted.
    pub measured: f64,
}
