"""Whether the cache costs more than it gives where it cannot give much: caches that are too small, and rows that change as often
as they are read, beside the same Freshet with its cache switched off.

Each of the two has a PostgreSQL of its own with the same data. Before one database each would follow the changes of the other's
rounds, which costs some 20 µs for each. The two take turns in short rounds, and each pair of rounds gives a ratio, since the machine's
speed wanders by more in a minute than they differ. Both stay as they are throughout, so the first seconds, in which a cold cache fills, are not in it.

A first row of each workload has the cache switched off in both: how far that is from 1 is what the method gets wrong by itself.
"""

import json
import statistics
import time
from pathlib import Path

import figures
import report
import servers
from calibration import run
from measure import say

CLIENTS = 16
SETTLE_SECONDS = 10
WORKLOADS = {
    "game-rows": (["--rows", "100000"], ["16MiB", "40MiB", "80MiB", "160MiB"]),
    "point-select": (
        ["--rows", "100000", "--per-transaction", "25", "--distribution", "zipf:1"], ["1MiB", "4MiB", "16MiB", "64MiB"],
    ),
}
MODES = {"on": [], "off": ["--bypass"]}
CONTROL = "off in both"


def load(options, workload, targets, rounds, seconds, directory):
    """Transactions/s of each round, by target."""
    words, output = WORKLOADS[workload][0], directory / "run.json"
    named = [word for name, target in targets.items() for word in ("--target", f"{name}={url(target)}")]
    run([
        options.bench, "run", workload, *words, *named, "--connections", CLIENTS, "--rounds", rounds,
        "--warm-up", "400ms", "--time", f"{seconds}s", "--cool-down", "100ms", "--questions", 0, "--output", output,
    ])
    done = json.loads(output.read_text())["cells"][0]["rounds"]
    return {name: [each["load"]["transactions"] / seconds for each in done if each["target"] == name] for name in targets}


def url(server):
    return f"postgres://postgres@127.0.0.1:{server.port}/postgres"


def pair(options, directory, databases, workload, size, running):
    """One size of the cache, or none in both."""
    memory, on = ("16MiB", MODES["off"]) if size == CONTROL else (size, MODES["on"])
    freshets = {}
    for mode, more in (MODES | {"on": on}).items():
        there = directory / f"{mode} {size}"
        there.mkdir()
        freshets[mode] = servers.Freshet(there, options.freshet, databases[mode], memory=memory, options=more)
        running.append(freshets[mode])
        freshets[mode].start()
    load(options, workload, freshets, 1, SETTLE_SECONDS, directory)  # both: what has been updated more often is slower to read
    before = figures.counters(freshets["on"].metrics_url)
    rates = {mode: [] for mode in MODES}
    for number in range(options.rounds):  # who comes second may have less, so each is first in half of them
        targets = dict(sorted(freshets.items(), reverse=number % 2))
        for mode, rate in load(options, workload, targets, 1, options.seconds, directory).items():
            rates[mode] += rate
    after = figures.counters(freshets["on"].metrics_url)
    for freshet in freshets.values():
        freshet.stop()
    hits, passed = (after[name] - before[name] for name in ("freshet_hits_total", "freshet_passed_total"))
    cell = {"workload": workload, "size": size, "rates": rates, "hits": hits / (hits + passed)}
    mean, error = ratio(cell)
    say(f"  {workload:<12} {size:>11} {mean:.3f} ± {error:.3f} of caching off, {cell['hits']:.0%} hits")
    return cell


def ratio(cell):
    """Of the pairs of rounds: the mean, and its standard error."""
    ratios = [on / off for on, off in zip(cell["rates"]["on"], cell["rates"]["off"])]
    return statistics.mean(ratios), statistics.stdev(ratios) / len(ratios) ** 0.5


def measure(options, directory, running):
    """Starts two PostgreSQL and two Freshets at a time (added to `running`) and measures everything."""
    machine, cells = report.machine(), []
    for workload in options.only or WORKLOADS:
        databases = {}
        for mode in MODES:
            there = Path(directory) / workload / mode
            there.mkdir(parents=True)
            databases[mode] = servers.Postgres(there)
            running.append(databases[mode])
            databases[mode].start()
            say(f"bench: loading {workload}, for caching {mode}")
            words = WORKLOADS[workload][0][:2]
            run([options.bench, "load", workload, *words, "--target", f"direct={url(databases[mode])}"])
            databases[mode].sql("VACUUM ANALYZE")
        there = Path(directory) / workload
        cells += [pair(options, there, databases, workload, size, running) for size in [CONTROL, *WORKLOADS[workload][1]]]
        versions = report.versions(databases["on"], options.freshet)
        for database in databases.values():
            database.stop()
    return {
        "machine": machine, "versions": versions, "rounds": options.rounds, "seconds": options.seconds,
        "postgres_settings": servers.POSTGRES_SETTINGS, "others_cores": None, "date": time.strftime("%Y-%m-%d"),
        "cells": cells,
    }


def markdown(run):
    """The whole report."""
    rows = []
    for cell in run["cells"]:
        mean, error = ratio(cell)
        medians = [f"{statistics.median(cell['rates'][mode]):,.0f}" for mode in MODES]
        rows.append([cell["workload"], cell["size"], *medians, f"{mean:.3f} ± {error:.3f}", f"{cell['hits']:.0%}"])
    words = [f"`freshet-bench run {name} {' '.join(words)}`" for name, (words, _) in WORKLOADS.items()]
    lines = report.preamble(run) + [
        f"- Date: {run['date']}",
        f"- {CLIENTS} connections, prepared statements; {', '.join(words)}",
        "- Each of the two Freshets has a PostgreSQL of its own with the same data, and the load and all servers the same cores. "
        f"They take turns, and turns at being first, behind {SETTLE_SECONDS} s in which the cache filled. Ratio: the mean of all "
        "pairs of rounds and its standard error. Hits: their share of all statements",
        f"- {CONTROL}: the method's own error, both have the cache switched off",
    ]
    header = ["workload", "cache", "transactions/s, on", "off", "on ÷ off", "hits"]
    head = f"# Caches that are too small, beside caching off\n\nCommand: `{run['command']}`."
    return "\n\n".join([head, "\n".join(lines), report.table(header, rows)]) + "\n"
