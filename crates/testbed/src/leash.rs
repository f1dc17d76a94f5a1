//! Terminates a child when its parent is killed, for children without a directory to remove.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// `$1` is the process and `$2` its start time (field 22 of proc(5) `stat`), since another process may get its id. `$3` is the receiver of the
/// signal: the process, or with a minus sign its process group.
const SCRIPT: &str = r#"
read -r _
started=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20)
if [ "$started" = "$2" ]; then kill -s TERM -- "$3"; fi
"#;

/// While this value lives, the other process gets SIGTERM if this process is killed. An ordinary drop does not affect it.
#[derive(Debug)]
pub struct Leash {
    shell: Child,
}

impl Leash {
    /// Ties a running process to the life of this one.
    pub fn tie(pid: u32) -> Result<Self> {
        Self::tie_to(pid, &pid.to_string())
    }

    /// Ties the whole process group that a running process leads.
    pub fn tie_group(leader: u32) -> Result<Self> {
        Self::tie_to(leader, &format!("-{leader}"))
    }

    fn tie_to(pid: u32, signalled: &str) -> Result<Self> {
        let started = crate::process::opened(pid)?.stat()?.starttime.to_string();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "freshet-leash", &pid.to_string(), &started, signalled]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self { shell: command.spawn().context("starting the watching shell")? })
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
