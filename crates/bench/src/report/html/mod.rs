//! Runs as one self-contained HTML page without external fonts, scripts or styles.
//!
//! The charts are SVG that is generated here, so they are visible without JavaScript and in print. The script shows the values under the pointer,
//! switches between light and dark, changes the weights of the mean and exports the data. The page has the same tables as the Markdown, with the same
//! rounding.

mod axis;
mod bars;
mod cards;
mod chart;
mod cost;
mod data;
mod improvement;
mod over_time;
mod palette;
mod panels;
mod section;
mod sentence;
mod sizing;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

pub(super) use cost::{Price, list as price_list};
use improvement::Improvement;
use palette::{Palette, SHAPES};
use section::Section;

use super::entry::Entry;
use super::extra::Extra;
use super::main_table::main_grid;
use super::tables::Group;
use super::text::Text;
use crate::result::Run;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The button that exports the figures.
const CSV: &str =
    "<button type=\"button\" data-download=\"csv\" data-name=\"freshet-bench.csv\">figures as CSV</button>";
/// The page may load nothing, whatever a name in the results contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Settings of the page, and its documents other than runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options<'a> {
    /// Prices of machines.
    pub(super) prices: &'a [Price],
    /// Weights of workloads.
    pub(super) weights: Option<&'a BTreeMap<String, f64>>,
    /// Cards and sizings.
    pub(super) extras: &'a [Extra],
}

/// A page with all runs. It contains the documents and this CSV.
pub(super) fn html(entries: &[(&Entry, Vec<Group<'_>>)], csv: &str, options: Options<'_>) -> String {
    let runs = entries.iter().map(|(entry, _)| &entry.run);
    let palette = Palette::of(runs.chain(options.extras.iter().flat_map(Extra::runs)));
    let title = match (entries, options.extras) {
        ([(entry, _)], []) => format!("freshet-bench: {}", entry.title),
        ([], [extra]) => format!("freshet-bench: {}", extra.title()),
        _ => "freshet-bench".to_owned(),
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{SHAPES}\n\
         <header><h1>{0}</h1><p class=\"tools\"><button type=\"button\" id=\"theme\">light or dark</button>\
         {1}</p></header>\n<main>\n",
        Text(&title),
        if entries.is_empty() { "" } else { CSV }
    );
    let data = data::Documents::of(entries.iter().map(|(entry, _)| *entry));
    let mut improvement = Improvement::default();
    for (entry, groups) in entries {
        improvement.add(&entry.title, groups);
    }
    let none = BTreeMap::new();
    let weights = options.weights.unwrap_or(&none);
    let (lead, improvement) = (improvement.sentence(weights), improvement.html(weights));
    let alone = entries.len() == 1 && options.extras.is_empty();
    if entries.len() + options.extras.len() > 1 {
        page.push_str(&front(entries, options.extras, &lead, &improvement));
    }
    for (index, (entry, groups)) in entries.iter().enumerate() {
        let section = Section { index, entry, groups, palette: &palette, prices: options.prices };
        page.push_str(&section.html(if alone { Some(&improvement) } else { None }, data.note()));
    }
    for (index, extra) in options.extras.iter().enumerate() {
        page.push_str(&extra_section(extra, index, entries.len() + options.extras.len() > 1, &palette));
    }
    let extras: String = options.extras.iter().enumerate().map(data::extra).collect();
    let _ = write!(page, "</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n{}{extras}", data.html(csv));
    let _ = write!(page, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

/// The section of a document other than a run.
fn extra_section(extra: &Extra, index: usize, titled: bool, palette: &Palette) -> String {
    let mut text = format!("<section class=\"run\" id=\"extra-{index}\">");
    if titled {
        let _ = write!(text, "<h2>{}</h2>", Text(&extra.title()));
    }
    match extra {
        Extra::Cards(cards) => text.push_str(&cards::html(cards, palette)),
        Extra::Sizing(sizing) => text.push_str(&sizing::html(sizing, palette)),
    }
    let _ = writeln!(
        text,
        "<p class=\"note\"><button type=\"button\" data-download=\"extra-data-{index}\" data-name=\"freshet-bench-{index}.json\">the \
         document as JSON</button></p></section>"
    );
    text
}

/// The beginning of a page with several runs: links, the mean of all runs, the main figures.
fn front(entries: &[(&Entry, Vec<Group<'_>>)], extras: &[Extra], lead: &str, improvement: &str) -> String {
    let mut page = String::from("<nav aria-label=\"runs\"><ul>");
    for (index, (entry, _)) in entries.iter().enumerate() {
        let _ = write!(page, "<li><a href=\"#run-{index}\">{}</a></li>", Text(&entry.title));
    }
    for (index, extra) in extras.iter().enumerate() {
        let _ = write!(page, "<li><a href=\"#extra-{index}\">{}</a></li>", Text(&extra.title()));
    }
    page.push_str("</ul></nav>\n");
    if entries.is_empty() {
        return page;
    }
    let runs: Vec<&Run> = entries.iter().map(|(entry, _)| &entry.run).collect();
    let figures = main_grid(&runs).html();
    let folded = section::folded("The main figures of all runs", &figures);
    let _ = writeln!(page, "<section><p class=\"lead\">{}</p>{improvement}{folded}</section>", Text(lead));
    page
}
