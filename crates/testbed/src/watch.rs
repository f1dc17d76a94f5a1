//! The watching shell that outlives the process that started a server. See the crate's documentation for the reason.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::owner::Owner;

/// `$1` is the server's directory, `$2` its file with the process id, `$3` the signal for an immediate stop. `read` returns when the last holder of
/// the pipe's write end has ended. The file survives a killed server while another process may get its id, so the process is the server only if its
/// working directory is the data directory. Immediate shutdown of PostgreSQL takes 5 s if a child is stopped and the postmaster has to kill it.
const SCRIPT: &str = r#"
read -r _
pid=$(head -n 1 "$1/$2" 2>/dev/null)
ours() { [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; }
if ours "$1"; then
    kill "-$3" "$pid"
    tries=0
    while ours "$1" && [ $tries -lt 70 ]; do sleep 0.1; tries=$((tries + 1)); done
    if ours "$1"; then kill -KILL "$pid"; fi
fi
tries=0
while ! rm -rf "$1" && [ $tries -lt 20 ]; do sleep 0.1; tries=$((tries + 1)); done
"#;

/// A directory that is removed, and its server stopped, once this value is dropped or its process has ended.
#[derive(Debug)]
pub(crate) struct Watch {
    shell: Child,
}

impl Watch {
    /// The first line of `pid_file` in the directory is the server's process id; `signal` stops it immediately.
    pub(crate) fn start(owner: Owner, directory: &Path, pid_file: &str, signal: &str) -> Result<Self> {
        let mut command = owner.command(Path::new("/bin/sh"));
        command.args(["-c", SCRIPT, "freshet-testbed"]).arg(directory).args([pid_file, signal]);
        // Its own process group: an interrupt typed at the terminal is meant for the caller.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self { shell: command.spawn().context("starting the watching shell")? })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(15);
        while Instant::now() < deadline && matches!(self.shell.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
