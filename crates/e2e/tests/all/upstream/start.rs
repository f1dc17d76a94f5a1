//! A Freshet that is told where its upstream is in some other way than by a URL: by variables, by files in the home
//! directory, by nothing at all.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::support::{Metrics, eventually};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// More log than this is not kept; no test makes so much.
const LOG_BYTES_MAX: usize = 16 << 20;

/// A home directory, removed at the end.
pub(super) struct Home(pub(super) PathBuf);

impl Home {
    pub(super) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("freshet-home-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Writes a file with these permissions.
    pub(super) fn write(&self, name: &str, text: &str, mode: u32) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, text)?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What stays lies in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `freshet serve` with this `--upstream`, if any, these variables and this home directory, and nothing else that says
/// where a server is.
pub(super) fn command(upstream: Option<&str>, variables: &[(&str, &str)], home: &Path) -> Result<Option<Command>> {
    let Some(program) = program()? else { return Ok(None) };
    let mut command = Command::new(program);
    for (name, _) in env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    command.env_remove("FRESHET_UPSTREAM").env("HOME", home).envs(variables.iter().copied());
    command.args(["--log", "debug", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    if let Some(upstream) = upstream {
        command.args(["--upstream", upstream]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(Some(command))
}

/// The process. It is killed when this is dropped.
pub(super) struct Started {
    /// None where the tests check themselves without Freshet.
    child: Option<Child>,
    /// Where it serves.
    pub(super) address: SocketAddr,
    http: SocketAddr,
    log: Arc<Mutex<Vec<u8>>>,
}

impl Started {
    /// Starts and waits until it listens. Without a Freshet, clients are sent to `direct`.
    pub(super) fn new(direct: SocketAddr, command: Option<Command>) -> Result<Self> {
        let log = Arc::default();
        let Some(mut command) = command else { return Ok(Self { child: None, address: direct, http: direct, log }) };
        let mut child = command.spawn().context("starting Freshet")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // From here on a failure kills the process.
        let mut started = Self { child: Some(child), address: direct, http: direct, log };
        keep(stderr.context("no stderr")?, Arc::clone(&started.log));
        let lines = lines(stdout.context("no stdout")?);
        started.address = started.announced(&lines, "listening on ")?;
        started.http = started.announced(&lines, "http on ")?;
        Ok(started)
    }

    fn announced(&self, lines: &Receiver<String>, what: &str) -> Result<SocketAddr> {
        loop {
            let line = lines.recv_timeout(START_TIMEOUT);
            let line = line.with_context(|| format!("no \"{what}…\"; the log:\n{}", self.log()))?;
            if let Some(address) = line.strip_prefix(what) {
                return address.trim().parse().with_context(|| line.clone());
            }
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.child.is_some()
    }

    /// Cached reads so far.
    pub(super) fn hits(&self) -> Result<u64> {
        if self.is_there() { Ok(Metrics::read(self.http)?.hits()) } else { Ok(0) }
    }

    /// What it logged so far.
    pub(super) fn log(&self) -> String {
        let log = self.log.lock().expect("no panic while the log is held");
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until it has logged this.
    pub(super) fn wait_logged(&self, text: &str) -> Result<()> {
        eventually(START_TIMEOUT, || {
            ensure!(self.log().contains(text), "no {text:?} in the log:\n{}", self.log());
            Ok(())
        })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            // Shown only if the test fails.
            let log = self.log();
            let tail = log.char_indices().rev().nth(16_000).map_or(0, |(at, _)| at);
            eprintln!("--- Freshet's log ends:\n{}", log.get(tail..).unwrap_or_default());
        }
    }
}

/// The binary: named by `FRESHET_BIN` (`none` for none) or beside this one.
fn program() -> Result<Option<PathBuf>> {
    if let Some(named) = env::var_os("FRESHET_BIN") {
        return Ok((named != "none").then(|| named.into()));
    }
    let this = env::current_exe()?;
    let beside = this.parent().and_then(Path::parent).context("a test binary lies in target/…/deps")?;
    let program = beside.join("freshet");
    ensure!(program.exists(), "no {}: cargo build --package freshet, or set FRESHET_BIN", program.display());
    Ok(Some(program))
}

fn lines(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(100);
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // Nobody listens any more once the addresses are known.
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
