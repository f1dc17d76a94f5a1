//! The freshness of results: the time from a write's acknowledgement to the first answer that shows it.
//!
//! A query is repeated until its answer may come from the cache. Then a statement of the workload changes a row of the answer, and the query is
//! repeated without pause until the answer changes. If the write goes through the target over another connection, the result is what an application
//! sees that writes and reads through the cache. If the write bypasses the cache, the result is the cache's lag. The database itself is measured in
//! the same way: its result is the time of one read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::document::{Freshness, Quantiles, Seen};
use crate::driver::{Driver, Protocol, Row, Rows};
use crate::random::Random;
use crate::target::Target;
use crate::workload::Workload as _;
use crate::workload::single_statement::SingleStatement;

/// Time limit for a write to become visible.
const TIME_OUT: Duration = Duration::from_secs(5);

/// Measures how soon the writes of a workload are visible.
pub(super) struct Probes<'a> {
    pub(super) statement: &'a Arc<SingleStatement>,
    pub(super) database: &'a Target,
    pub(super) count: usize,
    pub(super) seed: u64,
}

impl Probes<'_> {
    /// The freshness at a target. None if the workload has no write that changes answers of the statement.
    pub(super) async fn of(&self, target: &Target) -> Result<Option<Freshness>> {
        let mut random = Random::new(self.seed);
        let write = self
            .statement
            .draw(&mut random)
            .and_then(|(statement, values)| self.statement.whole.write_affecting(statement, &values, &mut random));
        if self.count == 0 || write.is_none() {
            return Ok(None);
        }
        let through = self.seen(target, target).await?;
        let elsewhere = target.name != self.database.name;
        let past = if elsewhere { Some(self.seen(target, self.database).await?) } else { None };
        Ok(Some(Freshness { through, past }))
    }

    /// Reads from one target and writes to another.
    async fn seen(&self, read: &Target, written: &Target) -> Result<Seen> {
        let (mut reader, mut writer, mut truth) =
            (self.open(read).await?, self.open(written).await?, self.open(self.database).await?);
        // The seed differs for each pair of targets: with the same draws, a write would repeat the values of an earlier one.
        let names = read.name.bytes().chain(written.name.bytes());
        let mut random =
            Random::new(names.fold(self.seed, |seed, byte| Random::numbered(seed, u64::from(byte)).next()));
        let (mut seen, mut delays) = (Seen::default(), Vec::new());
        for _ in 0..self.count {
            let Some((statement, values)) = self.statement.draw(&mut random) else { break };
            let Some((write, changes)) = self.statement.whole.write_affecting(statement, &values, &mut random) else {
                continue;
            };
            // The first read fills the cache, and the second one may be served from it.
            ask(&mut reader, statement, &values).await?;
            let before = ask(&mut reader, statement, &values).await?;
            writer.run(write, &changes, Rows::Counted).await?;
            let acknowledged = Instant::now();
            let mut old = 0;
            let delay = loop {
                let now = ask(&mut reader, statement, &values).await?;
                let elapsed = acknowledged.elapsed();
                if now != before {
                    break Some(elapsed);
                }
                if old == 0 && ask(&mut truth, statement, &values).await? == before {
                    // The write repeated the old values.
                    break None;
                }
                old += 1;
                if elapsed > TIME_OUT {
                    seen.never += 1;
                    break Some(elapsed);
                }
            };
            let Some(delay) = delay else { continue };
            seen.writes += 1;
            seen.at_once += u64::from(old == 0);
            seen.old_answers += old;
            delays.push(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(Seen { delay: Quantiles::of(delays), ..seen })
    }

    async fn open(&self, target: &Target) -> Result<Driver> {
        let opened = Driver::open(target, &self.statement.statements(), Protocol::Prepared).await;
        opened.with_context(|| format!("connecting to {}", target.name))
    }
}

/// The rows of an answer. They are sorted, since they may come in any order without ORDER BY.
async fn ask(driver: &mut Driver, statement: usize, values: &[crate::value::Value]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    driver.run(statement, values, Rows::Kept(&mut rows)).await?;
    rows.sort_unstable();
    Ok(rows)
}
