//! A running Freshet.

use std::cell::RefCell;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::http::{Metrics, get};
use super::{Database, eventually};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(5);
/// Options that listen on free ports.
pub(crate) const LISTEN: [&str; 4] = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
/// Limit of the stored log; no test writes as much.
const LOG_BYTES_MAX: usize = 16 << 20;
/// The part of it that a failing test shows.
const TAIL_BYTES_MAX: usize = 32 << 10;

/// The process. It is killed when this is dropped.
pub(crate) struct Freshet {
    /// None if the tests run without Freshet, to check themselves.
    child: Option<Child>,
    /// Its address for clients.
    pub(crate) address: SocketAddr,
    /// Its further address, if it serves both families.
    pub(crate) others: Vec<SocketAddr>,
    /// The address of its metrics.
    pub(crate) http: SocketAddr,
    log: Arc<Mutex<Vec<u8>>>,
}

impl Freshet {
    /// Starts in front of a database and waits until reads can be cached.
    pub(crate) fn start(database: &Database, more: &[&str]) -> Result<Self> {
        let freshet = Self::start_unready(database.address(), &database.url(), more)?;
        freshet.wait_ready()?;
        Ok(freshet)
    }

    /// Starts with any upstream URL and waits only until it listens.
    pub(crate) fn start_unready(direct: SocketAddr, upstream: &str, more: &[&str]) -> Result<Self> {
        let mut command = program()?.map(Command::new);
        if let Some(command) = &mut command {
            command.args(["serve", "--upstream", upstream]).args(LISTEN).args(more);
        }
        Self::spawn(direct, command)
    }

    /// Runs `freshet serve …` with these arguments and waits until it listens. Without a Freshet, clients connect to `direct`.
    pub(crate) fn spawn(direct: SocketAddr, command: Option<Command>) -> Result<Self> {
        let log = Arc::default();
        let Some(mut command) = command else {
            return Ok(Self { child: None, address: direct, others: Vec::new(), http: direct, log });
        };
        // All tests with sessions that share connections to the database: what a test says itself wins.
        if let Ok(pool) = env::var("FRESHET_TEST_POOL") {
            command.env("FRESHET_POOL", pool);
            // Unless the test says who authenticates. MySQL and MariaDB have passwords only: their tests name a users file.
            let says = |argument: &OsStr| {
                names_mysql(argument)
                    || ["--auth", "--users"].iter().any(|word| argument.to_string_lossy().contains(word))
            };
            if !command.get_args().any(says) {
                command.env("FRESHET_AUTH", "trust");
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // From here on a failure kills the process.
        let mut freshet = Self { child: Some(child), address: direct, others: Vec::new(), http: direct, log };
        keep(stderr.context("no stderr")?, Arc::clone(&freshet.log));
        let lines = lines(stdout.context("no stdout")?);
        (freshet.address, _) = freshet.announced(&lines, "listening on ")?;
        let before;
        (freshet.http, before) = freshet.announced(&lines, "http on ")?;
        let others = before.iter().filter_map(|line| line.strip_prefix("listening on ")?.trim().parse().ok());
        freshet.others = others.collect();
        OF_THIS_TEST.with_borrow_mut(|all| all.push(freshet.http));
        Ok(freshet)
    }

    /// The address in the line with this beginning, and the lines before it.
    fn announced(&self, lines: &Receiver<String>, what: &str) -> Result<(SocketAddr, Vec<String>)> {
        let mut before = Vec::new();
        while let Ok(line) = lines.recv_timeout(START_TIMEOUT) {
            if let Some(address) = line.strip_prefix(what) {
                return Ok((address.trim().parse().with_context(|| line.clone())?, before));
            }
            before.push(line);
        }
        // Most likely it has ended: the end of its log may still arrive.
        let _ = eventually(LAST_WORDS_TIMEOUT, || {
            ensure!(self.log().lines().any(|line| line.starts_with("freshet: ")), "nothing yet");
            Ok(())
        });
        bail!("Freshet does not say \"{what}…\"; its log:\n{}", self.log())
    }

    /// Whether there is a Freshet at all.
    pub(crate) fn is_there(&self) -> bool {
        self.child.is_some()
    }

    /// Waits until reads can be cached.
    pub(crate) fn wait_ready(&self) -> Result<()> {
        if !self.is_there() {
            return Ok(());
        }
        eventually(START_TIMEOUT, || {
            let (status, body) = get(self.http, "/health")?;
            ensure!(status == 200, "/health: {status} {body}; the log:\n{}", self.log());
            Ok(())
        })
    }

    /// Status and body of `/health`.
    pub(crate) fn health(&self) -> Result<(u16, String)> {
        get(self.http, "/health")
    }

    /// The status of `/livez`, `/readyz` and `/cachez`.
    pub(crate) fn probes(&self) -> Result<[u16; 3]> {
        Ok([get(self.http, "/livez")?.0, get(self.http, "/readyz")?.0, get(self.http, "/cachez")?.0])
    }

    pub(crate) fn metrics(&self) -> Result<Metrics> {
        if self.is_there() { Metrics::read(self.http) } else { Ok(Metrics::default()) }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The peak of the process's memory, in bytes.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        let Some(pid) = self.pid() else { return Ok(0) };
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&self) -> bool {
        // A process that has ended and was not waited for is a zombie.
        let stat = |pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        self.pid().is_none_or(|pid| stat(pid).rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
    }

    /// The exit status of the process; None while it runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.as_mut().context("no process")?.try_wait()?)
    }

    /// Ends the process at once.
    pub(crate) fn end(&mut self) -> Result<()> {
        let child = self.child.as_mut().context("no process")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        let log = self.log.lock().expect("no panic while the log is held");
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for Freshet {
    fn drop(&mut self) {
        OF_THIS_TEST.with_borrow_mut(|all| all.retain(|http| *http != self.http));
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            // Shown only if the test fails.
            let log = self.log();
            let tail = log.char_indices().rev().nth(TAIL_BYTES_MAX).map_or(0, |(at, _)| at);
            eprintln!("--- Freshet's log ends:\n{}", log.get(tail..).unwrap_or_default());
        }
    }
}

thread_local! {
    /// Each test runs on a thread of its own.
    static OF_THIS_TEST: RefCell<Vec<SocketAddr>> = const { RefCell::new(Vec::new()) };
}

/// The health endpoints of the processes that this thread has started.
pub(super) fn of_this_test() -> Vec<SocketAddr> {
    OF_THIS_TEST.with_borrow(Vec::clone)
}

/// The binary: named by `FRESHET_BIN` or beside this one. `FRESHET_BIN=none` lets the conversations run twice directly,
/// to check the tests themselves.
pub(crate) fn program() -> Result<Option<PathBuf>> {
    if let Some(named) = env::var_os("FRESHET_BIN") {
        return Ok((named != "none").then(|| named.into()));
    }
    let this = env::current_exe()?;
    let beside = this.parent().and_then(|deps| deps.parent()).context("a test binary lies in target/…/deps")?;
    let program = beside.join("freshet");
    ensure!(program.exists(), "no {}: cargo build --package freshet, or set FRESHET_BIN", program.display());
    Ok(Some(program))
}

/// Whether an argument is the URL of a server of MySQL or MariaDB.
fn names_mysql(argument: &OsStr) -> bool {
    argument.to_str().is_some_and(|text| text.starts_with("mysql:") || text.starts_with("mariadb:"))
}

fn lines(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(100);
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // The receiver is dropped once the addresses are known; the pipe must be emptied all the same.
            let _ = sender.try_send(line);
        }
    });
    receiver
}

fn keep(mut stderr: impl Read + Send + 'static, log: Arc<Mutex<Vec<u8>>>) {
    thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(n @ 1..) = stderr.read(&mut chunk) {
            let mut log = log.lock().expect("no panic while the log is held");
            if log.len() < LOG_BYTES_MAX {
                log.extend(chunk.get(..n).unwrap_or_default());
            }
        }
    });
}
