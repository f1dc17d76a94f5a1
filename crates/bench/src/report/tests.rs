//! The reports of a small run with all kinds of contents.

use insta::assert_snapshot;

use super::example::{cell, round, run};
use super::{cell_table, comparison, main_table, markdown};
use crate::load::Loop;

#[test]
fn a_cell_on_the_terminal() {
    let run = run();
    assert_snapshot!(cell_table(&run, &run.cells[0]));
    assert!(cell_table(&run, &run.cells[1]).ends_with("freshet: not measured: connection refused\n"));
    let nothing = cell(64, []);
    assert_eq!(cell_table(&run, &nothing), "title-5, 64 connections, 50 writes/s\nno round has ended\n");
}

#[test]
fn a_closed_loop_shows_what_hung() {
    let mut run = run();
    run.cells[1].rounds[0].load.unfinished = 16;
    let said = "direct: 16 transactions had not ended when the round did\n";
    let table = cell_table(&run, &run.cells[1]);
    assert!(table.contains(&format!("\nerror: {said}")), "{table}");
    let text = markdown(&run);
    assert!(text.contains(&format!("\n- 64 connections, 50 writes/s, {said}")), "{text}");
    assert!(text.contains("\n| 64 | direct | 16 |"), "{text}");
}

#[test]
fn an_open_loop_shows_what_did_not_end() {
    let mut run = run();
    run.method.pace = Loop::Open { rate: 1_000.0, poisson: true };
    run.cells[1].cache_size = Some(64 << 20);
    run.cells[1].settings.insert("distribution".to_owned(), "zipfian".to_owned());
    let round = &mut run.cells[1].rounds[0];
    round.load.unfinished = 17;
    round.load.lateness = Some(round.load.latency.clone());
    round.writes = None;
    assert_snapshot!(cell_table(&run, &run.cells[1]));
}

#[test]
fn a_run_as_markdown() {
    assert_snapshot!(markdown(&run()));
}

#[test]
fn sizes_of_a_cache_as_markdown() {
    let mut run = run();
    run.interrupted = false;
    run.command.push("--start=freshet=freshet serve --memory {size} 'x'".to_owned());
    for (cell, size) in run.cells.iter_mut().zip([0, 64 << 20]) {
        (cell.connections, cell.cache_size) = (16, Some(size));
    }
    run.cells[1].rounds.push(round("freshet", 0, 3.0));
    assert_snapshot!(markdown(&run));
}

#[test]
fn the_main_table() {
    let (mut other, mut third) = (run(), run());
    other.cells.truncate(1);
    other.cells[0].writes = 0.0;
    third.cells[1].settings.insert("distribution".to_owned(), "zipfian".to_owned());
    assert_snapshot!(main_table(&[other, third]));
}

#[test]
fn two_runs_compared() {
    let (before, mut after) = (run(), run());
    after.machine.cores = 4;
    after.method.seed = 2;
    after.interrupted = false;
    after.targets[1].version = "PostgreSQL 18.2".to_owned();
    after.cells[0].rounds = vec![round("direct", 0, 1.05), round("direct", 1, 1.2)];
    after.cells[0].rounds.extend([round("freshet", 0, 6.0), round("freshet", 1, 5.0), round("pooler", 0, 1.0)]);
    after.cells[1].connections = 128;
    after.cells[0].failed.insert("direct".to_owned(), "answers not compared: no\nanswer".to_owned());
    assert_snapshot!(comparison(&before, &after));
}
