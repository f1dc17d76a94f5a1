//! A sizing as one JSON document (`docs/guide/bench.md` describes it).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::result::Run;

/// Version of the document's form.
pub const SCHEMA: u32 = 1;

/// A sizing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sizing {
    /// [`SCHEMA`]. The field's name identifies the document as a sizing.
    pub sizing: u32,
    /// The workload.
    pub workload: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// The arguments, with passwords removed.
    pub command: Vec<String>,
    /// The trace from which the curve was computed.
    pub trace: Trace,
    /// Memory of an entry in addition to the values of its answer.
    pub overhead: Overhead,
    /// Miss ratio by size, from zero to the size beyond which nothing is gained.
    pub curve: Vec<Point>,
    /// The knee of the curve in bytes. None if the curve is nearly straight.
    pub knee: Option<f64>,
    /// Predictions and measurements at the same sizes.
    pub checks: Vec<Check>,
    /// The runs that measured them.
    pub runs: Vec<Run>,
}

/// A trace of accesses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    /// Number of reads.
    pub accesses: u64,
    /// Number of the first reads, which only fill the cache.
    pub warm: u64,
    /// Number of distinct reads.
    pub distinct: u64,
    /// Share of the distinct reads in the sample.
    pub rate: f64,
    /// Number of sampled reads whose answer sizes were read from the database.
    pub answers: u64,
    /// Average size of an answer in the protocol, over the distinct reads.
    pub answer_bytes: f64,
}

/// Memory of an entry in addition to its answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// Bytes.
    pub bytes: f64,
    /// Whether it was measured: bytes divided by entries of a cache that held all answers. Otherwise it was given or assumed.
    pub measured: bool,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Cache size.
    pub bytes: f64,
    /// Share of accesses that miss.
    pub miss_ratio: f64,
}

/// A run with a cache size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Name of the size: `knee`, `half of it`.
    pub name: String,
    /// The cache.
    pub target: String,
    /// The size with which the cache was started, in bytes.
    pub size: u64,
    /// Bytes of the entries at the end.
    pub held: f64,
    /// Number of entries at the end.
    pub entries: f64,
    /// Predicted hit ratio for the size, for as many accesses as the run made.
    pub predicted: f64,
    /// Predicted hit ratio for the bytes of the entries.
    pub predicted_held: f64,
    /// Measured hit ratio, by the cache's counters.
    pub measured: f64,
}
