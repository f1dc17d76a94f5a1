//! Processes by id: stop, continue, kill, and the processor time they took, from `/proc`.

use std::fs;

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
    /// Time of its children that have ended, and that it has waited for.
    pub ended: Ticks,
}

impl Process {
    /// Reads one process; an error if it has ended.
    pub fn read(pid: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
        Self::parse(&stat).with_context(|| format!("/proc/{pid}/stat: {stat}"))
    }

    /// proc(5): the second field is the program's name in brackets and may itself hold spaces and brackets.
    fn parse(stat: &str) -> Option<Self> {
        let pid = stat.split(' ').next()?.parse().ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid,
            parent: u32::try_from(number(1)?).ok()?,
            group: u32::try_from(number(2)?).ok()?,
            state: fields.first()?.chars().next()?,
            own: Ticks { user: number(11)?, system: number(12)? },
            ended: Ticks { user: number(13)?, system: number(14)? },
        })
    }

    /// The title the process gave itself, such as `postgres: walsender postgres 127.0.0.1(4711) START_REPLICATION`.
    pub fn title(&self) -> String {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
    }
}

/// All processes that live now.
pub fn all() -> Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("listing /proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that ended since the listing does not live any more.
        found.extend(Process::read(pid).ok());
    }
    Ok(found)
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
    // The children first: one that ends in between is then counted twice rather than not at all.
    let living: u64 = children(pid)?.iter().map(|child| child.own.total() + child.ended.total()).sum();
    let parent = Process::read(pid)?;
    Ok(Ticks::seconds(living + parent.own.total() + parent.ended.total()))
}

/// Stops a process where it stands (SIGSTOP).
pub fn pause(pid: u32) -> Result<()> {
    signal(pid, Signal::STOP)
}

/// Lets a stopped process go on (SIGCONT).
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
    fn a_name_with_spaces_and_brackets_is_skipped() {
        let stat = "42 (odd ) name) S 7 42 42 0 -1 4194560 1 2 3 4 50 60 70 80 20 0 1 0 99 0 0";
        let process = Process::parse(stat).unwrap();
        assert_eq!((process.pid, process.parent, process.state), (42, 7, 'S'));
        assert_eq!((process.own, process.ended), (Ticks { user: 50, system: 60 }, Ticks { user: 70, system: 80 }));
    }

    #[test]
    fn truncated_lines_are_no_process() {
        assert_eq!(Process::parse("42 (name) S 7 42"), None);
        assert_eq!(Process::parse(""), None);
    }

    #[test]
    fn this_process_has_a_parent() {
        let this = Process::read(std::process::id()).unwrap();
        assert!(children(this.parent).unwrap().iter().any(|child| child.pid == this.pid));
        assert!(cpu_seconds(this.pid).unwrap() >= 0.0);
    }
}
