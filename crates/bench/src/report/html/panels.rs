//! The charts of a group of cells, in order: throughput and latency, distributions, cache, processor time, statements.

use hdrhistogram::Histogram;

use super::super::columns::to_database;
use super::super::figures::{milliseconds, number, percent};
use super::super::summary::Summary;
use super::super::tables::Group;
use super::axis::Axis;
use super::bars::{Bars, Mark, Row};
use super::chart::{Chart, Line, Point};
use super::palette::Palette;
use super::sweep::{Measure, named, one};
use crate::result::Cell;

const NANOSECONDS_PER_MS: f64 = 1e6;
const QUANTILES: [(f64, &str); 3] = [(0.5, "Median"), (0.95, "95th percentile"), (0.99, "99th percentile")];
/// Quantiles of a distribution that have a marker.
const MARKED: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// Milliseconds at a quantile. None if there are no transactions.
pub(super) fn quantile(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.value_at_quantile(quantile) as f64 / NANOSECONDS_PER_MS)
}

pub(super) fn shown_ms(value: f64) -> String {
    milliseconds(value * NANOSECONDS_PER_MS)
}

/// Throughput, and the cache's share in it.
pub(super) fn throughput(group: &Group<'_>, palette: &Palette) -> String {
    let rate = |summary: &Summary| Some(summary.load.rate);
    let hits = |summary: &Summary| summary.cache.map(|cache| one(cache.hit_ratio() * 100.0));
    let upstream = |summary: &Summary| summary.cache.map(|cache| one(to_database(group.run, summary, &cache)));
    let share = |value: f64| percent(value / 100.0);
    let all = [
        Measure { title: "Throughput", unit: "transactions/s", of: &rate, shown: &number, shared: &[] },
        Measure { title: "Served from the cache", unit: "% of statements", of: &hits, shown: &share, shared: &[] },
        Measure { title: "Sent to the database", unit: "queries/s", of: &upstream, shown: &number, shared: &[] },
    ];
    all.iter().map(|measure| measure.html(group, palette)).collect()
}

/// Quantiles of the latency. All charts have the same axis.
pub(super) fn latency(group: &Group<'_>, palette: &Palette) -> String {
    let all = group.cells.iter().flat_map(|(_, summaries)| summaries);
    let shared: Vec<f64> =
        all.flat_map(|one| QUANTILES.map(|(at, _)| quantile(&one.load.latency, at)).into_iter().flatten()).collect();
    let chart = |(at, title): (f64, &str)| {
        let of = |summary: &Summary| quantile(&summary.load.latency, at).map(one);
        Measure { title, unit: "ms", of: &of, shown: &shown_ms, shared: &shared }.html(group, palette)
    };
    QUANTILES.into_iter().map(chart).collect()
}

/// Rate and latency of the background writers.
pub(super) fn writes(group: &Group<'_>, palette: &Palette) -> String {
    let rate = |summary: &Summary| summary.writes.as_ref().map(|writes| writes.rate);
    Measure { title: "Background writes achieved", unit: "writes/s", of: &rate, shown: &number, shared: &[] }
        .html(group, palette)
}

/// For each cell, the latency against the share of transactions that are as fast or faster.
pub(super) fn distributions(group: &Group<'_>, palette: &Palette) -> String {
    let chart = |(cell, summaries): &(&Cell, Vec<Summary>)| {
        let lines: Vec<Line> = summaries.iter().map(distribution).collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        let chart = Chart {
            title: named(group, cell),
            x: Axis::quantiles("% of transactions are as fast or faster", points().map(|at| at.x).fold(0.5, f64::max)),
            y: Axis::wide("ms", points().map(|point| point.y)),
            lines,
            rules: Vec::new(),
        };
        chart.html(palette)
    };
    group.cells.iter().map(chart).collect()
}

/// A quantile is shown only if some transactions are above it.
fn distribution(summary: &Summary) -> Line {
    let latency = &summary.load.latency;
    let known = |at: &f64| latency.len() as f64 * (1.0 - at) >= 1.0;
    let coarse = (0..10).map(|tenth| f64::from(tenth) / 10.0);
    let all = coarse.chain([0.925, 0.95, 0.975, 0.99, 0.995, 0.9975, 0.999, 0.9995, 0.9999]);
    let point = |at: f64| {
        let y = quantile(latency, at)?;
        let marked = MARKED.contains(&at);
        let said = marked.then(|| format!("{}, {}%: {} ms", summary.target, (at * 1e6).round() / 1e4, shown_ms(y)));
        Some(Point { x: at, y, range: None, said })
    };
    Line { target: summary.target.clone(), points: all.filter(known).filter_map(point).collect() }
}

/// For each cell, the processor time of a query: the target's own process, the other servers, the client. All charts have the same axis.
pub(super) fn cpu(group: &Group<'_>, palette: &Palette) -> String {
    let rows = |summaries: &Vec<Summary>| summaries.iter().filter_map(cpu_row).collect::<Vec<Row>>();
    let blocks: Vec<(&Cell, Vec<Row>)> = group.cells.iter().map(|(cell, summaries)| (*cell, rows(summaries))).collect();
    let sum = |row: &Row| if let Mark::Bar(parts) = &row.mark { parts.iter().sum() } else { 0.0 };
    let axis = Axis::from_zero("CPU µs/query", blocks.iter().flat_map(|(_, rows)| rows).map(sum));
    let chart = |(cell, rows): (&Cell, Vec<Row>)| {
        let blocks = vec![(String::new(), rows)];
        Bars { title: named(group, cell), axis: axis.clone(), blocks }.html(palette)
    };
    blocks.into_iter().map(chart).collect()
}

fn cpu_row(summary: &Summary) -> Option<Row> {
    let own = summary.process.as_deref();
    let kind = |name: &str| if Some(name) == own { 0 } else { 1 + usize::from(name == "client") };
    let mut parts = [0.0; 3];
    let mut named: Vec<(usize, String)> = Vec::new();
    for (name, micros) in summary.cpu.iter().filter(|(_, micros)| **micros > 0.0) {
        parts[kind(name)] += micros;
        named.push((kind(name), format!("{name} {}", number(*micros))));
    }
    named.sort();
    let sum: f64 = parts.iter().sum();
    let said: Vec<String> = named.into_iter().map(|(_, text)| text).collect();
    (sum > 0.0).then(|| Row {
        target: summary.target.clone(),
        mark: Mark::Bar(parts.to_vec()),
        shown: number(sum),
        said: format!("{}: {} µs/query", summary.target, said.join(", ")),
    })
}

/// For each cell, median and 95th percentile of each statement. An empty text if the workload has one statement.
pub(super) fn statements(group: &Group<'_>, palette: &Palette) -> String {
    let chart = |(cell, summaries): &(&Cell, Vec<Summary>)| {
        let blocks: Vec<(String, Vec<Row>)> = cell
            .statements
            .iter()
            .enumerate()
            .map(|(index, name)| (name.clone(), summaries.iter().filter_map(|one| statement(one, index)).collect()))
            .filter(|(_, rows): &(String, Vec<Row>)| !rows.is_empty())
            .collect();
        let ends = blocks.iter().flat_map(|(_, rows)| rows).flat_map(|row| match &row.mark {
            Mark::Span(from, to) => [*from, *to],
            Mark::Bar(_) => [0.0, 0.0],
        });
        let axis = Axis::wide("ms, median to 95th percentile", ends);
        let text = Bars { title: named(group, cell), axis, blocks: blocks.clone() }.html(palette);
        if blocks.len() > 1 { text } else { String::new() }
    };
    group.cells.iter().map(chart).collect()
}

fn statement(summary: &Summary, index: usize) -> Option<Row> {
    let histogram = summary.load.statements.get(index)?;
    let (median, p95) = (quantile(histogram, 0.5)?, quantile(histogram, 0.95)?);
    let (shown, shown_p95) = (shown_ms(median), shown_ms(p95));
    let said = format!("{}: median {shown} ms, 95th percentile {shown_p95} ms", summary.target);
    let shown = format!("{shown}–{shown_p95}");
    Some(Row { target: summary.target.clone(), mark: Mark::Span(median, p95), shown, said })
}
