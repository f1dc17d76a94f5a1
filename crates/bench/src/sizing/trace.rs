//! The trace: the queries in order, with the sizes of their answers.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher as _};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::distance::{Distances, sampled};
use crate::driver::{Driver, Failure, Protocol, Row, Rows};
use crate::random::Random;
use crate::target::Target;
use crate::value::Value;
use crate::workload::Workload;

/// The default number of answers.
const ANSWERS: usize = 20_000;

/// A question in the trace.
#[derive(Hash)]
enum Question {
    /// A statement of the workload.
    Drawn(usize, Vec<Value>),
    /// A text of a log.
    Logged(Arc<str>, Option<Vec<Value>>),
}

impl Question {
    async fn ask(&self, driver: &mut Driver) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        match self {
            Self::Drawn(statement, values) => driver.run(*statement, values, Rows::Kept(&mut rows)).await?,
            Self::Logged(text, values) => driver.text(text, values.as_deref(), Rows::Kept(&mut rows)).await?,
        };
        Ok(rows)
    }
}

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
        for (key, question) in known {
            let rows = question.ask(&mut driver).await.context("asking for the size of an answer")?;
            bytes.insert(key, as_sent(&rows));
        }
        Ok(Self { keys, rate, distinct, bytes })
    }

    /// Reads in it.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
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

/// Those of a log, where the workload is one; else so many as it draws them.
fn questions(workload: &dyn Workload, count: usize, seed: u64) -> Box<dyn Iterator<Item = Question> + '_> {
    let logged = workload.logged();
    if !logged.is_empty() {
        return Box::new(logged.into_iter().map(|(text, values)| Question::Logged(text, values)));
    }
    let mut random = Random::new(seed);
    Box::new((0..count).map(move |_| {
        let (statement, values) = workload.question(&mut random);
        Question::Drawn(statement, values)
    }))
}

fn key(question: &Question) -> u64 {
    let mut hasher = DefaultHasher::new();
    question.hash(&mut hasher);
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
        let one = |statement, value: &str| key(&Question::Drawn(statement, vec![Value::from(value)]));
        assert_eq!(one(0, "a"), one(0, "a"));
        assert_ne!(one(0, "a"), one(1, "a"));
        assert_ne!(one(0, "a"), one(0, "b"));
        assert_eq!(as_sent(&[vec![Some(b"abc".to_vec()), None]]), 7 + 4 + 3 + 4);
    }
}
