"""The tables of the drop-in report: processor time of the proxy first, then what the client saw."""

import statistics

import measure
from idle import LONG_BYTES
from report import number, preamble, table

# Title and statements of one transaction.
WORKLOADS = {
    "never-cached": ("Point select AND now() IS NOT NULL", 1),
    "hundred-rows": ("A hundred rows (8 kB)", 1),
    "update": ("UPDATE of one row, autocommit", 1),
    "transaction": ("BEGIN, SELECT, UPDATE, COMMIT (per statement)", 4),
}
AIM_US = 25

NOTES = [
    "All connections are TCP on one machine. PgBouncer is single-threaded, HAProxy has two threads, Freshet one worker "
    "for each core. Load program and servers share the cores",
    "PgBouncer keeps its upstream connections and gives them to the next client; Freshet and HAProxy open one for each "
    "client. In transaction mode it may open as many as there are clients, as in session mode",
    "HAProxy forwards bytes and reads none of them; it cannot log anybody in, and speaks no TLS here",
    "No table that passing statements write to is in the publication: of an UPDATE Freshet learns that the log has "
    "moved on, and no more. That, and all else it does in the background, is in its processor time",
]


def aims(run):
    found = []
    for cell in run["cells"]:
        title, statements = WORKLOADS[cell["workload"]]
        row = measure.summary(cell, "freshet", statements)
        if row:
            what = f"pass-through at most {AIM_US} µs: {title}, {cell['protocol']}, {cell['clients']} connections"
            found.append([what, number(row["proxy_us"], 1), "yes" if row["proxy_us"] <= AIM_US else "**no**"])
    return found


def passing(cells):
    rows = []
    for cell in cells:
        title, statements = WORKLOADS[cell["workload"]]
        direct = measure.summary(cell, "direct", statements)
        for target, result in cell["targets"].items():
            head = [title, cell["protocol"], cell["clients"], target]
            row = measure.summary(cell, target, statements)
            if row is None:
                rows.append([*head, f"failed: {result['failed'].splitlines()[-1][:80]}", *[""] * 6])
                continue
            ratio = "" if target == "direct" or not direct else f"{row['tps'] / direct['tps']:.2f}"
            rows.append([
                *head, "" if target == "direct" else number(row["proxy_us"], 1), ratio,
                f"{row['tps']:,.0f} ({row['tps_min']:,.0f}–{row['tps_max']:,.0f})", number(row["average_ms"], 3),
                number(row["p95_ms"], 3), number(row["postgres_us"], 1), number(row["client_us"], 1),
            ])
    header = ["statement", "protocol", "conn.", "target", "proxy µs/query", "× direct", "transactions/s", "avg ms"]
    return table([*header, "p95 ms", "PostgreSQL µs/query", "client µs/query"], rows)


def calls(counted):
    """A row for each proxy and statement, a column for each system call that matters."""
    names = {}
    for one in counted:
        for name, count in one["calls"].items():
            names[name] = max(names.get(name, 0), count / max(1, one["statements"]))
    names = sorted((name for name in names if names[name] >= 0.02), key=names.get, reverse=True)
    rows = []
    for one in counted:
        each = [one["calls"].get(name, 0) / max(1, one["statements"]) for name in names]
        total = sum(one["calls"].values()) / max(1, one["statements"])
        rows.append([WORKLOADS[one["workload"]][0], one["protocol"], one["target"], f"{total:.2f}",
                     *(f"{value:.2f}" for value in each)])
    return table(["statement", "protocol", "target", "all", *names], rows)


def logins(found):
    rows = []
    for one in found:
        if not one["one"]:
            failure = f"failed: {(one.get('failed') or 'unknown').splitlines()[-1][:100]}"
            rows.append([one["leg"], one["target"], failure, *[""] * 8])
            continue
        single = [ms for each in one["one"] for ms in each["ms"]]
        together = [ms for each in one["several"] for ms in each["ms"]]
        rate = sum(each["logins"] for each in one["several"]) / sum(each["seconds"] for each in one["several"])
        rows.append([
            one["leg"], one["target"], encrypted(one), cost(one["one"], "proxy_us"),
            number(measure.percentile(single, 50), 2), number(measure.percentile(single, 95), 2), number(rate, 0),
            number(measure.percentile(together, 50), 2), cost(one["several"], "proxy_us"),
            cost(one["one"], "postgres_us"), cost(one["one"], "client_us"),
        ])
    header = ["login", "target", "TLS seen by", "proxy µs/login", "median ms", "p95 ms", "8 at once: logins/s"]
    return table([*header, "median ms", "proxy µs/login", "PostgreSQL µs/login", "client µs/login"], rows)


def encrypted(one):
    """Who said that its own connection was encrypted."""
    return " and ".join(side for side in ("client", "database") if one[f"{side}_tls"]) or "nobody"


def cost(rounds, name):
    return number(statistics.median(each[name] for each in rounds), 0) if name in rounds[0] else ""


def memory(found):
    rows = []
    for one in found:
        size = one["bytes"]
        if "failed" in one:
            rows.append([one["target"], one["connections"], "", f"failed: {one['failed'][:100]}", *[""] * 4])
            continue
        start = size["before"]
        each = [number((size[name] - start) / one["connections"] / 1000, 1) for name in ("opened", "used", "long")]
        left = number((size["closed"] - start) / 1e6, 1)
        hits = f"{one['hits']:,.0f}" if "hits" in one else ""
        rows.append([one["target"], one["connections"], number(start / 1e6, 1), *each, left, hits])
    header = ["target", "connections", "MB before", "kB each: opened", "kB each: used", "kB each: after a long row"]
    return table([*header, "MB kept after all left", "hits"], rows)


def markdown(run):
    """The whole report."""
    text = "Command: `{command}`. All targets in one run, in short rounds that take turns."
    parts = ["# Drop-in: measurements\n\n" + text.format(**run)]
    lines = preamble(run) + [f"- {note}" for note in NOTES]
    lines += ["- µs/query: user and system time of the proxy's processes, less what connecting and the first "
              "transaction cost; transactions/s: mean and range over the rounds"]
    lines += [f"- Not measured: {reason}" for reason in run["skipped"]]
    parts.append("\n".join(lines))
    if run["cells"]:
        parts.append("## Aims\n\n" + table(["aim", "measured", "reached"], aims(run)))
        parts.append("## Pass-through\n\n" + passing(run["cells"]))
    if run["syscalls"]:
        parts.append("## System calls for each statement (4 connections, under strace)\n\n" + calls(run["syscalls"]))
    if run["logins"]:
        about = (
            "Connect, log in, `SELECT 1`, close: by libpq, one after the other, and eight clients at once. With SCRAM "
            "libpq itself computes 4,096 rounds of a hash for each login (client µs). «No source»: Freshet relays the "
            "exchange to the database, or, with TLS on both sides, hands on the password."
        )
        parts.append("## Logins\n\n" + about + "\n\n" + logins(run["logins"]))
    if run["idle"]:
        about = (
            "Resident memory for each connection: opened and idle; after one cached and one passed statement; after a "
            f"row of {LONG_BYTES:,} bytes. «direct»: the proportional set size of PostgreSQL's backends, which every "
            "proxy's upstream connections cost on top."
        )
        parts.append("## Memory of open connections\n\n" + about + "\n\n" + memory(run["idle"]))
    return "\n\n".join(parts) + "\n"
