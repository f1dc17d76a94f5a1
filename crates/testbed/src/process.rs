//! Processes by id: stop, continue, kill, and their processor time, from `/proc`.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Processor time in clock ticks ([`Ticks::seconds`]), of 10 ms on most systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// In user mode.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
}

impl Ticks {
    /// User and system time together.
    pub fn total(self) -> u64 {
        self.user + self.system
    }

    /// A number of ticks in seconds.
    pub fn seconds(ticks: u64) -> f64 {
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

/// A process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// The letter of its state: `R` running, `S` sleeping, `T` stopped, `Z` a zombie.
    pub state: char,
    /// Time of the process itself.
    pub own: Ticks,
    /// Time of its ended children that it has waited for.
    pub ended: Ticks,
}

impl Process {
    /// Reads one process; an error if it has ended.
    pub fn read(pid: u32) -> Result<Self> {
        Self::of(&opened(pid)?).with_context(|| format!("process {pid}"))
    }

    fn of(process: &procfs::process::Process) -> Result<Self> {
        let stat = process.stat()?;
        let ended = |ticks: i64| u64::try_from(ticks).unwrap_or_default();
        Ok(Self {
            pid: u32::try_from(stat.pid)?,
            parent: u32::try_from(stat.ppid)?,
            group: u32::try_from(stat.pgrp)?,
            state: stat.state,
            own: Ticks { user: stat.utime, system: stat.stime },
            ended: Ticks { user: ended(stat.cutime), system: ended(stat.cstime) },
        })
    }

    /// The process title, such as `postgres: walsender postgres 127.0.0.1(4711) START_REPLICATION`.
    pub fn title(&self) -> String {
        opened(self.pid).and_then(|process| Ok(process.cmdline()?)).unwrap_or_default().join(" ").trim_end().to_owned()
    }
}

/// A process in `/proc`.
pub fn opened(pid: u32) -> Result<procfs::process::Process> {
    procfs::process::Process::new(i32::try_from(pid)?).with_context(|| format!("process {pid}"))
}

/// All living processes.
pub fn all() -> Result<Vec<Process>> {
    // A process that has ended since the listing is skipped.
    let living = procfs::process::all_processes().context("listing /proc")?;
    Ok(living.filter_map(|process| Process::of(&process.ok()?).ok()).collect())
}

/// The living children of a process.
pub fn children(parent: u32) -> Result<Vec<Process>> {
    let mut found = all()?;
    found.retain(|process| process.parent == parent);
    Ok(found)
}

/// User and system time of a process, in seconds, without its children. Ticks of 10 ms on most systems.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    Ok(Ticks::seconds(Process::read(pid)?.own.total()))
}

/// User and system time of a process and of all its children, living and ended, in seconds.
pub fn family_cpu_seconds(pid: u32) -> Result<f64> {
    // The children first: a child that ends in between is counted twice rather than not at all.
    let living: u64 = children(pid)?.iter().map(|child| child.own.total() + child.ended.total()).sum();
    let parent = Process::read(pid)?;
    Ok(Ticks::seconds(living + parent.own.total() + parent.ended.total()))
}

/// Stops a process (SIGSTOP).
pub fn pause(pid: u32) -> Result<()> {
    signal(pid, Signal::STOP)
}

/// Continues a stopped process (SIGCONT).
pub fn resume(pid: u32) -> Result<()> {
    signal(pid, Signal::CONT)
}

/// Kills a process without warning (SIGKILL).
pub fn kill(pid: u32) -> Result<()> {
    signal(pid, Signal::KILL)
}

/// Asks a process to end (SIGTERM).
pub fn terminate(pid: u32) -> Result<()> {
    signal(pid, Signal::TERM)
}

/// Interrupts a process as Ctrl-C at its terminal does (SIGINT).
pub fn interrupt(pid: u32) -> Result<()> {
    signal(pid, Signal::INT)
}

pub(crate) fn signal(pid: u32, signal: Signal) -> Result<()> {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw).with_context(|| format!("{pid} is no process id"))?;
    kill_process(target, signal).with_context(|| format!("sending {signal:?} to process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_parent() {
        let this = Process::read(std::process::id()).unwrap();
        assert!(children(this.parent).unwrap().iter().any(|child| child.pid == this.pid));
        assert!(cpu_seconds(this.pid).unwrap() >= 0.0);
    }
}
