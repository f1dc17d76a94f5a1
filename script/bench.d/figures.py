"""What a round costs and does: processor time of each server's processes, and Freshet's own counters.

Everything is read before and after a round and subtracted, so that the reading itself costs the round nothing.
"""

import os
import resource
import time
import urllib.request

TICK_US = 1_000_000 / os.sysconf("SC_CLK_TCK")


def _stat(pid):
    """Fields of /proc/<pid>/stat from the third (state) on; the second, the name, may hold spaces."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def _parents():
    """Every live process and its parent."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(_stat(entry)[1])
            except (OSError, IndexError):
                continue  # ended meanwhile: its parent's cutime has it
    return parents


def family(pid):
    """The process and all that descend from it."""
    parents = _parents()
    members = [pid]
    for member in members:
        members.extend(child for child, parent in parents.items() if parent == member)
    return members


def cpu_us(pid):
    """Microseconds of processor time of a process and all its descendants, those that have ended included."""
    total = 0
    for member in family(pid):
        try:
            total += sum(int(ticks) for ticks in _stat(member)[11:15])  # utime stime cutime cstime
        except OSError:
            continue
    return total * TICK_US


def clock_us(pid):
    """Microseconds of processor time of one living process by its own clock, which is finer than a tick."""
    return time.clock_gettime(~pid << 3 | 2) * 1_000_000  # as clock_getcpuclockid() makes it


def resident_bytes(pid):
    """Resident memory of a process and all its descendants."""
    total = 0
    for member in family(pid):
        with open(f"/proc/{member}/statm") as file:
            total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def proportional_bytes(pid):
    """Proportional set size of one process: pages that it shares count in parts."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def client_cpu_us():
    """Microseconds of processor time of the load programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1_000_000


def machine_busy_us():
    """Microseconds that the machine's cores were busy, whoever it was."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) * TICK_US


def counters(url):
    """The counters and gauges of GET /metrics; those with labels are summed."""
    values = {}
    with urllib.request.urlopen(url, timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                values[name] = values.get(name, 0.0) + float(value)
    return values


def passed_reasons(url):
    """How many statements passed uncached, by reason."""
    reasons = {}
    with urllib.request.urlopen(url, timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("freshet_passed_total{"):
                name, _, value = line.rpartition(" ")
                reasons[name.partition('reason="')[2].rstrip('"}')] = float(value)
    return reasons
