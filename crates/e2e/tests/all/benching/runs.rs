//! Each workload, direct and through Freshet, by the commands of a user.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::{Directory, SHORT, bench_well, direct, document, ran, right, rounds, through};
use crate::support::{Database, LISTEN, Pair, Version, on_both_at_length, program};

on_both_at_length!(
    point_selects,
    a_page_with_writes,
    oltp,
    a_sweep_of_sizes,
    an_open_loop,
    the_newest_rows_by_share_of_reads,
    trips_and_aggregates
);

/// A database on a server of its own: tables are published once all transactions open on their server have ended, and the
/// shared one has those of other tests.
pub(super) fn alone(version: Version) -> Result<Database> {
    Database::create(version.start(&Settings::default())?)
}

/// Loads a workload, runs it direct and through Freshet, and looks at what every such run must have. What pays and what
/// does not is left to other tests: a table of which half of the statements write may leave the publication in a run as short as these.
fn measured(version: Version, workload: &[&str], more: &[&str]) -> Result<Option<freshet_bench::result::Run>> {
    let pair = Pair::over(alone(version)?, "", &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(None);
    }
    let (directory, targets) = (Directory::new()?, [direct(&pair.database), through(&pair)]);
    bench_well(&[&["load"], workload, &["--target", &targets[0]]].concat())?;
    let output = directory.path("run.json");
    let places = ["--target", &targets[0], "--target", &targets[1], "--output", &output];
    let said = bench_well(&[&["run"], workload, &SHORT, &places, more].concat())?;
    let run = document(&output)?;
    ensure!(!run.interrupted && run.targets.len() == 2, "{run:?}");
    ensure!(said.stdout.contains("direct") && said.stdout.contains("freshet"), "{said:#?}");
    for cell in &run.cells {
        for target in ["direct", "freshet"] {
            let rounds = rounds(cell, target);
            ensure!(rounds.len() == run.method.repetitions, "{target}: {} rounds", rounds.len());
            rounds.iter().try_for_each(|round| ran(round, cell))?;
        }
    }
    let password = pair.login().password.unwrap_or_default();
    let text = std::fs::read_to_string(&output)?;
    ensure!(!text.contains(&format!(":{password}@")), "the document holds a password");
    Ok(Some(run))
}

fn point_selects(version: Version) -> Result<()> {
    let workload = ["point-select", "--rows", "500"];
    let Some(run) = measured(version, &workload, &["--connections", "1,3", "--questions", "100", "--time", "1s"])?
    else {
        return Ok(());
    };
    ensure!(run.cells.iter().map(|cell| cell.connections).eq([1, 3]), "{:?}", run.cells);
    // The table is published behind the first reads, so the hits are certain in the last cell alone.
    let cell = run.cells.last().context("a cell")?;
    let [round] = rounds(cell, "freshet")[..] else { anyhow::bail!("one round") };
    right(round, 100)?;
    let cache = round.cache.context("counters of the cache")?;
    ensure!(cache.hits > 0.0 && cache.entries > 0.0 && cache.bytes > 0.0, "{cache:?}");
    ensure!(!round.series.is_empty(), "no samples");
    ensure!(round.load.queries.abs_diff(round.load.transactions) <= 3, "{:?}", round.load);
    Ok(())
}

fn a_page_with_writes(version: Version) -> Result<()> {
    let more = ["--connections", "4", "--writes", "40", "--questions", "60", "--protocol", "text"];
    let Some(run) = measured(version, &["title-5", "--movies", "1200"], &more)? else { return Ok(()) };
    let cell = run.cells.first().context("a cell")?;
    for target in ["direct", "freshet"] {
        let [round] = rounds(cell, target)[..] else { anyhow::bail!("one round") };
        // But for those of the four connections that straddled an edge of the interval.
        ensure!(round.load.queries + 4 * 5 >= 5 * round.load.transactions, "{:?}", round.load);
        let writes = round.writes.as_ref().context("the writer's figures")?;
        ensure!(writes.transactions > 0 && writes.failures.is_empty(), "{writes:?}");
    }
    let [round] = rounds(cell, "freshet")[..] else { anyhow::bail!("one round") };
    right(round, 60)
}

fn oltp(version: Version) -> Result<()> {
    // A transaction is 20 statements: time for some of them on a busy machine too.
    let more = ["--connections", "2", "--questions", "50", "--rounds", "2", "--time", "3s"];
    let Some(run) = measured(version, &["oltp-read-write", "--rows", "2000"], &more)? else { return Ok(()) };
    let cell = run.cells.first().context("a cell")?;
    for round in rounds(cell, "freshet") {
        right(round, 50)?;
        // 14 reads and 4 writes, but for those of the two connections that straddled an edge of the interval.
        ensure!(round.load.queries + 2 * 18 >= 18 * round.load.transactions, "{:?}", round.load);
    }
    // The targets take turns, and the turns rotate.
    let order: Vec<&str> = cell.rounds.iter().map(|round| round.target.as_str()).collect();
    ensure!(order == ["direct", "freshet", "freshet", "direct"], "{order:?}");
    Ok(())
}

/// All connections insert, and read what others have inserted: an answer from before an acknowledged insert has no row, which is a
/// failure.
fn the_newest_rows_by_share_of_reads(version: Version) -> Result<()> {
    let workload = ["ycsb", "--records", "500", "--read-share", "50,90", "--write-kind", "insert"];
    let more = ["--distribution", "latest", "--connections", "8", "--questions", "100", "--time", "2s"];
    let Some(run) = measured(version, &workload[..3], &[&workload[3..], &more].concat())? else { return Ok(()) };
    let shares: Vec<&str> = run.cells.iter().map(|cell| cell.settings["read-share"].as_str()).collect();
    ensure!(shares == ["50", "90"], "{shares:?}");
    for cell in &run.cells {
        for round in &cell.rounds {
            ensure!(round.load.failures.is_empty(), "{}: {:?}", round.target, round.load.failures);
        }
        let [round] = rounds(cell, "freshet")[..] else { anyhow::bail!("one round") };
        right(round, 100)?;
    }
    let cell = run.cells.last().context("a cell")?;
    let [round] = rounds(cell, "freshet")[..] else { anyhow::bail!("one round") };
    ensure!(round.cache.is_some_and(|cache| cache.hits > 0.0), "{:?}", round.cache);
    Ok(())
}

fn trips_and_aggregates(version: Version) -> Result<()> {
    for (workload, more) in [
        (["taxi-trips", "--rows", "3000"], ["--read-share", "70"]),
        (["title-aggregates", "--movies", "100"], ["--writes", "20"]),
    ] {
        let more = [&more[..], &["--connections", "3", "--questions", "80", "--time", "2s"]].concat();
        let Some(run) = measured(version, &workload, &more)? else { return Ok(()) };
        let cell = run.cells.first().context("a cell")?;
        let [round] = rounds(cell, "freshet")[..] else { anyhow::bail!("one round") };
        ensure!(round.load.failures.is_empty(), "{:?}", round.load.failures);
        right(round, 80)?;
    }
    Ok(())
}

fn an_open_loop(version: Version) -> Result<()> {
    let more = ["--connections", "4", "--rate", "100", "--time", "1s", "--questions", "0"];
    let Some(run) = measured(version, &["point-select", "--rows", "200"], &more)? else { return Ok(()) };
    let cell = run.cells.first().context("a cell")?;
    for round in &cell.rounds {
        ensure!(round.load.transactions + round.load.unfinished == 100, "{:?}", round.load);
        ensure!(round.load.lateness.is_some() && round.checked.is_none(), "{round:?}");
    }
    Ok(())
}

/// The run starts Freshet, once for each size, and samples it while it fills.
fn a_sweep_of_sizes(version: Version) -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let database = alone(version)?;
    let (directory, [target, start]) = (Directory::new()?, started_by_the_run(&program, &database)?);
    let workload = ["point-select", "--rows", "3000"];
    bench_well(&[&["load"], &workload[..], &["--target", &direct(&database)]].concat())?;
    let output = directory.path("sweep.json");
    let sizes = ["--sizes", "256KiB,16MiB", "--cold", "--start", &start, "--warm-up", "0s", "--time", "3s"];
    let places = ["--target", &direct(&database), "--target", &target, "--output", &output, "--rounds", "1"];
    bench_well(&[&["run"], &workload[..], &sizes, &places].concat())?;
    let run = document(&output)?;
    let found: BTreeSet<_> = run.cells.iter().map(|cell| cell.cache_size).collect();
    ensure!(found == BTreeSet::from([Some(256 << 10), Some(16 << 20)]), "{found:?}");
    for cell in &run.cells {
        let [round] = rounds(cell, "freshet")[..] else { anyhow::bail!("one round") };
        right(round, 200)?;
        let entries = round.series.iter().map(|sample| sample.cache.entries).fold(0.0, f64::max);
        ensure!(entries > 0.0 && round.cache.is_some_and(|cache| cache.hits > 0.0), "{round:?}");
    }
    Ok(())
}

/// `freshet=…` for what the run itself starts, and the command for that.
pub(super) fn started_by_the_run(program: &Path, database: &Database) -> Result<[String; 2]> {
    let (listen, http, login) = (free_port()?, free_port()?, database.login());
    let url = format!(
        "postgres://{}:{}@127.0.0.1:{listen}/{}",
        login.user,
        login.password.unwrap_or_default(),
        login.database
    );
    let target = format!("freshet={url},metrics=http://127.0.0.1:{http}/metrics");
    let start = format!(
        "freshet=exec {} serve --upstream '{}' {} 127.0.0.1:{listen} {} 127.0.0.1:{http} --memory {{size}}",
        program.display(),
        database.url(),
        LISTEN[0],
        LISTEN[2],
    );
    Ok([target, start])
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
