"""What Freshet costs the database it stands in front of: the change stream and its own connections at fixed rates of
row changes, the wait added to a write's acknowledgement, the way from a commit to its eviction, and a miss.

A round has three phases: no Freshet, Freshet as it comes, and Freshet with `--commit-wait 0ms`, which sets a fence
instead of holding acknowledgements. They follow each other rather than stand side by side, since a second change stream
would be decoded for a target that has nothing to do with it.
"""

import contextlib
import os
import time
from functools import partial
from pathlib import Path

import cost_report
import eviction
import figures
import load
import miss
import report
import schema
import servers
from cost_load import Changes, Meter, Shape
from measure import Bench, percentile, say, summary
from wire import Client

PARTS = ("changes", "wait", "eviction", "miss", "wal")
PROTOCOLS = ("text", "prepared")
SETTINGS = {
    "fsync": "on", "checkpoint_timeout": "1h", "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track_planning": "on",
}
SHAPES = [
    Shape(), Shape(100, 10), Shape(1000, 1), Shape(500, 10), Shape(100, 10, "FULL"), Shape(500, 10, "FULL"),
]
TARGETS = {"direct": None, "freshet": (), "freshet, no commit wait": ("--commit-wait", "0ms")}
COVER = (
    "SELECT c FROM sbtest1 WHERE id = {}", "SELECT c FROM sbtest2 WHERE id = {}", "SELECT v FROM account WHERE id = {}",
    "SELECT v FROM watched WHERE id = {}",
)
COVER_SECONDS_MAX = 30
ENTRIES = 500
SECOND_TABLE = """
CREATE EXTENSION pg_stat_statements;
CREATE TABLE sbtest2 (LIKE sbtest1 INCLUDING ALL);
INSERT INTO sbtest2 SELECT * FROM sbtest1;
ALTER TABLE sbtest2 REPLICA IDENTITY FULL;
"""
# After a checkpoint the first change of a page writes all of it into the log: that is to have happened before.
TOUCH = "CHECKPOINT; UPDATE sbtest1 SET k = k; UPDATE sbtest2 SET k = k; UPDATE account SET v = v;"


def wanted(options, part):
    return options.only is None or part in options.only


def start_postgres(directory, running, once, settings=None):
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    postgres = servers.Postgres(directory, SETTINGS | (settings or {}))
    running.append(postgres)
    postgres.start()
    postgres.sql(schema.statements(once))
    postgres.sql(schema.DROP_IN % {"rows": load.HOT_ROWS, "role": "bench", "password": "bench"})
    postgres.sql(SECOND_TABLE)
    postgres.sql(TOUCH)
    return postgres


def cover(freshet):
    """Asks for each table until its changes are complete, then leaves some entries for the changes to find."""
    client = Client(freshet.port)
    deadline = time.monotonic() + COVER_SECONDS_MAX
    while figures.counters(freshet.metrics_url)["freshet_tables_published"] < len(COVER):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the tables were not covered within {COVER_SECONDS_MAX} s")
        for statement in COVER:
            client.query(statement.format(1))
        time.sleep(0.05)
    for number in range(1, ENTRIES + 1):
        for statement in COVER[:2]:
            client.query(statement.format(number))
    client.close()


def changes(postgres, freshet, pgbench, seconds, found):
    """A window for each shape, with nobody using the cache: what is left is the price of following along."""
    meter = Meter(postgres, freshet)
    for shape in SHAPES:
        with pgbench.changing(postgres.port, shape) as writer:
            window = meter.window(writer, seconds)
        found.setdefault(shape, {}).setdefault("with" if freshet else "without", []).append(window)
    meter.client.close()


def wait(target, server, pgbench, options, found):
    """Latency of the same UPDATE, every transaction counted."""
    pgbench.round(server.port, "update", "text", 1, 1, each=100)
    for lazy in ("on", "off"):
        os.environ["PGOPTIONS"] = f"-c synchronous_commit={lazy}"
        for protocol in PROTOCOLS:
            for clients in options.clients:
                before = figures.counters(server.metrics_url) if server.metrics_url else {}
                outcome = pgbench.round(server.port, "update", protocol, clients, options.seconds)
                after = figures.counters(server.metrics_url) if server.metrics_url else {}
                names = ("freshet_commit_waits_total", "freshet_commit_wait_seconds_total", "freshet_fences_total")
                row = {name: after[name] - before[name] for name in names if name in after}
                row |= {"transactions": outcome.transactions, "seconds": outcome.seconds}
                row |= {f"p{percent}": percentile(outcome.samples_ms, percent) for percent in (50, 99)}
                found.setdefault((lazy, protocol, clients), {}).setdefault(target, []).append(row)
    del os.environ["PGOPTIONS"]


def evictions(postgres, freshet, pgbench, count, found):
    eviction.measure(postgres.port, freshet.port, 10)
    for shape in (Shape(), Shape(1000, 1)):
        with pgbench.changing(postgres.port, shape):
            samples, reads = eviction.measure(postgres.port, freshet.port, count)
        found.setdefault(shape, []).append(samples | {"reads": reads})


@contextlib.contextmanager
def standing(target, postgres, directory, options, running):
    """The server that clients of this target connect to."""
    if TARGETS[target] is None:
        yield postgres
        return
    make = partial(servers.Freshet, directory, options.freshet, postgres, target="freshet", options=TARGETS[target])
    with servers.started(running, [make], []) as (freshet,):
        cover(freshet)
        yield freshet


def rounds(postgres, directory, options, running):
    """All that takes turns. The miss, which takes turns of its own, comes with the last Freshet that holds."""
    pgbench, window = Changes(directory), options.seconds * (1 if options.quick else 2)
    run = {"changes": {}, "wait": {}, "eviction": {}, "cells": [], "window": window}
    for shape in SHAPES[-3], SHAPES[-1]:  # what the first changes of a table leave to tidy up is nobody's price
        with pgbench.changing(postgres.port, shape):
            time.sleep(window)
    for number in range(options.rounds):
        for target in TARGETS:
            say(f"bench: round {number + 1} of {options.rounds}: {target}")
            with standing(target, postgres, directory, options, running) as server:
                freshet = None if server is postgres else server
                holds = target == "freshet"
                if wanted(options, "changes") and (holds or not freshet):
                    changes(postgres, freshet, pgbench, window, run["changes"])
                if wanted(options, "wait"):
                    wait(target, server, pgbench, options, run["wait"])
                if wanted(options, "eviction") and holds:
                    evictions(postgres, freshet, pgbench, 50 if options.quick else 150, run["eviction"])
                if holds and number == options.rounds - 1:
                    run["versions"] = report.versions(postgres, freshet.binary, (pgbench,))
                    bench = Bench(postgres, freshet, [], options)
                    run["cells"] = miss.measure(bench, pgbench, options.once) if wanted(options, "miss") else []
    return run


def log_bytes(postgres, pgbench, identity):
    """Bytes of log for each row change, with no change stream."""
    def position():
        return int(postgres.sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))

    shape, each = Shape(1, 10, identity), 500
    workload = f"{shape.table}-{shape.rows}"
    pgbench.round(postgres.port, workload, "prepared", 2, 1, each=each)
    before = position()
    pgbench.round(postgres.port, workload, "prepared", 2, 1, each=each)
    return (position() - before) / (2 * each * shape.rows)


def log_levels(postgres, directory, running):
    """The same changes under the settings that a change stream asks for, and without them."""
    say("bench: log for each change")
    other = start_postgres(directory / "replica", running, 1, {"wal_level": "replica"})
    found = [["replica", "DEFAULT", log_bytes(other, Changes(directory), "DEFAULT")]]
    other.stop()
    return found + [["logical", name, log_bytes(postgres, Changes(directory), name)] for name in ("DEFAULT", "FULL")]


def measure(options, directory, running):
    """Starts the servers (each is added to `running`) and measures everything."""
    load.SAMPLING_RATE = 1  # p99 of a second's waits needs them all
    directory = Path(directory)
    run = {"rounds": options.rounds, "seconds": options.seconds, "machine": report.machine()}
    say("bench: starting PostgreSQL")
    postgres = start_postgres(directory, running, options.once)
    run |= rounds(postgres, directory, options, running)
    run["wal"] = log_levels(postgres, directory, running) if wanted(options, "wal") else []
    windows = [window for sides in run["changes"].values() for each in sides.values() for window in each]
    rows = [summary(cell, target, 1) for cell in run["cells"] for target in cell["targets"]]
    others = [row["others_cores"] for row in windows + rows if row]
    run["postgres_settings"], run["others_cores"] = postgres.settings, max(others, default=None)
    run["load_average_at_end"], run["date"] = os.getloadavg()[0], time.strftime("%Y-%m-%d")
    return named(run)


def named(run):
    """JSON knows no keys but text."""
    run["changes"] = [vars(shape) | {"title": shape.title} | sides for shape, sides in run["changes"].items()]
    run["wait"] = [
        {"synchronous_commit": lazy, "protocol": protocol, "clients": clients, "targets": targets}
        for (lazy, protocol, clients), targets in run["wait"].items()
    ]
    run["eviction"] = [{"title": shape.title, "rounds": each} for shape, each in run["eviction"].items()]
    return run


markdown = cost_report.markdown
