//! A stalled change stream: the demo stops it at the database for three seconds.
//!
//! Meanwhile the cache does not learn of writes. It may serve results until its newest proof is as old as the allowed age. From then on it must pass
//! every statement until the stream continues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::base::Base;
use super::check::{AGE_MAX, Checked, Checkers};
use super::child::Freshet;
use super::ledger::Ledger;
use super::load::{Load, Shape};
use super::writer::{Plan, Writer};

/// How long the stream is stopped.
const STALL: Duration = Duration::from_secs(3);
const BEFORE: Duration = Duration::from_secs(1);
/// Allowance for metrics that are updated at intervals, and for a busy machine.
const SLACK: Duration = Duration::from_millis(250);
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(25);
const CONNECTIONS: usize = 4;

/// The observations during the stall.
#[derive(Debug)]
pub(super) struct Stalled {
    pub(super) hits_per_second_before: f64,
    /// Time from the stop to the last hit.
    pub(super) last_hit_after: Duration,
    /// Number of hits after the allowed age.
    pub(super) late_hits: f64,
    /// Number of transactions that the database answered after the hits had to end.
    pub(super) bypassed_transactions: u64,
    pub(super) writes: u64,
    /// Time from the continuation to the first hit. If there was none, the reasons for passes.
    pub(super) recovery: Result<Duration, String>,
    /// Scheduling delay of Freshet's main thread during the stall, and delay of the database's log-end probes.
    pub(super) late_seconds: f64,
    pub(super) checked: Checked,
}

impl Stalled {
    /// The failures of the check.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.hits_per_second_before < 1.0 {
            failures.push("there were no hits before the stall".to_owned());
        }
        if self.late_hits > 0.0 {
            failures.push(format!("{} hits while the stream was known to be too old", self.late_hits));
        }
        if self.bypassed_transactions == 0 {
            failures.push("no statement was answered during the stall".to_owned());
        }
        if let Err(why) = &self.recovery {
            failures.push(format!("no hits within {RECOVERY_TIMEOUT:?} after the stall: {why}"));
        }
        failures
    }
}

/// The inputs of the check.
pub(super) struct Stall<'a> {
    pub(super) freshet: &'a Freshet,
    pub(super) base: &'a Base,
    pub(super) ledger: &'a Arc<Ledger>,
    pub(super) shape: Shape,
    pub(super) writes: Plan,
}

impl Stall<'_> {
    /// Runs the load, the writes and the checks before, during and after the stop.
    pub(super) async fn run(self) -> Result<Stalled> {
        let shape = Shape { connections: CONNECTIONS, ..self.shape.clone() };
        let mut load = Load::connect(shape.clone()).await?;
        let writer = Writer::start(self.writes.clone(), Arc::clone(self.ledger)).await?;
        let checkers = Checkers::start(&shape.url, self.ledger, &writer.latest()).await?;
        load.begin();

        let first = self.hits().await?;
        tokio::time::sleep(BEFORE).await;
        let hits_per_second_before = (self.hits().await? - first) / BEFORE.as_secs_f64();

        let stopped = Instant::now();
        let written = writer.written();
        let pause = self.base.stop_stream()?;
        let (last_hit_after, _) = self.watch(stopped, AGE_MAX + SLACK).await?;
        let (hits, transactions) = (self.hits().await?, load.transactions());
        let (_, later) = self.watch(stopped, STALL).await?;
        let bypassed_transactions = load.transactions() - transactions;
        let writes = writer.written() - written;
        let late_hits = later - hits;
        drop(pause);

        let (recovery, late_seconds) = self.recovery(later).await?;
        let checked = checkers.finish().await?;
        writer.finish().await?;
        load.finish().await?;
        Ok(Stalled {
            hits_per_second_before,
            last_hit_after,
            late_hits,
            bypassed_transactions,
            writes,
            recovery,
            late_seconds,
            checked,
        })
    }

    async fn hits(&self) -> Result<f64> {
        Ok(self.freshet.metrics().await?.hits)
    }

    /// Watches the hits until `length` after the stop. Returns the time of the last hit, and the number of late hits.
    async fn watch(&self, stopped: Instant, length: Duration) -> Result<(Duration, f64)> {
        let mut last = Duration::ZERO;
        let mut hits = self.hits().await?;
        while stopped.elapsed() < length {
            tokio::time::sleep(POLL).await;
            let now = self.hits().await?;
            if now > hits {
                (hits, last) = (now, stopped.elapsed());
            }
        }
        Ok((last, hits))
    }

    async fn recovery(&self, hits: f64) -> Result<(Result<Duration, String>, f64)> {
        let (continued, before) = (Instant::now(), self.freshet.metrics().await?);
        while continued.elapsed() < RECOVERY_TIMEOUT {
            if self.hits().await? > hits {
                let recovery = continued.elapsed();
                // The checks continue for a moment: results that missed a write must not be served again.
                tokio::time::sleep(BEFORE).await;
                let late_seconds = self.freshet.metrics().await?.since(&before).late_seconds;
                return Ok((Ok(recovery), late_seconds));
            }
            tokio::time::sleep(POLL).await;
        }
        let meanwhile = self.freshet.metrics().await?.since(&before);
        let why = format!("passed: {}; {}", meanwhile.main_reasons(), self.freshet.log_tail());
        Ok((Err(why), meanwhile.late_seconds))
    }
}
