//! The log of a real server, replayed direct and through Freshet.

use anyhow::{Context, Result, ensure};
use freshet_bench::load::Loop;
use freshet_testbed::Settings;

use super::{Directory, bench, bench_well, direct, document, rounds, through};
use crate::support::{Database, Pair, Version, on_both_at_length};

on_both_at_length!(what_a_server_logged);

/// The server logs what a run sends; of that the reads are sent again, ten times as fast, by as many sessions.
fn what_a_server_logged(version: Version) -> Result<()> {
    let server = version.start(&Settings::default().with("log_statement = all"))?;
    let log = server.log_path();
    let pair = Pair::over(Database::create(server)?, "", &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (directory, targets) = (Directory::new()?, [direct(&pair.database), through(&pair)]);
    bench_well(&["load", "point-select", "--rows", "300", "--target", &targets[0]])?;
    let open =
        ["--rate", "50", "--time", "3s", "--warm-up", "0s", "--cool-down", "0s", "--rounds", "1", "--connections", "3"];
    let output = directory.path("first.json");
    bench_well(
        &[&["run", "point-select", "--rows", "300", "--target", &targets[0], "--output", &output][..], &open].concat(),
    )?;
    let first = rounds(document(&output)?.cells.first().context("a cell")?, "direct")[0].load.transactions;

    let (log, output) = (log.display().to_string(), directory.path("replayed.json"));
    let replay =
        ["run", "replay", "--query-log", &log, "--log-line-prefix", "%m [%p] %q%a ", "--reads-only", "--speed", "10"];
    let places = ["--target", &targets[0], "--target", &targets[1], "--output", &output, "--rounds", "1"];
    bench_well(&[&replay[..], &places].concat())?;
    let run = document(&output)?;
    ensure!(matches!(run.method.pace, Loop::Replay { .. }), "{:?}", run.method);
    let cell = run.cells.first().context("a cell")?;
    ensure!(cell.settings.get("left-out").is_some_and(|left| left.contains("not a read")), "{:?}", cell.settings);
    let held: u64 = cell.settings.get("statements").context("a count")?.parse()?;
    ensure!(held >= first, "{held} of {first} reads");
    let place = cell.statements.iter().position(|name| name == "SELECT c FROM sbtest1 WHERE id=$1");
    let place = place.with_context(|| format!("{:?}", cell.statements))?;
    for target in ["direct", "freshet"] {
        let [round] = rounds(cell, target)[..] else { anyhow::bail!("one round") };
        let sent = freshet_bench::report::histogram::decode(&round.load.statements[place])?.len();
        // On a busy machine some are later than the log is long.
        ensure!(sent > 0 && sent <= first, "{target}: {sent} of {first} reads");
        ensure!(round.load.failures.is_empty() && round.load.lateness.is_some(), "{:?}", round.load);
    }
    let said = bench(&["run", "replay", "--query-log", &log, "--log-line-prefix", "%c: ", "--target", &targets[0]])?;
    ensure!(!said.success && said.stderr.contains("cannot be replayed"), "{said:#?}");
    Ok(())
}
