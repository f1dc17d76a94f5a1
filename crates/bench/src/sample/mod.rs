//! The costs of a round, measured from outside: processor time and memory of processes, counters of caches, the machine.
//!
//! On a noisy machine throughput is less reliable than processor time per query. So the servers' own time is read from `/proc`, with all their
//! processes (`family`), for every server on this machine that is found by its listening port (`sockets`). The time of other processes is recorded
//! too, so that a disturbed round can be recognised.

mod counters;
mod family;
mod info;
mod lines;
mod observer;
pub(crate) mod prometheus;
mod sockets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::result::{Cache, Sample, Usage};
use crate::target::Target;

pub use info::{machine, target_info};
pub use observer::Observer;

/// A process of this machine that is sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// The name in the figures: the program's name (`postgres`, `freshet`, `memcached` …), unique in a run.
    pub name: String,
    /// The process that listens. Its descendants count with it.
    pub pid: u32,
}

/// The observations of a round.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Usage by process name. `client` is this program.
    pub processes: BTreeMap<String, Usage>,
    /// Processor time of other processes, in cores.
    pub others: f64,
    /// The target's counters over the measured interval.
    pub cache: Option<Cache>,
    /// A sample for each second.
    pub series: Vec<Sample>,
}

/// The processes of this machine that listen at the addresses of the targets and of their look-aside caches, each once. Processes of other machines,
/// and those that may not be read, are left out. If several have the same name, the later ones get a number.
pub fn processes(targets: &[Target]) -> Vec<Process> {
    let lookaside = |target: &Target| {
        let place = target.lookaside.as_ref()?;
        let (host, port) = place.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    };
    let mut found: Vec<Process> = Vec::new();
    let places = targets.iter().flat_map(|target| [target.address(), lookaside(target)]);
    for (host, port) in places.flatten() {
        let Some(pid) = sockets::listener(&host, port) else { continue };
        // A server in this program's process is part of the client's own time.
        if pid == std::process::id() || found.iter().any(|process| process.pid == pid) {
            continue;
        }
        let program = sockets::program(pid);
        let free = |name: &String| found.iter().all(|process| process.name != *name);
        let numbered = (2..).map(|number| format!("{program}-{number}"));
        let name = std::iter::once(program.clone()).chain(numbered).find(free).unwrap_or(program.clone());
        found.push(Process { name, pid });
    }
    found
}
