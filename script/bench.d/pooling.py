"""Many connections over few: PostgreSQL direct, PgBouncer in transaction mode, and Freshet in transaction mode with its
cache off and on, all over sixteen server connections, in one run; then what an idle client costs, and what the first
answer costs a new one."""

import re
import resource
import statistics
import subprocess
import time
from functools import partial
from pathlib import Path

import figures
import idle
import report
import schema
import servers
from load import HOT_ROWS, Pgbench
from measure import Bench, percentile, say, summary
from wire import Client

POOL = 16
CONNECTIONS_MAX = 2_000
IDLE = 10_000
PARTS = ("load", "idle", "first")
WORKLOADS = {
    "point": ("Point select", 1, ("text", "extended", "prepared")),
    "never-cached": ("Point select AND now() IS NOT NULL", 1, ("text", "extended", "prepared")),
    "transaction": ("BEGIN, SELECT, UPDATE, COMMIT (per statement)", 4, ("text", "prepared")),
}
OFF = "freshet, caching off"


def makers(directory, postgres, options, clients=CONNECTIONS_MAX):
    """Freshet first: its binary is what is measured."""
    pool = ("--auth", "trust", "--pool", "transaction", "--default-pool-size", str(POOL))
    pool += ("--max-db-connections", str(POOL))
    bouncer = {"pool_mode": "transaction", "max_client_conn": clients + 500, "default_pool_size": POOL}
    if keeps_statements():
        bouncer["max_prepared_statements"] = 200
    return [
        partial(servers.Freshet, directory, options.freshet, postgres, options=pool),
        partial(servers.Freshet, directory, options.freshet, postgres, target=OFF, options=(*pool, "--bypass")),
        partial(servers.PgBouncer, directory, postgres, **bouncer),
    ]


def keeps_statements():
    """Since 1.21 PgBouncer keeps prepared statements in transaction mode."""
    return pgbouncer_version() >= (1, 21)


def pgbouncer_version():
    try:
        command = [servers.find("pgbouncer", "PGBOUNCER_BIN"), "--version"]
    except servers.Missing:
        return (0, 0)
    found = re.search(r"(\d+)\.(\d+)", subprocess.run(command, text=True, capture_output=True, check=False).stdout)
    return tuple(map(int, found.groups())) if found else (0, 0)


def loads(bench, pgbench, options):
    cells = []
    for workload, (_, _, protocols) in WORKLOADS.items():
        for clients in options.clients:
            for protocol in protocols:
                may = [t for t in bench.targets if protocol != "prepared" or t.target != "pgbouncer" or keeps_statements()]

                def run(target, each, workload=workload, protocol=protocol, clients=clients):
                    # pgbench's clock starts before its clients log in.
                    seconds = bench.seconds + clients // 50
                    return pgbench.round(target.port, workload, protocol, clients, seconds, each=each)

                cells.append(bench.cell(workload, "pgbench", protocol, clients, run, may))
    return cells


def idle_clients(postgres, directory, options, running, skipped):
    """Each server is started anew, and its clients have run a statement that the cache answers, and one that passes."""
    rows, count = [], options.idle * 10
    for make in makers(directory, postgres, options, count):
        if make.keywords.get("target") == OFF:
            continue
        with servers.started(running, [make], skipped) as ready:
            for server in ready:
                if server.metrics_url:
                    idle.warm(server, False)
                rows.append(idle.measure_one(server, False, count, lambda server=server: figures.resident_bytes(server.pid)))
                say(f"  {server.target}: {count} idle clients")
    return rows


def first_answers(targets, count):
    """Milliseconds from the connection of a new client to its first answer, by target, in turns."""
    taken = {target.target: [] for target in targets}
    for _ in range(count):
        for target in targets:
            begun = time.monotonic()
            client = Client(target.port)
            client.rows("SELECT c FROM sbtest1 WHERE id = 1")
            taken[target.target].append((time.monotonic() - begun) * 1000)
            client.close()
    return taken


def measure(options, directory, running):
    """Starts the servers (each is added to `running`) and measures everything."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for the open connections; the servers inherit it
    directory, skipped = Path(directory), []
    wanted = options.only or PARTS
    postgres = servers.Postgres(directory, {"max_connections": str(CONNECTIONS_MAX + 200), "shared_buffers": "256MB"})
    running.append(postgres)
    postgres.start()
    postgres.sql(schema.DROP_IN % {"rows": HOT_ROWS, "role": "app", "password": "no secret"})
    pgbench = Pgbench(directory)
    run = {"rounds": options.rounds, "seconds": options.seconds, "machine": report.machine(), "cells": [], "idle": []}
    run |= {"first": {}, "postgres_settings": postgres.settings, "date": time.strftime("%Y-%m-%d")}
    with servers.started(running, makers(directory, postgres, options), skipped) as (freshet, *others):
        bench = Bench(postgres, freshet, others, options)
        run["versions"] = report.versions(postgres, freshet.binary, (pgbench,))
        run["versions"] |= {"pgbouncer": ".".join(map(str, pgbouncer_version()))}
        if "load" in wanted:
            run["cells"] = loads(bench, pgbench, options)
        if "first" in wanted:
            run["first"] = first_answers(bench.targets, options.logins)
    if "idle" in wanted:
        run["idle"] = idle_clients(postgres, directory, options, running, skipped)
    rows = [summary(cell, target, 1) for cell in run["cells"] for target in cell["targets"]]
    run["others_cores"] = max((row["others_cores"] for row in rows if row), default=None)
    return run | {"skipped": list(dict.fromkeys(skipped))}


def load_table(cells):
    rows = []
    for cell in cells:
        title, statements, _ = WORKLOADS[cell["workload"]]
        each = {target: summary(cell, target, statements) for target in cell["targets"]}
        for target, row in each.items():
            head = [title, cell["protocol"], cell["clients"], target]
            if row is None:
                rows.append([*head, f"failed: {cell['targets'][target]['failed'].splitlines()[-1][:80]}", *[""] * 6])
                continue
            ratios = [row["tps"] / each[other]["tps"] if each.get(other) else None for other in ("direct", "pgbouncer")]
            spread = f"{row['tps']:,.0f} ({row['tps_min']:,.0f}–{row['tps_max']:,.0f})"
            hits = f"{row['hit_ratio']:.0%}" if "hit_ratio" in row else ""
            proxy = "" if target == "direct" else report.number(row["proxy_us"], 1)
            ratios = [report.number(ratio) for ratio in ratios]
            rows.append([*head, spread, *ratios, report.number(row["average_ms"], 2), report.number(row["p95_ms"], 2), proxy, hits])
    header = ["statement", "protocol", "clients", "target", "transactions/s", "× direct", "× pgbouncer", "avg ms", "p95 ms"]
    return report.table([*header, "proxy µs/query", "hits"], rows)


def idle_table(found):
    rows = []
    for one in found:
        if "failed" in one:
            rows.append([one["target"], one["connections"], f"failed: {one['failed'][:100]}", ""])
            continue
        grown = [(one["bytes"][name] - one["bytes"]["before"]) / 1e6 for name in ("opened", "used")]
        rows.append([one["target"], one["connections"], *(report.number(value, 1) for value in grown)])
    return report.table(["target", "clients", "MB more: logged in", "MB more: after two statements each"], rows)


def first_table(first):
    rows = [[name, report.number(statistics.median(ms)), report.number(percentile(ms, 95))] for name, ms in first.items()]
    return report.table(["target", "median ms", "p95 ms"], rows)


def markdown(run):
    """The whole report."""
    lines = report.preamble(run) + [
        f"- Date: {run['date']}",
        f"- {POOL} server connections for each proxy; «direct» has one for each client. Load program and servers share the cores",
        "- transactions/s: mean and range over the rounds, which take turns; µs/query: the proxy's processor time",
        *(f"- Not measured: {reason}" for reason in run["skipped"]),
    ]
    parts = [f"# Many clients over few connections\n\nCommand: `{run['command']}`.", "\n".join(lines)]
    if run["cells"]:
        parts.append("## Load\n\n" + load_table(run["cells"]))
    if run["first"]:
        parts.append("## Connect, log in, first answer, one client after the other\n\n" + first_table(run["first"]))
    if run["idle"]:
        parts.append("## Idle clients\n\nResident memory of the proxy.\n\n" + idle_table(run["idle"]))
    return "\n\n".join(parts) + "\n"
