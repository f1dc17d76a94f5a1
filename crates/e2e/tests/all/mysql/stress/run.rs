//! One run: a server, Freshet, sessions, and the verdict.

use std::env;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::SECONDS;
use super::definitions;
use super::disturbances::Disturbance;
use super::readers::{Manner, Reader};
use super::relay::Relay;
use super::stage::{Place, SCHEMA, SOURCES, Stage};
use super::writers::Writer;
use crate::mysql::support::{Database, Kind};
use crate::stress::changes::owner_of;
use crate::stress::ledger::{KeyId, Table};
use crate::stress::questions::Question;
use crate::stress::stage::{Cast, Place as _, READS_MIN, Random, WRITES_MIN};
use crate::stress::{SEARCH_SECONDS, STALENESS_MAX, verdict};
use crate::support::Freshet;
use crate::support::time_passes;

/// Less than this tests nothing.
const HITS_MIN: u64 = 30;
const WRITERS: usize = 5;
const READERS: [(Manner, usize); 6] = [
    (Manner::Curious, 6),
    (Manner::Patient, 6),
    (Manner::Faithful, 4),
    (Manner::Quick, 3),
    (Manner::Steady, 2),
    (Manner::Old, 2),
];

/// What is written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Rows,
    /// Rows, all written around Freshet: nothing is fenced while the stream stalls.
    Around,
    /// Definitions.
    Definitions,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    pub(crate) load: Load,
    pub(crate) disturbance: Disturbance,
    pub(crate) fault: Option<&'static str>,
    /// Old rows are logged by their primary key alone.
    pub(crate) logs_keys: bool,
}

impl Run {
    pub(crate) const fn of(kind: Kind, disturbance: Disturbance) -> Self {
        Self { kind, load: Load::Rows, disturbance, fault: None, logs_keys: false }
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

    fn place(self) -> Result<Place> {
        let settings = Kind::settings().with("innodb-lock-wait-timeout = 5");
        let settings = self.disturbance.settings(self.kind).iter().fold(settings, |all, line| all.with(*line));
        let settings = if self.logs_keys { settings.with("binlog-row-image = MINIMAL") } else { settings };
        let database = Database::create(self.kind.start(&settings)?)?;
        let relay = self.disturbance.needs_relay().then(|| Relay::to(database.address())).transpose()?;
        let place = Place { database, kind: self.kind, relay, starts: AtomicU64::new(1), recovered: Mutex::default() };
        place.run(SCHEMA)?;
        if self.load == Load::Definitions {
            // What Freshet finds when it starts: it learns of later tables by the rule that one of the runs switches off.
            definitions::set_up(&place)?;
        }
        Ok(place)
    }

    fn run(self) -> Result<Vec<String>> {
        // Results that are written this often would hardly be cached otherwise.
        let fault = self.fault.iter().flat_map(|fault| ["--test-fault", fault]);
        let options: Vec<&str> = ["--admission", "always"].into_iter().chain(fault).collect();
        let place = self.place()?;
        let freshet = Freshet::start_unready(place.address(), &place.url(), &options)?;
        freshet.wait_ready()?;
        if self.fault.is_some() && !freshet.is_there() {
            return Ok(vec!["there is no Freshet to break".into()]);
        }
        let soak = env::var("FRESHET_SOAK_SECONDS").ok().map(|text| text.parse()).transpose()?;
        // A run with a fault ends when it is found.
        let seconds = if self.fault.is_some() { SEARCH_SECONDS } else { soak.unwrap_or(SECONDS) };
        let before = freshet.metrics()?;
        let started = Instant::now();
        let stage = Stage::new(place, freshet, seconds, self.disturbance.breaks_connections());
        stage.fill()?;
        let seed = verdict::seed()?;
        thread::scope(|scope| {
            let mut cast = Cast::new(scope);
            let (stage, options) = (&stage, &options);
            let joined = self.join(&mut cast, stage, Random(seed), soak.is_some());
            if joined.is_err() {
                stage.violated("the run did not start".into());
            }
            cast.add("the disturbance", move || self.disturbance.run(stage, options));
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
        stage.database.end_prepared()?;
        if !stage.has_violations() {
            self.compare_at_rest(&stage, &mut Random(seed))?;
        }
        println!("passed to the server: {:?}", stage.freshet().metrics()?.passed_since(&before));
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
        for number in 0..WRITERS {
            let writer = Writer::new(stage, random.fork(), number, keys_of_writer(stage, number))?;
            let writer = if self.load == Load::Around { writer.around() } else { writer };
            cast.add("a writer", move || writer.run());
        }
        for (manner, count) in READERS {
            for _ in 0..count {
                let reader = Reader::new(stage, random.fork(), manner, hurried)?;
                let reader = if self.load == Load::Around { reader.harmless() } else { reader };
                cast.add("a reader", move || reader.run());
            }
        }
        Ok(())
    }

    /// When nothing is written any more, every answer equals the database's.
    fn compare_at_rest(self, stage: &Stage, random: &mut Random) -> Result<()> {
        stage.freshet().wait_ready()?;
        time_passes("D, and room", STALENESS_MAX + Duration::from_millis(500));
        if self.load == Load::Definitions {
            return definitions::compare_at_rest(stage, random);
        }
        let (mut direct, mut through) = (stage.reconnect(false, random)?, stage.reconnect(true, random)?);
        for question in Question::some(random, &SOURCES) {
            let sql = question.sql();
            let expected = direct.simple(&sql)?.sorted(0);
            for time in 1..=2 {
                let rows = through.simple(&sql)?.sorted(0);
                if rows != expected {
                    stage
                        .violated(format!("at rest, time {time}: {sql}\n  answered {rows:?}\n  is       {expected:?}"));
                }
            }
        }
        Ok(())
    }

    fn report(self, stage: &Stage, seed: u64, took: Duration) -> Result<()> {
        let figures = stage.figures()?;
        let (worst, outdated) = stage.ledger().figures();
        let found = stage.violations().len();
        println!(
            "{self:?}: {} checked reads, {} hits, {} writes, {found} violations in {:.0} s; {} connections lost; \
             {outdated} rows read after a newer version was acknowledged, the oldest by {} ms; seed {seed}",
            figures.reads,
            figures.hits,
            figures.writes,
            took.as_secs_f64(),
            figures.losses,
            worst.as_millis()
        );
        let exempt = !stage.freshet().is_there() || self.fault.is_some() || found > 0;
        let enough = figures.hits > HITS_MIN && figures.writes > WRITES_MIN && figures.reads > READS_MIN;
        ensure!(exempt || enough, "this hardly tests anything");
        Ok(())
    }
}

/// The last writer owns what is truncated; the others share the rest, by the item, the folder and the house.
fn keys_of_writer(stage: &Stage, writer: usize) -> Vec<KeyId> {
    let ledger = stage.ledger();
    let tables = [Table::Item, Table::Part, Table::Note, Table::Leaf, Table::Event, Table::Kin];
    let sharers = WRITERS - 1;
    let is_its = |id: i32| usize::try_from(id).is_ok_and(|id| id % sharers == writer);
    let mut keys: Vec<KeyId> = tables.iter().flat_map(|table| ledger.keys_of(*table)).collect();
    keys.retain(|(table, id)| match table {
        Table::Note | Table::Event => writer == sharers,
        Table::Leaf | Table::Part => is_its(owner_of(*id)),
        _ => is_its(*id),
    });
    // Those that are read most come first, whatever their table.
    keys.sort_by_key(|(_, id)| *id);
    keys
}
