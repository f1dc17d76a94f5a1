//! A server that the run started: its process group, its output and its shutdown.
//!
//! A command may be a shell that starts other processes, so its whole process group is stopped, also if this program is killed. The output goes to an
//! unnamed file, which need not be removed.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use freshet_testbed::{Leash, process};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::driver::{Driver, Protocol};
use crate::target::{Counters, Target};

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit after the orderly signal.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the group's leader to clean up after its children were killed.
const ORDER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for one attempt to connect.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const PRINTED_BYTES_MAX: u64 = 4096;

/// A running server. It and its descendants are stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Pid,
    printed: File,
    end: Signal,
    _leash: Leash,
}

impl Process {
    /// Starts the command. `end` is the signal for an orderly shutdown.
    pub(super) fn spawn(mut command: Command, end: Signal) -> Result<Self> {
        let printed = nameless_file()?;
        command.stdin(Stdio::null()).stdout(printed.try_clone()?).stderr(printed.try_clone()?).process_group(0);
        let program = command.get_program().to_owned();
        let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process without id")?;
        match Leash::tie_group(child.id()) {
            Ok(leash) => Ok(Self { child, group, printed, end, _leash: leash }),
            Err(error) => {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Id of the process that leads the group.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `found` returns a value for the output.
    pub(super) async fn wait_for_line<T>(&mut self, found: impl Fn(&str) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let ended = self.child.try_wait()?;
            let printed = self.printed();
            if let Some(answer) = printed.lines().find_map(&found) {
                return Ok(answer);
            }
            self.still_starting(ended, deadline, "it has not printed the expected line")?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the target answers.
    pub(super) async fn wait_until_it_answers(&mut self, target: &Target) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, answers(target)).await;
            // Checked after the answer: if the process has ended, another program answered on its port.
            let ended = self.child.try_wait()?;
            let failure = match answer {
                Ok(Ok(())) if ended.is_none() => return Ok(()),
                Ok(Ok(())) => "another server answers there".to_owned(),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("no answer in {ANSWER_TIMEOUT:?}"),
            };
            self.still_starting(ended, deadline, &failure)?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn still_starting(&self, ended: Option<std::process::ExitStatus>, deadline: Instant, failure: &str) -> Result<()> {
        if let Some(status) = ended {
            bail!("it ended while starting ({status}); {}", self.printed_end());
        }
        ensure!(Instant::now() < deadline, "not up after {START_TIMEOUT:?} ({failure}); {}", self.printed_end());
        Ok(())
    }

    fn printed_end(&self) -> String {
        format!("it printed:\n{}", self.printed().trim_end())
    }

    /// The end of the output.
    fn printed(&self) -> String {
        let length = self.printed.metadata().map_or(0, |data| data.len());
        let mut bytes = vec![0; length.min(PRINTED_BYTES_MAX) as usize];
        let read = self.printed.read_at(&mut bytes, length.saturating_sub(PRINTED_BYTES_MAX));
        bytes.truncate(read.unwrap_or(0));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn runs(&mut self) -> bool {
        let leader = matches!(self.child.try_wait(), Ok(None));
        leader || (test_kill_process_group(self.group).is_ok() && !living(self.group).is_empty())
    }

    fn ends_within(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while self.runs() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

impl Drop for Process {
    /// A child of pgpool-II may hang in its signal handler, and the leader then waits for it for ever. If the leader is killed, it leaves its shared
    /// memory behind.
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, self.end);
        if self.ends_within(END_TIMEOUT) {
            return;
        }
        for pid in living(self.group).into_iter().filter(|pid| *pid != self.group) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if !self.ends_within(ORDER_TIMEOUT) {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// The running processes of a group. An ended orphan stays in its group until a process waits for it, which may never happen in a container.
fn living(group: Pid) -> Vec<Pid> {
    let id = group.as_raw_nonzero().get().unsigned_abs();
    let processes = process::all().unwrap_or_default().into_iter();
    let living = processes.filter(|process| process.group == id && process.state != 'Z');
    living.filter_map(|process| Pid::from_raw(process.pid.cast_signed())).collect()
}

/// Opened to append, since two handles write to it.
fn nameless_file() -> Result<File> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("freshet-bench-{}-{number}", std::process::id()));
    let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
    let file = file.with_context(|| path.display().to_string())?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// An SQL target must answer a statement, and other targets must accept a connection. A cache with a health page must be healthy.
async fn answers(target: &Target) -> Result<()> {
    let mut driver = Driver::open(target, &[].into(), Protocol::Text).await?;
    driver.command("SELECT 1").await?;
    match &target.counters {
        Some(Counters::Prometheus(url)) => healthy(url).await,
        _ => Ok(()),
    }
}

/// Requests `/health` at the address of the metrics. The answer must be 200, or 404 if there is no such page.
async fn healthy(metrics: &str) -> Result<()> {
    let place = metrics.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let address = if place.contains(':') { place.to_owned() } else { format!("{place}:80") };
    let mut stream = TcpStream::connect(&address).await.with_context(|| address.clone())?;
    stream.write_all(format!("GET /health HTTP/1.0\r\nHost: {place}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(1024).read_to_end(&mut answer).await?;
    let first = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    let status = first.split(' ').nth(1);
    ensure!(matches!(status, Some("200" | "404")), "http://{place}/health answers {first:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_puts_things_in_order_though_one_of_its_own_hangs() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "trap '' TERM; sleep 600; echo done"]);
        let process = Process::spawn(shell, Signal::TERM).unwrap();
        let printed = process.printed.try_clone().unwrap();
        while living(process.group).len() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(process);
        let mut text = [0; 100];
        let read = printed.read_at(&mut text, 0).unwrap();
        assert!(text[..read].ends_with(b"done\n"), "{:?}", String::from_utf8_lossy(&text[..read]));
    }
}
