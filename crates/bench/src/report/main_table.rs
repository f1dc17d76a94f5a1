//! The main table, for readers of one table only.

use std::fmt::Write as _;

use super::columns;
use super::figures::{NONE, bytes, number, times};
use super::grid::Grid;
use super::summary::{Summary, differing};
use crate::load::Loop;
use crate::result::{Cell, Run};

/// A Markdown table with a row for each target of each workload, at the largest number of connections.
pub fn main_table(runs: &[Run]) -> String {
    main_grid(&runs.iter().collect::<Vec<_>>()).markdown()
}

/// The table.
pub(super) fn main_grid(runs: &[&Run]) -> Grid {
    let cells: Vec<&Cell> = runs.iter().flat_map(|run| &run.cells).collect();
    let figures = [
        "connections",
        "transactions/s",
        "× first",
        "p50 ms",
        "p95 ms",
        "database's CPU µs/query",
        "hits",
        "wrong answers",
    ];
    let mut grid = Grid::new(&["workload", "target"], figures);
    for run in runs {
        for cell in run.cells.iter().filter(|cell| stands_for_all(run, cell)) {
            let summaries = Summary::of_cell(run, cell);
            let Some(first) = summaries.first() else { continue };
            let database = first.process.clone().unwrap_or_default();
            for summary in &summaries {
                let [_, p50, p95, _] = columns::latency(&summary.load.latency);
                let cpu = summary.cpu.get(&database).map_or(NONE.to_owned(), |micros| number(*micros));
                let mut row = vec![named(&cells, run, cell), summary.target.clone(), cell.connections.to_string()];
                row.extend([number(summary.load.rate.median), times(summary.ratio(first)), p50, p95, cpu]);
                row.extend([columns::hits(summary), columns::wrong(summary)]);
                grid.row(row);
            }
        }
    }
    grid
}

/// Whether the cell has the most connections of the cells that differ in nothing else.
fn stands_for_all(run: &Run, cell: &Cell) -> bool {
    let alike = |other: &&Cell| {
        let key = |cell: &Cell| (cell.workload.clone(), cell.settings.clone(), cell.writes.to_bits(), cell.cache_size);
        key(other) == key(cell)
    };
    let measured = run.cells.iter().filter(alike).filter(|other| !other.rounds.is_empty());
    measured.map(|other| other.connections).max() == Some(cell.connections)
}

fn named(cells: &[&Cell], run: &Run, cell: &Cell) -> String {
    let mut text = cell.workload.clone();
    for (name, value) in differing(cells, cell) {
        let _ = write!(text, ", {name} {value}");
    }
    if let Some(size) = cell.cache_size {
        let _ = write!(text, ", cache of {}", bytes(size as f64));
    }
    if cell.writes > 0.0 {
        let _ = write!(text, ", {} writes/s", number(cell.writes));
    }
    if let Loop::Open { rate, .. } = run.method.pace {
        let _ = write!(text, ", {} begun per second", number(rate));
    }
    text
}
