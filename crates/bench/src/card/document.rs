//! Cards as one JSON document (`docs/guide/bench.md` describes it).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::driver::Column;
use crate::result::Run;

/// Version of the document's form.
pub const SCHEMA: u32 = 1;

/// Names of the levels: a tenth of the database's peak, half of it, the peak of each.
pub const LEVELS: [&str; 3] = ["low", "normal", "peak"];

/// The cards of a workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cards {
    /// [`SCHEMA`]; by this name the document is told from others.
    pub cards: u32,
    /// The workload.
    pub workload: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// The arguments, with passwords removed.
    pub command: Vec<String>,
    /// One for each statement.
    pub statements: Vec<Card>,
}

/// One access path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Card {
    /// Name of the statement.
    pub name: String,
    /// Its text.
    pub text: String,
    /// What goes in.
    pub inputs: Inputs,
    /// What comes out.
    pub outputs: Outputs,
    /// What was measured at each level: a run of one cell.
    pub levels: Vec<Level>,
    /// By target; of those for which there is a write that changes the answers.
    pub freshness: BTreeMap<String, Freshness>,
}

/// A level of load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Level {
    /// One of [`LEVELS`].
    pub name: String,
    /// What was measured.
    pub run: Run,
}

/// What goes in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// In the order of their numbers.
    pub parameters: Vec<Parameter>,
    /// As far as the text shows.
    pub tables: Vec<String>,
    /// Questions drawn.
    pub drawn: u64,
    /// Of them different.
    pub distinct: u64,
    /// Share of the draws that the most frequent tenth of the different questions had.
    pub hot_tenth: f64,
}

/// A parameter, as it was drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// `integer`, `text`, `null` or several of them.
    pub kind: String,
    /// Different values.
    pub distinct: u64,
    /// The least and the greatest: of integers by value, of texts by length.
    pub range: [i64; 2],
    /// Share of the draws that the most frequent value had.
    pub hottest: f64,
    /// One of them.
    pub example: String,
}

/// What comes out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outputs {
    /// Of the answer.
    pub columns: Vec<Column>,
    /// Answers looked at.
    pub answers: u64,
    /// Rows of an answer.
    pub rows: Quantiles,
    /// Bytes of an answer's values, in text form.
    pub bytes: Quantiles,
}

/// Of some counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half are as large or smaller.
    pub median: u64,
    /// 95 of 100.
    pub p95: u64,
    /// All.
    pub most: u64,
    /// Average.
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

/// How soon writes are seen at a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Freshness {
    /// Written through the target itself, over another connection.
    pub through: Seen,
    /// Written at the database, past the target; of the database itself nothing.
    pub past: Option<Seen>,
}

/// How soon some writes were seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Writes that changed the answer.
    pub writes: u64,
    /// Of them, those that the first answer after the acknowledgement showed.
    pub at_once: u64,
    /// Answers that did not show an acknowledged write.
    pub old_answers: u64,
    /// Writes not seen within the time-out.
    pub never: u64,
    /// From the acknowledgement to the end of the first new answer, nanoseconds: the median, 95 of 100, the longest.
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
