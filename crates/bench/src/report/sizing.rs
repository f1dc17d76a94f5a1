//! A sizing as text and tables, for Markdown and for HTML.

use std::fmt::Write as _;

use super::figures::{bytes, count, number, percent};
use super::grid::Grid;
use crate::sizing::{Point, Sizing};

/// Miss ratios in the table, as far as the curve reaches them.
const MISS_RATIOS: [f64; 9] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1];

/// The document as Markdown.
pub fn markdown(sizing: &Sizing) -> String {
    let mut text = format!("# Memory for {}\n", sizing.workload);
    if !sizing.settings.is_empty() {
        let settings: Vec<String> = sizing.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let _ = write!(text, "\nSettings: {}.\n", settings.join(", "));
    }
    if let Some(run) = sizing.runs.first() {
        let machine = super::markdown::machine(run);
        let _ = write!(text, "\nMeasured {} on {machine}\n", super::figures::date(run.started));
    }
    let _ = write!(text, "\n{}\n", lead(sizing));
    for line in assumptions(sizing) {
        let _ = write!(text, "\n- {line}");
    }
    let _ = write!(text, "\n\n{}", sizes(sizing).markdown());
    let checks = checks(sizing);
    if !checks.is_empty() {
        let _ = write!(text, "\n{}", checks.markdown());
    }
    let _ = write!(text, "\n## To repeat it\n\n    freshet-bench {}\n", super::markdown::command(&sizing.command));
    text
}

fn last(sizing: &Sizing) -> Point {
    sizing.curve.last().copied().unwrap_or(Point { bytes: 0.0, miss_ratio: 1.0 })
}

/// A sentence about the knee.
pub(super) fn lead(sizing: &Sizing) -> String {
    let end = last(sizing);
    let most =
        format!("{} would serve {} of the reads from the cache", bytes(end.bytes), percent(1.0 - end.miss_ratio));
    let Some(knee) = sizing.knee else {
        return format!("{most}. The curve has no knee: each byte up to there has the same value.");
    };
    let at_knee = sizing.curve.iter().find(|point| point.bytes >= knee).map_or(1.0, |point| point.miss_ratio);
    format!(
        "{} serve {} of the reads from the cache. This is the knee: beyond it, more memory gains less. {most}. The other reads are the first of their kind.",
        bytes(knee),
        percent(1.0 - at_knee),
    )
}

/// The assumptions of the prediction.
pub(super) fn assumptions(sizing: &Sizing) -> Vec<String> {
    let (trace, overhead) = (&sizing.trace, &sizing.overhead);
    let how = if overhead.measured { "as measured by a run with enough memory for all" } else { "as given or assumed" };
    vec![
        format!(
            "The trace has {} reads, drawn by the workload or taken from the log, of which {} are distinct. The first {} fill the cache and are not counted.",
            count(trace.accesses),
            count(trace.distinct),
            count(trace.warm)
        ),
        format!(
            "Reuse distances are those of {} of the distinct reads, chosen by hash (SHARDS, FAST 2015). The sizes of {} answers were read from the database, {} on average.",
            percent(trace.rate),
            count(trace.answers),
            bytes(trace.answer_bytes)
        ),
        format!(
            "The prediction is for an LRU cache without changes of the data, with {} for each entry in addition to its answer ({how}). Freshet \
             caches the results that save the database most for their bytes. The same limit covers memory for other things than entries: little when \
             idle, and at most half of it.",
            bytes(overhead.bytes.round())
        ),
    ]
}

/// The cache size for each hit ratio.
pub(super) fn sizes(sizing: &Sizing) -> Grid {
    let mut grid = Grid::new(&["miss ratio at most"], ["memory", "share of the largest useful size"]);
    let end = last(sizing);
    let reached = |ratio: f64| sizing.curve.iter().find(|point| point.miss_ratio <= ratio);
    for ratio in MISS_RATIOS {
        if let Some(point) = reached(ratio).filter(|point| point.bytes > 0.0) {
            grid.row(vec![percent(ratio), bytes(point.bytes), percent(point.bytes / end.bytes)]);
        }
    }
    grid.row(vec![percent(end.miss_ratio), bytes(end.bytes), percent(1.0)]);
    grid
}

/// A table of predicted and measured values.
pub(super) fn checks(sizing: &Sizing) -> Grid {
    let figures = [
        "given",
        "held in entries",
        "entries",
        "hits predicted for the given size",
        "for the held bytes",
        "hits measured",
    ];
    let mut grid = Grid::new(&["checked at", "cache"], figures);
    for check in &sizing.checks {
        let mut row = vec![check.name.clone(), check.target.clone()];
        row.extend([bytes(check.size as f64), bytes(check.held), number(check.entries)]);
        row.extend([check.predicted, check.predicted_held, check.measured].map(percent));
        grid.row(row);
    }
    grid
}
