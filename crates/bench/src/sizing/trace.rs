//! The trace: the reads in order, with the sizes of their answers.

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

/// The default number of answers whose size is read.
const ANSWERS: usize = 20_000;

/// A read of the trace.
#[derive(Hash)]
enum TracedRead {
    /// A statement of the workload.
    Drawn(usize, Vec<Value>),
    /// A text from a log.
    Logged(Arc<str>, Option<Vec<Value>>),
}

impl TracedRead {
    async fn send(&self, driver: &mut Driver) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        match self {
            Self::Drawn(statement, values) => driver.run(*statement, values, Rows::Kept(&mut rows)).await?,
            Self::Logged(text, values) => driver.text(text, values.as_deref(), Rows::Kept(&mut rows)).await?,
        };
        Ok(rows)
    }
}

/// The reads of a workload, with the answer sizes of the sampled ones.
pub(super) struct Accesses {
    /// Hashes of the reads, in order.
    keys: Vec<u64>,
    /// Share of the distinct reads in the sample.
    pub(super) rate: f64,
    pub(super) distinct: usize,
    /// Bytes of the sampled answers in the protocol, without the overhead of an entry.
    bytes: HashMap<u64, u64>,
}

impl Accesses {
    /// Draws `count` reads of the workload, and reads the sizes of answers from the database.
    pub(super) async fn of(
        workload: &dyn Workload,
        database: &Target,
        (count, seed): (usize, u64),
        rate: Option<f64>,
    ) -> Result<Self> {
        let mut known: HashMap<u64, TracedRead> = HashMap::new();
        let mut keys = Vec::with_capacity(count);
        for read in reads(workload, count, seed) {
            let key = key(&read);
            keys.push(key);
            known.entry(key).or_insert(read);
        }
        let distinct = known.len();
        let rate = rate.unwrap_or((ANSWERS as f64 / distinct.max(1) as f64).min(1.0));
        known.retain(|key, _| sampled(*key, rate));
        let opened = Driver::open(database, &workload.statements(), Protocol::Text).await;
        let mut driver = opened.with_context(|| format!("connecting to {}", database.name))?;
        let mut bytes = HashMap::with_capacity(known.len());
        for (key, read) in known {
            let rows = read.send(&mut driver).await.context("reading the size of an answer")?;
            bytes.insert(key, as_sent(&rows));
        }
        Ok(Self { keys, rate, distinct, bytes })
    }

    /// Number of reads.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Number of answers with known sizes.
    pub(super) fn answers(&self) -> usize {
        self.bytes.len()
    }

    /// Average size over the sampled reads.
    pub(super) fn answer_bytes(&self) -> f64 {
        self.bytes.values().sum::<u64>() as f64 / self.bytes.len().max(1) as f64
    }

    /// The reuse distances with this overhead for each entry. The first `warm` accesses do not count.
    pub(super) fn distances(&self, overhead: f64, warm: usize) -> Distances {
        self.distances_of(self.keys.iter().copied(), overhead, warm)
    }

    /// The reuse distances of another trace of the same reads. An answer of unknown size has the average size.
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

/// Hashes of as many reads, drawn with another seed.
pub(super) fn keys(workload: &dyn Workload, count: usize, seed: u64) -> Vec<u64> {
    reads(workload, count, seed).map(|read| key(&read)).collect()
}

/// The reads of a log, if the workload is one. Otherwise `count` reads that the workload draws.
fn reads(workload: &dyn Workload, count: usize, seed: u64) -> Box<dyn Iterator<Item = TracedRead> + '_> {
    let logged = workload.logged();
    if !logged.is_empty() {
        return Box::new(logged.into_iter().map(|(text, values)| TracedRead::Logged(text, values)));
    }
    let mut random = Random::new(seed);
    Box::new((0..count).map(move |_| {
        let (statement, values) = workload.draw_read(&mut random);
        TracedRead::Drawn(statement, values)
    }))
}

fn key(read: &TracedRead) -> u64 {
    let mut hasher = DefaultHasher::new();
    read.hash(&mut hasher);
    hasher.finish()
}

/// Approximate bytes in the protocol. PostgreSQL sends 4 bytes before each value and 7 before each row, the others less. The rest of an answer is
/// part of the measured overhead.
fn as_sent(rows: &[Row]) -> u64 {
    let of_row = |row: &Row| 7 + row.iter().map(|value| 4 + value.as_ref().map_or(0, Vec::len) as u64).sum::<u64>();
    rows.iter().map(of_row).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_reads_have_different_keys() {
        let one = |statement, value: &str| key(&TracedRead::Drawn(statement, vec![Value::from(value)]));
        assert_eq!(one(0, "a"), one(0, "a"));
        assert_ne!(one(0, "a"), one(1, "a"));
        assert_ne!(one(0, "a"), one(0, "b"));
        assert_eq!(as_sent(&[vec![Some(b"abc".to_vec()), None]]), 7 + 4 + 3 + 4);
    }
}
