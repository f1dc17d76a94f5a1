//! Runs as one page of HTML that needs nothing beside itself: no font, no script, no style from elsewhere.
//!
//! The charts are drawn here, as SVG, so that they are there without JavaScript and in print; the script shows the values of
//! what is pointed at, switches between light and dark, weighs the mean anew and hands out the data. Figures are those of the
//! Markdown: what is rounded there is rounded here, and its tables are the page's.

mod axis;
mod bars;
mod chart;
mod cost;
mod data;
mod improvement;
mod over_time;
mod palette;
mod panels;
mod section;
mod sentence;
mod sweep;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;

pub(super) use cost::Price;
use improvement::Improvement;
use palette::{Palette, SHAPES};
use section::Section;
pub(super) use text::Text;

use super::main_table::main_grid;
use super::page::Entry;
use super::tables::Group;
use crate::result::Run;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The page may use nothing but what stands in it, whatever a name in the results says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// What the page reckons with: the machine's price, weights of workloads.
type Options<'a> = (Option<&'a Price>, &'a BTreeMap<String, f64>);

/// All runs on one page, with the data themselves: the documents, and this CSV.
pub(super) fn html(entries: &[(&Entry, Vec<Group<'_>>)], csv: &str, options: Options<'_>) -> String {
    let palette = Palette::of(entries.iter().map(|(entry, _)| &entry.run));
    let title = match entries {
        [(entry, _)] => format!("freshet bench: {}", entry.title),
        _ => "freshet bench".to_owned(),
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{SHAPES}\n\
         <header><h1>{0}</h1><p class=\"tools\"><button type=\"button\" id=\"theme\">light or dark</button>\
         <button type=\"button\" data-download=\"csv\" data-name=\"freshet-bench.csv\">figures as CSV</button></p></header>\n<main>\n",
        Text(&title)
    );
    let data = data::Documents::of(entries.iter().map(|(entry, _)| *entry));
    let mut improvement = Improvement::default();
    for (entry, groups) in entries {
        improvement.add(&entry.title, groups);
    }
    let (lead, improvement) = (improvement.sentence(options.1), improvement.html(options.1));
    if entries.len() > 1 {
        page.push_str(&front(entries, &lead, &improvement));
    }
    for (index, (entry, groups)) in entries.iter().enumerate() {
        let section = Section { index, entry, groups, palette: &palette, price: options.0 };
        page.push_str(&section.html(if entries.len() == 1 { Some(&improvement) } else { None }, data.note()));
    }
    let _ = write!(page, "</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n{}", data.html(csv));
    let _ = write!(page, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

/// What several runs have in common: where each is, the mean of all, the main figures.
fn front(entries: &[(&Entry, Vec<Group<'_>>)], lead: &str, improvement: &str) -> String {
    let mut page = String::from("<nav aria-label=\"runs\"><ul>");
    for (index, (entry, _)) in entries.iter().enumerate() {
        let _ = write!(page, "<li><a href=\"#run-{index}\">{}</a></li>", Text(&entry.title));
    }
    let runs: Vec<&Run> = entries.iter().map(|(entry, _)| &entry.run).collect();
    let figures = main_grid(&runs).html();
    let folded = section::folded("The main figures of all runs", &figures);
    let _ = writeln!(page, "</ul></nav>\n<section><p class=\"lead\">{}</p>{improvement}{folded}</section>", Text(lead));
    page
}
