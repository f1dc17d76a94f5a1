//! `freshet-bench sizing`: predicts the memory that a cache needs for a workload, and checks the prediction.
//!
//! A trace of the workload's reads gives the hit ratio of every size at once (`distance`), and the curve a knee (`curve`). This assumes an LRU cache
//! whose entries need their answers and a fixed overhead. A real cache has another eviction policy and needs memory for other things. So runs of the
//! real cache check the prediction at the knee and at half of it. The report shows predicted and measured values next to each other: for the memory
//! limit, and for the memory of the entries.

mod args;
mod curve;
mod distance;
mod document;
mod trace;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

pub use args::SizingArgs;
pub use distance::{Distances, sampled};
pub use document::{Check, Overhead, Point, SCHEMA, Sizing, Trace};

use crate::report;
use crate::result::{Cache, Run};
use crate::run::{self, Plan};
use crate::workload::Workload;
use trace::Accesses;

/// Assumed bytes of an entry in addition to its answer, if not measured: about those of Freshet's entries with one tag.
const OVERHEAD: f64 = 900.0;
/// Cache sizes of runs are multiples of this.
const MIB: u64 = 1 << 20;
/// The most accesses with which a run is predicted. More accesses would not change the prediction.
const CHECKED_MAX: f64 = 20e6;

struct Bench<'a> {
    args: &'a SizingArgs,
    workload: Arc<dyn Workload>,
    scratch: &'a Path,
    command: Vec<String>,
    stop: Arc<AtomicBool>,
}

/// Computes the curve, checks it, and writes the document.
pub async fn run(args: SizingArgs) -> Result<()> {
    args.check()?;
    let stop = run::stop_on_interrupt();
    let output = args.output();
    let scratch = output.with_extension("round.json");
    let command = args.command.clone().unwrap_or_else(|| std::env::args().skip(1).collect());
    let command = run::without_secrets(command);
    let workload = args.workload.build()?;
    let bench = Bench { args: &args, workload, scratch: &scratch, command, stop };
    let sizing = bench.sizing().await;
    let _ = std::fs::remove_file(&scratch);
    let sizing = sizing?;
    std::fs::write(&output, serde_json::to_vec(&sizing)?).with_context(|| output.display().to_string())?;
    let text = report::sizing::markdown(&sizing);
    std::fs::write(output.with_extension("md"), &text).with_context(|| output.display().to_string())?;
    println!("{text}\nall of it: {}", output.display());
    if let Some(html) = &args.html {
        report::write_extras(html, &[report::Extra::Sizing(sizing)])?;
    }
    Ok(())
}

impl Bench<'_> {
    async fn sizing(&self) -> Result<Sizing> {
        let database = self.args.targets.first().context("a sizing needs a database")?;
        self.workload.ready(database).await.with_context(|| format!("the data on {}", database.name))?;
        let drawn = (self.args.accesses, self.args.seed);
        let accesses = Accesses::of(self.workload.as_ref(), database, drawn, self.args.sample).await?;
        let mut runs = Vec::new();
        let overhead = self.overhead(&accesses, &mut runs).await?;
        let warm = accesses.len() / 2;
        let distances = accesses.distances(overhead.bytes, warm);
        let points = curve::points(&distances);
        let knee = curve::knee(&points);
        let mut checks = Vec::new();
        for (name, share) in [("half of it", 0.5), ("knee", 1.0)] {
            if self.args.starts.is_empty() {
                break;
            }
            let size = whole_mib(knee.unwrap_or(distances.enough()) * share);
            let run = self.run(size).await?;
            checks.extend(self.checks(name, size, &run, (&accesses, overhead.bytes)));
            runs.push(run);
        }
        Ok(Sizing {
            sizing: SCHEMA,
            workload: self.workload.name().to_owned(),
            settings: self.workload.settings().into_iter().collect(),
            command: self.command.clone(),
            trace: Trace {
                accesses: accesses.len() as u64,
                warm: warm as u64,
                distinct: accesses.distinct as u64,
                rate: accesses.rate,
                answers: accesses.answers() as u64,
                answer_bytes: accesses.answer_bytes(),
            },
            overhead,
            curve: points,
            knee,
            checks,
            runs,
        })
    }

    /// The given overhead, or the one measured in a cache with enough memory for all entries.
    async fn overhead(&self, accesses: &Accesses, runs: &mut Vec<Run>) -> Result<Overhead> {
        if let Some(bytes) = self.args.overhead {
            return Ok(Overhead { bytes, measured: false });
        }
        if self.args.starts.is_empty() {
            return Ok(Overhead { bytes: OVERHEAD, measured: false });
        }
        // A cache may use half of its memory for other things than entries, and entries may be larger than assumed.
        let all = accesses.distinct as f64 * (accesses.answer_bytes() + OVERHEAD);
        let run = self.run(whole_mib(4.0 * all).max(16 * MIB)).await?;
        let held = self.caches(&run).into_iter().find(|(_, cache)| cache.entries > 0.0);
        runs.push(run);
        let Some((_, cache)) = held else { return Ok(Overhead { bytes: OVERHEAD, measured: false }) };
        let bytes = (cache.bytes / cache.entries - accesses.answer_bytes()).max(0.0);
        Ok(Overhead { bytes, measured: true })
    }

    /// Measures all targets with caches of this size.
    async fn run(&self, size: u64) -> Result<Run> {
        ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
        let started = |name: &String| self.args.starts.iter().any(|(known, _)| known == name);
        let targets =
            self.args.targets.iter().enumerate().filter(|(index, target)| *index == 0 || started(&target.name));
        let (workload, targets) = (Arc::clone(&self.workload), targets.map(|(_, target)| target.clone()).collect());
        let (method, scratch) = (self.args.method(), self.scratch.to_owned());
        let plan = Plan {
            sizes: vec![Some(size)],
            starts: self.args.starts.iter().cloned().collect(),
            cold: true,
            command: self.command.clone(),
            ..Plan::of_one_cell(workload, targets, self.args.connections, method, scratch)
        };
        run::run(plan.replaying(), &self.stop).await
    }

    /// The counters of each cache that was started.
    fn caches(&self, run: &Run) -> Vec<(String, Cache)> {
        let rounds = run.cells.iter().flat_map(|cell| &cell.rounds);
        let started = |name: &String| self.args.starts.iter().any(|(known, _)| known == name);
        rounds
            .filter(|round| started(&round.target))
            .filter_map(|round| Some((round.target.clone(), round.cache?)))
            .collect()
    }

    /// Predicts the hit ratio for as many accesses as each cache had, and adds what the cache counted.
    fn checks(&self, name: &str, size: u64, run: &Run, (accesses, overhead): (&Accesses, f64)) -> Vec<Check> {
        let check = |(target, cache): (String, Cache)| {
            let counted = cache.hits + cache.fills + cache.passed;
            let all = counted * (1.0 + run.method.warm_up / run.method.measured);
            let scale = (CHECKED_MAX / all.max(1.0)).min(1.0);
            #[expect(clippy::cast_sign_loss, reason = "counts are no less than 0")]
            let [all, warm] = [all * scale, (all - counted) * scale].map(|count| count as usize);
            let keys = trace::keys(self.workload.as_ref(), all, self.args.seed ^ 0x5126);
            // A log is replayed once, as it is, from a cold cache.
            let warm = if self.workload.logged().is_empty() { warm } else { 0 };
            let distances = accesses.distances_of(keys.into_iter(), overhead, warm);
            Check {
                name: name.to_owned(),
                target,
                size,
                held: cache.bytes,
                entries: cache.entries,
                predicted: distances.hit_ratio(size as f64),
                predicted_held: distances.hit_ratio(cache.bytes),
                measured: cache.hit_ratio(),
            }
        };
        self.caches(run).into_iter().map(check).collect()
    }
}

/// At least one.
#[expect(clippy::cast_sign_loss, reason = "sizes are no less than 0")]
fn whole_mib(bytes: f64) -> u64 {
    (bytes.max(1.0) as u64).next_multiple_of(MIB)
}
