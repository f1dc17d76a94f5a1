//! One measured round, and interleaved rounds.
//!
//! Direct and cached rounds alternate, so that other load of the machine affects both. Each round opens its own connections: PostgreSQL shows the
//! transaction count of a session at the latest when the session ends.

use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::ProgressBar;
use tokio::sync::Mutex;

use super::base::{Base, Control};
use super::check::Checked;
use super::child::{Freshet, Metrics};
use super::load::{Load, Shape, Tally};

const SESSIONS_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The database and the Freshet that are measured.
pub(super) struct Bench<'a> {
    pub(super) base: &'a Base,
    /// A session that reads the database's statistics.
    pub(super) control: &'a Mutex<Control>,
    /// None if `--cached-url` names something other than a Freshet that the demo started.
    pub(super) freshet: Option<&'a Freshet>,
    pub(super) bar: &'a ProgressBar,
}

/// The sum of the rounds with the same target and shape.
pub(super) struct Measured {
    pub(super) tally: Tally,
    /// Number of statements that reached the database.
    pub(super) upstream: f64,
    pub(super) database_cpu_seconds: f64,
    pub(super) freshet_cpu_seconds: f64,
    pub(super) metrics: Metrics,
    pub(super) checked: Checked,
}

impl Measured {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            tally: Tally::new()?,
            upstream: 0.0,
            database_cpu_seconds: 0.0,
            freshet_cpu_seconds: 0.0,
            metrics: Metrics::default(),
            checked: Checked::default(),
        })
    }

    pub(super) fn add(&mut self, other: &Self) -> Result<()> {
        self.tally.add(&other.tally)?;
        self.upstream += other.upstream;
        self.database_cpu_seconds += other.database_cpu_seconds;
        self.freshet_cpu_seconds += other.freshet_cpu_seconds;
        self.metrics.add(&other.metrics);
        self.checked.add(other.checked.clone());
        Ok(())
    }

    /// Microseconds of processor time for each transaction.
    pub(super) fn per_transaction_us(&self, seconds: f64) -> f64 {
        seconds * 1e6 / (self.tally.transactions as f64).max(1.0)
    }
}

impl Bench<'_> {
    /// Runs one round.
    pub(super) async fn round(&self, shape: &Shape, length: Duration) -> Result<Measured> {
        let mut control = self.control.lock().await;
        let (sessions, statements) = (control.sessions().await?, control.statements().await?);
        let mut load = Load::connect(shape.clone()).await?;
        let before = self.reading().await?;
        load.begin();
        self.follow(&load, length).await;
        let after = self.reading().await?;
        let tally = load.finish().await?;
        wait_for_sessions(&mut control, sessions).await?;
        Ok(Measured {
            tally,
            upstream: control.statements().await? - statements,
            database_cpu_seconds: after.0 - before.0,
            freshet_cpu_seconds: after.1 - before.1,
            metrics: after.2.since(&before.2),
            checked: Checked::default(),
        })
    }

    /// Shows the progress of the load until its time is over.
    async fn follow(&self, load: &Load, length: Duration) {
        let began = Instant::now();
        let message = self.bar.message();
        while let Some(left) = length.checked_sub(began.elapsed()) {
            tokio::time::sleep(left.min(Duration::from_millis(200))).await;
            let per_second = load.transactions() as f64 / began.elapsed().as_secs_f64();
            self.bar.set_message(format!("{message}: {per_second:.0} transactions/s"));
        }
        self.bar.set_message(message);
    }

    async fn reading(&self) -> Result<(f64, f64, Metrics)> {
        let database = self.base.cpu_seconds()?;
        Ok(match self.freshet {
            Some(freshet) => (database, freshet.cpu_seconds()?, freshet.metrics().await?),
            None => (database, 0.0, Metrics::default()),
        })
    }
}

/// A pool between the load and the database may keep its connections open. Then the counts of the last second are missing.
async fn wait_for_sessions(control: &mut Control, before: f64) -> Result<()> {
    let deadline = Instant::now() + SESSIONS_END_TIMEOUT;
    while control.sessions().await? > before && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
