//! Parameters of a custom workload, and their generators.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};

use super::super::distribution::{Distribution, Keys};
use super::super::loading::Database;
use crate::random::Random;
use crate::target::Target;
use crate::value::Value;

/// The most values that a query may return.
const QUERY_VALUES_MAX: usize = 10_000_000;

/// A parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    name: String,
    /// The parameter's text in the file, for the settings of a run.
    described: String,
    source: Source,
}

/// The source of a parameter's values.
#[derive(Debug)]
pub(super) enum Source {
    /// Integers, counted from the first one.
    Range(i64, Keys),
    /// A list in the file.
    Values(Arc<[Value]>, Keys),
    /// The first column of a query's result, read from the database before the run.
    Query { sql: String, distribution: Distribution, found: OnceLock<(Arc<[Value]>, Keys)> },
    /// Random letters: the least and the largest number of them.
    Text(usize, usize),
    /// The next integer with each draw, over all connections.
    Sequence(AtomicI64),
}

impl Parameter {
    pub(super) fn new(name: &str, described: String, source: Source) -> Self {
        Self { name: name.to_owned(), described, source }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn described(&self) -> &str {
        &self.described
    }

    pub(super) fn is_sequence(&self) -> bool {
        matches!(self.source, Source::Sequence(_))
    }

    /// The next value.
    pub(super) fn draw(&self, random: &mut Random) -> Value {
        let one = |values: &[Value], keys: &Keys, random: &mut Random| values[keys.draw(random)].clone();
        match &self.source {
            Source::Range(first, keys) => Value::Int(first.saturating_add_unsigned(keys.draw(random) as u64)),
            Source::Values(values, keys) => one(values, keys, random),
            Source::Query { found, .. } => {
                // Values are drawn only after the run is prepared.
                found.get().map_or(Value::Null, |(values, keys)| one(values, keys, random))
            }
            Source::Text(least, most) => {
                let length = least + random.below(most - least + 1);
                Value::from((0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect::<String>())
            }
            Source::Sequence(next) => Value::Int(next.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Reads the values from the database if a query gives them.
    pub(super) async fn prepare(&self, database: &Target) -> Result<()> {
        let Source::Query { sql, distribution, found } = &self.source else { return Ok(()) };
        if found.get().is_some() {
            return Ok(());
        }
        let reading = || format!("reading the values of the parameter {}", self.name);
        let rows = Database::open(database).await?.texts(sql).await.with_context(reading)?;
        ensure!(rows.len() <= QUERY_VALUES_MAX, "{}: more than {QUERY_VALUES_MAX} values", self.name);
        let value = |row: Vec<Option<String>>| row.into_iter().next().flatten().map_or(Value::Null, Value::from);
        let values: Arc<[Value]> = rows.into_iter().map(value).collect();
        let keys = Keys::new(*distribution, values.len()).with_context(reading)?;
        // Another run of the same workload may have set the same values already.
        let _ = found.set((values, keys));
        Ok(())
    }
}
