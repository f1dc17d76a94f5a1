//! Cards of access paths as text and tables, for Markdown and for HTML.

use std::fmt::Write as _;

use super::columns;
use super::figures::{NONE, bytes, count, milliseconds, number, percent};
use super::grid::Grid;
use super::summary::Summary;
use crate::card::{Card, Cards, Freshness, Inputs, Level, Outputs, Parameter, Quantiles, Seen};
use crate::load::Loop;
use crate::result::Run;

/// The most columns of an answer that are named. The others are counted.
const COLUMNS_MAX: usize = 20;

/// Transactions per second of the first target in a run with one cell.
pub fn rate_of_first(run: &Run) -> Option<f64> {
    let summaries = Summary::of_cell(run, run.cells.first()?);
    summaries.first().map(|summary| summary.load.rate.median).filter(|rate| *rate > 0.0)
}

/// The document as Markdown.
pub fn markdown(cards: &Cards) -> String {
    let mut text = format!("# Access paths of {}\n", cards.workload);
    if !cards.settings.is_empty() {
        let settings: Vec<String> = cards.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let _ = write!(text, "\nSettings: {}.\n", settings.join(", "));
    }
    if let Some(level) = cards.statements.iter().flat_map(|card| &card.levels).next() {
        let run = &level.run;
        let _ = write!(
            text,
            "\nMeasured {} by `freshet-bench` {} on {}\n\n{}",
            super::figures::date(run.started),
            run.program,
            super::markdown::machine(run),
            super::markdown::targets(run).markdown()
        );
    }
    let _ = write!(text, "\n{METHOD}\n");
    for card in &cards.statements {
        let _ = write!(text, "\n## {}\n\n    {}\n\n", card.name, card.text);
        for line in inputs(&card.inputs).iter().chain(&outputs(&card.outputs)) {
            let _ = writeln!(text, "- {}", line.replace(['<', '>', '`'], "'"));
        }
        let _ = write!(text, "\n{}", levels(card).markdown());
        let fresh = freshness(card);
        if !fresh.is_empty() {
            let _ = write!(text, "\n{}", fresh.markdown());
        }
    }
    let _ = write!(text, "\n## To repeat it\n\n    freshet-bench {}\n", super::markdown::command(&cards.command));
    text
}

/// The method, in short.
pub(super) const METHOD: &str = "The peak is a closed loop of the statement alone. Low and normal load are open loops with random gaps, at a \
     tenth and at half of the first target's peak, the same for all targets; latency counts from the intended start. Freshness is the time from the \
     acknowledgement of a write to the end of the first answer that shows it. It is measured if the workload has a write that changes the answer.";

/// A line for each fact about the input.
pub(super) fn inputs(inputs: &Inputs) -> Vec<String> {
    let mut lines = Vec::new();
    if !inputs.tables.is_empty() {
        lines.push(format!("reads {}", inputs.tables.join(", ")));
    }
    for (index, parameter) in inputs.parameters.iter().enumerate() {
        lines.push(format!("${}: {}", index + 1, of_parameter(parameter)));
    }
    lines.push(format!(
        "{} distinct reads in {} draws; the most frequent tenth has {} of the draws",
        count(inputs.distinct),
        count(inputs.drawn),
        percent(inputs.hot_tenth)
    ));
    lines
}

fn of_parameter(parameter: &Parameter) -> String {
    let [least, most] = parameter.range;
    let range = match parameter.kind.as_str() {
        "integer" => format!(", {least} to {most}"),
        "text" => format!(" of {least} to {most} characters"),
        _ => String::new(),
    };
    format!(
        "{}{range}; {} different, the most frequent in {} of the draws (such as {:?})",
        parameter.kind,
        count(parameter.distinct),
        percent(parameter.hottest),
        parameter.example
    )
}

/// A line for each fact about the output.
pub(super) fn outputs(outputs: &Outputs) -> Vec<String> {
    let mut columns: Vec<String> =
        outputs.columns.iter().take(COLUMNS_MAX).map(|column| format!("{} {}", column.name, column.kind)).collect();
    if outputs.columns.len() > COLUMNS_MAX {
        columns.push(format!("{} more", outputs.columns.len() - COLUMNS_MAX));
    }
    let of = |what: &str, quantiles: &Quantiles, shown: &dyn Fn(u64) -> String| {
        let [median, p95, most] = [quantiles.median, quantiles.p95, quantiles.most].map(shown);
        format!("{what}: {median}, 95 of 100 answers at most {p95}, all at most {most}")
    };
    vec![
        format!("columns: {}", columns.join(", ")),
        of("rows", &outputs.rows, &count),
        of("size of the values", &outputs.bytes, &|value| bytes(value as f64)),
    ]
}

/// A table with a row for each target at each level.
pub(super) fn levels(card: &Card) -> Grid {
    let figures =
        ["asked/s", "reached/s", "p50 ms", "p95 ms", "p99 ms", "hits", "invalidated", "stream's age at most, ms"];
    let mut grid = Grid::new(&["load", "target"], figures);
    for level in &card.levels {
        let Some(cell) = level.run.cells.first() else { continue };
        for summary in Summary::of_cell(&level.run, cell) {
            let [_, p50, p95, p99] = columns::latency(&summary.load.latency);
            let asked = match level.run.method.pace {
                Loop::Open { rate, .. } => number(rate),
                Loop::Closed | Loop::Replay { .. } => "peak".to_owned(),
            };
            let changed = summary.cache.map_or(NONE.to_owned(), |cache| number(cache.changed));
            let age = oldest(level, &summary.target).map_or(NONE.to_owned(), |age| number(age * 1e3));
            let rate = number(summary.load.rate.median);
            let hits = columns::hits(&summary);
            grid.row(vec![level.name.clone(), summary.target.clone(), asked, rate, p50, p95, p99, hits, changed, age]);
        }
    }
    grid
}

/// The age of the oldest proof of a target's cache in all samples, in seconds.
fn oldest(level: &Level, target: &str) -> Option<f64> {
    let rounds = level.run.cells.iter().flat_map(|cell| &cell.rounds).filter(|round| round.target == target);
    rounds.flat_map(|round| &round.series).filter_map(|sample| sample.cache.age).max_by(f64::total_cmp)
}

/// A table with a row for each target and write path.
pub(super) fn freshness(card: &Card) -> Grid {
    let figures =
        ["writes", "in the first answer", "old answers", "never within 5 s", "median ms", "95 of 100 ms", "longest ms"];
    let mut grid = Grid::new(&["target", "written"], figures);
    let mut row = |target: &String, how: &str, seen: &Seen| {
        let share = seen.at_once as f64 / seen.writes.max(1) as f64;
        let delay = &seen.delay;
        let mut cells = vec![target.clone(), how.to_owned(), count(seen.writes), percent(share)];
        cells.extend([count(seen.old_answers), count(seen.never)]);
        cells.extend([delay.median, delay.p95, delay.most].map(|value| milliseconds(value as f64)));
        grid.row(cells);
    };
    for (target, Freshness { through, past }) in by_run(card) {
        row(target, "through it", through);
        if let Some(past) = past {
            row(target, "at the database", past);
        }
    }
    grid
}

/// The measurements in the order of the command line.
fn by_run(card: &Card) -> Vec<(&String, &Freshness)> {
    let order: Vec<&str> = card
        .levels
        .first()
        .map(|level| level.run.targets.iter().map(|target| target.name.as_str()).collect())
        .unwrap_or_default();
    let mut all: Vec<(&String, &Freshness)> = card.freshness.iter().collect();
    all.sort_by_key(|(name, _)| order.iter().position(|known| known == name));
    all
}
