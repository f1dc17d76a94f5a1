//! One run: cells, rounds, and interleaved targets.
//!
//! A cell is a workload with its settings, a number of connections, a rate of writes and a cache size. Within a cell the targets are interleaved.
//! Every second round is in reverse order, and the order is rotated after each pair of rounds. So drift of the machine affects all targets equally,
//! and no target always follows the same one. The document is written after each round: an interrupt or a crash costs one round, not the run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::answers;
use crate::driver::Protocol;
use crate::load::recorder::Tally;
use crate::load::{self, Loop, Marks};
use crate::peers::started::Started;
use crate::random::Random;
use crate::report::{self, histogram};
use crate::result::{self, Cell, Checked, FailureCount, Method, Run, TargetInfo};
use crate::sample::{self, Observer, Process};
use crate::session::Opening;
use crate::statement::Effect;
use crate::target::{Family, Target};
use crate::workload::Workload;

/// Time limit for the comparison of a round's answers, so that a target that does not answer does not stop the run.
const COMPARING: Duration = Duration::from_secs(60);

/// Seconds for late statements of a replay. The round ends once all are answered.
const LATE: f64 = 30.0;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first SQL target is the database itself.
    pub targets: Vec<Target>,
    /// The workload of the current cell.
    pub workload: Arc<dyn Workload>,
    /// The workload with each value of the swept settings, each a cell. All have the same data.
    pub workloads: Vec<Arc<dyn Workload>>,
    /// Numbers of connections, each a cell.
    pub connections: Vec<usize>,
    /// Rates of background write transactions per second, each a cell.
    pub writes: Vec<f64>,
    /// Cache sizes, each a cell. It is one `None` if no size is swept.
    pub sizes: Vec<Option<u64>>,
    /// Commands that start targets, by the name of the target.
    pub starts: BTreeMap<String, String>,
    /// Whether targets with a start command are restarted for each of their rounds.
    pub cold: bool,
    /// The settings that are the same for all cells.
    pub method: Method,
    /// Number of reads that are compared after each round; 0 for none.
    pub questions: usize,
    /// Time for writes to arrive everywhere before answers are compared.
    pub settle: Duration,
    /// The path of the document.
    pub output: PathBuf,
    /// The arguments as typed, without passwords.
    pub command: Vec<String>,
}

impl Plan {
    /// A plan with one cell, without writes, cache sizes and comparisons.
    pub(crate) fn of_one_cell(
        workload: Arc<dyn Workload>,
        targets: Vec<Target>,
        connections: usize,
        method: Method,
        output: PathBuf,
    ) -> Self {
        Self {
            targets,
            workloads: vec![workload.clone()],
            workload,
            connections: vec![connections],
            writes: vec![0.0],
            sizes: vec![None],
            starts: BTreeMap::new(),
            cold: false,
            method,
            questions: 0,
            settle: Duration::ZERO,
            output,
            command: Vec::new(),
        }
    }

    /// The plan of a replay. The log determines connections (up to the given number), pace and length. Answers are not compared.
    pub(crate) fn replaying(mut self) -> Self {
        let most = self.connections.iter().copied().max().unwrap_or(1);
        if let Some(replayed) = self.workload.replays(most) {
            let (pace, measured) = (Loop::Replay { speed: replayed.speed }, replayed.seconds);
            self.connections = vec![replayed.connections];
            self.method =
                Method { protocol: Protocol::Text, pace, warm_up: 0.0, measured, cool_down: LATE, ..self.method };
            self.questions = 0;
        }
        self
    }
}

/// Runs the plan. `stop` ends it early. The document then has the measurements so far, and says so.
pub async fn run(plan: Plan, stop: &Arc<AtomicBool>) -> Result<Run> {
    let mut bench = Bench::prepare(plan, stop).await?;
    // The document is saved before the first round, so that an error comes early.
    bench.save()?;
    for size in bench.plan.sizes.clone() {
        let mut running = Running::default();
        for target in bench.targets.iter().filter(|_| !bench.plan.cold) {
            running.start(&bench, target, size).await?;
        }
        for workload in bench.plan.workloads.clone() {
            bench.plan.workload = workload;
            for connections in bench.plan.connections.clone() {
                for writes in bench.plan.writes.clone() {
                    bench.cell(Place { connections, writes, size }, &mut running).await?;
                    if stop.load(Ordering::Relaxed) {
                        return Ok(bench.document);
                    }
                }
            }
        }
    }
    bench.document.interrupted = false;
    bench.save()?;
    Ok(bench.document)
}

/// The settings by which the cells of a run differ.
#[derive(Clone, Copy)]
struct Place {
    connections: usize,
    writes: f64,
    size: Option<u64>,
}

/// Targets that this run started, by name.
#[derive(Default)]
struct Running(BTreeMap<String, Started>);

impl Running {
    /// Starts a target if it has a start command.
    async fn start(&mut self, bench: &Bench, target: &Target, size: Option<u64>) -> Result<()> {
        let name = &target.name;
        let Some(command) = bench.plan.starts.get(name) else { return Ok(()) };
        // The old process is stopped first, since both may use the same port.
        self.0.remove(name);
        let started = tokio::select! {
            started = Started::run(command, size, target) => started.with_context(|| format!("starting {name}"))?,
            () = stopped(&bench.stop) => bail!("starting {name}: interrupted"),
        };
        self.0.insert(name.clone(), started);
        Ok(())
    }
}

struct Bench {
    plan: Plan,
    targets: Vec<Arc<Target>>,
    document: Run,
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Bench {
    async fn prepare(plan: Plan, stop: &Arc<AtomicBool>) -> Result<Self> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let names: std::collections::BTreeSet<_> = plan.targets.iter().map(|target| &target.name).collect();
        ensure!(names.len() == plan.targets.len(), "two targets have the same name");
        for target in &plan.targets {
            admit(target, &plan)?;
        }
        for name in plan.starts.keys() {
            ensure!(names.contains(name), "--start {name}=…: there is no target with this name");
        }
        for family in [Family::Postgres, Family::Mysql] {
            if let Some(database) = plan.targets.iter().find(|target| target.family() == Some(family)) {
                plan.workload.ready(database).await.with_context(|| format!("the data on {}", database.name))?;
            }
        }
        let cells = plan.sizes.len() * plan.workloads.len() * plan.connections.len() * plan.writes.len();
        let rounds = cells * plan.targets.len() * plan.method.repetitions;
        let bar = ProgressBar::new(rounds as u64);
        bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} rounds, {eta} left  {msg}")?);
        bar.enable_steady_tick(Duration::from_millis(250));
        let document = Run {
            schema: result::SCHEMA,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            command: plan.command.clone(),
            interrupted: true,
            machine: sample::machine(),
            targets: Vec::new(),
            method: plan.method.clone(),
            cells: Vec::new(),
        };
        let targets = plan.targets.iter().cloned().map(Arc::new).collect();
        Ok(Self { plan, targets, document, stop: Arc::clone(stop), bar })
    }

    /// Runs all rounds of a cell.
    async fn cell(&mut self, place: Place, running: &mut Running) -> Result<()> {
        let Place { connections, writes, size } = place;
        let cell = Cell {
            workload: self.plan.workload.name().to_owned(),
            settings: self.plan.workload.settings().into_iter().collect(),
            connections,
            writes,
            cache_size: size,
            statements: self.plan.workload.statements().iter().map(|statement| statement.name.clone()).collect(),
            rounds: Vec::new(),
            failed: BTreeMap::new(),
        };
        self.document.cells.push(cell);
        for number in 0..self.plan.method.repetitions {
            for turn in 0..self.targets.len() {
                let target = Arc::clone(&self.targets[turn_of(turn, number, self.targets.len())]);
                if self.plan.cold
                    && let Err(error) = running.start(self, &target, size).await
                {
                    self.keep(&target, Err(error))?;
                    continue;
                }
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.describe(&target).await;
                let round = self.round(&target, number, place).await;
                if self.keep(&target, round)? && !self.stop.load(Ordering::Relaxed) {
                    self.check(&target, number).await;
                }
                self.save()?;
                self.bar.inc(1);
            }
        }
        let table = self.document.cells.last().map(|cell| report::cell_table(&self.document, cell));
        self.bar.suspend(|| println!("{}", table.unwrap_or_default()));
        Ok(())
    }

    /// Adds the figures of a round, and returns whether there were any. A target that could not be measured does not stop the others, unless it is
    /// the first.
    fn keep(&mut self, target: &Target, round: Result<result::Round>) -> Result<bool> {
        let Some(cell) = self.document.cells.last_mut() else { return Ok(false) };
        match round {
            // A round that ended before its measured interval has no figures.
            Ok(round) if round.load.seconds > 0.0 => {
                cell.rounds.push(round);
                return Ok(true);
            }
            Ok(_) => {}
            Err(error) if self.targets.first().is_some_and(|first| first.name == target.name) => {
                return Err(error.context(format!("{}, {} connections", target.name, cell.connections)));
            }
            Err(error) => {
                let reason = format!("not measured: {error:#}");
                self.bar.suspend(|| eprintln!("{}: {reason}", target.name));
                cell.failed.insert(target.name.clone(), reason);
            }
        }
        Ok(false)
    }

    /// Reads the version and settings of a target once. If it does not answer, the run continues.
    async fn describe(&mut self, target: &Target) {
        if self.document.targets.iter().all(|known| known.name != target.name) {
            let unknown = |error| TargetInfo {
                name: target.name.clone(),
                url: target.shown_url(),
                version: format!("unknown ({error:#})"),
                ..TargetInfo::default()
            };
            let info = sample::target_info(target, &self.processes()).await;
            self.document.targets.push(info.unwrap_or_else(unknown));
        }
    }

    /// The processes are looked up each time, since targets may have been restarted.
    fn processes(&self) -> Vec<Process> {
        sample::processes(&self.plan.targets)
    }

    fn opening(&self, target: &Arc<Target>) -> Opening {
        let (statements, protocol) = (self.plan.workload.statements(), self.plan.method.protocol);
        Opening { target: Arc::clone(target), statements, protocol }
    }

    async fn round(&self, target: &Arc<Target>, number: usize, place: Place) -> Result<result::Round> {
        let method = &self.plan.method;
        let Place { connections, writes, .. } = place;
        let said =
            format!("{}, {connections} connections, round {}: {}", self.plan.workload.name(), number + 1, target.name);
        self.bar.set_message(said.clone());
        if self.bar.is_hidden() {
            eprintln!("{said}");
        }
        let round = load::Round {
            opening: self.opening(target),
            workload: Arc::clone(&self.plan.workload),
            connections,
            pace: method.pace,
            writes,
            warm_up: Duration::from_secs_f64(method.warm_up),
            measured: Duration::from_secs_f64(method.measured),
            cool_down: Duration::from_secs_f64(method.cool_down),
            seed: self.seed(number),
            threads: method.threads,
        };
        let observer = Observer::start(target, &self.processes())?;
        let outcome = load::run(round, Arc::clone(&observer) as Arc<dyn Marks>, Arc::clone(&self.stop)).await;
        // The call joins a thread that may wait for counters. It must not block Ctrl-C.
        let observed = tokio::task::spawn_blocking(move || observer.finish()).await??;
        let outcome = outcome?;
        Ok(result::Round {
            target: target.name.clone(),
            number,
            load: load_of(&outcome.tally)?,
            writes: outcome.writes.as_ref().map(load_of).transpose()?,
            processes: observed.processes,
            others: observed.others,
            cache: observed.cache,
            series: observed.series,
            checked: None,
        })
    }

    /// The seed is the same for each target, and differs for each round and cell. Otherwise a cache would already have the keys of an earlier round.
    fn seed(&self, number: usize) -> u64 {
        let round = Random::numbered(self.plan.method.seed, self.document.cells.len() as u64).next();
        Random::numbered(round, number as u64).next()
    }

    /// Compares answers with the database's without load. A failure is reported and does not affect the measured round.
    async fn check(&mut self, target: &Arc<Target>, number: usize) {
        let checked = tokio::select! {
            checked = tokio::time::timeout(COMPARING, self.checked(target, number)) => checked,
            () = stopped(&self.stop) => return,
        };
        let checked = checked.unwrap_or_else(|_| Err(anyhow!("not done after {} s", COMPARING.as_secs())));
        let Some(cell) = self.document.cells.last_mut() else { return };
        match checked {
            Ok(checked) => {
                if let Some(round) = cell.rounds.last_mut().filter(|round| round.target == target.name) {
                    round.checked = checked;
                }
            }
            Err(error) => {
                let reason = format!("answers not compared: {error:#}");
                self.bar.suspend(|| eprintln!("{}: {reason}", target.name));
                cell.failed.insert(target.name.clone(), reason);
            }
        }
    }

    /// Compares a target's answers. Not compared are the database itself, peers that do not speak SQL, and look-aside targets, where another cache
    /// may answer first.
    async fn checked(&self, target: &Arc<Target>, number: usize) -> Result<Option<Checked>> {
        let Some(family) = target.family().filter(|_| target.lookaside.is_none()) else { return Ok(None) };
        let Some(database) = self.targets.iter().find(|target| target.family() == Some(family)) else {
            return Ok(None);
        };
        if self.plan.questions == 0 || database.name == target.name {
            return Ok(None);
        }
        let statements = self.plan.workload.statements();
        if statements.iter().any(|statement| statement.effect == Effect::Write) {
            tokio::time::sleep(self.plan.settle).await;
        }
        let drawn = (self.plan.questions, self.seed(number) ^ 0x5EED);
        let workload = self.plan.workload.as_ref();
        answers::compare(&self.opening(database), &self.opening(target), workload, drawn).await.map(Some)
    }

    /// Writes the document in one step, so that a reader never sees a part of it.
    fn save(&self) -> Result<()> {
        let (output, new) = (&self.plan.output, self.plan.output.with_extension("json.new"));
        let text = serde_json::to_vec(&self.document)?;
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, output))
            .with_context(|| format!("writing {}", output.display()))
    }
}

fn load_of(tally: &Tally) -> Result<result::Load> {
    let failure = |(code, (count, first)): (&String, &(u64, String))| {
        (code.clone(), FailureCount { count: *count, first: first.clone() })
    };
    Ok(result::Load {
        seconds: tally.measured.as_secs_f64(),
        transactions: tally.transactions,
        queries: tally.statements.iter().map(hdrhistogram::Histogram::len).sum(),
        latency: histogram::encode(&tally.latency)?,
        statements: tally.statements.iter().map(histogram::encode).collect::<Result<_>>()?,
        rows: tally.rows.clone(),
        failures: tally.failures.iter().map(failure).collect(),
        lateness: tally.lateness.as_ref().map(histogram::encode).transpose()?,
        unfinished: tally.unfinished,
        per_second: tally.per_second.clone(),
    })
}

/// The order of the targets: forwards, then backwards, then both again, rotated by one.
const fn turn_of(turn: usize, number: usize, targets: usize) -> usize {
    let turn = if number.is_multiple_of(2) { turn } else { targets - 1 - turn };
    (turn + number / 2) % targets
}

async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sets the flag at the first Ctrl-C. The second one ends the program at once.
pub fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            eprintln!("stopping; the measurements so far are kept (Ctrl-C again ends at once)");
            flag.store(true, Ordering::Relaxed);
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
    stop
}

/// Checks, before anything is measured, that a target can do what the plan needs.
fn admit(target: &Target, plan: &Plan) -> Result<()> {
    let (name, workload) = (&target.name, &plan.workload);
    if target.family().is_none() {
        plan.workloads.iter().try_for_each(|workload| workload.runs_on_stores()).with_context(|| name.clone())?;
        ensure!(plan.writes.iter().all(|rate| *rate == 0.0), "{name}: --writes needs SQL servers");
    }
    let aside = target.lookaside.is_none() || workload.looks_aside();
    ensure!(aside, "{name}: {} does not use the cache of lookaside=", workload.name());
    Ok(())
}

/// The arguments as typed, without the passwords of URLs.
pub fn without_secrets(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut before = String::new();
    let mut shown = Vec::new();
    for argument in arguments {
        let target = argument.strip_prefix("--target=").or((before == "--target").then_some(argument.as_str()));
        shown.push(match target.map(str::parse::<Target>) {
            Some(Ok(target)) if before == "--target" => target.shown(),
            Some(Ok(target)) => format!("--target={}", target.shown()),
            Some(Err(_)) => "…".to_owned(),
            None => without_passwords(&argument),
        });
        before = argument;
    }
    shown
}

/// `scheme://user:password@host` becomes `scheme://user@host`, anywhere in the text.
fn without_passwords(text: &str) -> String {
    let mut rest = text;
    let mut shown = String::new();
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let end = after.find(['/', '?', ',', ' ', '\'', '"']).unwrap_or(after.len());
        let (place, behind) = after.split_at(end);
        match place.rsplit_once('@') {
            Some((account, host)) => {
                shown.push_str(account.split(':').next().unwrap_or_default());
                shown.push('@');
                shown.push_str(host);
            }
            None => shown.push_str(place),
        }
        rest = behind;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_and_other_neighbours() {
        let order = |number| (0..3).map(|turn| turn_of(turn, number, 3)).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2), order(3)], [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]]);
        let pair = |number| (0..2).map(|turn| turn_of(turn, number, 2)).collect::<Vec<_>>();
        assert_eq!([pair(0), pair(1), pair(2)], [[0, 1], [1, 0], [1, 0]]);
    }

    #[test]
    fn passwords_do_not_get_into_documents() {
        let typed = "f=postgres://app:se@cret@h:1/d,metrics=http://h:2/m";
        assert_eq!(without_passwords(typed), "f=postgres://app@h:1/d,metrics=http://h:2/m");
        assert_eq!(
            without_passwords("--start=f=x --upstream mysql://r:p@h/d --z"),
            "--start=f=x --upstream mysql://r@h/d --z"
        );
        assert_eq!(without_passwords("plain"), "plain");
    }
}
