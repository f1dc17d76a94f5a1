//! The trace: which question was asked when, and how large its answer is.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher as _};

use anyhow::{Context, Result};

use super::distance::{Distances, sampled};
use crate::driver::{Driver, Protocol, Row, Rows};
use crate::random::Random;
use crate::target::Target;
use crate::value::Value;
use crate::workload::Workload;

/// Answers asked for, if nothing else was said.
const ANSWERS: usize = 20_000;

/// A question in the trace.
type Question = (usize, Vec<Value>);

/// The reads of a workload, with the sizes of those that are looked at.
pub(super) struct Accesses {
    /// Hashes of the questions, in the order of asking.
    keys: Vec<u64>,
    /// Share of the questions that are looked at.
    pub(super) rate: f64,
    pub(super) distinct: usize,
    /// As sent, without what an entry takes beside; of those looked at.
    bytes: HashMap<u64, u64>,
}

impl Accesses {
    /// So many reads as the workload draws them; sizes of answers from the database.
    pub(super) async fn of(
        workload: &dyn Workload,
        database: &Target,
        (count, seed): (usize, u64),
        rate: Option<f64>,
    ) -> Result<Self> {
        let mut known: HashMap<u64, Question> = HashMap::new();
        let mut keys = Vec::with_capacity(count);
        for question in questions(workload, count, seed) {
            let key = key(&question);
            keys.push(key);
            known.entry(key).or_insert(question);
        }
        let distinct = known.len();
        let rate = rate.unwrap_or((ANSWERS as f64 / distinct.max(1) as f64).min(1.0));
        known.retain(|key, _| sampled(*key, rate));
        let opened = Driver::open(database, &workload.statements(), Protocol::Text).await;
        let mut driver = opened.with_context(|| format!("connecting to {}", database.name))?;
        let mut bytes = HashMap::with_capacity(known.len());
        for (key, (statement, values)) in known {
            let mut rows = Vec::new();
            driver.run(statement, &values, Rows::Kept(&mut rows)).await.context("asking for the size of an answer")?;
            bytes.insert(key, as_sent(&rows));
        }
        Ok(Self { keys, rate, distinct, bytes })
    }

    /// Answers whose sizes are known.
    pub(super) fn answers(&self) -> usize {
        self.bytes.len()
    }

    /// Average over the questions.
    pub(super) fn answer_bytes(&self) -> f64 {
        self.bytes.values().sum::<u64>() as f64 / self.bytes.len().max(1) as f64
    }

    /// With entries that take so much beside their answers; the first `warm` are not counted.
    pub(super) fn distances(&self, overhead: f64, warm: usize) -> Distances {
        self.distances_of(self.keys.iter().copied(), overhead, warm)
    }

    /// The same of another trace over the same questions. An answer whose size is not known has that of the average.
    pub(super) fn distances_of(
        &self,
        keys: impl ExactSizeIterator<Item = u64>,
        overhead: f64,
        warm: usize,
    ) -> Distances {
        let average = self.answer_bytes();
        #[expect(clippy::cast_sign_loss, reason = "sizes are no less than 0")]
        let size = |key: u64| (self.bytes.get(&key).map_or(average, |bytes| *bytes as f64) + overhead) as u64;
        Distances::of(keys, size, self.rate, warm)
    }
}

/// Hashes of so many reads, drawn with another seed.
pub(super) fn keys(workload: &dyn Workload, count: usize, seed: u64) -> Vec<u64> {
    questions(workload, count, seed).map(|question| key(&question)).collect()
}

fn questions(workload: &dyn Workload, count: usize, seed: u64) -> impl Iterator<Item = Question> {
    let mut random = Random::new(seed);
    (0..count).map(move |_| workload.question(&mut random))
}

fn key((statement, values): &Question) -> u64 {
    let mut hasher = DefaultHasher::new();
    statement.hash(&mut hasher);
    for value in values {
        match value {
            Value::Null => 0_u8.hash(&mut hasher),
            Value::Int(number) => number.hash(&mut hasher),
            Value::Text(text) => text.hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// About what travels: PostgreSQL sends 4 bytes before each value and 7 before each row, the others less. The rest of an answer is part of what is
/// measured as overhead.
fn as_sent(rows: &[Row]) -> u64 {
    let of_row = |row: &Row| 7 + row.iter().map(|value| 4 + value.as_ref().map_or(0, Vec::len) as u64).sum::<u64>();
    rows.iter().map(of_row).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_told_apart() {
        let one = |statement, value: &str| key(&(statement, vec![Value::from(value)]));
        assert_eq!(one(0, "a"), one(0, "a"));
        assert_ne!(one(0, "a"), one(1, "a"));
        assert_ne!(one(0, "a"), one(0, "b"));
        assert_eq!(as_sent(&[vec![Some(b"abc".to_vec()), None]]), 7 + 4 + 3 + 4);
    }
}
