//! Background writes at a constant rate, each recorded in the ledger.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::ledger::{Fact, Ledger, Movie};
use super::session::Session;
use crate::driver::{Protocol, Rows};
use crate::random::Random;
use crate::statement::Statement;
use crate::value::Value;

/// Half of the writes change ratings, which are changed most in practice.
const ORDER: [Fact; 4] = [Fact::Votes, Fact::Updated, Fact::Votes, Fact::Genres];

/// The write of each fact, in the order of the facts. `$1` is the new value. The other parameters are the movies with the title, at most three.
static WRITES: LazyLock<Arc<[Statement]>> = LazyLock::new(|| {
    let statements = [
        "UPDATE title_rating SET num_votes = $1 WHERE title_id IN ($2, $3, $4)",
        "UPDATE title SET updated = $1 WHERE title_id IN ($2, $3, $4)",
        "INSERT INTO title_genre (title_id, genre) SELECT title_id, $1 FROM title WHERE title_id IN ($2, $3, $4)",
    ];
    statements.map(|sql| Statement::write(sql, sql)).into()
});

/// The targets of the writes, and their rate.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The database's own URL. Writes that bypass the cache are the harder case: only the change stream reports them.
    pub(super) direct_url: String,
    /// The cache's URL, and the percentage of writes that go through it.
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
    /// The title written last, which is worth checking.
    latest: AtomicU64,
}

/// Knows which title was written last.
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

    /// Number of writes acknowledged so far.
    pub(super) fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Ends after the current write. A failed write is an error.
    pub(super) async fn finish(self) -> Result<u64> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.task.await.context("the writer")??;
        Ok(self.shared.written.load(Ordering::Relaxed))
    }
}

async fn connect(url: &str) -> Result<Session> {
    Session::with(url, Protocol::Prepared, &WRITES).await
}

async fn write(
    plan: Plan,
    ledger: Arc<Ledger>,
    (mut direct, mut cached): (Session, Option<(Session, u64)>),
    shared: Arc<Shared>,
) -> Result<()> {
    let mut random = Random::new(plan.seed);
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / plan.per_second.max(0.001)));
    // Missed writes are not made up for in a burst: the rate is a maximum.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut turn = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let (index, fact) = (random.below(ledger.movies.len()), ORDER[turn % ORDER.len()]);
        turn += 1;
        let through = cached.as_mut().filter(|(_, percent)| (random.below(100) as u64) < *percent);
        let is_through = through.is_some();
        let session = through.map_or(&mut direct, |(session, _)| session);
        let movie = ledger.movies.get(index).context("no such movie")?;
        write_one(session, movie, fact, is_through).await?;
        shared.latest.store(index as u64, Ordering::Relaxed);
        shared.written.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn write_one(session: &mut Session, movie: &Movie, fact: Fact, through: bool) -> Result<()> {
    let version = movie.send(fact);
    let value = match fact {
        Fact::Votes => Value::Int(movie.votes(version)?.into()),
        Fact::Updated => Value::from(updated(version)),
        Fact::Genres => Value::from(format!("Added {version}")),
    };
    let last = *movie.ids.last().context("a title without movies")?;
    let ids = movie.ids.iter().chain(std::iter::repeat(&last)).take(3).map(|id| Value::Int(*id));
    let values: Vec<Value> = std::iter::once(value).chain(ids).collect();
    session.run(fact as usize, &values, Rows::Counted).await?;
    movie.acknowledge(fact, through);
    Ok(())
}

/// The time of a version: its number in seconds after the loaded time.
fn updated(version: usize) -> String {
    let (day, hour, minute, second) = (version / 86_400, version / 3600 % 24, version / 60 % 60, version % 60);
    format!("2026-01-{:02} {hour:02}:{minute:02}:{second:02}", day + 1)
}
