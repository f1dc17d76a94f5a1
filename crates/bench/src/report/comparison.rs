//! Compares two runs cell by cell: what became faster, and whether the difference exceeds the spread of the rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::columns;
use super::figures::{NONE, bytes, date, number, times};
use super::grid::Grid;
use super::summary::{Spread, Summary};
use crate::result::{Cell, Run};

/// Compares two runs cell by cell. Cells match by workload, settings, connections and cache size; rows match by target. Ratios are later over
/// earlier. The text also lists cells in one run only, failures, and differences that make the runs hard to compare.
pub fn comparison(before: &Run, after: &Run) -> String {
    let mut text = format!("{} → {}\n", date(before.started), date(after.started));
    for warning in warnings(before, after) {
        let _ = writeln!(text, "note: {warning}");
    }
    let mut alone = Vec::new();
    let mut matched = BTreeSet::new();
    for cell in &before.cells {
        let Some(index) = after.cells.iter().position(|other| same(cell, other)) else {
            alone.push(format!("only before: {}", named(cell)));
            continue;
        };
        matched.insert(index);
        let other = &after.cells[index];
        let (earlier, later) = (Summary::of_cell(before, cell), Summary::of_cell(after, other));
        text.push_str(&table(cell, &earlier, &later));
        alone.extend(unmatched(cell, &earlier, &later, "before"));
        alone.extend(unmatched(cell, &later, &earlier, "after"));
        alone.extend(failed(cell, "before").chain(failed(other, "after")));
    }
    let new = after.cells.iter().enumerate().filter(|(index, _)| !matched.contains(index));
    alone.extend(new.map(|(_, cell)| format!("only after: {}", named(cell))));
    for line in alone {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn same(one: &Cell, other: &Cell) -> bool {
    let key = |cell: &Cell| (cell.workload.clone(), cell.settings.clone(), cell.connections, cell.cache_size);
    key(one) == key(other) && one.writes.to_bits() == other.writes.to_bits()
}

fn named(cell: &Cell) -> String {
    let mut text = format!("{}, {} connections", cell.workload, cell.connections);
    text.push_str(&columns::sweep(cell));
    for (name, value) in &cell.settings {
        let _ = write!(text, ", {name} {value}");
    }
    text
}

fn unmatched(cell: &Cell, these: &[Summary], those: &[Summary], when: &str) -> Vec<String> {
    let missing = these.iter().filter(|one| those.iter().all(|other| other.target != one.target));
    missing.map(|one| format!("only {when}: target {} of {}", one.target, named(cell))).collect()
}

/// Why a target was not measured, or its answers not compared with the database's.
fn failed(cell: &Cell, when: &str) -> impl Iterator<Item = String> {
    columns::failed(cell).into_iter().map(move |line| format!("{when}, {}: {line}", named(cell)))
}

/// Differences between the runs outside their cells.
fn warnings(before: &Run, after: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let mut differs = |what: &str, earlier: String, later: String| {
        if earlier != later {
            found.push(format!("{what} differ: {earlier} → {later}"));
        }
    };
    let machine = |run: &Run| {
        let machine = &run.machine;
        let memory = bytes(machine.memory as f64);
        format!("{} × {}, {memory}, {}", machine.cores, machine.processor, machine.system)
    };
    differs("machines", machine(before), machine(after));
    let (earlier, later) = (super::markdown::method(before), super::markdown::method(after));
    for (earlier, later) in earlier.into_iter().zip(later) {
        differs("methods", earlier, later);
    }
    for target in &before.targets {
        if let Some(other) = after.targets.iter().find(|other| other.name == target.name) {
            differs(&format!("versions of {}", target.name), target.version.clone(), other.version.clone());
            let settings = |settings: &BTreeMap<String, String>| format!("{settings:?}");
            differs(&format!("settings of {}", target.name), settings(&target.settings), settings(&other.settings));
        }
    }
    for (run, when) in [(before, "earlier"), (after, "later")] {
        if run.interrupted {
            found.push(format!("the {when} run was interrupted"));
        }
    }
    found
}

fn table(cell: &Cell, earlier: &[Summary], later: &[Summary]) -> String {
    let pairs: Vec<_> = earlier
        .iter()
        .filter_map(|one| later.iter().find(|other| other.target == one.target).map(|other| (one, other)))
        .collect();
    let processes: BTreeSet<&String> =
        pairs.iter().flat_map(|(one, other)| one.cpu.keys().filter(|name| other.cpu.contains_key(*name))).collect();
    let mut figures =
        ["transactions/s\nbefore", "after", "after/before", "", "p50", "p95", "p99"].map(str::to_owned).to_vec();
    figures.extend(processes.iter().map(|name| format!("{name}\nCPU/query")));
    figures.extend(["hits", "errors", "wrong\nanswers"].map(str::to_owned));
    let mut grid = Grid::new(&["target"], figures.iter().map(String::as_str));
    for (one, other) in pairs {
        let (rate, rate_after) = (one.load.rate, other.load.rate);
        let mut row = vec![one.target.clone(), number(rate.median), number(rate_after.median)];
        row.extend([times(other.ratio(one)), verdict(&rate, &rate_after)]);
        let quantile = |q| times(ratio_at(&one.load.latency, &other.load.latency, q));
        row.extend([0.5, 0.95, 0.99].map(quantile));
        let cpu = |name: &&String| match (one.cpu.get(*name), other.cpu.get(*name)) {
            (Some(earlier), Some(later)) => times(later / earlier),
            _ => NONE.to_owned(),
        };
        row.extend(processes.iter().map(cpu));
        row.push(match (one.cache, other.cache) {
            (Some(earlier), Some(later)) => {
                format!("{:+.1} points", (later.hit_ratio() - earlier.hit_ratio()) * 100.0)
            }
            _ => NONE.to_owned(),
        });
        row.extend([(one.errors(), other.errors()), (one.wrong(), other.wrong())].map(|(a, b)| format!("{a} → {b}")));
        grid.row(row);
    }
    if grid.is_empty() { String::new() } else { format!("\n{}\n{}\n", named(cell), grid.terminal()) }
}

/// A difference counts if every round of one run was faster than every round of the other.
fn verdict(before: &Spread, after: &Spread) -> String {
    let said = if before.rounds < 2 || after.rounds < 2 {
        "one round only"
    } else if before.overlaps(after) {
        "within the spread"
    } else if after.median > before.median {
        "faster"
    } else {
        "slower"
    };
    said.to_owned()
}

fn ratio_at(before: &Histogram<u64>, after: &Histogram<u64>, quantile: f64) -> f64 {
    after.value_at_quantile(quantile) as f64 / before.value_at_quantile(quantile) as f64
}
