//! Counts the output of a statement, from the database's own answers.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::document::{Outputs, Quantiles};
use crate::driver::{Driver, Protocol, Row, Rows};
use crate::random::Random;
use crate::target::Target;
use crate::workload::Workload as _;
use crate::workload::single_statement::SingleStatement;

/// Counts this many answers. They are requested in the text protocol: only there both families describe the columns.
pub(super) async fn of(statement: &SingleStatement, database: &Target, answers: usize, seed: u64) -> Result<Outputs> {
    let statements = statement.statements();
    let opened = Driver::open(database, &Arc::clone(&statements), Protocol::Text).await;
    let mut driver = opened.with_context(|| format!("connecting to {}", database.name))?;
    let mut random = Random::new(seed);
    let (mut columns, mut rows_of, mut bytes_of) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..answers {
        let Some((index, values)) = statement.draw(&mut random) else { break };
        let mut rows = Vec::new();
        driver.run(index, &values, Rows::Described(&mut columns, &mut rows)).await?;
        rows_of.push(rows.len() as u64);
        bytes_of.push(bytes(&rows));
    }
    let answers = rows_of.len() as u64;
    Ok(Outputs { columns, answers, rows: Quantiles::of(rows_of), bytes: Quantiles::of(bytes_of) })
}

/// Bytes of the values in an answer.
pub(crate) fn bytes(rows: &[Row]) -> u64 {
    rows.iter().flatten().flatten().map(|value| value.len() as u64).sum()
}
