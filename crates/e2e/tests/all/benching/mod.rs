//! `freshet-bench`, with real servers and a real Freshet: its figures exist, and it reports errors.
//!
//! No test judges a figure, since a busy machine can produce any figure. The tests check that the load ran, that counts are consistent, and that
//! answers which are not the database's are reported as wrong.

mod cards;
mod ended_early;
mod page;
mod replay;
mod runs;
mod sizes;
mod wrong;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use freshet_bench::result::{Cell, Round, Run};

use crate::support::{Database, Pair, program};

/// One short round.
const SHORT: [&str; 8] = ["--rounds", "1", "--warm-up", "100ms", "--time", "1s", "--cool-down", "50ms"];

/// A directory for documents, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("freshet-benching-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a run of the program said.
#[derive(Debug)]
struct Said {
    success: bool,
    stdout: String,
    stderr: String,
}

fn command(arguments: &[&str]) -> Result<Command> {
    let program = program()?.context("these tests need a Freshet")?;
    let mut command = Command::new(program.with_file_name("freshet-bench"));
    command.args(arguments);
    Ok(command)
}

/// Runs `freshet-bench` to its end.
fn bench(arguments: &[&str]) -> Result<Said> {
    let output = command(arguments)?.output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Said { success: output.status.success(), stdout: text(output.stdout), stderr: text(output.stderr) })
}

/// The same, and it must succeed.
fn bench_well(arguments: &[&str]) -> Result<Said> {
    let said = bench(arguments)?;
    ensure!(said.success, "freshet-bench {arguments:?}: {said:#?}");
    Ok(said)
}

fn document(path: &str) -> Result<Run> {
    freshet_bench::report::read(Path::new(path))
}

/// `direct=…` for a database.
fn direct(database: &Database) -> String {
    format!("direct={}", database.url())
}

/// `freshet=…` for what is in front of it, with its counters.
fn through(pair: &Pair) -> String {
    let login = pair.login();
    let (user, password, database) = (login.user, login.password.unwrap_or_default(), login.database);
    let url = format!("postgres://{user}:{password}@{}/{database}", pair.address());
    format!("freshet={url},metrics=http://{}/metrics", pair.freshet.http)
}

/// The rounds of one target in a cell.
fn rounds<'a>(cell: &'a Cell, target: &str) -> Vec<&'a Round> {
    cell.rounds.iter().filter(|round| round.target == target).collect()
}

/// The load ran, without failures, and its counts agree.
fn ran(round: &Round, cell: &Cell) -> Result<()> {
    let load = &round.load;
    ensure!(load.transactions > 0 && load.seconds > 0.0, "{}: nothing ran: {load:?}", round.target);
    // Writers of the same rows may meet: a deadlock, or a row that another has just put back.
    let other = |code: &&String| !["40P01", "23505"].contains(&code.as_str());
    ensure!(load.failures.keys().find(other).is_none(), "{}: {:?}", round.target, load.failures);
    // An open loop counts transactions where they were due, and all else where it ended.
    let closed = load.lateness.is_none();
    let straddling = cell.connections as u64;
    ensure!(!closed || load.queries + straddling >= load.transactions, "{}: {load:?}", round.target);
    ensure!(load.statements.len() == cell.statements.len(), "{}: {:?}", round.target, cell.statements);
    let latencies = freshet_bench::report::histogram::decode(&load.latency)?;
    let counted = load.transactions + load.unfinished;
    ensure!(latencies.len() == counted, "{} latencies: {load:?}", latencies.len());
    let seconds: u64 = load.per_second.iter().sum();
    ensure!(!closed || seconds == load.transactions, "{seconds} in seconds: {load:?}");
    ensure!(round.processes.contains_key("client"), "{:?}", round.processes);
    Ok(())
}

/// Answers were compared, and all were right.
fn right(round: &Round, answers: u64) -> Result<()> {
    let checked = round.checked.as_ref().with_context(|| format!("{}: nothing compared", round.target))?;
    ensure!(checked.answers == answers && checked.wrong == 0, "{}: {checked:?}", round.target);
    Ok(())
}
