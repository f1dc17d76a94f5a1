//! The rounds of one target in one cell, combined.
//!
//! Rates are medians over the rounds with their range, so a disturbed round does not change an average. Latencies of all rounds are in one histogram,
//! since a quantile of quantiles has no meaning. Processor time per query and hit ratios are sums divided by sums, so each query has the same weight.
//! If a process is missing in a round, the queries of the round do not count for it.

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;

use super::histogram;
use crate::load::Loop;
use crate::result::{Cache, Cell, Checked, FailureCount, Load, Round, Run};

/// The most wrong answers that are described. All are counted.
const EXAMPLES_MAX: usize = 5;

/// The median and the range of a figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) rounds: usize,
}

impl Spread {
    /// Zero if there are no rounds.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let rounds = values.len();
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        // For an even number, the mean of the two in the middle.
        let median = f64::midpoint(at(rounds.saturating_sub(1) / 2), at(rounds / 2));
        Self { median, min: at(0), max: at(rounds.saturating_sub(1)), rounds }
    }

    /// Whether the ranges overlap.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// Measurements of one kind of load, over rounds.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Transactions per second.
    pub(super) rate: Spread,
    /// Statements per second, without BEGIN and COMMIT.
    pub(super) queries: Spread,
    /// Latency in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// Number of rows returned or changed by each statement.
    pub(super) rows: Vec<u64>,
    /// Latency of each statement in nanoseconds.
    pub(super) statements: Vec<Histogram<u64>>,
    pub(super) failures: BTreeMap<String, FailureCount>,
    /// For an open loop: lateness in nanoseconds.
    pub(super) lateness: Option<Histogram<u64>>,
    pub(super) unfinished: u64,
}

impl Measured {
    fn of<'a>(loads: impl Iterator<Item = &'a Load> + Clone) -> Self {
        let mut failures = BTreeMap::<String, FailureCount>::new();
        for (code, failure) in loads.clone().flat_map(|load| &load.failures) {
            let sum = failures.entry(code.clone());
            sum.or_insert_with(|| FailureCount { count: 0, first: failure.first.clone() }).count += failure.count;
        }
        let statements = loads.clone().map(|load| load.statements.len()).max().unwrap_or_default();
        let statement = |index| merged(loads.clone().filter_map(move |load| load.statements.get(index)));
        let lateness = loads.clone().filter_map(|load| load.lateness.as_ref());
        Self {
            rate: Spread::of(loads.clone().map(rate)),
            queries: Spread::of(loads.clone().map(|load| load.queries as f64 / load.seconds.max(1e-9))),
            latency: merged(loads.clone().map(|load| &load.latency)),
            statements: (0..statements).map(statement).collect(),
            rows: (0..statements).map(|index| loads.clone().filter_map(|load| load.rows.get(index)).sum()).collect(),
            failures,
            lateness: lateness.clone().next().is_some().then(|| merged(lateness)),
            unfinished: loads.map(|load| load.unfinished).sum(),
        }
    }

    pub(super) fn errors(&self) -> u64 {
        self.failures.values().map(|failure| failure.count).sum()
    }
}

/// The rate of transactions that ended in the interval. If the target is overloaded in an open loop, the backlog is processed after the interval and
/// must not count.
fn rate(load: &Load) -> f64 {
    load.per_second.iter().sum::<u64>() as f64 / load.seconds.max(1e-9)
}

/// Merges histograms. A broken text counts as empty: documents are checked when they are read.
fn merged<'a>(texts: impl Iterator<Item = &'a String>) -> Histogram<u64> {
    let mut histograms = texts.filter_map(|text| histogram::decode(text).ok());
    let mut sum = histograms.next().unwrap_or_else(|| Histogram::new(3).expect("three digits are within 0 and 5"));
    sum.auto(true);
    for histogram in histograms {
        // `add` fails only for a histogram that may not grow.
        let _ = sum.add(&histogram);
    }
    sum
}

/// One target in one cell.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) target: String,
    pub(super) load: Measured,
    pub(super) writes: Option<Measured>,
    /// For a closed loop: transactions that had not ended at the end of the round. In an open loop they are an overload, not an error.
    pub(super) hung: u64,
    /// Processor time of each process in microseconds per query. Rounds without queries, or without the process, are left out.
    pub(super) cpu: BTreeMap<String, f64>,
    /// Memory of each process in bytes, at the end of each round.
    pub(super) memory: BTreeMap<String, Spread>,
    /// Name of the process that listens on the target's address.
    pub(super) process: Option<String>,
    /// Counters over all rounds. Entries and bytes are from the end of the last.
    pub(super) cache: Option<Cache>,
    /// Cores used by other processes, in the round with the most.
    pub(super) others: f64,
    /// None if no answers were compared.
    pub(super) checked: Option<Checked>,
}

impl Summary {
    /// The summaries of a cell's targets, in the run's order. Targets without a complete round are left out.
    pub(super) fn of_cell(run: &Run, cell: &Cell) -> Vec<Self> {
        let mut names: Vec<&str> = run.targets.iter().map(|target| target.name.as_str()).collect();
        for round in &cell.rounds {
            if !names.contains(&round.target.as_str()) {
                names.push(&round.target);
            }
        }
        names.into_iter().filter_map(|name| Self::of_target(run, cell, name)).collect()
    }

    fn of_target(run: &Run, cell: &Cell, name: &str) -> Option<Self> {
        let rounds: Vec<&Round> = cell.rounds.iter().filter(|round| round.target == name).collect();
        let last = rounds.last()?;
        let load = Measured::of(rounds.iter().map(|round| &round.load));
        let writes = rounds.iter().filter_map(|round| round.writes.as_ref());
        let processes: BTreeSet<&String> = rounds.iter().flat_map(|round| round.processes.keys()).collect();
        let usages = |process: &str| {
            let process = process.to_owned();
            rounds.iter().filter_map(move |round| round.processes.get(&process))
        };
        let memory = |process: &String| (process.clone(), Spread::of(usages(process).map(|usage| usage.memory as f64)));
        let closed = matches!(run.method.pace, Loop::Closed);
        Some(Self {
            target: name.to_owned(),
            hung: if closed { load.unfinished } else { 0 },
            cpu: processes.iter().filter_map(|name| Some(((*name).clone(), per_query(&rounds, name)?))).collect(),
            memory: processes.iter().map(|process| memory(process)).collect(),
            process: run.targets.iter().find(|target| target.name == name).and_then(|target| target.process.clone()),
            cache: rounds.iter().filter_map(|round| round.cache).reduce(|sum, cache| added(&sum, &cache)),
            others: rounds.iter().map(|round| round.others).fold(0.0, f64::max),
            checked: checked(&rounds),
            writes: last.writes.is_some().then(|| Measured::of(writes)),
            load,
        })
    }

    /// Memory of the target's own process in bytes.
    pub(super) fn own_memory(&self) -> Option<f64> {
        self.process.as_ref().and_then(|name| self.memory.get(name)).map(|memory| memory.median)
    }

    /// The ratio of the throughput to another target's.
    pub(super) fn ratio(&self, first: &Self) -> f64 {
        self.load.rate.median / first.load.rate.median
    }

    /// Errors of the load and of the background writer, and transactions that hung.
    pub(super) fn errors(&self) -> u64 {
        self.load.errors() + self.hung + self.writes.as_ref().map_or(0, Measured::errors)
    }

    pub(super) fn wrong(&self) -> u64 {
        self.checked.as_ref().map_or(0, |checked| checked.wrong)
    }
}

/// Microseconds per query. Only queries of rounds with the process count.
fn per_query(rounds: &[&Round], process: &str) -> Option<f64> {
    let of = |round: &&Round| round.processes.get(process).map(|usage| (usage.user + usage.system, round.load.queries));
    let (seconds, queries) = rounds.iter().filter_map(of).fold((0.0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (queries > 0).then(|| seconds * 1e6 / queries as f64)
}

fn added(sum: &Cache, later: &Cache) -> Cache {
    Cache {
        hits: sum.hits + later.hits,
        fills: sum.fills + later.fills,
        passed: sum.passed + later.passed,
        evictions: sum.evictions + later.evictions,
        changed: sum.changed + later.changed,
        ..*later
    }
}

fn checked(rounds: &[&Round]) -> Option<Checked> {
    let all = rounds.iter().filter_map(|round| round.checked.as_ref());
    all.cloned().reduce(|mut sum, checked| {
        sum.answers += checked.answers;
        sum.wrong += checked.wrong;
        let room = EXAMPLES_MAX.saturating_sub(sum.examples.len());
        sum.examples.extend(checked.examples.into_iter().take(room));
        sum
    })
}

/// Names of the observed processes, the client first.
pub(super) fn processes(summaries: &[Summary]) -> Vec<String> {
    let mut names: Vec<String> = summaries.iter().flat_map(|summary| summary.cpu.keys().cloned()).collect();
    names.sort_by_key(|name| (name != "client", name.clone()));
    names.dedup();
    names
}

/// Settings of this cell, as `(name, value)`, in which the cells of its workload differ.
pub(super) fn differing<'a>(cells: &[&Cell], cell: &'a Cell) -> Vec<(&'a str, &'a str)> {
    let alike = |name: &String, value: &String| {
        cells
            .iter()
            .filter(|other| other.workload == cell.workload)
            .all(|other| other.settings.get(name) == Some(value))
    };
    let settings = cell.settings.iter().filter(|(name, value)| !alike(name, value));
    settings.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_spread_of_rounds_is_median_and_range() {
        let odd = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!(odd, Spread { median: 2.0, min: 1.0, max: 3.0, rounds: 3 });
        let even = Spread::of([4.0, 1.0, 2.0, 3.0]);
        assert_eq!((even.median, even.rounds), (2.5, 4));
        assert_eq!(Spread::of([]), Spread { median: 0.0, min: 0.0, max: 0.0, rounds: 0 });
        assert!(odd.overlaps(&even) && !odd.overlaps(&Spread::of([3.1])));
    }

    #[test]
    fn rounds_are_added_up_and_histograms_merged() {
        let run = example::run();
        let all = Summary::of_cell(&run, &run.cells[0]);
        assert_eq!(all.iter().map(|one| one.target.as_str()).collect::<Vec<_>>(), ["direct", "freshet"]);
        let (direct, freshet) = (&all[0], &all[1]);
        assert_eq!(direct.load.latency.len(), direct.load.rate.rounds as u64 * example::LATENCIES as u64);
        assert!((freshet.ratio(direct) - 4.0).abs() < 1e-9, "{}", freshet.ratio(direct));
        // Two rounds of 10,000 transactions with 5 queries each, and 4 s + 1 s of processor time.
        assert!((direct.cpu["postgres"] - 100.0).abs() < 1e-9, "{:?}", direct.cpu);
        assert_eq!(freshet.load.failures["40001"].count, 5);
        assert_eq!((freshet.wrong(), freshet.errors()), (2, 6));
    }

    #[test]
    fn a_process_costs_what_it_did_in_the_rounds_where_it_was_seen() {
        let mut run = example::run();
        let rounds = &mut run.cells[0].rounds;
        let seen = rounds[0].processes["postgres"];
        rounds[3].processes.remove("postgres");
        let expected = (seen.user + seen.system) * 1e6 / rounds[0].load.queries as f64;
        let direct = &Summary::of_cell(&run, &run.cells[0])[0];
        assert!((direct.cpu["postgres"] - expected).abs() < 1e-9, "{:?}, not {expected}", direct.cpu);
        assert_eq!(direct.memory["postgres"].rounds, 1);
    }

    #[test]
    fn what_ended_after_the_interval_is_no_throughput() {
        let mut run = example::run();
        let load = &mut run.cells[1].rounds[0].load;
        (load.transactions, load.per_second) = (20_000, vec![900; 10]);
        assert_eq!(Summary::of_cell(&run, &run.cells[1])[0].load.rate, Spread::of([900.0]));
    }

    #[test]
    fn what_hangs_is_an_error_in_a_closed_loop_only() {
        let mut run = example::run();
        run.cells[1].rounds[0].load.unfinished = 16;
        assert_eq!(Summary::of_cell(&run, &run.cells[1])[0].errors(), 16);
        run.method.pace = Loop::Open { rate: 10.0, poisson: false };
        assert_eq!(Summary::of_cell(&run, &run.cells[1])[0].errors(), 0);
    }
}
