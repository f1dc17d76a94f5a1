//! A cell's table for the terminal.

use std::fmt::Write as _;

use super::columns;
use super::figures::{count, number};
use super::grid::Grid;
use super::summary::{Summary, differing, processes};
use crate::load::Loop;
use crate::result::{Cell, Run};

/// The table of a cell, printed when its rounds have ended, with a row for each target over all its rounds. Wrong answers, errors and disturbed
/// rounds are listed below it.
pub fn cell_table(run: &Run, cell: &Cell) -> String {
    let summaries = Summary::of_cell(run, cell);
    let mut text = heading(run, cell);
    let Some(first) = summaries.first() else {
        text.push_str("\nno round has ended\n");
        below(&mut text, cell, &summaries);
        return text;
    };
    let open = !matches!(run.method.pace, Loop::Closed);
    let late = columns::late_header(&run.method.pace);
    let cached = summaries.iter().any(|summary| summary.cache.is_some());
    let processes = processes(&summaries);

    let mut figures = columns::speed_headers(&first.target);
    figures.extend(cached.then(|| "hits".to_owned()));
    figures.extend(processes.iter().map(|name| format!("{name}\nCPU µs\n/query")));
    figures.push("memory".to_owned());
    figures.extend(["unfinished", late].iter().filter(|_| open).map(|&header| header.to_owned()));
    figures.extend(["errors", "wrong\nanswers"].map(str::to_owned));
    let mut grid = Grid::new(&["target"], figures.iter().map(String::as_str));
    for summary in &summaries {
        let mut row = vec![summary.target.clone()];
        row.extend(columns::speed(summary, first));
        row.extend(cached.then(|| columns::hits(summary)));
        row.extend(columns::cpu(summary, &processes));
        row.push(columns::memory(summary));
        row.extend(columns::lateness(summary).into_iter().filter(|_| open));
        row.extend([count(summary.errors()), columns::wrong(summary)]);
        grid.row(row);
    }
    let _ = write!(text, "\n{}\n", grid.terminal());
    for line in summaries.iter().filter_map(|summary| writes(cell, summary)) {
        let _ = writeln!(text, "{line}");
    }
    below(&mut text, cell, &summaries);
    text
}

/// The heading: the settings in which the cell differs from the run's other cells.
fn heading(run: &Run, cell: &Cell) -> String {
    let mut text =
        format!("{}, {} connection{}", cell.workload, cell.connections, if cell.connections == 1 { "" } else { "s" });
    for (name, value) in differing(&run.cells.iter().collect::<Vec<_>>(), cell) {
        let _ = write!(text, ", {name} {value}");
    }
    text.push_str(&columns::sweep(cell));
    text
}

fn writes(cell: &Cell, summary: &Summary) -> Option<String> {
    let writes = summary.writes.as_ref()?;
    let [average, median, p95, p99] = columns::latency(&writes.latency);
    Some(format!(
        "background writes, {}: {}/s of {}/s, ms: avg {average}, p50 {median}, p95 {p95}, p99 {p99}",
        summary.target,
        number(writes.rate.median),
        number(cell.writes),
    ))
}

fn below(text: &mut String, cell: &Cell, summaries: &[Summary]) {
    for summary in summaries.iter().filter(|summary| summary.wrong() > 0) {
        let (wrong, checked) = (summary.wrong(), summary.checked.clone().unwrap_or_default());
        let _ = writeln!(
            text,
            "WRONG ANSWERS: {}: {} of {} answers were not the database's",
            summary.target,
            count(wrong),
            count(checked.answers)
        );
        for example in &checked.examples {
            let _ = writeln!(text, "  {example}");
        }
    }
    for line in columns::rows(summaries, &cell.statements) {
        let _ = writeln!(text, "OTHER ROWS: {line}");
    }
    for line in summaries.iter().flat_map(columns::errors) {
        let _ = writeln!(text, "error: {line}");
    }
    for line in summaries.iter().filter_map(columns::disturbed) {
        let _ = writeln!(text, "note: {line}");
    }
    for line in columns::failed(cell) {
        let _ = writeln!(text, "{line}");
    }
}
