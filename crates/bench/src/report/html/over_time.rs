//! Charts of the samples during the rounds of a cell, with the rounds next to each other. They show start-up effects, growth and drops.

use std::fmt::Write as _;

use super::super::figures::{bytes, number, percent};
use super::super::tables::Group;
use super::super::text::Text;
use super::axis::Axis;
use super::chart::{Chart, Line, Point};
use super::palette::Palette;
use super::sweep::named;
use crate::result::{Cell, Load, Round, Run, Sample};

const MIB: f64 = 1_048_576.0;
/// The last second of an interval may be incomplete. A rate over a shorter time would mean little.
const SECONDS_MIN: f64 = 0.5;

/// Seconds since the start of the round, a value, and its tooltip.
type Value = (f64, f64, String);
/// Computes the values of a round.
type Of<'a> = &'a dyn Fn(&Round) -> Vec<Value>;

/// The charts of all cells, each under the cell's name.
pub(super) fn html(group: &Group<'_>, palette: &Palette) -> String {
    let mut text = String::new();
    for (cell, _) in &group.cells {
        let charts = charts(group.run, cell, palette);
        if !charts.is_empty() {
            let _ = write!(text, "<h5>{}</h5><div class=\"charts\">{charts}</div>", Text(&named(group, cell)));
        }
    }
    text
}

fn charts(run: &Run, cell: &Cell, palette: &Palette) -> String {
    let warm_up = run.method.warm_up;
    let rate = |unit: &'static str| move |value: f64| format!("{} {unit}", number(value));
    let load = |round: &Round| per_second(&round.load, warm_up, rate("transactions/s"));
    let writes =
        |round: &Round| round.writes.iter().flat_map(|load| per_second(load, warm_up, rate("writes/s"))).collect();
    let evicted = |before: &Sample, after: &Sample| {
        let value = (after.cache.evictions - before.cache.evictions) / (after.at - before.at);
        (after.cache.evictions > 0.0).then(|| (value, format!("{} evictions/s", number(value))))
    };
    let all: [(&str, &str, Of<'_>); 6] = [
        ("Throughput", "transactions/s", &load),
        ("Background writes", "writes/s", &writes),
        ("Served from the cache", "% of statements", &|round| between(&round.series, hit_ratio)),
        ("Evictions", "evictions/s", &|round| between(&round.series, evicted)),
        ("Age of the proof that no change is missing", "ms", &age),
        ("Memory of the target's own process", "MiB", &memory),
    ];
    all.into_iter().map(|(title, unit, of)| chart((run, cell), title, unit, of).html(palette)).collect()
}

fn chart((run, cell): (&Run, &Cell), title: &str, unit: &str, of: Of<'_>) -> Chart {
    let method = &run.method;
    let length = method.warm_up + method.measured + method.cool_down;
    let rounds = cell.rounds.iter().map(|round| round.number + 1).max().unwrap_or(1);
    let mut lines = Vec::new();
    for round in &cell.rounds {
        let offset = length * round.number as f64;
        let point = |(at, y, said): Value| {
            let said = format!("{}, round {}, {at:.1} s: {said}", round.target, round.number + 1);
            Point { x: offset + at, y, range: None, said: Some(said) }
        };
        let points: Vec<Point> = of(round).into_iter().map(point).collect();
        lines.push(Line { target: round.target.clone(), points });
    }
    let label = if rounds > 1 { format!("seconds; {rounds} rounds side by side") } else { "seconds".to_owned() };
    let points = || lines.iter().flat_map(|line| &line.points);
    let last = points().map(|point| point.x).fold(length * rounds as f64, f64::max);
    let y = Axis::from_zero(unit, points().map(|point| point.y));
    let rules = (1..rounds).map(|number| length * number as f64).collect();
    Chart { title: title.to_owned(), x: Axis::from_zero(label, [last]), y, lines, rules }
}

/// A value for each second of the measured interval, at the middle of the second.
fn per_second(load: &Load, warm_up: f64, said: impl Fn(f64) -> String) -> Vec<Value> {
    let value = |(second, count): (usize, &u64)| {
        let start = second as f64;
        let length = (load.seconds - start).min(1.0);
        let rate = *count as f64 / length;
        (length >= SECONDS_MIN).then(|| (warm_up + start + length / 2.0, rate, said(rate)))
    };
    load.per_second.iter().enumerate().filter_map(value).collect()
}

/// The difference of successive samples, at the time of the later one. If a counter fell, the process was restarted, and the difference is left out.
fn between(series: &[Sample], of: impl Fn(&Sample, &Sample) -> Option<(f64, String)>) -> Vec<Value> {
    let value = |pair: &[Sample]| {
        let [before, after] = pair else { return None };
        let (value, said) = of(before, after)?;
        (value.is_finite() && value >= 0.0).then_some((after.at, value, said))
    };
    series.windows(2).filter_map(value).collect()
}

fn hit_ratio(before: &Sample, after: &Sample) -> Option<(f64, String)> {
    let (one, other) = (&before.cache, &after.cache);
    let (hits, fills, passed) = (other.hits - one.hits, other.fills - one.fills, other.passed - one.passed);
    let share = hits / (hits + fills + passed);
    (hits >= 0.0 && fills >= 0.0 && passed >= 0.0).then(|| (share * 100.0, percent(share)))
}

/// How far a served result may be behind the database's changes.
fn age(round: &Round) -> Vec<Value> {
    let value = |sample: &Sample| {
        let millis = sample.cache.age? * 1e3;
        Some((sample.at, millis, format!("{} ms", number(millis))))
    };
    round.series.iter().filter_map(value).collect()
}

/// No values for a process that was not observed.
fn memory(round: &Round) -> Vec<Value> {
    let seen = round.series.iter().filter(|sample| sample.memory > 0);
    seen.map(|sample| (sample.at, sample.memory as f64 / MIB, bytes(sample.memory as f64))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Cache;

    #[test]
    fn what_a_sample_cannot_say_is_left_out() {
        let sample =
            |at: f64, hits: f64, fills: f64| Sample { at, cache: Cache { hits, fills, ..Cache::default() }, memory: 0 };
        // A second without load, and a restarted process.
        let series = [(0.0, 0.0, 0.0), (1.0, 9.0, 1.0), (2.0, 9.0, 1.0), (3.0, 0.0, 0.0), (4.0, 1.0, 1.0)];
        let series = series.map(|(at, hits, fills)| sample(at, hits, fills));
        let said: Vec<String> =
            between(&series, hit_ratio).into_iter().map(|(at, _, said)| format!("{at} {said}")).collect();
        assert_eq!(said, ["1 90.0%", "4 50.0%"]);
        assert!(memory(&Round { series: series.to_vec(), ..Round::default() }).is_empty());
    }

    #[test]
    fn a_part_of_a_second_is_a_part() {
        let load = Load { seconds: 2.6, per_second: vec![100, 200, 60], ..Load::default() };
        let rates: Vec<(f64, f64)> =
            per_second(&load, 1.0, number).into_iter().map(|(at, rate, _)| (at, rate.round())).collect();
        assert_eq!(rates, [(1.5, 100.0), (2.5, 200.0), (3.3, 100.0)]);
        let short = Load { seconds: 1.2, per_second: vec![100, 1], ..Load::default() };
        assert_eq!(per_second(&short, 0.0, number).len(), 1);
    }
}
