//! Cards as one JSON document (`docs/guide/bench.md` describes it).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::driver::Column;
use crate::result::Run;

/// Version of the document's form.
pub const SCHEMA: u32 = 1;

/// Names of the levels: a tenth of the database's peak, half of it, and each target's own peak.
pub const LEVELS: [&str; 3] = ["low", "normal", "peak"];

/// The cards of a workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cards {
    /// [`SCHEMA`]. The field's name identifies the document as cards.
    pub cards: u32,
    /// The workload.
    pub workload: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// The arguments, with passwords removed.
    pub command: Vec<String>,
    /// A card for each statement.
    pub statements: Vec<Card>,
}

/// The card of one access path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Card {
    /// Name of the statement.
    pub name: String,
    /// Text of the statement.
    pub text: String,
    /// Facts about its input.
    pub inputs: Inputs,
    /// Facts about its output.
    pub outputs: Outputs,
    /// Measurements at each level: runs of one cell.
    pub levels: Vec<Level>,
    /// Freshness by target, if the workload has a write that changes the answers.
    pub freshness: BTreeMap<String, Freshness>,
}

/// A level of load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Level {
    /// One of [`LEVELS`].
    pub name: String,
    /// The measurements.
    pub run: Run,
}

/// The input of a statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// Its parameters in the order of their numbers.
    pub parameters: Vec<Parameter>,
    /// Its tables, as far as the text names them.
    pub tables: Vec<String>,
    /// Number of reads drawn.
    pub drawn: u64,
    /// Number of distinct reads among them.
    pub distinct: u64,
    /// Share of the draws of the most frequent tenth of the distinct reads.
    pub hot_tenth: f64,
}

/// A parameter and its drawn values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// `integer`, `text`, `null` or several of them.
    pub kind: String,
    /// Number of distinct values.
    pub distinct: u64,
    /// The least and the greatest value of integers; the least and the greatest length of texts.
    pub range: [i64; 2],
    /// Share of the draws of the most frequent value.
    pub hottest: f64,
    /// An example of a value.
    pub example: String,
}

/// The output of a statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outputs {
    /// Columns of an answer.
    pub columns: Vec<Column>,
    /// Number of answers that were counted.
    pub answers: u64,
    /// Rows of an answer.
    pub rows: Quantiles,
    /// Bytes of an answer's values, in text form.
    pub bytes: Quantiles,
}

/// Quantiles of a set of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub median: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The largest.
    pub most: u64,
    /// The average.
    pub mean: f64,
}

impl Quantiles {
    pub(super) fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |share: f64| {
            #[expect(clippy::cast_sign_loss, reason = "a share of a length")]
            let place = (values.len() as f64 * share).ceil() as usize;
            values.get(place.saturating_sub(1)).copied().unwrap_or_default()
        };
        let mean = values.iter().sum::<u64>() as f64 / values.len().max(1) as f64;
        Self { median: at(0.5), p95: at(0.95), most: at(1.0), mean }
    }
}

/// How soon writes are visible at a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Freshness {
    /// Writes through the target itself, over another connection.
    pub through: Seen,
    /// Writes at the database that bypass the target. None for the database itself.
    pub past: Option<Seen>,
}

/// How soon a number of writes were visible.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Number of writes that changed the answer.
    pub writes: u64,
    /// Number of writes that the first answer after the acknowledgement showed.
    pub at_once: u64,
    /// Number of answers that did not show an acknowledged write.
    pub old_answers: u64,
    /// Number of writes that were not visible within the time-out.
    pub never: u64,
    /// Nanoseconds from the acknowledgement to the end of the first new answer.
    pub delay: Quantiles,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        let hundred = Quantiles::of((1..=100).rev().collect());
        assert_eq!((hundred.median, hundred.p95, hundred.most, hundred.mean), (50, 95, 100, 50.5));
        assert_eq!(Quantiles::of(vec![7]), Quantiles { median: 7, p95: 7, most: 7, mean: 7.0 });
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
    }
}
