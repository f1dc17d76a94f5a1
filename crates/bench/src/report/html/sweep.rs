//! A figure of all cells of a group: a line over the setting that varies, or bars if there is only one cell.

use std::fmt::Write as _;

use super::super::figures::{bytes, number};
use super::super::summary::{Spread, Summary};
use super::super::tables::{Group, read_share};
use super::axis::Axis;
use super::bars::{Bars, Mark, Row};
use super::chart::{Chart, Line, Point};
use super::palette::Palette;
use crate::result::Cell;

/// A setting in which the cells of a group may differ.
#[derive(Debug)]
pub(super) struct Dimension {
    pub(super) label: &'static str,
    pub(super) of: fn(&Cell) -> f64,
    pub(super) shown: fn(f64) -> String,
}

static DIMENSIONS: [Dimension; 4] = [
    Dimension { label: "reads, % of operations", of: |cell| read_share(cell).unwrap_or_default(), shown: number },
    Dimension { label: "connections", of: |cell| cell.connections as f64, shown: number },
    Dimension { label: "background writes/s", of: |cell| cell.writes, shown: number },
    Dimension { label: "cache size", of: |cell| cell.cache_size.unwrap_or(0) as f64, shown: bytes },
];

impl Dimension {
    /// The dimension in which a group has the most different values. None if the group has one cell.
    pub(super) fn of_group(group: &Group<'_>) -> Option<&'static Self> {
        let values = |dimension: &Self| {
            let mut values: Vec<u64> = group.cells.iter().map(|(cell, _)| (dimension.of)(cell).to_bits()).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        // If several dimensions have equally many values, the first is taken.
        let most = DIMENSIONS.iter().rev().max_by_key(|dimension| values(dimension))?;
        (values(most) > 1).then_some(most)
    }

    /// The values of the other dimensions in which the group's cells differ.
    fn others(&self, group: &Group<'_>, cell: &Cell) -> String {
        let differs = |other: &&Dimension| {
            other.label != self.label
                && group.cells.iter().any(|(one, _)| (other.of)(one).to_bits() != (other.of)(cell).to_bits())
        };
        let shown = |other: &Dimension| format!("{} {}", (other.shown)((other.of)(cell)), other.label);
        DIMENSIONS.iter().filter(differs).map(shown).collect::<Vec<_>>().join(", ")
    }
}

/// Name of a cell in its group: its connections, and the other settings in which the cells differ.
pub(super) fn named(group: &Group<'_>, cell: &Cell) -> String {
    let mut text = format!("{} connection{}", cell.connections, if cell.connections == 1 { "" } else { "s" });
    let differs = |dimension: &Dimension| {
        let value = |cell: &Cell| (dimension.of)(cell).to_bits();
        group.cells.iter().any(|(other, _)| value(other) != value(cell))
    };
    let [share, _, writes, size] = &DIMENSIONS;
    if differs(share) {
        let _ = write!(text, ", {}% reads", number((share.of)(cell)));
    }
    if differs(writes) || cell.writes > 0.0 {
        let _ = write!(text, ", {} writes/s", number(cell.writes));
    }
    if differs(size) {
        let _ = write!(text, ", cache of {}", bytes((size.of)(cell)));
    }
    text
}

type Cells<'a> = Vec<&'a (&'a Cell, Vec<Summary>)>;

/// The cells of a group, divided by all settings but the dimension, and ordered by the dimension.
fn panels<'a>(group: &'a Group<'a>, dimension: &Dimension) -> Vec<(String, Cells<'a>)> {
    let mut panels: Vec<(String, Cells<'a>)> = Vec::new();
    for cell in &group.cells {
        let name = dimension.others(group, cell.0);
        match panels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.push(cell),
            None => panels.push((name, vec![cell])),
        }
    }
    for (_, cells) in &mut panels {
        cells.sort_by(|one, other| (dimension.of)(one.0).total_cmp(&(dimension.of)(other.0)));
    }
    panels
}

/// A figure that each target has in each cell.
pub(super) struct Measure<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) of: &'a dyn Fn(&Summary) -> Option<Spread>,
    pub(super) shown: &'a dyn Fn(f64) -> String,
    /// All values of the charts that share an axis, which may then be logarithmic. Empty if the chart has its own axis.
    pub(super) shared: &'a [f64],
}

impl Measure<'_> {
    /// A chart for each panel of the group.
    pub(super) fn html(&self, group: &Group<'_>, palette: &Palette) -> String {
        let Some(dimension) = Dimension::of_group(group) else { return self.bars(group).html(palette) };
        let chart = |(name, cells): (String, Cells<'_>)| self.chart(dimension, &name, &cells).html(palette);
        panels(group, dimension).into_iter().map(chart).collect()
    }

    fn chart(&self, dimension: &Dimension, name: &str, cells: &Cells<'_>) -> Chart {
        let mut lines: Vec<Line> = Vec::new();
        for (cell, summaries) in cells {
            let place = (dimension.shown)((dimension.of)(cell));
            for summary in summaries {
                let Some(spread) = (self.of)(summary) else { continue };
                let said = format!("{}, {} {}: {}", summary.target, place, dimension.label, self.said(&spread));
                let range = (spread.rounds > 1).then_some((spread.min, spread.max));
                let point = Point { x: (dimension.of)(cell), y: spread.median, range, said: Some(said) };
                match lines.iter_mut().find(|line| line.target == summary.target) {
                    Some(line) => line.points.push(point),
                    None => lines.push(Line { target: summary.target.clone(), points: vec![point] }),
                }
            }
        }
        let values: Vec<f64> = cells.iter().map(|(cell, _)| (dimension.of)(cell)).collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        let y = if self.shared.is_empty() {
            Axis::from_zero(self.unit, points().map(|point| point.range.map_or(point.y, |(_, high)| high.max(point.y))))
        } else {
            Axis::wide(self.unit, self.shared.iter().copied())
        };
        let title = if name.is_empty() { self.title.to_owned() } else { format!("{}, {name}", self.title) };
        Chart { title, x: Axis::of_values(dimension.label, &values, dimension.shown), y, lines, rules: Vec::new() }
    }

    fn bars(&self, group: &Group<'_>) -> Bars {
        let summaries = group.cells.iter().flat_map(|(_, summaries)| summaries);
        let of = |summary: &Summary| Some((summary.target.clone(), (self.of)(summary)?));
        let found: Vec<(String, Spread)> = summaries.filter_map(of).collect();
        let axis = Axis::from_zero(self.unit, found.iter().map(|(_, spread)| spread.median));
        let row = |(target, spread): (String, Spread)| Row {
            mark: Mark::Bar(vec![spread.median]),
            shown: (self.shown)(spread.median),
            said: format!("{target}: {}", self.said(&spread)),
            target,
        };
        let rows = found.into_iter().map(row).collect();
        Bars { title: self.title.to_owned(), axis, blocks: vec![(String::new(), rows)] }
    }

    fn said(&self, spread: &Spread) -> String {
        let mut text = format!("{} {}", (self.shown)(spread.median), self.unit);
        if spread.rounds > 1 && spread.min < spread.max {
            let _ = write!(text, " (rounds: {}–{})", (self.shown)(spread.min), (self.shown)(spread.max));
        }
        text
    }
}

/// A value without rounds.
pub(super) fn one(value: f64) -> Spread {
    Spread { median: value, min: value, max: value, rounds: 1 }
}
