//! A run on a page: text, charts, tables and method.

use std::fmt::Write as _;

use super::super::entry::Entry;
use super::super::markdown::{command, machine, method, targets};
use super::super::tables::Group;
use super::super::text::Text;
use super::cost::{self, Price};
use super::palette::Palette;
use super::sweep::Dimension;
use super::{over_time, panels, sentence};

/// A run.
pub(super) struct Section<'a> {
    pub(super) index: usize,
    pub(super) entry: &'a Entry,
    pub(super) groups: &'a [Group<'a>],
    pub(super) palette: &'a Palette,
    pub(super) prices: &'a [Price],
}

impl Section<'_> {
    /// The section. If the run is the page's only one, it contains the mean improvement. `note` is about the embedded data.
    pub(super) fn html(&self, improvement: Option<&str>, note: &str) -> String {
        let run = &self.entry.run;
        let mut text = format!("<section class=\"run\" id=\"run-{}\">", self.index);
        if improvement.is_none() {
            let _ = write!(text, "<h2>{}</h2>", Text(&self.entry.title));
        }
        for line in sentence::figures(self.groups) {
            let _ = write!(text, "<p class=\"lead\">{}</p>", Text(&line));
        }
        let _ = writeln!(text, "<p class=\"origin\">{}</p>", Text(&sentence::origin(run)));
        if run.interrupted {
            text.push_str("<p class=\"bad\">The run ended early. Only complete rounds are shown.</p>");
        }
        if run.wrong_answers() > 0 {
            let _ = write!(text, "<p class=\"bad\">{} answers were wrong.</p>", run.wrong_answers());
        }
        for group in self.groups {
            text.push_str(&self.group(group));
        }
        if let Some(improvement) = improvement.filter(|text| !text.is_empty()) {
            let _ = write!(text, "<h3>Mean improvement</h3>{improvement}");
        }
        let _ = writeln!(text, "{}</section>", self.appendix(improvement.is_some(), note));
        text
    }

    fn group(&self, group: &Group<'_>) -> String {
        let Some(cell) = group.cell() else { return String::new() };
        let mut text = format!("<h3>{}</h3>", Text(&cell.workload));
        let settings = group.settings();
        if !settings.is_empty() {
            let _ = write!(text, "<p class=\"settings\">{}</p>", Text(&settings));
        }
        let mut names: Vec<&str> = Vec::new();
        for summary in group.cells.iter().flat_map(|(_, summaries)| summaries) {
            if !names.contains(&summary.target.as_str()) {
                names.push(&summary.target);
            }
        }
        text.push_str(&self.palette.legend(names));
        let rounds = group.cells.iter().flat_map(|(_, all)| all).any(|one| one.load.rate.rounds > 1);
        let whiskers = "A line through a marker goes from the lowest to the highest round.";
        let whiskers = if rounds && Dimension::of_group(group).is_some() { whiskers } else { "" };
        let palette = self.palette;
        text.push_str(&block("Throughput", whiskers, &panels::throughput(group, palette)));
        text.push_str(&block("Background writes", whiskers, &panels::writes(group, palette)));
        text.push_str(&block("Latency", "", &panels::latency(group, palette)));
        text.push_str(&block("Distribution of latency", "", &panels::distributions(group, palette)));
        let shades = "From the left: the target's own process, the other servers (paler), the client (palest).";
        text.push_str(&block("Processor time of a query", shades, &panels::cpu(group, palette)));
        let many =
            |charts: String| if charts.is_empty() { charts } else { format!("<div class=\"charts\">{charts}</div>") };
        text.push_str(&folded("Latency by statement", &many(panels::statements(group, palette))));
        text.push_str(&folded("Over time", &over_time::html(group, palette)));
        if !self.prices.is_empty() {
            let shown = format!(
                "<p class=\"note\">{}</p>{}",
                Text(&cost::assumption(self.prices)),
                cost::grid(self.prices, group).html()
            );
            let _ = write!(text, "<h4>Cost</h4>{shown}");
        }
        text + &tables(group)
    }

    /// Method, machine and targets, and the document.
    fn appendix(&self, alone: bool, note: &str) -> String {
        let run = &self.entry.run;
        let mut text = format!("<p>{}</p>{}<ul>", Text(&machine(run)), targets(run).html());
        for line in method(run) {
            let _ = write!(text, "<li>{}</li>", Text(&line));
        }
        let _ = write!(
            text,
            "</ul><p>To repeat it (passwords are left out of the URLs):</p><pre tabindex=\"0\">freshet-bench {}</pre>\
             <p class=\"note\">{note} <button type=\"button\" data-download=\"data-{}\" data-name=\"{}.json\">the document as \
             JSON</button></p>",
            Text(&command(&run.command)),
            self.index,
            Text(&self.entry.name)
        );
        let title = "Method, machine and targets";
        if alone { format!("<h3>{title}</h3>{text}") } else { folded(title, &text) }
    }
}

/// Charts under a title. An empty text if there are none.
fn block(title: &str, note: &str, charts: &str) -> String {
    if charts.is_empty() {
        return String::new();
    }
    let note = if note.is_empty() { String::new() } else { format!("<p class=\"note\">{note}</p>") };
    format!("<h4>{title}</h4>{note}<div class=\"charts\">{charts}</div>\n")
}

/// A section that is folded on the screen and open in print.
pub(super) fn folded(title: &str, content: &str) -> String {
    if content.is_empty() { String::new() } else { format!("<details><summary>{title}</summary>{content}</details>\n") }
}

/// All tables of the Markdown. Wrong answers and errors come before them.
fn tables(group: &Group<'_>) -> String {
    let mut text = String::new();
    let notes = group.notes();
    if !notes.is_empty() {
        text.push_str("<h4>Notes</h4><ul class=\"notes\">");
        for note in &notes {
            let class = if ["WRONG ANSWER", "OTHER ROWS"].iter().any(|loud| note.contains(loud)) {
                " class=\"bad\""
            } else {
                ""
            };
            let _ = write!(text, "<li{class}>{}</li>", Text(note));
        }
        text.push_str("</ul>");
    }
    let mut tables = String::new();
    for (title, grid) in group.tables() {
        let _ = write!(tables, "<h5>{}</h5>{}", Text(title), grid.html());
    }
    text + &folded("All figures in tables", &tables)
}
