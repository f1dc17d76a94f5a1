//! A target that the run starts by the user's command and stops itself: a cache that is measured at several sizes.

use std::process::Command;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::process::Process;
use crate::target::Target;

/// A running command. When it is dropped, its process group gets SIGTERM, and SIGKILL after five to seven seconds. If this program is killed, the
/// group gets SIGTERM.
#[derive(Debug)]
pub struct Started {
    process: Process,
}

impl Started {
    /// Starts `command` through `/bin/sh` and waits until the target answers. `{size}` is replaced by the cache size in bytes, `{mib}` by MiB. An SQL
    /// target must answer `SELECT 1`. If its metrics come over HTTP, `/health` at that address must be 200. The command must stay in the foreground.
    pub async fn run(command: &str, size: Option<u64>, target: &Target) -> Result<Self> {
        let text = with_size(command, size)?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &text]);
        let mut process = Process::spawn(shell, Signal::TERM)?;
        process.wait_until_it_answers(target).await?;
        Ok(Self { process })
    }

    /// Id of the shell that runs the command. It leads the process group.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

fn with_size(command: &str, size: Option<u64>) -> Result<String> {
    let Some(size) = size else {
        ensure!(!command.contains("{size}") && !command.contains("{mib}"), "the command needs a size: {command}");
        return Ok(command.to_owned());
    };
    Ok(command.replace("{size}", &size.to_string()).replace("{mib}", &(size >> 20).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::tests::{gone, port, runs};

    #[test]
    fn sizes_are_written_into_commands() {
        assert_eq!(with_size("a {size} b {mib} {size}", Some(3 << 20)).unwrap(), "a 3145728 b 3 3145728");
        assert_eq!(with_size("a {other}", None).unwrap(), "a {other}");
        assert!(with_size("a {mib}", None).is_err());
    }

    #[tokio::test]
    async fn a_command_that_dies_is_an_error_with_what_it_printed() {
        let target = format!("t=memcached://127.0.0.1:{}", port()).parse().unwrap();
        let error = Started::run("echo out; echo err of {size} >&2; exit 3", Some(7), &target).await.unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("exit status: 3") && text.contains("out\nerr of 7"), "{text}");
    }

    #[tokio::test]
    async fn a_stranger_at_its_place_is_no_start() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("t=memcached://{}", listener.local_addr().unwrap()).parse().unwrap();
        // The command ends before the listener is reached. The check looks at the child process only.
        let mut process = Process::spawn(Command::new("/bin/true"), Signal::TERM).unwrap();
        while runs(process.pid()) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let error = process.wait_until_it_answers(&target).await.unwrap_err();
        assert!(format!("{error:#}").contains("exit status: 0"), "{error:#}");
    }

    #[tokio::test]
    async fn all_that_it_started_ends_with_it() {
        let port = port();
        let target = format!("t=memcached://127.0.0.1:{port}").parse().unwrap();
        // The shell waits for a foreground process and has a background process, which would not end with it.
        let command = format!("sleep 600 & memcached -u nobody -l 127.0.0.1 -p {port} -U 0 -m {{mib}}; true");
        let started = Started::run(&command, Some(64 << 20), &target).await.unwrap();
        let shell = started.pid();
        let children: Vec<u32> =
            freshet_testbed::process::children(shell).unwrap().into_iter().map(|child| child.pid).collect();
        assert_eq!(children.len(), 2);
        drop(started);
        assert!(children.iter().chain([&shell]).all(|pid| gone(*pid)));
    }

    #[tokio::test]
    async fn one_that_ignores_the_polite_signal_is_killed() {
        let port = port();
        let target = format!("t=memcached://127.0.0.1:{port}").parse().unwrap();
        let command =
            format!("trap '' TERM; memcached -u nobody -l 127.0.0.1 -p {port} -U 0; while :; do sleep 1; done");
        let started = Started::run(&command, None, &target).await.unwrap();
        let shell = started.pid();
        drop(started);
        assert!(gone(shell));
    }
}
