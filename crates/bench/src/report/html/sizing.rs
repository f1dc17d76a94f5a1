//! A sizing on a page: the miss-ratio curve with its knee, the measurements as points, and tables.

use std::fmt::Write as _;

use super::super::figures::{bytes, date, percent};
use super::super::sizing::{assumptions, checks, lead, sizes};
use super::super::text::Text;
use super::axis::Axis;
use super::chart::{Chart, Line, Point};
use super::palette::Palette;
use super::section::folded;
use crate::sizing::Sizing;

/// The curve's name in the legend.
pub(super) const PREDICTED: &str = "predicted (LRU)";
const MIB: f64 = 1_048_576.0;
/// Number of points with a marker.
const MARKED: usize = 6;

pub(super) fn html(sizing: &Sizing, palette: &Palette) -> String {
    let mut text = format!("<p class=\"lead\">{}</p>", Text(&lead(sizing)));
    if let Some(run) = sizing.runs.first() {
        let machine = super::super::markdown::machine(run);
        let _ = write!(text, "<p class=\"origin\">Measured {} on {}</p>", date(run.started), Text(&machine));
    }
    let names = std::iter::once(PREDICTED).chain(sizing.checks.iter().map(|check| check.target.as_str()));
    let mut shown: Vec<&str> = Vec::new();
    for name in names {
        if !shown.contains(&name) {
            shown.push(name);
        }
    }
    text.push_str(&palette.legend(shown));
    let knee = if sizing.knee.is_some() { " The line from top to bottom is the knee." } else { "" };
    let measured =
        if sizing.checks.is_empty() { "" } else { " The measured points are runs, at the bytes of their entries." };
    let _ = write!(
        text,
        "<p class=\"note\">Share of reads that go to the database, by the cache's memory.{knee}{measured}</p>"
    );
    let _ = write!(text, "<div class=\"charts\">{}</div>", chart(sizing).html(palette));
    let measured = checks(sizing);
    if !measured.is_empty() {
        let _ = write!(text, "<h4>Predicted and measured</h4>{}", measured.html());
    }
    let mut items = String::from("<ul>");
    for line in assumptions(sizing) {
        let _ = write!(items, "<li>{}</li>", Text(&line));
    }
    text.push_str(&folded("Sizes in figures", &sizes(sizing).html()));
    let command = super::super::markdown::command(&sizing.command);
    let _ = write!(items, "</ul><p>To repeat it:</p><pre tabindex=\"0\">freshet-bench {}</pre>", Text(&command));
    text.push_str(&folded("Method", &items));
    text
}

fn chart(sizing: &Sizing) -> Chart {
    let every = (sizing.curve.len() / MARKED).max(1);
    let point = |(index, point): (usize, &crate::sizing::Point)| {
        let said = format!("{PREDICTED}: {} miss with {}", percent(point.miss_ratio), bytes(point.bytes));
        let marked = index % every == 0;
        Point { x: point.bytes / MIB, y: point.miss_ratio * 100.0, range: None, said: marked.then_some(said) }
    };
    let curve = Line { target: PREDICTED.to_owned(), points: sizing.curve.iter().enumerate().map(point).collect() };
    let mut lines = vec![curve];
    for check in &sizing.checks {
        let said = format!(
            "{}, {}, given {}, held {}: {} miss (predicted {})",
            check.target,
            check.name,
            bytes(check.size as f64),
            bytes(check.held),
            percent(1.0 - check.measured),
            percent(1.0 - check.predicted_held),
        );
        let point = Point { x: check.held / MIB, y: (1.0 - check.measured) * 100.0, range: None, said: Some(said) };
        lines.push(Line { target: check.target.clone(), points: vec![point] });
    }
    let widest = lines.iter().flat_map(|line| &line.points).map(|point| point.x).fold(0.0, f64::max);
    Chart {
        title: "Miss ratio by memory".to_owned(),
        x: Axis::from_zero("MiB", [widest]),
        y: Axis::from_zero("% of reads", [100.0]),
        lines,
        rules: sizing.knee.map(|knee| knee / MIB).into_iter().collect(),
    }
}
