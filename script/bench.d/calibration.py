"""Does `freshet-bench` measure what sysbench measures? The same point selects on the same table by both, in turns, against
a PostgreSQL of its own: throughput, and the processor time that each client takes for a query.
"""

import json
import re
import resource
import statistics
import subprocess
import time
from pathlib import Path

import report
import servers
from measure import say

ROWS = 100_000
PROTOCOLS = {"text": "disable", "prepared": "auto"}  # what sysbench's --db-ps-mode calls them
WARM_UP = 1


def children_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command):
    """(what it printed, processor seconds it took)."""
    before = children_cpu_s()
    done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout, children_cpu_s() - before


def sysbench(binary, port, protocol, clients, seconds):
    """(queries/s, client µs/query), from start to end: it has no warm-up, and the table is in memory."""
    command = [
        binary, "oltp_point_select", "--db-driver=pgsql", "--pgsql-host=127.0.0.1", f"--pgsql-port={port}",
        "--pgsql-user=postgres", "--pgsql-password=", "--pgsql-db=postgres", "--tables=1", f"--table-size={ROWS}",
        f"--time={seconds}", f"--db-ps-mode={PROTOCOLS[protocol]}", "--skip-trx=on",
        "--rand-type=uniform", "--percentile=95", f"--threads={clients}", "run",
    ]
    text, cpu = run(command)
    queries = int(re.search(r"total:\s+(\d+)", text).group(1))
    rate = float(re.search(r"queries:\s+\d+\s+\(([\d.]+) per sec", text).group(1))
    return rate, cpu * 1e6 / queries


def freshet_bench(binary, target, protocol, clients, seconds, directory):
    output = Path(directory) / "calibration.json"
    run([
        binary, "run", "point-select", "--rows", ROWS, "--target", target, "--connections", clients,
        "--rounds", 1, "--warm-up", f"{WARM_UP}s", "--time", f"{seconds}s", "--cool-down", "100ms",
        "--protocol", protocol, "--questions", 0, "--output", output,
    ])
    measured = json.loads(output.read_text())["cells"][0]["rounds"][0]
    load, client = measured["load"], measured["processes"]["client"]
    cpu = client["user"] + client["system"]
    return load["queries"] / load["seconds"], cpu * 1e6 / load["queries"]


def measure(options, directory, running):
    """Starts a PostgreSQL (added to `running`) and measures everything."""
    machine = report.machine()
    tool = servers.find("sysbench", "SYSBENCH_BIN")
    postgres = servers.Postgres(Path(directory))
    running.append(postgres)
    say("bench: starting PostgreSQL and loading the table")
    postgres.start()
    target = f"direct=postgres://postgres@127.0.0.1:{postgres.port}/postgres"
    run([options.bench, "load", "point-select", "--rows", ROWS, "--target", target])
    cells = []
    for protocol in PROTOCOLS:
        for clients in options.clients:
            rounds = {"sysbench": [], "freshet-bench": []}
            for number in range(options.rounds):
                # In turns, and the first of a pair is now the one, now the other.
                for name in sorted(rounds, reverse=number % 2 == 1):
                    if name == "sysbench":
                        rounds[name].append(sysbench(tool, postgres.port, protocol, clients, options.seconds))
                    else:
                        rounds[name].append(
                            freshet_bench(options.freshet, target, protocol, clients, options.seconds, directory)
                        )
            cells.append({"protocol": protocol, "clients": clients, "rounds": rounds})
            say(f"  {protocol:<8} {clients:>3} connections  queries/s "
                f"{ {name: [round(rate) for rate, _ in each] for name, each in rounds.items()} }")
    versions = report.versions(postgres, options.freshet) | {"sysbench": run([tool, "--version"])[0].split()[1]}
    return {
        "machine": machine, "versions": versions, "rounds": options.rounds, "seconds": options.seconds,
        "postgres_settings": servers.POSTGRES_SETTINGS, "others_cores": None, "date": time.strftime("%Y-%m-%d"),
        "cells": cells,
    }


def markdown(run):
    """The whole report."""
    rows = []
    for cell in run["cells"]:
        rate = {name: statistics.median(rate for rate, _ in each) for name, each in cell["rounds"].items()}
        cost = {name: statistics.median(cost for _, cost in each) for name, each in cell["rounds"].items()}
        ratio = rate["freshet-bench"] / rate["sysbench"]
        rows.append([
            cell["protocol"], cell["clients"], *(report.number(rate[name], 0) for name in rate), f"{ratio:.3f}",
            *(report.number(cost[name], 1) for name in cost), "yes" if ratio >= 0.9 else "**no**",
            "yes" if cost["freshet-bench"] <= cost["sysbench"] else "**no**",
        ])
    header = ["protocol", "conn.", "sysbench queries/s", "freshet-bench queries/s", "ratio", "sysbench client µs/query"]
    header += ["freshet-bench client µs/query", "at least 0.9 of sysbench's", "client at most sysbench's"]
    lines = report.preamble(run) + [
        f"- Date: {run['date']}",
        f"- sysbench's oltp_point_select and `freshet-bench run point-select`: {ROWS:,} rows, uniform keys, no transactions, "
        f"in turns; medians over the rounds",
        "- Client: user and system time of the load program. sysbench has a thread for each connection, `freshet-bench` two",
    ]
    head = f"# `freshet-bench` beside sysbench\n\nCommand: `{run['command']}`."
    return "\n\n".join([head, "\n".join(lines), report.table(header, rows)]) + "\n"
