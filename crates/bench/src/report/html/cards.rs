//! Cards of access paths as HTML: input and output next to each other, the three levels, freshness.

use std::fmt::Write as _;

use super::super::card::{METHOD, freshness, inputs, levels, outputs};
use super::super::figures::{date, number};
use super::super::summary::Summary;
use super::super::text::Text;
use super::axis::Axis;
use super::bars::{Bars, Mark, Row};
use super::palette::Palette;
use super::panels::{quantile, shown_ms};
use super::section::folded;
use crate::card::{Card, Cards, LEVELS, Level};

pub(super) fn html(cards: &Cards, palette: &Palette) -> String {
    let mut text = String::new();
    if !cards.settings.is_empty() {
        let settings: Vec<String> = cards.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let _ = write!(text, "<p class=\"settings\">{}</p>", Text(&settings.join(", ")));
    }
    let first = cards.statements.iter().flat_map(|card| &card.levels).next();
    if let Some(Level { run, .. }) = first {
        let machine = super::super::markdown::machine(run);
        let _ = write!(text, "<p class=\"origin\">Measured {} on {}</p>", date(run.started), Text(&machine));
    }
    let _ = write!(text, "<p class=\"note\">{METHOD}</p>");
    let mut names: Vec<&str> = Vec::new();
    for target in first.into_iter().flat_map(|level| &level.run.targets) {
        names.push(&target.name);
    }
    text.push_str(&palette.legend(names));
    for card in &cards.statements {
        text.push_str(&of_one(card, palette));
    }
    let command = super::super::markdown::command(&cards.command);
    let _ = write!(text, "<p>To repeat it:</p><pre tabindex=\"0\">freshet-bench {}</pre>", Text(&command));
    text
}

fn of_one(card: &Card, palette: &Palette) -> String {
    let mut text = format!("<article class=\"card\"><h3>{}</h3>", Text(&card.name));
    if let Some(said) = sentence(card) {
        let _ = write!(text, "<p>{}</p>", Text(&said));
    }
    let _ = write!(text, "<pre tabindex=\"0\">{}</pre>", Text(&card.text));
    let list = |title: &str, lines: Vec<String>| {
        let mut text = format!("<div><h4>{title}</h4><ul>");
        for line in &lines {
            let _ = write!(text, "<li>{}</li>", Text(line));
        }
        text + "</ul></div>"
    };
    let (goes, comes) = (list("In", inputs(&card.inputs)), list("Out", outputs(&card.outputs)));
    let _ = write!(text, "<div class=\"facts\">{goes}{comes}</div>");
    let charts = format!("{}{}", latency(card, palette), peak(card, palette));
    if !charts.is_empty() {
        let _ = write!(text, "<h4>Throughput and latency</h4><div class=\"charts\">{charts}</div>");
    }
    text.push_str(&folded("In figures", &levels(card).html()));
    let fresh = freshness(card);
    if !fresh.is_empty() {
        let _ =
            write!(text, "<h4>Freshness: from a write's acknowledgement to the first new answer</h4>{}", fresh.html());
    }
    text + "</article>\n"
}

/// Compares the second target with the first, at normal load and at the peak.
fn sentence(card: &Card) -> Option<String> {
    let at = |name: &str| {
        let level = card.levels.iter().find(|level| level.name == name)?;
        Some(Summary::of_cell(&level.run, level.run.cells.first()?))
    };
    let (normal, peak) = (at(LEVELS[1])?, at(LEVELS[2])?);
    let (first, second) = (normal.first()?, normal.get(1)?);
    let p95 = |summary: &Summary| quantile(&summary.load.latency, 0.95).map(shown_ms);
    let ratio = peak.get(1)?.ratio(peak.first()?);
    ratio.is_finite().then_some(())?;
    Some(format!(
        "At half of the peak of {0}, {1} a second, 95 of 100 answers came within {2} ms from {3} and within {4} ms from {0}. At its peak, {3} \
         answers {ratio:.2} times as many as {0}.",
        first.target,
        number(first.load.rate.median),
        p95(second)?,
        second.target,
        p95(first)?,
    ))
}

/// A chart from the median to the 95th percentile of each target at each level.
fn latency(card: &Card, palette: &Palette) -> String {
    let row = |summary: &Summary| {
        let (median, p95) = (quantile(&summary.load.latency, 0.5)?, quantile(&summary.load.latency, 0.95)?);
        let p99 = quantile(&summary.load.latency, 0.99).map(shown_ms).unwrap_or_default();
        let (from, to) = (shown_ms(median), shown_ms(p95));
        let said = format!("{}: median {from} ms, 95th percentile {to} ms, 99th {p99} ms", summary.target);
        Some(Row {
            target: summary.target.clone(), mark: Mark::Span(median, p95), shown: format!("{from}–{to}"), said
        })
    };
    let block = |level: &Level| {
        let summaries = level.run.cells.first().map(|cell| Summary::of_cell(&level.run, cell)).unwrap_or_default();
        let asked = match level.run.method.pace {
            crate::load::Loop::Open { rate, .. } => format!("{}, {}/s asked", level.name, number(rate)),
            crate::load::Loop::Closed | crate::load::Loop::Replay { .. } => format!("{}, peak", level.name),
        };
        (asked, summaries.iter().filter_map(row).collect::<Vec<Row>>())
    };
    let blocks: Vec<(String, Vec<Row>)> = card.levels.iter().map(block).collect();
    let ends = blocks.iter().flat_map(|(_, rows)| rows).flat_map(|row| match &row.mark {
        Mark::Span(from, to) => [*from, *to],
        Mark::Bar(_) => [0.0, 0.0],
    });
    let axis = Axis::wide("ms, median to 95th percentile", ends.collect::<Vec<f64>>());
    Bars { title: "Latency".to_owned(), axis, blocks }.html(palette)
}

/// A chart of the peak throughput of each target.
fn peak(card: &Card, palette: &Palette) -> String {
    let Some(level) = card.levels.iter().find(|level| level.name == LEVELS[2]) else { return String::new() };
    let summaries = level.run.cells.first().map(|cell| Summary::of_cell(&level.run, cell)).unwrap_or_default();
    let row = |summary: &Summary| {
        let (rate, target) = (summary.load.rate.median, summary.target.clone());
        let (shown, said) = (number(rate), format!("{target}: {} a second", number(rate)));
        Row { target, mark: Mark::Bar(vec![rate]), shown, said }
    };
    let rows: Vec<Row> = summaries.iter().map(row).collect();
    let axis = Axis::from_zero("answers/s", summaries.iter().map(|summary| summary.load.rate.median));
    Bars { title: "Throughput at the peak".to_owned(), axis, blocks: vec![(String::new(), rows)] }.html(palette)
}
