//! Processor time and memory of servers with all their processes.
//!
//! A server may fork a process per connection. When such a process ends, its time is added to the parent that waits for it. So the time of a family
//! is the time of its living members, and of the ended ones that they have waited for. In a single reading, a child that ends meanwhile is counted
//! twice (alive, and in the parent that is read later) or not at all (if the parent is read first). So all of `/proc` is read several times. A
//! reading counts if each member has the same sum of ended children in the reading before it and in the one after it. Then no child ended during it,
//! and the figure of a family never falls. Two kinds of time are missing: that of children whose parent ignores SIGCHLD, and that of descendants
//! whose own parent has ended (daemons that a member started).

use std::collections::BTreeMap;

use freshet_testbed::process::{self, Process, Ticks};
use procfs::{CurrentSI as _, KernelStats};

/// The most readings. On a machine where processes end all the time, the last one counts.
const READINGS_MAX: usize = 10;

/// All processes, by id.
type Table = BTreeMap<u32, Process>;

/// Processor time of the families of these processes, in the same order. None for a process that does not exist.
pub(super) fn times(roots: &[u32]) -> Vec<Option<Ticks>> {
    let now = settled(roots, table);
    let time = |root: &u32| {
        let members = members(&now, *root);
        (!members.is_empty()).then(|| members.iter().fold(Ticks::default(), |sum, member| added(sum, member)))
    };
    roots.iter().map(time).collect()
}

/// A reading during which no member of these families was waited for.
fn settled(roots: &[u32], mut table: impl FnMut() -> Table) -> Table {
    let (mut before, mut now) = (table(), table());
    for _ in 0..READINGS_MAX {
        let after = table();
        if roots.iter().all(|root| members(&now, *root).iter().all(|member| steady(member, &before, &after))) {
            break;
        }
        (before, now) = (now, after);
    }
    now
}

fn table() -> Table {
    process::all().unwrap_or_default().into_iter().map(|process| (process.pid, process)).collect()
}

/// A process and its descendants.
fn members(table: &Table, root: u32) -> Vec<&Process> {
    let mut children = BTreeMap::<u32, Vec<&Process>>::new();
    for process in table.values() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found: Vec<&Process> = table.get(&root).into_iter().collect();
    let mut next = 0;
    while let Some(member) = found.get(next) {
        found.extend(children.get(&member.pid).into_iter().flatten());
        next += 1;
    }
    found
}

fn steady(member: &Process, before: &Table, after: &Table) -> bool {
    [before, after].iter().all(|table| table.get(&member.pid).is_none_or(|other| other.ended == member.ended))
}

fn added(sum: Ticks, member: &Process) -> Ticks {
    Ticks {
        user: sum.user + member.own.user + member.ended.user,
        system: sum.system + member.own.system + member.ended.system,
    }
}

/// Memory in bytes of a process and its descendants. Shared pages are divided among their processes (PSS) if that can be read, which the same user
/// and root can.
pub(super) fn memory(root: u32) -> u64 {
    members(&table(), root).iter().map(|member| own_memory(member.pid)).sum()
}

/// The same for one process without its descendants.
pub(super) fn own_memory(pid: u32) -> u64 {
    proportional(pid).unwrap_or_else(|| resident(pid))
}

fn proportional(pid: u32) -> Option<u64> {
    let maps = process::opened(pid).ok()?.smaps_rollup().ok()?.memory_map_rollup;
    maps.iter().next()?.extension.map.get("Pss").copied()
}

/// Resident memory in bytes of one process, with all shared pages. 0 if it has ended.
pub(super) fn resident(pid: u32) -> u64 {
    let pages = process::opened(pid).and_then(|process| Ok(process.statm()?.resident)).unwrap_or_default();
    pages * procfs::page_size()
}

/// Time of this machine's processors in user mode and in the kernel for processes, since the start. Interrupts are left out, since no process has
/// them.
pub(super) fn machine() -> Ticks {
    let all = KernelStats::current().map(|stats| stats.total);
    all.map_or_else(|_| Ticks::default(), |all| Ticks { user: all.user + all.nice, system: all.system })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell that uses processor time in a child, waits for it, reports it and waits for the end of its input.
    fn burner(in_child: &str) -> Child {
        let script = format!("{in_child}; echo done; read _");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    const BURN: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

    fn wait_until_done(child: &mut Child) {
        let mut said = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    }

    #[test]
    fn a_child_that_has_ended_is_counted_with_its_parent() {
        let mut shell = burner(&format!("({BURN}; :)"));
        wait_until_done(&mut shell);
        let (own, time) = (Process::read(shell.id()).unwrap().own.total(), times(&[shell.id()])[0].unwrap().total());
        assert!(own + 3 < time, "{own} ticks of the shell's own, {time} of the family");
        shell.stdin.take();
        shell.wait().unwrap();
        assert_eq!(times(&[shell.id()]), [None]);
    }

    #[test]
    fn a_living_child_is_counted_and_time_never_falls() {
        // Children end all the time during the readings.
        let mut shell = burner(&format!(
            "n=0; while [ $n -lt 20 ]; do (j=0; while [ $j -lt 10000 ]; do j=$((j+1)); done; :) & wait; n=$((n+1)); done; ({BURN}; :)"
        ));
        let root = [shell.id()];
        let mut last = 0;
        while last < 20 {
            let time = times(&root)[0].unwrap();
            assert!(time.total() >= last, "{time:?} after {last}");
            last = time.total();
        }
        wait_until_done(&mut shell);
        let end = times(&root)[0].unwrap().total();
        assert!(end >= last, "{end} after {last}");
        // By now the shell has waited for all children.
        let shell_now = Process::read(shell.id()).unwrap();
        assert_eq!(end, shell_now.own.total() + shell_now.ended.total());
        shell.stdin.take();
        shell.wait().unwrap();
    }

    /// Server 7 has one child with 5 ticks that ends during the readings. Tables in which it is counted twice or not at all must not count.
    #[test]
    fn a_reading_that_somebody_was_waited_for_in_does_not_count() {
        let ticks = |user| Ticks { user, system: 0 };
        let process = |pid, parent, own, ended| Process {
            pid,
            parent,
            group: pid,
            state: 'S',
            own: ticks(own),
            ended: ticks(ended),
        };
        let read = |child: bool, ended| -> Table {
            let mut table = Table::from([(7, process(7, 1, 100, ended))]);
            if child {
                table.insert(8, process(8, 7, 5, 0));
            }
            table
        };
        for torn in [read(true, 5), read(false, 0)] {
            let before_torn = [read(true, 0), torn.clone(), read(false, 5), read(false, 5), read(false, 5)];
            let mut readings = before_torn.into_iter();
            let table = settled(&[7], || readings.next().unwrap());
            let time = members(&table, 7).into_iter().fold(Ticks::default(), added);
            assert_eq!(time, ticks(105), "after {torn:?}");
        }
        let mut count = 0;
        let restless = settled(&[7], || {
            count += 1;
            read(false, count)
        });
        assert_eq!(restless[&7].ended, ticks(READINGS_MAX as u64 + 2), "a busy machine is not waited for for ever");
    }

    #[test]
    fn memory_is_seen() {
        let own = std::process::id();
        assert!(resident(own) > 1 << 20 && memory(own) > 1 << 20);
        assert!(proportional(own).unwrap() <= resident(own) + (8 << 20));
        assert_eq!((memory(u32::MAX), resident(u32::MAX)), (0, 0));
    }
}
