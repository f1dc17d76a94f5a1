//! The predicted memory of a cache, checked by a Freshet that the program starts itself.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use freshet_bench::report::{Document, Extra, read_any};

use super::runs::{alone, started_by_the_run};
use super::{Directory, bench_well, direct};
use crate::support::{Version, on_both_at_length, program};

on_both_at_length!(a_knee_and_two_runs);

/// The curve falls, and the runs at its knee and at half of it were made with these sizes and hit something.
fn a_knee_and_two_runs(version: Version) -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let database = alone(version)?;
    let (directory, direct) = (Directory::new()?, direct(&database));
    bench_well(&["load", "point-select", "--target", &direct, "--rows", "5000"])?;
    let [through, start] = started_by_the_run(&program, &database)?;
    let (output, page) = (directory.path("sizing.json"), directory.path("sizing.html"));
    let targets = ["--target", &direct, "--target", &through, "--start", &start, "--output", &output, "--html", &page];
    let short =
        ["--time", "3s", "--warm-up", "4s", "--connections", "4", "--accesses", "50000", "--distribution", "zipf:1"];
    bench_well(&[&["sizing", "point-select", "--rows", "5000"][..], &targets, &short].concat())?;
    let Document::Extra(extra) = read_any(Path::new(&output))? else { bail!("a run") };
    let Extra::Sizing(sizing) = *extra else { bail!("no sizing") };
    ensure!(sizing.curve.windows(2).all(|pair| pair[0].miss_ratio >= pair[1].miss_ratio), "{:?}", sizing.curve);
    let (first, last) = (sizing.curve.first().context("a curve")?, sizing.curve.last().context("a curve")?);
    ensure!(first.miss_ratio > 0.9 && last.miss_ratio < 0.1, "{first:?} {last:?}");
    ensure!(sizing.overhead.measured && sizing.overhead.bytes > 100.0, "{:?}", sizing.overhead);
    let knee = sizing.knee.context("a knee")?;
    ensure!(knee > 0.0 && knee < last.bytes, "{knee} of {last:?}");
    ensure!(
        sizing.checks.len() == 2 && sizing.checks.iter().all(|check| check.target == "freshet"),
        "{:?}",
        sizing.checks
    );
    for check in &sizing.checks {
        ensure!(check.measured > 0.0 && check.predicted > 0.0 && check.held > 0.0, "{check:?}");
    }
    let text = std::fs::read_to_string(page)?;
    ensure!(text.contains("Miss ratio by memory") && text.contains("Predicted and measured"), "a part is missing");
    Ok(())
}
