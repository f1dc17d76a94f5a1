"""Rounds: short runs of one load against each target in turn (A B A B), so that drift of the machine hits all alike."""

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import figures
from load import LoadFailed

SETTLE_SECONDS_MAX = 1.0
COUNTERS = {
    "hits": "freshet_hits_total",
    "fills": "freshet_fills_total",
    "installed": "freshet_cached_total",
    "passed": "freshet_passed_total",
    "evictions": "freshet_evictions_total",
}


def say(text):
    print(text, file=sys.stderr, flush=True)


class Bench:
    """The servers of this run and the lengths of its rounds."""

    def __init__(self, postgres, freshet, peers, options):
        self.postgres, self.freshet = postgres, freshet
        self.targets = [postgres, freshet, *peers]
        self.rounds, self.seconds = options.rounds, options.seconds

    def cell(self, name, tool, protocol, clients, run, targets):
        """Runs the rounds of one row group of a table: `run(target, each)` is one round and returns an Outcome.

        With `each` it is one of that many transactions per connection: what connecting and the first of everything
        cost, which summary() takes off.
        """
        results = {}
        for number in range(self.rounds):
            for target in targets:
                try:
                    result = results.setdefault(target.target, {"rounds": []})
                    if "connect" not in result:
                        result["connect"] = self._round(target, lambda target: run(target, 1))
                    measured = self._round(target, lambda target: run(target, None))
                except (LoadFailed, subprocess.TimeoutExpired) as error:
                    say(f"  {name} {protocol} {clients} {target.target}: failed: {error}")
                    result["failed"] = str(error)
                    continue
                result["rounds"].append(measured)
        rates = {t: [round(r["transactions"] / r["seconds"]) for r in v["rounds"]] for t, v in results.items()}
        say(f"  {name:<14} {tool:<8} {protocol:<8} {clients:>3} connections  transactions/s {rates}")
        return {"workload": name, "tool": tool, "protocol": protocol, "clients": clients, "targets": results}

    def _round(self, target, run):
        processes = len(figures.family(self.postgres.pid))
        before = self._read(target)
        started = time.monotonic()
        outcome = run(target)
        elapsed = time.monotonic() - started
        # Processor time of a backend is the postmaster's to tell once the backend has ended.
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while len(figures.family(self.postgres.pid)) > processes and time.monotonic() < deadline:
            time.sleep(0.02)
        after = self._read(target)
        spent = {name: after[name] - before[name] for name in before}
        others = spent.pop("machine_us") - spent["postgres_us"] - spent["client_us"] - spent.get("proxy_us", 0)
        return {
            "transactions": outcome.transactions,
            "seconds": outcome.seconds,
            "average_ms": outcome.average_ms,
            "p95_ms": outcome.p95_ms if outcome.p95_ms is not None else percentile(outcome.samples_ms, 95),
            "others_cores": max(0.0, others) / 1e6 / elapsed,
            **spent,
        }

    def _read(self, target):
        values = {"postgres_us": figures.cpu_us(self.postgres.pid), "client_us": figures.client_cpu_us()}
        values["machine_us"] = figures.machine_busy_us()
        if target is not self.postgres:
            values["proxy_us"] = figures.cpu_us(target.pid)
        if target.metrics_url:
            counters = figures.counters(target.metrics_url)
            values |= {name: counters.get(source, 0.0) for name, source in COUNTERS.items()}
        return values


def percentile(values, percent):
    if not values:
        return None
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def summary(cell, target, statements):
    """One table row: the rounds of one target added up."""
    rounds = cell["targets"].get(target, {}).get("rounds")
    if not rounds:
        return None
    transactions = sum(r["transactions"] for r in rounds)
    queries = transactions * statements
    rates = [r["transactions"] / r["seconds"] for r in rounds]
    p95 = [r["p95_ms"] for r in rounds if r["p95_ms"] is not None]
    row = {
        "tps": transactions / sum(r["seconds"] for r in rounds),
        "tps_min": min(rates),
        "tps_max": max(rates),
        "average_ms": sum(r["average_ms"] * r["transactions"] for r in rounds) / transactions,
        "p95_ms": statistics.median(p95) if p95 else None,
        "queries": queries,
        "others_cores": max(r["others_cores"] for r in rounds),
    }
    connect = cell["targets"][target]["connect"]
    later = queries - len(rounds) * connect["transactions"] * statements
    for name in ("postgres_us", "proxy_us", "client_us"):
        row[name] = (sum(r.get(name, 0) for r in rounds) - len(rounds) * connect.get(name, 0)) / later
    if "hits" in rounds[0]:
        for name in COUNTERS:
            row[name] = sum(r[name] for r in rounds)
        answered = row["hits"] + row["fills"] + row["passed"]
        row["hit_ratio"] = row["hits"] / answered if answered else 0.0
    return row


def syscalls(target, pgbench, workload, protocol, base=0, seconds=1):
    """System calls of a proxy per statement, counted by strace on four connections; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    output = target.directory / "strace.txt"
    command = [strace, "-c", "-f", "-o", output, "-p", str(target.pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        time.sleep(0.5)
        outcome = pgbench.round(target.port, workload, protocol, 4, seconds, base=base)
    finally:
        os.kill(tracer.pid, signal.SIGINT)  # detaches and writes the table
        tracer.wait(timeout=15)
    calls = {}
    for line in output.read_text(errors="replace").splitlines():
        match = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:(\d+)\s+)?(\w+)$", line)
        if match and match.group(3) != "total":
            calls[match.group(3)] = int(match.group(1))
    statements = outcome.transactions * pgbench.script(workload, protocol)[1]
    found = {"workload": workload, "protocol": protocol, "target": target.target}
    return found | {"statements": statements, "calls": calls}
