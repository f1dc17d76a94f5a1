//! The load: connections on a few threads that run transactions, in a closed or an open loop, for one round.
//!
//! A closed loop measures what a server can do: each connection sends its next transaction when the last one is answered. It does not measure what
//! users would see. During a stall it sends nothing, so a stall of a second counts as one slow transaction per connection instead of all transactions
//! of that second ("coordinated omission", Gil Tene). An open loop sends at times that are fixed beforehand and measures from those.
//!
//! The path of a round: [`run`] → `conduct` (threads, times, marks) → `worker` (one thread and its connections) → `arrivals` and `schedule` (open
//! loop: which connection sends when) → `client` (one transaction) → `recorder` (the measurements).

mod arrivals;
mod client;
mod conduct;
pub mod recorder;
mod round;
mod schedule;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::session::Opening;
use crate::workload::Workload;

use client::Scripted;
use recorder::Tally;
use round::{Load, Times};

/// When transactions start.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Loop {
    /// Each connection starts the next as soon as the last has ended.
    Closed,
    /// At fixed times, whatever the server does; latency counts from the intended start.
    Open {
        /// Transactions per second over all connections.
        rate: f64,
        /// Whether the gaps are exponentially distributed instead of equal.
        poisson: bool,
    },
    /// At the times of the log. If the session's previous statement is answered later, then after its answer. Latency counts from sending.
    Replay {
        /// The factor by which it is faster than the log.
        speed: f64,
    },
}

/// A round against one target.
#[derive(Clone, Debug)]
pub struct Round {
    /// The target.
    pub opening: Opening,
    /// The workload.
    pub workload: Arc<dyn Workload>,
    /// Number of connections.
    pub connections: usize,
    /// The pace.
    pub pace: Loop,
    /// Transactions per second of the background writer; 0 for none.
    pub writes: f64,
    /// Warm-up: nothing is counted.
    pub warm_up: Duration,
    /// The measured interval.
    pub measured: Duration,
    /// Cool-down: nothing is counted.
    pub cool_down: Duration,
    /// Seed of this round's random numbers.
    pub seed: u64,
    /// Client threads.
    pub threads: usize,
}

/// The result of a round.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The foreground load.
    pub tally: Tally,
    /// The background writer.
    pub writes: Option<Tally>,
}

/// Called when the measured interval begins and ends, so that the caller can read counters of processes and caches.
///
/// Both are called on a separate thread, while the load goes on. A round that ends before the interval begins calls neither. One that ends within it
/// calls both.
pub trait Marks: Send + Sync {
    /// The measured interval begins.
    fn begin(&self);
    /// The measured interval ends.
    fn end(&self);
}

/// Runs a round. `stop` (Ctrl-C) ends it early, with the measurements so far.
///
/// Errors are: a connection that cannot be opened at the start, a load whose transactions all failed during the warm-up, and an open loop far beyond
/// what the target can do. Other failures are counted, and lost connections are opened again.
pub async fn run(round: Round, marks: Arc<dyn Marks>, stop: Arc<AtomicBool>) -> Result<Outcome> {
    ensure!(round.connections > 0, "a load needs at least one connection");
    let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
    if let Loop::Open { rate, .. } = round.pace {
        ensure!(is_rate(rate), "{rate} transactions per second are not a rate");
    }
    round.workload.begin_round();
    let times = Times { warm_up: round.warm_up, measured: round.measured, cool_down: round.cool_down };
    let mut loads = vec![load(&round, Scripted::foreground(&round), round.pace, round.connections)];
    if is_rate(round.writes) {
        let pace = Loop::Open { rate: round.writes, poisson: false };
        let background = |client| Load { threads: 1, ..load(&round, client, pace, writers(round.writes)) };
        loads.extend(Scripted::background(&round).map(background));
    }
    let conducting = tokio::task::spawn_blocking(move || conduct::conduct(&loads, &times, marks.as_ref(), &stop));
    let mut tallies = conducting.await??.into_iter();
    let tally = tallies.next().context("a round without a load")?;
    Ok(Outcome { tally, writes: tallies.next() })
}

fn load(round: &Round, client: Scripted, pace: Loop, connections: usize) -> Load<Scripted> {
    Load {
        name: client.name(),
        client: Arc::new(client),
        connections,
        threads: round.threads,
        pace,
        statements: round.opening.statements.len(),
        seed: round.seed,
        health: Arc::default(),
    }
}

/// Number of the background writer's connections: enough for its rate if a transaction takes 20 ms.
#[expect(clippy::cast_sign_loss, reason = "rates are positive")]
fn writers(rate: f64) -> usize {
    ((rate / 50.0).ceil() as usize).clamp(4, 64)
}
