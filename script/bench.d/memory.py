"""How much memory Freshet takes beside what it was allowed, while results of very different sizes come and go: resident memory
beyond that of the empty process, against the limit.

The sizes change in phases, since what is easy to keep within bounds is one size: an allocator that serves the small ones of a
phase from the holes that the large ones left, a table that grew for many entries, a registry that grew for many texts.
A phase asks for keys that no phase before it asked for, several times as many as there is room for, and for some of them
again: what nobody asks for twice would come and go in a corner of the cache, and the rest would stay. Changes evict meanwhile.
"""

import json
import os
import threading
import time
from pathlib import Path

import figures
import report
import servers
from calibration import run
from measure import say

LIMITS = {"32MiB": 32 << 20, "128MiB": 128 << 20}
CLIENTS = 16
SAMPLE_SECONDS = 0.25
REST_SECONDS = 15
SMALL, LARGE = (1, 20_000), (20_001, 22_000)
# What is read, by which protocol (`text`: each key is another text, too), of which rows, under how many names each: some
# 200,000 keys of small results, 6,000 of large ones.
PHASES = [
    ("100 B to 1 kB", "prepared", SMALL, 10), ("10 kB to 100 kB", "prepared", LARGE, 3),
    ("100 B to 1 kB again", "prepared", SMALL, 10), ("as texts, 100 B to 1 kB", "text", SMALL, 10),
    ("all sizes", "prepared", (SMALL[0], LARGE[1]), 3), ("10 kB to 100 kB again", "prepared", LARGE, 3),
    ("all sizes, as texts", "text", (SMALL[0], LARGE[1]), 3),
]
SCHEMA = f"""
CREATE TABLE churn (id int PRIMARY KEY, version int NOT NULL DEFAULT 0, body text NOT NULL);
ALTER TABLE churn ALTER body SET STORAGE EXTERNAL;
INSERT INTO churn (id, body) SELECT i, repeat(chr(97 + i % 26), 100 + i % 900) FROM generate_series({SMALL[0]}, {SMALL[1]}) i;
INSERT INTO churn (id, body) SELECT i, repeat(chr(97 + i % 26), 10000 + i * 45 % 90000)
    FROM generate_series({LARGE[0]}, {LARGE[1]}) i;
VACUUM ANALYZE churn;
"""
WORKLOAD = """
[params.n]
range = [{first}, {last}]
[params.id]
range = [{low}, {high}]
[[transactions]]
weight = 50
statements = [{{ sql = "SELECT :n::bigint, version, body FROM churn WHERE id = :id" }}]
[[transactions]]
weight = 1
statements = [{{ sql = "UPDATE churn SET version = version + 1 WHERE id = :id" }}]
"""


class Watch(threading.Thread):
    """Samples a Freshet until it is told to end: (phase, seconds, resident, anonymous, bytes, entries, aside)."""

    def __init__(self, freshet):
        super().__init__(daemon=True)
        self.freshet, self.phase, self.samples, self.ended = freshet, "start", [], threading.Event()

    def run(self):
        begun = time.monotonic()
        while not self.ended.wait(SAMPLE_SECONDS):
            counted = figures.counters(self.freshet.metrics_url)
            resident, anonymous = resident_bytes(self.freshet.pid)
            names = ("freshet_bytes", "freshet_entries", "freshet_memory_overhead_bytes")
            held = (int(counted.get(name, 0)) for name in names)
            self.samples.append((self.phase, round(time.monotonic() - begun, 2), resident, anonymous, *held))

    def end(self):
        self.ended.set()
        self.join()
        return self.samples


def resident_bytes(pid):
    """All that is resident of a process, and what of it is not of files."""
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return tuple(int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon"))


def churn(options, directory, freshet):
    """One limit: what was sampled, and Freshet's counters at the end."""
    start = resident_bytes(freshet.pid)
    watch = Watch(freshet)
    watch.start()
    for number, (phase, protocol, (low, high), names) in enumerate(PHASES):
        watch.phase = phase
        first = (number + 1) * 1000
        workload = WORKLOAD.format(first=first, last=first + names - 1, low=low, high=high)
        (directory / "churn.toml").write_text(workload)
        run([
            options.bench, "run", "custom", "--file", directory / "churn.toml",
            "--target", f"freshet=postgres://postgres@127.0.0.1:{freshet.port}/postgres",
            "--connections", CLIENTS, "--rounds", 1, "--warm-up", "0s", "--time", f"{options.seconds}s",
            "--cool-down", "0s", "--protocol", protocol, "--questions", 0, "--output", directory / "churn.json",
        ])
        phase, at, resident, _, held, entries, aside = watch.samples[-1]
        say(f"  {freshet.memory:>7} {phase:<24} {at:>5.0f} s  held {mib(held):>6} in {entries:>6,} entries, "
            f"aside {mib(aside):>6}, resident beyond the start {mib(resident - start[0]):>6}")
    watch.phase = "without load"
    time.sleep(REST_SECONDS)
    return {"start": start, "samples": watch.end(), "counters": figures.counters(freshet.metrics_url)}


def measure(options, directory, running):
    """Starts a PostgreSQL and a Freshet for each limit (added to `running`) and measures everything."""
    machine = report.machine()
    directory = Path(directory)
    postgres = servers.Postgres(directory)
    running.append(postgres)
    say("bench: starting PostgreSQL and loading the table")
    postgres.start()
    postgres.sql(SCHEMA)
    cells = []
    for limit in options.only or LIMITS:
        there = directory / limit
        there.mkdir()
        freshet = servers.Freshet(there, options.freshet, postgres, memory=limit, options=["--admission", "always"])
        running.append(freshet)
        freshet.start()
        time.sleep(2)  # its services have begun
        cells.append({"limit": limit} | churn(options, there, freshet))
        freshet.stop()
    versions = report.versions(postgres, options.freshet)
    return {
        "machine": machine, "versions": versions, "rounds": 1, "seconds": options.seconds,
        "postgres_settings": servers.POSTGRES_SETTINGS, "others_cores": None, "date": time.strftime("%Y-%m-%d"),
        "environment": {name: os.environ[name] for name in sorted(os.environ) if "MALLOC" in name}, "cells": cells,
    }


def mib(count):
    return f"{count / (1 << 20):.1f}"


def rows(cell):
    """A line for each phase: the most, the mean and the last of what is resident beyond the start."""
    limit, start = LIMITS[cell["limit"]], cell["start"][0]
    for phase in [*(phase for phase, *_ in PHASES), "without load"]:
        samples = [sample for sample in cell["samples"] if sample[0] == phase]
        more = [sample[2] - start for sample in samples]
        anonymous = max(sample[3] for sample in samples) - cell["start"][1]
        yield [
            cell["limit"], phase, f"{samples[-1][5]:,}", mib(max(sample[4] for sample in samples)),
            mib(max(sample[6] for sample in samples)), mib(sum(more) / len(more)),
            mib(max(more)), f"{max(more) / limit - 1:+.1%}", f"{anonymous / limit - 1:+.1%}", mib(more[-1]),
        ]


def verdict(cell):
    limit, start = LIMITS[cell["limit"]], cell["start"]
    worst = max(sample[2] for sample in cell["samples"]) - start[0]
    end, counted = cell["samples"][-1][2] - start[0], cell["counters"]
    within = "within 10% of the limit" if worst <= 1.1 * limit else "**more than 10% beyond the limit**"
    return (
        f"- {cell['limit']}: the empty process takes {mib(start[0])} MiB. At most {mib(worst)} MiB more, "
        f"{worst / limit - 1:+.1%} of the limit ({within}); at the end {mib(end)} MiB, {end / limit - 1:+.1%}. "
        f"{counted['freshet_cached_total']:,.0f} results were cached, {counted['freshet_evictions_total']:,.0f} evicted, "
        f"{counted['freshet_invalidations_total']:,.0f} invalidated"
    )


def markdown(run):
    """The whole report."""
    header = ["limit", "phase", "entries at its end", "cached MiB, max", "overhead MiB, max", "resident MiB, mean", "resident MiB, max"]
    header += ["max against the limit", "anonymous max against the limit", "resident MiB at its end"]
    settings = ", ".join(f"{name}={value}" for name, value in run["environment"].items())
    lines = report.preamble(run) + [
        f"- Date: {run['date']}" + (f"; {settings}" if settings else ""),
        f"- {CLIENTS} connections, `--admission always`; each phase has keys of its own, several times as many as fit; one "
        f"statement in 51 changes a row. Each phase takes {run['seconds']} s on connections of its own; {REST_SECONDS} s without load follow",
        f"- Resident: VmRSS, sampled every {SAMPLE_SECONDS} s, less VmRSS of the empty process before the first client; it includes pages of "
        "the program's file and buffers of connections. Anonymous: the same of RssAnon. Cached: `freshet_bytes`; "
        "overhead: `freshet_memory_overhead_bytes`",
    ]
    table = report.table(header, [row for cell in run["cells"] for row in rows(cell)])
    head = f"# Memory taken, against the limit\n\nCommand: `{run['command']}`."
    return "\n\n".join([head, "\n".join(lines), "\n".join(map(verdict, run["cells"])), table]) + "\n"
