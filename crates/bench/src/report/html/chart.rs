//! A line chart as SVG, in about the size in which it is shown.

use std::fmt::Write as _;

use super::super::text::Text;
use super::axis::Axis;
use super::palette::Palette;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 8.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = HEIGHT - 40.0;
/// Space at both ends of the horizontal axis for half a marker.
const INSET: f64 = 12.0;

/// A value of a line.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Values of the lowest and the highest round.
    pub(super) range: Option<(f64, f64)>,
    /// The text of the tooltip. A point without it has no marker.
    pub(super) said: Option<String>,
}

/// The points of a line, in order.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) target: String,
    pub(super) points: Vec<Point>,
}

/// A chart.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Positions of vertical rules, such as the ends of rounds.
    pub(super) rules: Vec<f64>,
}

impl Chart {
    /// An empty text if there are no points.
    pub(super) fn html(&self, palette: &Palette) -> String {
        if self.lines.iter().all(|line| line.points.is_empty()) {
            return String::new();
        }
        let mut text = open(&self.title, HEIGHT);
        self.axes(&mut text);
        for line in &self.lines {
            self.line(&mut text, line, palette);
        }
        text.push_str("</svg></figure>\n");
        text
    }

    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let across = LEFT + INSET + self.x.at(x)? * (RIGHT - LEFT - 2.0 * INSET);
        Some((round(across), round(BOTTOM - self.y.at(y)? * (BOTTOM - TOP))))
    }

    fn axes(&self, text: &mut String) {
        let mut rules = String::new();
        for (at, tick) in self.y.ticks() {
            let y = round(BOTTOM - at * (BOTTOM - TOP));
            let _ = write!(rules, "M{LEFT} {y}H{RIGHT}");
            let _ = write!(text, "<text class=\"e\" x=\"{}\" y=\"{}\">{}</text>", LEFT - 6.0, y + 4.0, Text(tick));
        }
        let mut ends = String::new();
        for rule in self.rules.iter().filter_map(|at| self.x.at(*at)) {
            let _ = write!(ends, "M{} {TOP}V{BOTTOM}", round(LEFT + INSET + rule * (RIGHT - LEFT - 2.0 * INSET)));
        }
        let _ = write!(text, "<path class=\"r\" d=\"{rules}\"/><path class=\"b\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>");
        if !ends.is_empty() {
            let _ = write!(text, "<path class=\"k\" d=\"{ends}\"/>");
        }
        let mut free = 0.0;
        for (at, tick) in self.x.ticks() {
            let x = round(LEFT + INSET + at * (RIGHT - LEFT - 2.0 * INSET));
            let half = width(tick) / 2.0;
            // A label that would touch the one before is omitted. Its tick remains.
            let _ = write!(text, "<path class=\"b\" d=\"M{x} {BOTTOM}v4\"/>");
            if x - half >= free {
                let _ = write!(text, "<text class=\"m\" x=\"{x}\" y=\"{}\">{}</text>", BOTTOM + 16.0, Text(tick));
                free = x + half + 4.0;
            }
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        let _ = write!(text, "<text class=\"u\" x=\"2\" y=\"13\">{}</text>", Text(&self.y.label));
        let _ =
            write!(text, "<text class=\"u m\" x=\"{middle}\" y=\"{}\">{}</text>", HEIGHT - 6.0, Text(&self.x.label));
    }

    fn line(&self, text: &mut String, line: &Line, palette: &Palette) {
        let (mut path, mut whiskers, mut marks) = (String::new(), String::new(), String::new());
        let marker = palette.marker(&line.target);
        for point in &line.points {
            let Some((x, y)) = self.place(point.x, point.y) else { continue };
            let _ = write!(path, "{}{x} {y}", if path.is_empty() { 'M' } else { 'L' });
            if let Some((low, high)) = point.range
                && let (Some((_, low)), Some((_, high))) = (self.place(point.x, low), self.place(point.x, high))
            {
                let _ = write!(whiskers, "M{x} {low}V{high}");
            }
            if let Some(said) = &point.said {
                let _ = write!(
                    marks,
                    "<use class=\"v\" href=\"#{marker}\" x=\"{x}\" y=\"{y}\"><title>{}</title></use>",
                    Text(said)
                );
            }
        }
        let _ = write!(text, "<g class=\"{}\"><path class=\"l\" d=\"{path}\"/>", palette.classes(&line.target));
        if !whiskers.is_empty() {
            let _ = write!(text, "<path class=\"w\" d=\"{whiskers}\"/>");
        }
        let _ = write!(text, "{marks}</g>");
    }
}

/// The first elements of a figure with this height.
pub(super) fn open(title: &str, height: f64) -> String {
    format!(
        "<figure><figcaption>{0}</figcaption><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" tabindex=\"0\" \
         role=\"group\" aria-label=\"{0}; the arrow keys go from value to value\">",
        Text(title)
    )
}

/// Approximate width of a small text.
pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.2
}

/// Rounds to a tenth of a unit, which is less than a pixel.
pub(super) fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[f64]) -> String {
        let point =
            |(index, y): (usize, &f64)| Point { x: index as f64, y: *y, range: None, said: Some(format!("{y}")) };
        let points: Vec<Point> = values.iter().enumerate().map(point).collect();
        let chart = Chart {
            title: "<T>".to_owned(),
            x: Axis::from_zero("s", [10.0]),
            y: Axis::wide("ms", values.iter().copied()),
            lines: vec![Line { target: "direct".to_owned(), points }],
            rules: Vec::new(),
        };
        chart.html(&Palette::of([]))
    }

    #[test]
    fn only_what_has_a_place_is_drawn() {
        let text = chart(&[1.0, f64::NAN, f64::INFINITY, 100.0, 0.0]);
        assert_eq!(text.matches("<use").count(), 2, "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("<T>"), "{text}");
        assert_eq!(chart(&[]), "");
        assert_eq!(chart(&[5.0]).matches("<use").count(), 1);
    }
}
