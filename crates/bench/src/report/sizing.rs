//! A sizing in words and in tables, for Markdown and for the page.

use std::fmt::Write as _;

use super::figures::{bytes, count, number, percent};
use super::grid::Grid;
use crate::sizing::{Point, Sizing};

/// Miss ratios that are shown in the table, if the curve gets there.
const MISS_RATIOS: [f64; 9] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1];

/// All of it.
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

/// The knee, in words.
pub(super) fn lead(sizing: &Sizing) -> String {
    let end = last(sizing);
    let most =
        format!("{} would answer {} of the reads from the cache", bytes(end.bytes), percent(1.0 - end.miss_ratio));
    let Some(knee) = sizing.knee else {
        return format!("{most}. The curve does not bend: each byte up to there is worth the same.");
    };
    let at_knee = sizing.curve.iter().find(|point| point.bytes >= knee).map_or(1.0, |point| point.miss_ratio);
    format!(
        "{} answer {} of the reads from the cache; that is the knee, behind which more gains less. {most}; the others ask something for the first time.",
        bytes(knee),
        percent(1.0 - at_knee),
    )
}

/// What the prediction takes for granted.
pub(super) fn assumptions(sizing: &Sizing) -> Vec<String> {
    let (trace, overhead) = (&sizing.trace, &sizing.overhead);
    let how = if overhead.measured { "as measured by a run with room for all" } else { "as given or assumed" };
    vec![
        format!(
            "A trace of {} reads as the workload draws them, or as they were logged, of {} different questions; the first {} fill the cache and are not counted.",
            count(trace.accesses),
            count(trace.distinct),
            count(trace.warm)
        ),
        format!(
            "Reuse distances of {} of the questions, chosen by hash (SHARDS, FAST 2015); sizes of {} answers from the database, {} on average.",
            percent(trace.rate),
            count(trace.answers),
            bytes(trace.answer_bytes)
        ),
        format!(
            "The prediction is for a cache that forgets what was not asked for the longest (LRU), without changes of the data, with {} for each entry \
             beside its answer ({how}). Freshet keeps what saves the database most for its bytes, and takes memory for other things than entries \
             from the same limit: at rest little, half of it at most.",
            bytes(overhead.bytes.round())
        ),
    ]
}

/// From which size on so many reads are answered.
pub(super) fn sizes(sizing: &Sizing) -> Grid {
    let mut grid = Grid::new(&["miss ratio at most"], ["memory", "of all that would help"]);
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

/// Predicted beside measured.
pub(super) fn checks(sizing: &Sizing) -> Grid {
    let figures = [
        "given",
        "held in entries",
        "entries",
        "hits predicted for what was given",
        "for what was held",
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
