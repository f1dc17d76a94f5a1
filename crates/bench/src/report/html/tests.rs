//! The contents of a page, for runs with and without figures.

use super::super::csv::csv;
use super::super::entry::Entry;
use super::super::example::{cell, run};
use super::super::tables::Group;
use super::{Options, html};
use crate::result::Run;

fn page(runs: impl IntoIterator<Item = Run>) -> String {
    let entry =
        |(number, run): (usize, Run)| Entry { name: format!("run-{number}"), title: format!("Run {number}"), run };
    let entries: Vec<Entry> = runs.into_iter().enumerate().map(entry).collect();
    let entries: Vec<(&Entry, Vec<Group<'_>>)> = entries.iter().map(|entry| (entry, Group::all(&entry.run))).collect();
    let prices = ["0.36 EUR".parse().unwrap()];
    let text = html(&entries, &csv(&entries).unwrap(), Options { prices: &prices, ..Options::default() });
    for broken in ["NaN", "\"inf", "http://", "https://", "<svg></svg>"] {
        assert!(!without_data(&text).contains(broken), "{broken}");
    }
    text
}

/// The page without its embedded data. URLs of targets are in tables and commands, so no fixture has one with http.
fn without_data(text: &str) -> &str {
    text.split("<script type=").next().unwrap_or_default()
}

#[test]
fn a_run_is_told_in_words_and_drawn() {
    let text = page([run()]);
    assert!(
        text.contains("title-5 at 4 connections, 50 writes/s") || text.contains("title-5 at 64 connections"),
        "{text}"
    );
    assert!(text.contains("The run ended early.") && text.contains("2 answers were wrong."));
    for title in ["Throughput", "99th percentile", "Served from the cache", "4 connections, 50 writes/s"] {
        assert!(text.contains(&format!("<figcaption>{title}</figcaption>")), "{title}");
    }
    assert!(text.contains("EUR per million queries") && text.contains("not measured: connection refused"));
}

#[test]
fn a_run_of_one_cell_has_bars() {
    let mut run = run();
    run.cells.truncate(1);
    let text = page([run]);
    assert!(text.contains("<rect class=\"p0\"") && text.contains("freshet answered 4.00 times as many"), "{text}");
}

#[test]
fn of_nothing_nothing_is_drawn() {
    let mut empty = run();
    empty.cells = vec![cell(4, [])];
    let mut bare = run();
    bare.cells.clear();
    for run in [empty, bare] {
        let text = page([run]);
        assert!(!text.contains("<figure>") && !text.contains("Mean improvement"), "{text}");
    }
    // Rounds without measurements.
    let mut idle = run();
    for round in idle.cells.iter_mut().flat_map(|cell| &mut cell.rounds) {
        *round = crate::result::Round { target: round.target.clone(), ..Default::default() };
    }
    assert!(!page([idle]).contains("Mean improvement"));
}

#[test]
fn names_are_no_markup() {
    let evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'";
    let mut run = run();
    run.targets[1].name = evil.to_owned();
    run.targets[1].settings.insert(evil.to_owned(), evil.to_owned());
    run.machine.processor = evil.to_owned();
    run.command.push(evil.to_owned());
    for cell in &mut run.cells {
        cell.workload = evil.to_owned();
        cell.settings.insert(evil.to_owned(), evil.to_owned());
        cell.statements[0] = evil.to_owned();
        cell.failed.insert(evil.to_owned(), evil.to_owned());
        for round in cell.rounds.iter_mut().filter(|round| round.target == "freshet") {
            round.target = evil.to_owned();
            round.processes.insert(evil.to_owned(), crate::result::Usage::default());
        }
    }
    let other = run.clone();
    let entry = Entry { name: evil.to_owned(), title: evil.to_owned(), run };
    let groups = vec![(&entry, Group::all(&entry.run))];
    let texts =
        [html(&groups, &csv(&groups).unwrap(), Options::default()), page([other, super::super::example::run()])];
    for text in texts {
        assert!(!text.contains("<img") && !text.contains("<script>alert"), "{text}");
        // The documents, the CSV and the page's own script.
        let scripts = text.matches("</script").count();
        assert_eq!(scripts, text.matches("<script type=").count() + 1);
    }
}

#[test]
fn several_runs_share_a_page() {
    let text = page([run(), run()]);
    assert!(text.contains("href=\"#run-1\"") && text.contains("<h2>Run 1</h2>") && text.contains("geometric mean"));
    assert!(text.contains("id=\"data-1\"") && text.contains("id=\"csv\""));
}

#[test]
fn the_document_can_be_read_from_the_page() {
    let text = page([run()]);
    let json = text.split("id=\"data-0\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let back: Run = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), serde_json::to_string(&run()).unwrap());
}
