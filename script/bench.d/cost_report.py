"""The tables of what Freshet costs the database: each figure is the median of the rounds, with least and most."""

import statistics

import measure
from report import miss_cost, number, preamble, table

STATEMENTS_SHOWN = 8
STATEMENT_LENGTH_MAX = 110

NOTES = [
    "fsync is on, and a commit waits for the disk unless synchronous_commit is off. «Without» is the same server with "
    "wal_level = logical and no Freshet; what wal_level itself costs has a table of its own",
    "Load program, PostgreSQL and Freshet share the cores. Processor time is little touched by other processes, "
    "waiting times are",
]
CHANGES = (
    "Rows of 200 bytes in a table of 10,000, changed by pgbench directly on the database at a fixed rate, in "
    "transactions of so many rows. Both tables are published and covered; 500 results of each are in the cache when "
    "Freshet's first window begins, and nobody asks again: this is the price of following along. Walsender, service "
    "backends and Freshet by their own clocks, in ms of processor time for each second. PostgreSQL: all its "
    "processes, ended ones included, less the same without Freshet. Statements (pg_stat_statements), transaction ids "
    "(pg_current_snapshot) and connections: those that the writer has no part in; up to eight of its transactions are "
    "under way when a window begins or ends, which is the error of the ids. Nudges are Freshet's only transactions "
    "that take an id: messages that flush the log. Lease age: that of the proof that the stream is current, at the end."
)
WAIT = (
    "pgbench, every transaction counted. With `freshet` the acknowledgement waits until the stream has delivered the "
    "write, at most 20 ms; `freshet, no commit wait` runs with `--commit-wait 0ms` and sets a fence. Commit waits and "
    "fences are Freshet's own counters."
)
EVICTION = (
    "A reader asks for one cached row without pause; a writer changes it directly on the database. The time of the "
    "first new answer less that of the writer's acknowledgement, the reading that fetches it included; negative where "
    "the reader saw the commit first."
)


def spread(values, digits=1):
    """Median (least to most)."""
    values = [value for value in values if value is not None]
    if not values:
        return ""
    least, median, most = min(values), statistics.median(values), max(values)
    if len(values) == 1:
        return number(median, digits)
    return f"{number(median, digits)} ({number(least, digits)} to {number(most, digits)})"


def column(windows, name, scale=1.0):
    return [window[name] * scale for window in windows]


def more(row, name, scale=1.0, digits=1):
    """With less without, round by round."""
    pairs = zip(column(row["with"], name, scale), column(row["without"], name, scale))
    return spread([through - direct for through, direct in pairs], digits)


def changes(found):
    rows = []
    for row in found:
        windows = row["with"]
        rows.append([
            row["title"], row["identity"], spread(column(windows, "changes"), 0),
            spread(column(windows, "walsender_ms")), spread(column(windows, "services_ms")),
            spread(column(windows, "freshet_ms")), more(row, "postgres_ms"),
            spread(column(row["without"], "wal_bytes", 0.001)), spread(column(windows, "wal_bytes", 0.001)),
            more(row, "statements", digits=0), spread(column(windows, "nudges")), more(row, "xids"),
            more(row, "sessions"),
            spread(column(windows, "stream_age_ms"), 0),
        ])
    header = ["row changes/s asked for", "identity", "changes/s", "walsender ms/s", "service backends ms/s"]
    header += ["Freshet ms/s", "PostgreSQL more ms/s", "WAL kB/s without", "WAL kB/s with", "statements/s more"]
    return table([*header, "nudges/s", "transaction ids/s more", "connections/s more", "lease age ms"], rows)


def statements(found):
    """What Freshet's connections ask: calls and milliseconds per second, by shape; the costliest first."""
    asked = [statements_of(row["with"]) for row in found]
    texts = set().union(*asked)
    costliest = sorted(texts, key=lambda text: max(one.get(text, (0, 0))[1] for one in asked), reverse=True)
    rows = []
    for text in costliest[:STATEMENTS_SHOWN]:
        short = " ".join(text.split()).replace("|", "\\|")
        short = short if len(short) <= STATEMENT_LENGTH_MAX else short[:STATEMENT_LENGTH_MAX] + "…"
        cells = [one.get(text, (0, 0)) for one in asked]
        rows.append([f"`{short}`", *(f"{number(calls, 1)} / {number(ms, 1)}" for calls, ms in cells)])
    return table(["statement", *(f"{row['title']}, {row['identity']}" for row in found)], rows)


def statements_of(windows):
    """{statement: (calls, ms) per second}, the mean of the windows."""
    each = [window["by_statement"] for window in windows]
    return {
        text: tuple(sum(one[text][name] for one in each if text in one) / len(each) for name in ("calls", "ms"))
        for text in set().union(*each)
    }


def wait(found):
    rows = []
    for cell in found:
        direct = cell["targets"]["direct"]
        for target, each in cell["targets"].items():
            head = [cell["synchronous_commit"], cell["protocol"], cell["clients"], target]
            added = ["", ""] if target == "direct" else [
                spread([a[name] - b[name] for a, b in zip(each, direct)], 2) for name in ("p50", "p99")
            ]
            writes = sum(row["transactions"] for row in each)
            waits = sum(row.get("freshet_commit_waits_total", 0) for row in each)
            seconds = sum(row.get("freshet_commit_wait_seconds_total", 0) for row in each)
            fences = sum(row.get("freshet_fences_total", 0) for row in each)
            own = ["", "", ""] if target == "direct" else [
                f"{waits / writes:.0%}", number(seconds * 1000 / waits, 2) if waits else "", f"{fences / writes:.1%}"
            ]
            rows.append([
                *head, spread([row["p50"] for row in each], 2), spread([row["p99"] for row in each], 2), *added,
                spread([row["transactions"] / row["seconds"] for row in each], 0), *own,
            ])
    header = ["synchronous_commit", "protocol", "conn.", "target", "p50 ms", "p99 ms", "p50 ms more", "p99 ms more"]
    return table([*header, "writes/s", "commit waits", "their mean, ms", "fences"], rows)


def eviction(found):
    rows = []
    for row in found:
        new = [[sample["new_us"] / 1000 for sample in each["samples"]] for each in row["rounds"]]
        every = [value for values in new for value in values]
        old = [s["old_us"] for each in row["rounds"] for s in each["samples"] if s["old_us"] is not None]
        rows.append([
            row["title"], len(every), *(spread([measure.percentile(v, p) for v in new], 2) for p in (50, 95)),
            number(max(every, default=None)), sum(value <= 0 for value in every), sum(value > 0 for value in old),
            sum(each["unseen"] for each in row["rounds"]), sum(each["went_back"] for each in row["rounds"]),
        ])
    header = ["row changes/s", "commits", "p50 ms", "p95 ms", "largest ms", "new answer before the acknowledgement"]
    return table([*header, "old answer asked for after it", "overtaken unseen", "answers that went back"], rows)


def markdown(run):
    """The whole report."""
    parts = ["# What Freshet costs the database: measurements\n\nCommand: `{command}`, {date}. Each phase follows the "
             "other in every round: no Freshet, Freshet, Freshet with `--commit-wait 0ms`.".format(**run)]
    lines = preamble(run) + [f"- {note}" for note in NOTES]
    lines += [f"- Load average at the end {run['load_average_at_end']:.2f}. Windows of {run['window']} s for the row "
              "changes. Figures: median of the rounds (least to most); «more»: with less without, round by round"]
    parts.append("\n".join(lines))
    if run["changes"]:
        parts.append(f"## Following along\n\n{CHANGES}\n\n{changes(run['changes'])}")
        about = "Calls each second / milliseconds each second of planning and running, waiting included."
        title = "## What Freshet's own connections ask meanwhile"
        parts.append(f"{title}\n\n{about}\n\n{statements(run['changes'])}")
    if run["wal"]:
        about = "Bytes of log for each row change, in transactions of ten, no change stream running."
        rows = [[level, identity, number(size, 0)] for level, identity, size in run["wal"]]
        parts.append(f"## Log\n\n{about}\n\n" + table(["wal_level", "replica identity", "bytes"], rows))
    if run["wait"]:
        parts.append(f"## The acknowledgement of a single-row UPDATE\n\n{WAIT}\n\n{wait(run['wait'])}")
    if run["eviction"]:
        parts.append(f"## Commit to eviction\n\n{EVICTION}\n\n{eviction(run['eviction'])}")
    misses = miss_cost(run["cells"])
    if misses:
        parts.append("## What a miss costs that is kept (processor time per query, 16 connections)\n\n" + misses)
    return "\n\n".join(parts) + "\n"
