//! Background writes, a steady number per second, each noted in the ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_postgres::Client;

use super::connect;
use super::ledger::{Fact, Ledger};
use super::random::Random;
use super::schema::UPDATED_BASE;

/// Half of the writes change ratings, as in life.
const ORDER: [Fact; 4] = [Fact::Votes, Fact::Updated, Fact::Votes, Fact::Genres];

/// Where the writes go and how many.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Around the cache, the harder case: it learns of them from the change stream alone.
    pub(super) direct_url: String,
    /// Through the cache, and then how many in a hundred.
    pub(super) cached: Option<(String, u64)>,
    pub(super) per_second: f64,
    pub(super) seed: u64,
}

/// A running writer.
pub(super) struct Writer {
    shared: Arc<Shared>,
    task: JoinHandle<Result<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    written: AtomicU64,
    /// The title written last, which a check does well to look at.
    latest: AtomicU64,
}

/// Tells which title was written last.
#[derive(Clone)]
pub(super) struct Latest(Arc<Shared>);

impl Latest {
    pub(super) fn movie(&self) -> usize {
        self.0.latest.load(Ordering::Relaxed) as usize
    }
}

impl Writer {
    pub(super) async fn start(plan: Plan, ledger: Arc<Ledger>) -> Result<Self> {
        let direct = connect(&plan.direct_url).await?;
        let cached = match &plan.cached {
            Some((url, percent)) => Some((connect(url).await?, *percent)),
            None => None,
        };
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(write(plan, ledger, (direct, cached), Arc::clone(&shared)));
        Ok(Self { shared, task })
    }

    pub(super) fn latest(&self) -> Latest {
        Latest(Arc::clone(&self.shared))
    }

    /// Writes acknowledged up to now.
    pub(super) fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Ends after the write under way; an error if any write failed.
    pub(super) async fn finish(self) -> Result<u64> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.task.await.context("the writer")??;
        Ok(self.shared.written.load(Ordering::Relaxed))
    }
}

async fn write(
    plan: Plan,
    ledger: Arc<Ledger>,
    (direct, cached): (Client, Option<(Client, u64)>),
    shared: Arc<Shared>,
) -> Result<()> {
    let mut random = Random::new(plan.seed);
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / plan.per_second.max(0.001)));
    // After a pause there is no burst to make up for it: the rate is "at most".
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut turn = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let (index, fact) = (random.below(ledger.movies.len()), ORDER[turn % ORDER.len()]);
        turn += 1;
        let through = cached.as_ref().filter(|(_, percent)| (random.below(100) as u64) < *percent);
        let client = through.map_or(&direct, |(client, _)| client);
        write_one(client, &ledger, (index, fact), through.is_some()).await?;
        shared.latest.store(index as u64, Ordering::Relaxed);
        shared.written.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn write_one(client: &Client, ledger: &Ledger, (index, fact): (usize, Fact), through: bool) -> Result<()> {
    let movie = ledger.movies.get(index).context("no such movie")?;
    let version = movie.send(fact);
    let (sql, value): (&str, i32) = match fact {
        Fact::Votes => ("UPDATE title_rating SET num_votes = $1 WHERE title_id = ANY ($2)", movie.votes(version)?),
        Fact::Updated => (
            "UPDATE title SET updated = to_timestamp($1::integer) WHERE title_id = ANY ($2)",
            i32::try_from(UPDATED_BASE + version as u64)?,
        ),
        Fact::Genres => (
            "INSERT INTO title_genre SELECT id, 'Added ' || $1::integer FROM unnest($2::integer[]) id",
            i32::try_from(version)?,
        ),
    };
    client.execute(sql, &[&value, &movie.ids]).await.with_context(|| sql.to_owned())?;
    movie.acknowledge(fact, through);
    Ok(())
}
