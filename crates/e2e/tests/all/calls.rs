//! System calls of a session: one receive and one send for each hit, twice as many for a pass, and no more for requests that arrive together. strace
//! counts them in the workers' threads.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::join_keys::stage::{Session, Stage, Which, on_all};
use crate::support::{Version, eventually, frames};

const RUNS: usize = 200;
/// What may come in between: a wake-up that finds nothing.
const SLACK: usize = RUNS / 50;
const PATIENCE: Duration = Duration::from_secs(10);
/// Statements that come together.
const TOGETHER: usize = 10;

const HIT: &str = "SELECT title FROM title WHERE title_id = 1";
const PASSED: &str = "SELECT title FROM title WHERE title_id = 1 AND now() IS NOT NULL";

/// strace, attached to the workers' threads.
struct Traced {
    child: Child,
    path: PathBuf,
    workers: Vec<PathBuf>,
}

/// The workers' threads, as folders of /proc.
fn workers(pid: u32) -> Result<Vec<PathBuf>> {
    let tasks: Vec<PathBuf> =
        fs::read_dir(format!("/proc/{pid}/task"))?.map(|task| Ok(task?.path())).collect::<Result<_>>()?;
    let is_worker =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("worker-"));
    Ok(tasks.into_iter().filter(is_worker).collect())
}

/// The system calls in a trace.
#[derive(Debug, PartialEq, Eq)]
struct Calls {
    received: usize,
    sent: usize,
}

impl Traced {
    /// None without strace.
    fn attach(stage: &Stage, name: &str) -> Result<Option<Self>> {
        let pid = stage.freshet.pid().context("no Freshet")?;
        let path = std::env::temp_dir().join(format!("freshet-calls-{pid}-{name}"));
        let mut command = Command::new("strace");
        command.args(["-q", "-e", "trace=recvfrom,sendto,read,write,readv,writev,recvmsg,sendmsg", "-o"]).arg(&path);
        let workers = workers(pid)?;
        ensure!(!workers.is_empty(), "no workers");
        for worker in &workers {
            command.arg("-p").args(worker.file_name());
        }
        let Ok(child) = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn() else { return Ok(None) };
        let traced = Self { child, path, workers };
        eventually(PATIENCE, || {
            for worker in &traced.workers {
                let status = fs::read_to_string(worker.join("status"))?;
                ensure!(!status.contains("TracerPid:\t0\n"), "not attached yet");
            }
            Ok(())
        })?;
        Ok(Some(traced))
    }

    fn finish(mut self) -> Result<Calls> {
        // The last call has returned.
        eventually(PATIENCE, || {
            for worker in &self.workers {
                let status = fs::read_to_string(worker.join("status"))?;
                ensure!(status.contains("State:\tS"), "a worker has not come to rest");
            }
            Ok(())
        })?;
        ensure!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status()?.success(), "kill");
        self.child.wait()?;
        let text = fs::read_to_string(&self.path)?;
        fs::remove_file(&self.path)?;
        let count = |names: [&str; 4]| {
            // The thread's number stands before it if there are several.
            let call = |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').to_owned();
            let is_one = |line: &&str| names.iter().any(|name| call(line).starts_with(&format!("{name}(")));
            text.lines().filter(is_one).count()
        };
        Ok(Calls {
            received: count(["recvfrom", "read", "readv", "recvmsg"]),
            sent: count(["sendto", "write", "writev", "sendmsg"]),
        })
    }
}

/// Runs it under strace: at most so many receives and sends for each run.
fn counted(stage: &Stage, name: &str, each: usize, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    run()?;
    let Some(traced) = Traced::attach(stage, name)? else { return crate::clients::left_out("strace") };
    for _ in 0..RUNS {
        run()?;
    }
    let Calls { received, sent } = traced.finish()?;
    let expected = each * RUNS;
    ensure!((expected..=expected + SLACK).contains(&received), "{name}: {received} receives, not {expected}");
    ensure!((expected..=expected + SLACK).contains(&sent), "{name}: {sent} sends, not {expected}");
    Ok(())
}

fn stage(which: Which) -> Result<Option<Stage>> {
    // Nothing else is under way in the workers meanwhile.
    Stage::alone_with(which, &["--refresh-share", "0", "--admission", "always"])
}

fn each_statement(which: Which) -> Result<()> {
    let Some(stage) = stage(which)? else { return Ok(()) };
    let mut session = stage.connect()?;
    stage.until_hits(&mut session, &[HIT.to_owned()])?;
    counted(&stage, "hit", 1, || session.run(HIT))?;
    counted(&stage, "passed", 2, || session.run(PASSED))
}

on_all!(each_statement);

#[test]
fn hits_that_are_asked_for_together_are_answered_together() -> Result<()> {
    let Some(stage) = stage(Which::Postgres(Version::V18))? else { return Ok(()) };
    let mut session = stage.connect()?;
    stage.until_hits(&mut session, &[HIT.to_owned()])?;
    let Session::Postgres(mut client) = session else { unreachable!("PostgreSQL") };
    let messages = frames::query(HIT).repeat(TOGETHER);
    let before = stage.metrics()?;
    counted(&stage, "together", 1, || {
        let answers = client.exchange(&messages, TOGETHER)?;
        ensure!(answers.iter().filter(|message| message.tag == b'D').count() == TOGETHER, "{answers:?}");
        Ok(())
    })?;
    let hits = stage.metrics()?.hits() - before.hits();
    ensure!(hits >= (RUNS * TOGETHER) as u64, "{hits} hits");
    Ok(())
}
