//! A run in sentences. The main target of a sentence is the second of the command line, whatever its figures. The others follow.

use std::fmt::Write as _;

use super::super::figures::{bytes, date, milliseconds, number};
use super::super::summary::Summary;
use super::super::tables::Group;
use super::improvement::base;
use super::sweep::{Dimension, named};
use crate::result::{Cell, Run};

/// A sentence for each group: about its cell with the most connections, or about the first and the last cell of another varied setting.
pub(super) fn figures(groups: &[Group<'_>]) -> Vec<String> {
    let mut sentences = Vec::new();
    for group in groups {
        let mut cells: Vec<&(&Cell, Vec<Summary>)> = group.cells.iter().filter(|(_, all)| !all.is_empty()).collect();
        if let Some(dimension) = Dimension::of_group(group) {
            cells.sort_by(|one, other| (dimension.of)(one.0).total_cmp(&(dimension.of)(other.0)));
            if dimension.label == "connections" {
                cells.drain(..cells.len().saturating_sub(1));
            } else if cells.len() > 2 {
                cells.drain(1..cells.len() - 1);
            }
        }
        sentences.extend(cells.into_iter().map(|(cell, summaries)| sentence(group, cell, summaries)));
    }
    sentences
}

fn sentence(group: &Group<'_>, cell: &Cell, summaries: &[Summary]) -> String {
    let (run, what) = (group.run, format!("{} at {}", cell.workload, named(group, cell)));
    let compared = || summaries.iter().filter_map(|one| Some((one, base(run, summaries, one)?)));
    let ratio = |one: &Summary, base: &Summary| one.ratio(base);
    let sound = |(one, base): &(&Summary, &Summary)| ratio(one, base).is_finite();
    let Some((first, base)) = compared().find(sound) else {
        let alone: Vec<String> = summaries.iter().map(|one| format!("{} {}", one.target, rate(one))).collect();
        return format!("{what}: {}.", alone.join(", "));
    };
    let mut text = format!(
        "{what}: {} answered {:.2} times as many transactions per second as {} ({} against {}){}.",
        first.target,
        ratio(first, base),
        base.target,
        number(first.load.rate.median),
        number(base.load.rate.median),
        tail(first, base).unwrap_or_default(),
    );
    let other =
        |(one, base): (&Summary, &Summary)| format!("{} {:.2} times {}", one.target, ratio(one, base), base.target);
    let others: Vec<String> =
        compared().filter(sound).skip_while(|(one, _)| one.target != first.target).skip(1).map(other).collect();
    if !others.is_empty() {
        let _ = write!(text, " The others: {}.", others.join(", "));
    }
    text
}

fn rate(summary: &Summary) -> String {
    format!("{} transactions/s", number(summary.load.rate.median))
}

fn tail(first: &Summary, base: &Summary) -> Option<String> {
    let p99 = |one: &Summary| {
        let latency = &one.load.latency;
        (!latency.is_empty()).then(|| milliseconds(latency.value_at_quantile(0.99) as f64))
    };
    Some(format!(", 99 of 100 within {} ms ({}: {} ms)", p99(first)?, base.target, p99(base)?))
}

/// Time and machine of the measurement.
pub(super) fn origin(run: &Run) -> String {
    let machine = &run.machine;
    format!(
        "Measured {} by freshet-bench {} on {} × {}, {}.",
        date(run.started),
        run.program,
        machine.cores,
        machine.processor,
        bytes(machine.memory as f64)
    )
}
