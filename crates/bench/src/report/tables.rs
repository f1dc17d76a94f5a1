//! The tables of a run, for every form of output.
//!
//! Figures to compare are below one another. A table of a workload has the rows of all targets at one number of connections, then at the next. Errors
//! and comparisons of answers are shown even if there were none.

use std::fmt::Write as _;

use super::columns;
use super::figures::{NONE, bytes, count, number};
use super::grid::Grid;
use super::summary::{Summary, processes};
use crate::load::Loop;
use crate::result::{Cell, Run};

/// The setting of a workload for the percentage of operations that read.
const READ_SHARE: &str = "read-share";

/// The percentage of operations that read, if the workload has this setting.
pub(super) fn read_share(cell: &Cell) -> Option<f64> {
    cell.settings.get(READ_SHARE)?.trim_end_matches('%').parse().ok()
}

/// Cells that differ only in connections, writes, cache size and read share. They become one section.
pub(super) struct Group<'a> {
    pub(super) run: &'a Run,
    pub(super) cells: Vec<(&'a Cell, Vec<Summary>)>,
    /// Whether there are several cache sizes.
    sizes: bool,
    /// Whether there are several rates of writes.
    rates: bool,
    /// Whether there are several shares of reads.
    shares: bool,
}

impl<'a> Group<'a> {
    /// The groups of a run, in the order of measuring.
    pub(super) fn all(run: &'a Run) -> Vec<Self> {
        let mut groups: Vec<Vec<&Cell>> = Vec::new();
        for cell in &run.cells {
            match groups.iter_mut().find(|group| alike(group[0], cell)) {
                Some(group) => group.push(cell),
                None => groups.push(vec![cell]),
            }
        }
        groups.iter().map(|group| Self::of(run, group)).collect()
    }

    fn of(run: &'a Run, cells: &[&'a Cell]) -> Self {
        let sizes = cells.iter().any(|cell| cell.cache_size.is_some());
        let rates = cells.iter().any(|cell| cell.writes.to_bits() != cells[0].writes.to_bits());
        let shares = cells.iter().any(|cell| read_share(cell) != read_share(cells[0]));
        Self {
            run,
            cells: cells.iter().map(|cell| (*cell, Summary::of_cell(run, cell))).collect(),
            sizes,
            rates,
            shares,
        }
    }

    /// The settings that all cells share, in one line.
    pub(super) fn settings(&self) -> String {
        let Some(cell) = self.cell() else { return String::new() };
        let swept = |name: &str| self.shares && name == READ_SHARE;
        let settings = cell.settings.iter().filter(|(name, _)| !swept(name));
        settings.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }

    /// A cell of the group, for the workload's name and settings.
    pub(super) fn cell(&self) -> Option<&'a Cell> {
        self.cells.first().map(|(cell, _)| *cell)
    }

    /// All tables that have rows, with their titles.
    pub(super) fn tables(&self) -> Vec<(&'static str, Grid)> {
        let all = [
            ("Throughput and latency", self.speed()),
            ("Latency by statement", self.statements()),
            ("Processor time", self.cpu()),
            (if self.sizes { "Sizes of the cache" } else { "Cache" }, self.cache()),
            ("Writes in the background", self.writes()),
            ("Errors and wrong answers", self.errors()),
        ];
        all.into_iter().filter(|(_, grid)| !grid.is_empty()).collect()
    }

    /// Notes on the figures, a line each.
    pub(super) fn notes(&self) -> Vec<String> {
        self.cells.iter().flat_map(|(cell, all)| notes(cell, all)).collect()
    }

    /// A table with a row for each target of each cell: the cell's settings, then the figures that `row` returns. None skips the row.
    fn grid(&self, figures: &[String], row: impl Fn(&Cell, &Summary, &Summary) -> Option<Vec<String>>) -> Grid {
        let shown = [self.sizes, self.shares, true, self.rates, true];
        let names = ["cache", "reads", "connections", "writes/s", "target"].into_iter().zip(shown);
        let names: Vec<&str> = names.filter_map(|(name, shown)| shown.then_some(name)).collect();
        let mut grid = Grid::new(&names, figures.iter().map(String::as_str));
        for (cell, summaries) in &self.cells {
            for summary in summaries {
                let Some(figures) = row(cell, summary, &summaries[0]) else { continue };
                let mut cells = Vec::new();
                if self.sizes {
                    cells.push(cell.cache_size.map_or(NONE.to_owned(), |size| bytes(size as f64)));
                }
                if self.shares {
                    cells.push(read_share(cell).map_or(NONE.to_owned(), |share| format!("{}%", number(share))));
                }
                cells.push(cell.connections.to_string());
                cells.extend(self.rates.then(|| number(cell.writes)));
                cells.push(summary.target.clone());
                cells.extend(figures);
                grid.row(cells);
            }
        }
        grid
    }

    fn speed(&self) -> Grid {
        let first = self.cells.iter().find_map(|(_, all)| all.first()).map_or("first", |first| &first.target);
        self.grid(&columns::speed_headers(first), |_, summary, first| Some(columns::speed(summary, first)))
    }

    /// For workloads with several statements: median and 95th percentile of each statement at each target.
    fn statements(&self) -> Grid {
        let mut targets: Vec<&str> =
            self.cells.iter().flat_map(|(_, all)| all).map(|one| one.target.as_str()).collect();
        targets.sort_by_key(|name| self.run.targets.iter().position(|target| target.name == *name));
        targets.dedup();
        let figures: Vec<String> =
            targets.iter().flat_map(|name| ["p50", "p95"].map(|figure| format!("{name} {figure} ms"))).collect();
        let mut grid = Grid::new(&["cell", "statement"], figures.iter().map(String::as_str));
        for (cell, summaries) in &self.cells {
            let of = |summary: &Summary, index: usize| {
                summary.load.statements.get(index).is_some_and(|times| !times.is_empty())
            };
            let was_run = |(index, _): &(usize, &String)| summaries.iter().any(|summary| of(summary, *index));
            let statements: Vec<_> = cell.statements.iter().enumerate().filter(was_run).collect();
            for (index, statement) in statements.iter().copied().filter(|_| statements.len() > 1) {
                let mut row = vec![place(cell), statement.clone()];
                for name in &targets {
                    let summary = summaries.iter().find(|summary| summary.target == *name);
                    let histogram = summary.and_then(|summary| summary.load.statements.get(index));
                    let shown = histogram.map(columns::latency);
                    row.extend(shown.map_or([NONE, NONE].map(str::to_owned), |[_, p50, p95, _]| [p50, p95]));
                }
                grid.row(row);
            }
        }
        grid
    }

    fn cpu(&self) -> Grid {
        let all: Vec<Summary> = self.cells.iter().flat_map(|(_, all)| all.iter().cloned()).collect();
        let processes = processes(&all);
        let mut headers: Vec<String> = processes.iter().map(|name| format!("{name} µs/query")).collect();
        headers.extend(["memory of the target's own process", "others, cores"].map(str::to_owned));
        self.grid(&headers, |_, summary, _| {
            let mut row = columns::cpu(summary, &processes);
            row.extend([columns::memory(summary), number(summary.others)]);
            Some(row)
        })
    }

    fn cache(&self) -> Grid {
        let headers = [
            "transactions/s",
            "hit ratio",
            "queries/s to the database",
            "hits",
            "fills",
            "passed",
            "evictions",
            "entries at the end",
            "bytes at the end",
        ];
        self.grid(&headers.map(str::to_owned), |_, summary, _| {
            let cache = summary.cache?;
            let to_database = columns::to_database(self.run, summary, &cache);
            let mut row = vec![number(summary.load.rate.median), columns::hits(summary), number(to_database)];
            let counts = [cache.hits, cache.fills, cache.passed, cache.evictions, cache.entries];
            row.extend(counts.map(number));
            row.push(bytes(cache.bytes));
            Some(row)
        })
    }

    fn writes(&self) -> Grid {
        let mut headers = vec!["asked/s".to_owned(), "achieved/s".to_owned()];
        headers.extend(columns::LATENCY.map(str::to_owned));
        headers.push("unfinished".to_owned());
        self.grid(&headers, |cell, summary, _| {
            let writes = summary.writes.as_ref()?;
            let mut row = vec![number(cell.writes), number(writes.rate.median)];
            row.extend(columns::latency(&writes.latency));
            row.push(count(writes.unfinished));
            Some(row)
        })
    }

    fn errors(&self) -> Grid {
        let open = !matches!(self.run.method.pace, Loop::Closed);
        let late = columns::late_header(&self.run.method.pace);
        let mut headers = vec!["errors", "wrong answers of those compared"];
        headers.extend(["unfinished", late].iter().filter(|_| open));
        let headers: Vec<String> = headers.into_iter().map(str::to_owned).collect();
        self.grid(&headers, |_, summary, _| {
            let mut row = vec![count(summary.errors()), columns::wrong(summary)];
            row.extend(columns::lateness(summary).into_iter().filter(|_| open));
            Some(row)
        })
    }
}

/// Whether two cells belong to one section.
fn alike(one: &Cell, other: &Cell) -> bool {
    let settings = |cell: &Cell| {
        let mut settings = cell.settings.clone();
        settings.remove(READ_SHARE);
        settings
    };
    one.workload == other.workload && settings(one) == settings(other)
}

/// Notes on the figures of a cell.
fn notes(cell: &Cell, summaries: &[Summary]) -> Vec<String> {
    let mut lines = Vec::new();
    for summary in summaries {
        let examples = summary.checked.iter().flat_map(|checked| &checked.examples);
        lines.extend(examples.map(|example| format!("WRONG ANSWER of {}: {example}", summary.target)));
        lines.extend(columns::errors(summary));
        lines.extend(columns::disturbed(summary));
    }
    lines.extend(columns::rows(summaries, &cell.statements).into_iter().map(|line| format!("OTHER ROWS: {line}")));
    lines.extend(columns::failed(cell));
    lines.into_iter().map(|line| format!("{}, {line}", place(cell))).collect()
}

/// Name of a cell in its group.
pub(super) fn place(cell: &Cell) -> String {
    let mut text = format!("{} connections", cell.connections);
    if let Some(share) = read_share(cell) {
        let _ = write!(text, ", {}% reads", number(share));
    }
    text.push_str(&columns::sweep(cell));
    text
}
