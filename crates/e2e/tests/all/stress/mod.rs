//! The promises under concurrent writers, on a real server.
//!
//! Many sessions write rows with version counters, directly and through Freshet, while others read through Freshet and
//! hold each answer against the [`ledger`]. With a synchronous standby whose receiver stops and goes on in a rhythm,
//! commits are delivered by the stream long before any snapshot shows them, which is what PENDING is for; without one it
//! is the stream's walsender that stops and goes on, which is what the lease is for; tables made under open write
//! transactions are what the coverage barrier is for. With either switched off by Freshet's
//! fault-injection switches the same run must find a violation, else it proves nothing.
//!
//! `FRESHET_SOAK_SECONDS` sets the length of a run; `FRESHET_STRESS_SEED` repeats the choices of one (the timing is the
//! machine's).

mod coverage;
mod ledger;
mod readers;
mod writers;

use std::env;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::{Server, Settings, process};
use tokio::task::JoinSet;

use crate::support::{Database, Pair, Version, connect, on_both};
use coverage::Founder;
use ledger::{KeyId, Ledger, Row};
use readers::{Question, Reader, TABLES, ask};
use writers::Writer;

/// D, Freshet's default.
const STALENESS_MAX: Duration = Duration::from_secs(1);
/// How long a run takes in `make test`.
const SECONDS: u64 = 15;
const GROUPS: u64 = 10;
const KINDS: u64 = 3;
const ITEMS: i32 = 30;
const PARTS_PER_ITEM: i32 = 2;
const NOTES: i32 = 12;
/// A version that only rolled-back writes have.
const ROLLED_BACK: i32 = 999_999_999;
const WRITERS: usize = 5;
/// Of each kind.
const READERS: usize = 8;
/// Only one: every new table makes Freshet read the catalogue again and flush, which also ends what was stale.
const FOUNDERS: i32 = 1;

/// `item` and `note` log no old values; `part` does.
const SCHEMA: &str = "
    create table item (id int primary key, grp int not null, kind int not null, ver int not null);
    create index on item (grp);
    create table part (id int primary key, item_id int not null, grp int not null, kind int not null, ver int not null);
    create index on part (item_id);
    alter table part replica identity full;
    create table note (id int primary key, grp int not null, kind int not null, ver int not null);";

on_both!(
    promises_hold,
    promises_hold_while_commits_wait_for_a_standby,
    a_cache_that_ignores_pending_is_found_out,
    a_cache_without_coverage_barrier_is_found_out,
);

fn promises_hold(version: Version) -> Result<()> {
    Run { version, standby: false, fault: None }.expect_none()
}

fn promises_hold_while_commits_wait_for_a_standby(version: Version) -> Result<()> {
    Run { version, standby: true, fault: None }.expect_none()
}

fn a_cache_that_ignores_pending_is_found_out(version: Version) -> Result<()> {
    Run { version, standby: true, fault: Some("ignore-pending") }.expect_some()
}

fn a_cache_without_coverage_barrier_is_found_out(version: Version) -> Result<()> {
    Run { version, standby: false, fault: Some("no-coverage-barrier") }.expect_some()
}

/// A small seeded generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Another generator.
    fn fork(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }
}

fn item_of(part: i32) -> i32 {
    part / PARTS_PER_ITEM
}

/// What all sessions of a run share.
struct Stage {
    ids: u64,
    deadline: Instant,
    ledger: Mutex<Ledger>,
    violations: Mutex<Vec<String>>,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Stage {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no panic while the ledger is held")
    }

    fn violated(&self, what: String) {
        self.violations.lock().expect("no panic while violations are held").push(what);
    }

    fn has_violations(&self) -> bool {
        !self.violations.lock().expect("no panic while violations are held").is_empty()
    }

    /// The time is up, or there is a violation to report.
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline || self.has_violations()
    }

    /// Whether this is a time in which tables may be truncated. Freshet takes a TRUNCATE for a changed definition of
    /// the table too and flushes everything, so that nothing would ever be stale for long.
    fn truncates(&self) -> bool {
        self.deadline.saturating_duration_since(Instant::now()).as_secs() % 10 < 2
    }

    fn count_reads(&self, more: u64) {
        self.reads.fetch_add(more, Relaxed);
    }

    fn count_writes(&self, more: u64) {
        self.writes.fetch_add(more, Relaxed);
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run {
    version: Version,
    standby: bool,
    fault: Option<&'static str>,
}

impl Run {
    fn expect_none(self) -> Result<()> {
        let violations = self.run()?;
        ensure!(violations.is_empty(), "{self:?}: {} violations, the first:\n{}", violations.len(), violations[0]);
        Ok(())
    }

    /// The run must find the fault, unless this Freshet was built without the switches.
    fn expect_some(self) -> Result<()> {
        match self.run() {
            Ok(violations) => {
                ensure!(!violations.is_empty(), "{self:?}: the fault was not found");
                println!("{self:?}: found:\n{}", violations[0]);
                Ok(())
            }
            Err(error) if format!("{error:#}").contains("--test-fault") => {
                ensure!(env::var_os("FRESHET_TEST_STRICT").is_none(), "built without fault-injection: {error:#}");
                println!("{self:?}: skipped, Freshet is built without the feature fault-injection");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn run(self) -> Result<Vec<String>> {
        let server = self.version.start(&Settings::default())?;
        let standby = self.standby.then(|| server.standby("waiting")).transpose()?;
        let options: Vec<&str> = self.fault.iter().flat_map(|fault| ["--test-fault", fault]).collect();
        let pair = Pair::over(Database::create(Arc::clone(&server))?, SCHEMA, &options)?;
        if self.fault.is_some() && !pair.freshet.is_there() {
            return Ok(vec!["there is no Freshet to break".into()]);
        }
        let before = pair.freshet.metrics()?;
        let stage = self.set_up(&pair)?;
        let rhythm = match (standby, self.fault) {
            (Some(standby), _) => Some(Rhythm::of_standby(Arc::clone(&server), standby)?),
            (None, None) if pair.freshet.is_there() => Some(Rhythm::of_stream(Arc::clone(&server))),
            _ => None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(perform(&pair, &stage));
        if let Some(rhythm) = rhythm {
            rhythm.end()?;
        }
        outcome?;
        if !stage.has_violations() {
            runtime.block_on(compare_at_rest(&pair, &stage))?;
        }
        let passed = pair.freshet.metrics()?.passed_since(&before);
        self.print(&pair, &stage, &passed)?;
        Ok(stage.violations.lock().expect("no panic while violations are held").drain(..).collect())
    }

    /// Fills the tables and the ledger.
    fn set_up(self, pair: &Pair) -> Result<Arc<Stage>> {
        let seconds = env::var("FRESHET_SOAK_SECONDS").ok().map(|text| text.parse()).transpose()?;
        let mut ledger = Ledger::new(STALENESS_MAX);
        let mut sql = String::new();
        for (table, count) in [("item", ITEMS), ("part", ITEMS * PARTS_PER_ITEM), ("note", NOTES)] {
            for id in 0..count {
                let row = Row { grp: id % GROUPS as i32, kind: id % KINDS as i32 };
                ledger.insert((table, id), Some(row));
                let item = if table == "part" { format!("{}, ", item_of(id)) } else { String::new() };
                let _ = write!(sql, "insert into {table} values ({id}, {item}{}, {}, 0);", row.grp, row.kind);
            }
        }
        pair.database.run(&sql)?;
        // A run with a fault ends when it is found.
        let seconds = if self.fault.is_some() { 4 * SECONDS } else { seconds.unwrap_or(SECONDS) };
        Ok(Arc::new(Stage {
            ids: (ITEMS * PARTS_PER_ITEM).unsigned_abs().into(),
            deadline: Instant::now() + Duration::from_secs(seconds),
            ledger: Mutex::new(ledger),
            violations: Mutex::new(Vec::new()),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }))
    }

    fn print(self, pair: &Pair, stage: &Stage, passed: &[String]) -> Result<()> {
        let metrics = pair.freshet.metrics()?;
        let (reads, writes) = (stage.reads.load(Relaxed), stage.writes.load(Relaxed));
        let (worst, outdated) = stage.ledger().figures();
        println!(
            "{self:?}: {reads} reads, {} hits, {writes} writes; {outdated} rows read after a newer version was acknowledged, \
             the oldest by {} ms",
            metrics.hits(),
            worst.as_millis()
        );
        println!("passed to the server: {passed:?}");
        let enough = !pair.freshet.is_there() || self.fault.is_some() || stage.has_violations();
        ensure!(enough || (metrics.hits() > 200 && writes > 100), "this hardly tests anything: {passed:?}");
        Ok(())
    }
}

/// All sessions, until the time is up.
async fn perform(pair: &Pair, stage: &Arc<Stage>) -> Result<()> {
    let seed = match env::var("FRESHET_STRESS_SEED") {
        Ok(text) => text.parse()?,
        Err(_) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64,
    };
    println!("FRESHET_STRESS_SEED={seed}");
    let mut random = Random(seed);
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    let direct = pair.database.address();
    for writer in 0..WRITERS {
        let keys = keys_of_writer(stage, writer);
        let clients = (connect(direct, pair.login()).await?, connect(pair.address(), pair.login()).await?);
        let writer = Writer { direct: clients.0, through: clients.1, keys, random: random.fork() };
        let stage = Arc::clone(stage);
        tasks.spawn(async move { writer.run(&stage).await.context("a writer") });
    }
    for reader in 0..2 * READERS {
        let patient = reader >= READERS;
        let reader = Reader::new(connect(pair.address(), pair.login()).await?, random.fork(), patient);
        let stage = Arc::clone(stage);
        tasks.spawn(async move { reader.run(&stage).await.context("a reader") });
    }
    for founder in 0..FOUNDERS {
        let clients = (connect(direct, pair.login()).await?, connect(pair.address(), pair.login()).await?);
        let founder =
            Founder { direct: clients.0, through: clients.1, random: random.fork(), number: 1_000_000 * founder };
        let stage = Arc::clone(stage);
        tasks.spawn(async move { founder.run(&stage).await.context("a founder of tables") });
    }
    let patience = stage.deadline.saturating_duration_since(Instant::now()) + Duration::from_secs(60);
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        anyhow::Ok(())
    };
    let Ok(outcome) = tokio::time::timeout(patience, all).await else { bail!("the sessions hang") };
    outcome
}

/// The last writer owns all notes, so that it can truncate them; the others share the rest.
fn keys_of_writer(stage: &Stage, writer: usize) -> Vec<KeyId> {
    let ledger = stage.ledger();
    let all = TABLES.iter().flat_map(|table| ledger.keys_of(table).iter().copied());
    let sharers = WRITERS - 1;
    all.filter(|(table, id)| match *table {
        "note" => writer == sharers,
        _ => usize::try_from(*id).is_ok_and(|id| id % sharers == writer),
    })
    .collect()
}

/// When nothing is written any more, every answer equals the database's.
async fn compare_at_rest(pair: &Pair, stage: &Stage) -> Result<()> {
    tokio::time::sleep(STALENESS_MAX + Duration::from_millis(500)).await;
    let direct = connect(pair.database.address(), pair.login()).await?;
    let through = connect(pair.address(), pair.login()).await?;
    for question in Question::all(stage.ids) {
        let sql = question.sql();
        let mut expected = ask(&direct, &sql, true).await?;
        expected.sort();
        for time in 1..=2 {
            let mut rows = ask(&through, &sql, true).await?;
            rows.sort();
            if rows != expected {
                stage.violated(format!("at rest, time {time}: {sql}\n  answered {rows:?}\n  is       {expected:?}"));
            }
        }
    }
    Ok(())
}

/// Something that stops and goes on: the receiver of a synchronous standby, or the walsender of the change stream.
struct Rhythm {
    server: Arc<Server>,
    end: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<()>>,
}

impl Rhythm {
    /// Commits wait, and are on the change stream before anyone sees them.
    fn of_standby(server: Arc<Server>, standby: Server) -> Result<Self> {
        server.set("synchronous_standby_names", "waiting")?;
        Ok(Self::start(server, move |pause, go_on| {
            standby.pause_receiver()?;
            thread::sleep(pause);
            standby.resume_receiver()?;
            thread::sleep(go_on / 2);
            Ok(())
        }))
    }

    /// Commits are seen long before they are on the change stream.
    fn of_stream(server: Arc<Server>) -> Self {
        let same = Arc::clone(&server);
        Self::start(server, move |pause, go_on| {
            let stopped = same.children()?.into_iter().find(|process| process.title().contains("walsender"));
            if let Some(walsender) = stopped {
                process::pause(walsender.pid)?;
                thread::sleep(pause);
                // It may have ended meanwhile.
                let _ = process::resume(walsender.pid);
            }
            thread::sleep(go_on * 4);
            Ok(())
        })
    }

    fn start(server: Arc<Server>, beat: impl Fn(Duration, Duration) -> Result<()> + Send + 'static) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let run = move || -> Result<()> {
            let mut random = Random(1);
            while !ended.load(Relaxed) {
                let most = if random.percent(20) { 2000 } else { 400 };
                beat(Duration::from_millis(20 + random.below(most)), Duration::from_millis(40 + random.below(400)))?;
            }
            Ok(())
        };
        Self { server, end, thread: thread::spawn(run) }
    }

    fn end(self) -> Result<()> {
        self.end.store(true, Relaxed);
        let outcome = self.thread.join().map_err(|_| anyhow::anyhow!("the rhythm panicked"))?;
        self.server.set("synchronous_standby_names", "")?;
        outcome
    }
}
