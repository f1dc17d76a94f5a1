//! Columns shared by the tables for the terminal and for Markdown, with the form of their figures.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::figures::{NONE, bytes, count, milliseconds, number, percent, times};
use super::summary::{Measured, Summary};
use crate::load::Loop;
use crate::result::{Cache, Cell, FailureCount, Run};

/// Headers of [`speed`]. The other targets are compared with `first`.
pub(super) fn speed_headers(first: &str) -> Vec<String> {
    let against = format!("× {first}");
    let headers = ["trans-\nactions/s", "min–max", &against];
    headers.into_iter().chain(LATENCY).map(str::to_owned).collect()
}

/// Headers of [`latency`].
pub(super) const LATENCY: [&str; 4] = ["avg\nms", "p50\nms", "p95\nms", "p99\nms"];

/// Throughput with its spread, the ratio to the first target, and the latency.
pub(super) fn speed(summary: &Summary, first: &Summary) -> Vec<String> {
    let rate = &summary.load.rate;
    let range = format!("{}–{}", number(rate.min), number(rate.max));
    let mut cells = vec![number(rate.median), range, times(summary.ratio(first))];
    cells.extend(latency(&summary.load.latency));
    cells
}

/// Average and quantiles.
pub(super) fn latency(histogram: &Histogram<u64>) -> [String; 4] {
    if histogram.is_empty() {
        return [NONE; 4].map(str::to_owned);
    }
    let quantile = |q| milliseconds(histogram.value_at_quantile(q) as f64);
    [milliseconds(histogram.mean()), quantile(0.5), quantile(0.95), quantile(0.99)]
}

/// Processor time of each of these processes, in microseconds per query.
pub(super) fn cpu(summary: &Summary, processes: &[String]) -> Vec<String> {
    processes.iter().map(|name| summary.cpu.get(name).map_or(NONE.to_owned(), |micros| number(*micros))).collect()
}

/// Share of statements served from the cache.
pub(super) fn hits(summary: &Summary) -> String {
    summary.cache.map_or(NONE.to_owned(), |cache| percent(cache.hit_ratio()))
}

/// Queries per second that reached the database behind the cache.
pub(super) fn to_database(run: &Run, summary: &Summary, cache: &Cache) -> f64 {
    (cache.fills + cache.passed) / (run.method.measured * summary.load.rate.rounds as f64)
}

/// Memory of the target's own process in bytes.
pub(super) fn memory(summary: &Summary) -> String {
    summary.own_memory().map_or(NONE.to_owned(), bytes)
}

/// Number of wrong answers among those compared. If there are any, the text says so in capitals.
pub(super) fn wrong(summary: &Summary) -> String {
    match &summary.checked {
        None => "not compared".to_owned(),
        Some(checked) if checked.wrong == 0 => format!("0 of {}", count(checked.answers)),
        Some(checked) => format!("{} of {} WRONG", count(checked.wrong), count(checked.answers)),
    }
}

/// For an open loop: the number of transactions that had not ended, and how late the client itself sent them.
pub(super) fn lateness(summary: &Summary) -> [String; 2] {
    let late = summary.load.lateness.as_ref().filter(|histogram| !histogram.is_empty());
    let late = late.map_or(NONE.to_owned(), |histogram| milliseconds(histogram.value_at_quantile(0.99) as f64));
    [count(summary.load.unfinished), late]
}

/// Header of the second column of [`lateness`].
pub(super) const fn late_header(pace: &Loop) -> &'static str {
    if matches!(pace, Loop::Replay { .. }) { "late against\nthe log, p99 ms" } else { "client late\np99 ms" }
}

/// Transactions that hung, then a line for each error code: how often, where, the first text.
pub(super) fn errors(summary: &Summary) -> Vec<String> {
    let of = |load: &Measured, kind: &str| -> Vec<String> {
        let line = |(code, failure): (&String, &FailureCount)| {
            let (times, text) = (count(failure.count), one_line(&failure.first));
            format!("{}: {times} × {code}{kind}, the first: {text}", summary.target)
        };
        load.failures.iter().map(line).collect()
    };
    let hung = || format!("{}: {} transactions had not ended when the round did", summary.target, count(summary.hung));
    let mut lines: Vec<String> = (summary.hung > 0).then(hung).into_iter().collect();
    lines.extend(of(&summary.load, ""));
    lines.extend(summary.writes.iter().flat_map(|writes| of(writes, " (background writes)")));
    lines
}

/// The cores that other processes used, if they were enough to disturb a round.
pub(super) fn disturbed(summary: &Summary) -> Option<String> {
    const OTHERS_MAX: f64 = 0.3;
    let cores = summary.others;
    (cores > OTHERS_MAX).then(|| format!("{}: other processes took up to {cores:.1} cores in a round", summary.target))
}

/// Statements that found fewer or more rows at a target than at the first target, under load. All targets draw the same keys, so a difference beyond
/// chance is a wrong answer.
pub(super) fn rows(summaries: &[Summary], statements: &[String]) -> Vec<String> {
    const STATEMENTS_MIN: u64 = 500;
    const DIFFERENCE_MAX: f64 = 0.1;
    let each = |summary: &Summary, index: usize| {
        let answered = summary.load.statements.get(index)?.len();
        let rows = *summary.load.rows.get(index)? as f64;
        (answered >= STATEMENTS_MIN).then(|| rows / answered as f64)
    };
    let Some(first) = summaries.first() else { return Vec::new() };
    let line = |summary: &Summary, index: usize, name: &String| {
        let (found, expected) = (each(summary, index)?, each(first, index)?);
        let differs = (found - expected).abs() > DIFFERENCE_MAX * expected.max(found);
        let (target, other) = (&summary.target, &first.target);
        differs.then(|| format!("{target}: {found:.2} rows for each {name}, and {expected:.2} from {other}"))
    };
    let names = || statements.iter().enumerate();
    summaries.iter().flat_map(|summary| names().filter_map(|(index, name)| line(summary, index, name))).collect()
}

/// A line for each target that could not be measured or compared. The reason says which.
pub(super) fn failed(cell: &Cell) -> Vec<String> {
    let line = |(target, reason): (&String, &String)| format!("{target}: {}", one_line(reason));
    cell.failed.iter().map(line).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The settings of a cell, besides its connections, that the run varies: the rate of writes, the size of the cache.
pub(super) fn sweep(cell: &Cell) -> String {
    let mut text = String::new();
    if cell.writes > 0.0 {
        let _ = write!(text, ", {} writes/s", number(cell.writes));
    }
    if let Some(size) = cell.cache_size {
        let _ = write!(text, ", cache of {}", bytes(size as f64));
    }
    text
}
