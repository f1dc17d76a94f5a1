//! Ctrl-C ends a run cleanly, with the measurements until then.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use freshet_testbed::process;

use super::{Directory, bench_well, command, direct, document};
use crate::support::{Database, PATIENCE, Version, eventually, on_both_at_length, program};

on_both_at_length!(an_interrupt);

fn an_interrupt(version: Version) -> Result<()> {
    if program()?.is_none() {
        return Ok(());
    }
    let (database, directory) = (Database::shared(version)?, Directory::new()?);
    let (target, output) = (direct(&database), directory.path("run.json"));
    bench_well(&["load", "point-select", "--rows", "100", "--target", &target])?;
    let arguments = ["run", "point-select", "--rows", "100", "--target", &target, "--output", &output];
    let method = ["--warm-up", "0s", "--time", "300s", "--rounds", "3", "--connections", "2"];
    let mut child = command(&[&arguments[..], &method].concat())?.stdout(Stdio::piped()).spawn()?;
    // Statements are prepared before the load begins; only what they have read says that it runs.
    let busy = "do $$ begin if (select sum(seq_scan + idx_scan) from pg_stat_user_tables) > 1000 is not true
                then raise exception 'not yet'; end if; end $$";
    eventually(PATIENCE, || database.run(busy))?;
    process::interrupt(child.id())?;
    eventually(PATIENCE, || child.try_wait()?.context("it goes on"))?;
    let run = document(&output)?;
    ensure!(run.interrupted, "{run:?}");
    let round = run.cells.first().and_then(|cell| cell.rounds.first()).context("a round")?;
    ensure!(round.load.transactions > 0, "{:?}", round.load);
    ensure!(round.load.seconds < 299.0, "{:?}", round.load);
    let shown = bench_well(&["show", &output])?;
    ensure!(shown.stdout.contains("direct"), "{shown:#?}");
    Ok(())
}
