//! Rows of bars, or of spans from one value to another: a row for each target, under headings.

use std::fmt::Write as _;

use super::super::text::Text;
use super::axis::Axis;
use super::chart::{open, round, width};
use super::palette::Palette;

const WIDTH: f64 = 380.0;
const LEFT: f64 = 112.0;
const TOP: f64 = 8.0;
const FOOT: f64 = 38.0;
const ROW: f64 = 20.0;
/// The most characters of a name to the left of a bar.
const NAME_MAX: usize = 17;

/// The mark of a row.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// A bar from zero in consecutive parts, each paler than the one before.
    Bar(Vec<f64>),
    /// A span from one value to another, with a marker at the first.
    Span(f64, f64),
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) target: String,
    pub(super) mark: Mark,
    /// The text after the bar.
    pub(super) shown: String,
    /// The text of the tooltip.
    pub(super) said: String,
}

/// Rows under headings, which may be empty.
#[derive(Clone, Debug)]
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) axis: Axis,
    pub(super) blocks: Vec<(String, Vec<Row>)>,
}

impl Bars {
    /// An empty text if there are no rows.
    pub(super) fn html(&self, palette: &Palette) -> String {
        let rows = || self.blocks.iter().flat_map(|(_, rows)| rows);
        if rows().next().is_none() {
            return String::new();
        }
        let headings = self.blocks.iter().filter(|(heading, rows)| !heading.is_empty() && !rows.is_empty()).count();
        let bottom = TOP + ROW * (rows().count() + headings) as f64;
        let right = WIDTH - 10.0 - rows().map(|row| width(&row.shown)).fold(12.0, f64::max);
        let mut text = open(&self.title, bottom + FOOT);
        self.axes(&mut text, bottom, right);
        let mut y = TOP;
        for (heading, rows) in self.blocks.iter().filter(|(_, rows)| !rows.is_empty()) {
            if !heading.is_empty() {
                let _ = write!(text, "<text class=\"h\" x=\"2\" y=\"{}\">{}</text>", y + 15.0, Text(heading));
                y += ROW;
            }
            for row in rows {
                self.row(&mut text, row, (y, right), palette);
                y += ROW;
            }
        }
        text.push_str("</svg></figure>\n");
        text
    }

    fn axes(&self, text: &mut String, bottom: f64, right: f64) {
        let mut free = 0.0;
        for (at, tick) in self.axis.ticks() {
            let (x, half) = (round(LEFT + at * (right - LEFT)), width(tick) / 2.0);
            let _ = write!(text, "<path class=\"r\" d=\"M{x} {TOP}V{bottom}\"/>");
            if x - half >= free && x + half <= WIDTH {
                let _ = write!(text, "<text class=\"m\" x=\"{x}\" y=\"{}\">{}</text>", bottom + 15.0, Text(tick));
                free = x + half + 4.0;
            }
        }
        let _ = write!(text, "<path class=\"b\" d=\"M{LEFT} {TOP}V{bottom}\"/>");
        let half = width(&self.axis.label) / 2.0;
        let (x, y) = (f64::midpoint(LEFT, right).min(WIDTH - half), bottom + 32.0);
        let _ = write!(text, "<text class=\"u m\" x=\"{x}\" y=\"{y}\">{}</text>", Text(&self.axis.label));
    }

    fn row(&self, text: &mut String, row: &Row, (y, right): (f64, f64), palette: &Palette) {
        let place = |value: f64| self.axis.at(value).map(|at| round(LEFT + at * (right - LEFT)));
        let (middle, mut end) = (y + ROW / 2.0, LEFT);
        let name: String = row.target.chars().take(NAME_MAX).collect();
        let cut = if name.len() < row.target.len() { "…" } else { "" };
        let _ = write!(
            text,
            "<g class=\"v {}\"><title>{}</title><rect class=\"z\" x=\"0\" y=\"{y}\" width=\"{WIDTH}\" height=\"{ROW}\"/>\
             <text class=\"e\" x=\"{}\" y=\"{}\">{}{cut}</text>",
            palette.classes(&row.target),
            Text(&row.said),
            LEFT - 7.0,
            middle + 4.0,
            Text(&name)
        );
        match &row.mark {
            Mark::Bar(parts) => {
                let mut sum = 0.0;
                for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.is_finite() && **part > 0.0) {
                    let from = place(sum).unwrap_or(LEFT);
                    sum += part;
                    let Some(to) = place(sum) else { continue };
                    let (top, wide) = (y + 4.0, round(to - from));
                    let _ = write!(
                        text,
                        "<rect class=\"p{index}\" x=\"{from}\" y=\"{top}\" width=\"{wide}\" height=\"12\"/>"
                    );
                    end = to;
                }
            }
            Mark::Span(from, to) => {
                if let (Some(from), Some(to)) = (place(*from), place(*to)) {
                    let marker = palette.marker(&row.target);
                    let _ = write!(text, "<path class=\"l\" d=\"M{from} {middle}H{to}m0-4v8\"/>");
                    let _ = write!(text, "<use href=\"#{marker}\" x=\"{from}\" y=\"{middle}\"/>");
                    end = from.max(to);
                }
            }
        }
        let _ = write!(
            text,
            "<text class=\"x\" x=\"{}\" y=\"{}\">{}</text></g>",
            end + 6.0,
            middle + 4.0,
            Text(&row.shown)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_nothing_have_no_width() {
        let row = |parts: &[f64]| Row {
            target: "a name that is much too long".to_owned(),
            mark: Mark::Bar(parts.to_vec()),
            shown: "shown".to_owned(),
            said: "said".to_owned(),
        };
        let rows = vec![row(&[1.0, f64::NAN, 0.0]), row(&[]), row(&[2.0, 2.0])];
        let axis = Axis::from_zero("µs", [4.0]);
        let bars =
            Bars { title: "T".to_owned(), axis, blocks: vec![(String::new(), rows), ("none".to_owned(), vec![])] };
        let text = bars.html(&Palette::of([]));
        assert_eq!((text.matches("<rect class=\"p").count(), text.contains("NaN")), (3, false), "{text}");
        assert!(text.contains("a name that is mu…") && !text.contains("none"), "{text}");
    }
}
