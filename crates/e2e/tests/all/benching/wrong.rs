//! Errors are reported: answers that are not the database's, failures, targets and options that make no sense.

use anyhow::{Context, Result, ensure};

use super::{Directory, SHORT, bench, bench_well, direct, document, rounds};
use crate::support::{Database, Version, on_both_at_length, program};

on_both_at_length!(a_target_that_answers_wrongly, failures_are_counted, what_makes_no_sense);

const WORKLOAD: [&str; 3] = ["point-select", "--rows", "100"];

/// A database with the workload's data.
fn loaded(version: Version) -> Result<Option<Database>> {
    if program()?.is_none() {
        return Ok(None);
    }
    let database = Database::shared(version)?;
    bench_well(&[&["load"], &WORKLOAD[..], &["--target", &direct(&database)]].concat())?;
    Ok(Some(database))
}

/// Another database in the place of a cache, in which one row in ten is another one.
fn a_target_that_answers_wrongly(version: Version) -> Result<()> {
    let (Some(database), Some(other)) = (loaded(version)?, loaded(version)?) else { return Ok(()) };
    other.run("update sbtest1 set c = 'stale' where id % 10 = 0")?;
    let (directory, other) = (Directory::new()?, format!("other={}", other.url()));
    let (output, database) = (directory.path("wrong.json"), direct(&database));
    let places = ["--target", &database, "--target", &other, "--output", &output, "--questions", "300"];
    let said = bench(&[&["run"], &WORKLOAD[..], &SHORT, &places].concat())?;
    ensure!(!said.success && said.stderr.contains("wrong"), "{said:#?}");
    ensure!(said.stdout.to_lowercase().contains("wrong"), "the table says nothing: {said:#?}");
    let run = document(&output)?;
    let [round] = rounds(run.cells.first().context("a cell")?, "other")[..] else { anyhow::bail!("one round") };
    let checked = round.checked.as_ref().context("nothing compared")?;
    // 300 draws of which a tenth is wrong: 30, with a deviation of 5.
    ensure!((5..=60).contains(&checked.wrong) && checked.answers == 300, "{checked:?}");
    ensure!(checked.examples.iter().any(|example| example.contains("stale")), "{checked:?}");
    let shown = bench_well(&["show", &output, "--markdown"])?;
    ensure!(shown.stdout.to_lowercase().contains("wrong"), "{shown:#?}");
    Ok(())
}

/// Failures are counted and shown, and the run goes on.
fn failures_are_counted(version: Version) -> Result<()> {
    let (Some(database), Some(other)) = (loaded(version)?, loaded(version)?) else { return Ok(()) };
    // Each tenth row cannot be read: a failure of some transactions.
    other.run(
        "alter table sbtest1 rename to rows; create function broken(id int, c text) returns text language plpgsql as
             $$ begin if id % 10 = 0 then raise exception 'row % is broken', id; end if; return c; end $$;
         create view sbtest1 as select id, k, broken(id, c) as c, pad from rows;
         create function ignored() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger t instead of insert or update or delete on sbtest1 for each row execute function ignored()",
    )?;
    let (directory, other) = (Directory::new()?, format!("other={}", other.url()));
    let (output, database) = (directory.path("failures.json"), direct(&database));
    let places = ["--target", &database, "--target", &other, "--output", &output, "--questions", "0"];
    let said = bench_well(&[&["run"], &WORKLOAD[..], &SHORT, &places].concat())?;
    ensure!(said.stdout.contains("P0001") && said.stdout.contains("is broken"), "{said:#?}");
    let run = document(&output)?;
    let cell = run.cells.first().context("a cell")?;
    let [round] = rounds(cell, "other")[..] else { anyhow::bail!("one round") };
    let failures = round.load.failures.get("P0001").context("no failures")?;
    ensure!(failures.count > 0 && round.load.transactions > failures.count, "{:?}", round.load);
    ensure!(rounds(cell, "direct")[0].load.failures.is_empty(), "{:?}", rounds(cell, "direct"));
    Ok(())
}

fn what_makes_no_sense(version: Version) -> Result<()> {
    let Some(database) = loaded(version)? else { return Ok(()) };
    let target = direct(&database);
    let empty = Database::shared(version)?;
    let without_data = direct(&empty);
    let nobody = "direct=postgres://postgres@127.0.0.1:1/nothing";
    let cases: [(&[&str], &str); 8] = [
        (&["run", "point-select", "--target", &without_data], "freshet-bench load"),
        (&["run", "point-select", "--rows", "7", "--target", &target], "freshet-bench load"),
        (&["run", "point-select", "--target", nobody], "127.0.0.1:1"),
        (&["run", "point-select", "--rows", "100", "--target", &target, "--target", &target], "same name"),
        (&["run", "title-5", "--distribution", "zipf:1", "--target", &target], "distribution"),
        (
            &["run", "point-select", "--rows", "100", "--target", &target, "--start", "x=true"],
            "no target with this name",
        ),
        (&["run", "point-select", "--target", "direct"], "NAME=URL"),
        (&["compare", "/nonexistent/a.json", "/nonexistent/b.json"], "/nonexistent/a.json"),
    ];
    for (arguments, expected) in cases {
        let said = bench(arguments)?;
        ensure!(!said.success && said.stderr.contains(expected), "{arguments:?}, {expected:?}: {said:#?}");
    }
    Ok(())
}
