//! The documents themselves, embedded in the page.

use std::fmt::Write as _;

use super::super::entry::Entry;
use super::super::extra::Extra;
use super::super::text::embedded;
use crate::result::Run;

/// If the documents are larger than this, the histograms of single statements are left out. They are most of a document with many statements.
const BYTES_MAX: usize = 1_500_000;

/// The documents of a page's runs.
#[derive(Debug)]
pub(super) struct Documents {
    texts: Vec<String>,
    whole: bool,
}

impl Documents {
    pub(super) fn of<'a>(entries: impl Iterator<Item = &'a Entry> + Clone) -> Self {
        let text = |run: &Run| serde_json::to_string(run).map(|json| embedded(&json)).unwrap_or_default();
        let texts: Vec<String> = entries.clone().map(|entry| text(&entry.run)).collect();
        if texts.iter().map(String::len).sum::<usize>() <= BYTES_MAX {
            return Self { texts, whole: true };
        }
        Self { texts: entries.map(|entry| text(&thinned(&entry.run))).collect(), whole: false }
    }

    /// A note on what the page contains.
    pub(super) fn note(&self) -> &'static str {
        if self.whole {
            "The page holds the run's whole document, with all histograms."
        } else {
            "The page holds the run's document without the histograms of single statements, which would make it large."
        }
    }

    /// The elements from which the page's script exports the data.
    pub(super) fn html(&self, csv: &str) -> String {
        let mut html = String::new();
        for (index, text) in self.texts.iter().enumerate() {
            let _ = writeln!(html, "<script type=\"application/json\" id=\"data-{index}\">{text}</script>");
        }
        let csv = serde_json::to_string(csv).map(|json| embedded(&json)).unwrap_or_default();
        let _ = writeln!(html, "<script type=\"application/json\" id=\"csv\">{csv}</script>");
        html
    }
}

/// The element of a document other than a run.
pub(super) fn extra((index, extra): (usize, &Extra)) -> String {
    format!("<script type=\"application/json\" id=\"extra-data-{index}\">{}</script>\n", embedded(&extra.json()))
}

fn thinned(run: &Run) -> Run {
    let mut run = run.clone();
    for round in run.cells.iter_mut().flat_map(|cell| &mut cell.rounds) {
        round.load.statements.clear();
        round.writes.iter_mut().for_each(|load| load.statements.clear());
    }
    run
}
