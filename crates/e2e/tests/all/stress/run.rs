//! One run: servers, Freshet, sessions, and the verdict.

use std::env;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use freshet_testbed::{Server, Settings};

use super::definitions;
use super::disturbances::Disturbance;
use super::ledger::{KeyId, Table};
use super::publishing::Founder;
use super::questions::{Question, SOURCES};
use super::readers::{Manner, Reader};
use super::stage::{Cast, READS_MIN, Random, SCHEMA, Stage, WRITES_MIN};
use super::verdict;
use super::writers::Writer;
use super::{SEARCH_SECONDS, SECONDS, STALENESS_MAX};
use crate::support::{Database, Freshet, Version, time_passes};

/// Less than this tests nothing.
const HITS_MIN: u64 = 100;
const REPLICA_READS_MIN: u64 = 100;
const LAGGING_READS_MIN: u64 = 10;
const WRITERS: usize = 5;
const CURIOUS: usize = 6;
const PATIENT: usize = 6;
const FAITHFUL: usize = 4;
const QUICK: usize = 3;
const STEADY: usize = 2;
/// Open transactions, which a new change stream waits for.
const OPEN: &str =
    "select 'the server runs', pid, backend_type, state, wait_event, backend_xid, backend_xmin, xact_start, query
    from pg_stat_activity; select 'prepared', gid, prepared from pg_prepared_xacts";

/// What is written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Rows,
    /// Rows, all written around Freshet: nothing is fenced while the stream stalls.
    Around,
    /// Rows, with commits that are acknowledged before they are on disk.
    Asynchronous,
    /// Rows, and tables that are made under way. Only one at a time: every new table makes Freshet read the catalogue
    /// again and may make it flush, which also ends what was stale.
    RowsAndTables,
    /// Definitions.
    Definitions,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) version: Version,
    pub(crate) load: Load,
    pub(crate) disturbance: Disturbance,
    pub(crate) fault: Option<&'static str>,
    /// One reading of the end of the log serves all who want one, however few.
    pub(crate) shares_probes: bool,
    /// Sessions share connections, and reads that are not cached go to a replica.
    pub(crate) reads_replica: bool,
}

impl Run {
    pub(crate) const fn of(version: Version, disturbance: Disturbance) -> Self {
        Self { version, load: Load::Rows, disturbance, fault: None, shares_probes: false, reads_replica: false }
    }

    pub(crate) const fn with_fault(self, fault: &'static str) -> Self {
        Self { fault: Some(fault), ..self }
    }

    pub(crate) fn expect_none(self) -> Result<()> {
        verdict::expect_none(&self, &self.run()?)
    }

    pub(crate) fn expect_some(self) -> Result<()> {
        verdict::expect_some(&self, self.run())
    }

    fn run(self) -> Result<Vec<String>> {
        let mut settings = Settings::default().with("max_prepared_transactions = 20");
        if self.load == Load::Asynchronous {
            settings = settings.with("synchronous_commit = off").with("wal_writer_delay = 2s");
        }
        let server = self.version.start(&settings)?;
        let standby = (self.disturbance == Disturbance::Standby).then(|| server.standby("waiting")).transpose()?;
        // Results that are written this often would hardly be cached otherwise.
        let fault = self.fault.iter().flat_map(|fault| ["--test-fault", fault]);
        let shared = ["--test-fault", "share-probes"].into_iter().filter(|_| self.shares_probes);
        let options: Vec<&str> = ["--admission", "always"].into_iter().chain(fault).chain(shared).collect();
        let replica = self.reads_replica.then(|| server.standby("replica")).transpose()?;
        let database = Database::create(server)?;
        database.run(SCHEMA)?;
        let freshet = match &replica {
            Some(replica) => start_with(&database, replica)?,
            None => Freshet::start(&database, &options)?,
        };
        if self.fault.is_some() && !freshet.is_there() {
            return Ok(vec!["there is no Freshet to break".into()]);
        }
        let soak = env::var("FRESHET_SOAK_SECONDS").ok().map(|text| text.parse()).transpose()?;
        // A run with a fault ends when it is found.
        let seconds = if self.fault.is_some() { SEARCH_SECONDS } else { soak.unwrap_or(SECONDS) };
        let before = freshet.metrics()?;
        let started = Instant::now();
        let stage = Stage::new(database, freshet, seconds, self.disturbance.breaks_connections());
        stage.fill()?;
        let seed = verdict::seed()?;
        thread::scope(|scope| {
            let mut cast = Cast::new(scope);
            let (stage, standby, options) = (&stage, standby.as_ref().or(replica.as_ref()), &options);
            cast.add("the disturbance", move || self.disturbance.run(stage, standby, options));
            let joined = self.join(&mut cast, stage, Random(seed), soak.is_some());
            if joined.is_err() {
                stage.violated("the run did not start".into());
            }
            if stage.freshet().is_there() && self.fault.is_none() {
                cast.add("the counter of hits", move || {
                    stage.wait_for_hits(HITS_MIN);
                    Ok(())
                });
            }
            let outcome = cast.end();
            joined.and(outcome)
        })
        .with_context(|| format!("FRESHET_STRESS_SEED={seed}"))?;
        if !stage.has_violations() {
            match self.load {
                Load::Definitions => definitions::hit_at_rest(&stage)?,
                _ => compare_at_rest(&stage, &mut Random(seed))?,
            }
        }
        println!("passed to the server: {:?}", stage.freshet().metrics()?.passed_since(&before));
        if let Some(replica) = replica.as_ref().filter(|_| stage.freshet().is_there()) {
            let metrics = stage.freshet().metrics()?;
            let read = |what: &str| metrics.count(&format!("{what}_total{{server=\"127.0.0.1:{}\"}}", replica.port()));
            let (reads, behind) = (read("freshet_replica_reads"), read("freshet_replica_reads_behind"));
            let lagging = read("freshet_replica_reads_lagging");
            println!("the replica has answered {reads} reads, {lagging} of them lagging, and was behind for {behind}");
            let lags = self.disturbance == Disturbance::Replay && !stage.has_violations();
            ensure!(!lags || lagging > LAGGING_READS_MIN, "{lagging} reads at the replica that lagged");
            ensure!(reads > REPLICA_READS_MIN || stage.has_violations(), "{reads} reads at the replica");
        }
        self.report(&stage, seed, started.elapsed())?;
        Ok(stage.violations())
    }

    /// The sessions come on.
    fn join<'scope>(
        self,
        cast: &mut Cast<'scope, '_>,
        stage: &'scope Stage,
        mut random: Random,
        hurried: bool,
    ) -> Result<()> {
        if self.load == Load::Definitions {
            return definitions::join(cast, stage, random);
        }
        if self.load == Load::RowsAndTables {
            let founder = Founder::new(stage, random.fork())?;
            cast.add("the founder of tables", move || founder.run(stage));
        }
        for number in 0..WRITERS {
            let writer = Writer::new(stage, random.fork(), number, keys_of_writer(stage, number))?;
            let writer = if self.load == Load::Around { writer.around() } else { writer };
            cast.add("a writer", move || writer.run());
        }
        for (manner, count) in [
            (Manner::Curious, CURIOUS),
            (Manner::Patient, PATIENT),
            (Manner::Faithful, FAITHFUL),
            (Manner::Quick, QUICK),
            (Manner::Steady, STEADY),
        ] {
            for _ in 0..count {
                let reader = Reader::new(stage, random.fork(), manner, hurried)?;
                cast.add("a reader", move || reader.run());
            }
        }
        Ok(())
    }

    fn report(self, stage: &Stage, seed: u64, took: Duration) -> Result<()> {
        static ALL: AtomicU64 = AtomicU64::new(0);
        let figures = stage.figures()?;
        let (worst, outdated) = stage.ledger().figures();
        let found = stage.violations().len();
        let all = ALL.fetch_add(figures.reads, Relaxed) + figures.reads;
        println!(
            "{self:?}: {} checked reads, {} hits, {} writes, {} violations in {:.0} s; {} connections lost; \
             {outdated} rows read after a newer version was acknowledged, the oldest by {} ms; seed {seed}; \
             {all} checked reads so far",
            figures.reads,
            figures.hits,
            figures.writes,
            found,
            took.as_secs_f64(),
            figures.losses,
            worst.as_millis()
        );
        let exempt = !stage.freshet().is_there() || self.fault.is_some() || found > 0;
        let enough = figures.hits > HITS_MIN && figures.writes > WRITES_MIN && figures.reads > READS_MIN;
        ensure!(exempt || enough, "this hardly tests anything");
        ensure!(exempt || !stage.copes || figures.losses > 0, "no connection was lost");
        Ok(())
    }
}

/// Freshet in front of a primary and a replica. What is never cached is read at the replica.
fn start_with(database: &Database, replica: &Server) -> Result<Freshet> {
    let primary = database.address().to_string();
    let hosts = format!("{primary},127.0.0.1:{}", replica.port());
    let upstream = format!("{}?target_session_attrs=primary", database.url().replace(&primary, &hosts));
    let rules = env::temp_dir().join(format!("freshet-rules-{}-{}.toml", std::process::id(), replica.port()));
    let never = ["item", "part", "kin"].map(|table| format!("[[rule]]\ntable = \"{table}\"\ncache = \"never\"\n"));
    fs::write(&rules, never.concat())?;
    let file = rules.to_string_lossy();
    let options = ["--auth", "trust", "--pool", "transaction", "--read-replicas", "--config", &file];
    let freshet = Freshet::start_unready(database.address(), &upstream, &options)?;
    freshet.wait_ready()?;
    fs::remove_file(&rules)?;
    Ok(freshet)
}

/// The last writer owns what is truncated; the others share the rest, by the item and the folder.
fn keys_of_writer(stage: &Stage, writer: usize) -> Vec<KeyId> {
    let ledger = stage.ledger();
    let tables = [Table::Item, Table::Part, Table::Note, Table::Leaf, Table::Event, Table::Kin];
    let sharers = WRITERS - 1;
    let is_its = |id: i32| usize::try_from(id).is_ok_and(|id| id % sharers == writer);
    let mut keys: Vec<KeyId> = tables.iter().flat_map(|table| ledger.keys_of(*table)).collect();
    keys.retain(|(table, id)| match table {
        Table::Note | Table::Event => writer == sharers,
        Table::Leaf => is_its(super::changes::owner_of(*id)),
        _ => is_its(*id),
    });
    // Those that are read most come first, whatever their table.
    keys.sort_by_key(|(_, id)| *id);
    keys
}

/// When nothing is written any more, every answer equals the database's.
fn compare_at_rest(stage: &Stage, random: &mut Random) -> Result<()> {
    let ready = stage.freshet().wait_ready();
    ready.or_else(|error| Err(error.context(stage.database.server.psql(OPEN)?)))?;
    time_passes("D, and room", STALENESS_MAX + Duration::from_millis(500));
    let (mut direct, mut through) = (stage.reconnect(false)?, stage.reconnect(true)?);
    for question in Question::some(random, &SOURCES) {
        let sql = question.sql();
        let expected = direct.simple(&sql)?.sorted(0);
        for time in 1..=2 {
            let rows = through.simple(&sql)?.sorted(0);
            if rows != expected {
                stage.violated(format!("at rest, time {time}: {sql}\n  answered {rows:?}\n  is       {expected:?}"));
            }
        }
    }
    Ok(())
}
