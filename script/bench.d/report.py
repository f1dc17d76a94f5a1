"""The tables: Markdown for people, JSON for programs."""

import json
import os
import platform
import subprocess
from pathlib import Path

import measure


def machine():
    model = "unknown"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) // 1024 // 1024
    return {
        "cores": len(os.sched_getaffinity(0)), "processor": model, "memory_gib": memory, "kernel": platform.release(),
        "load_average_at_start": os.getloadavg()[0],
    }


def versions(postgres, freshet, tools):
    def first_line(*command):
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        lines = done.stdout.strip().splitlines()
        return lines[0].removeprefix(f"{Path(command[0]).name} ") if lines else "unknown"

    found = {"postgresql": postgres.sql("SHOW server_version"), "freshet": first_line(freshet.binary, "--version")}
    return found | {tool.name: first_line(tool.binary, "--version") for tool in tools}


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(value) for value in row) + " |" for row in rows])


def number(value, digits=2):
    return "" if value is None else f"{value:,.{digits}f}"


HEADER = [
    "protocol", "conn.", "target", "transactions/s", "× direct", "avg ms", "p95 ms", "PostgreSQL µs/query",
    "proxy µs/query", "client µs/query", "hit ratio", "fills",
]


def workload_table(cells, statements):
    rows = []
    for cell in cells:
        direct = measure.summary(cell, "direct", statements)
        for target, result in cell["targets"].items():
            row = measure.summary(cell, target, statements)
            if row is None:
                failure = f"failed: {result['failed'].splitlines()[-1][:80]}"
                rows.append([cell["protocol"], cell["clients"], target, failure] + [""] * 8)
                continue
            ratio = "" if target == "direct" or not direct else f"{row['tps'] / direct['tps']:.2f}"
            cached = "hits" in row
            rows.append([
                cell["protocol"], cell["clients"], target,
                f"{row['tps']:,.0f} ({row['tps_min']:,.0f}–{row['tps_max']:,.0f})", ratio,
                number(row["average_ms"], 3), number(row["p95_ms"], 3), number(row["postgres_us"], 1),
                "" if target == "direct" else number(row["proxy_us"], 1), number(row["client_us"], 1),
                f"{row['hit_ratio']:.2%}" if cached else "", f"{row['fills']:,.0f}" if cached else "",
            ])
    return table(HEADER, rows)


def _pick(cells, workload, protocol, tool="pgbench", clients=16):
    chosen = [c for c in cells if (c["workload"], c["protocol"], c["tool"]) == (workload, protocol, tool)]
    exact = [c for c in chosen if c["clients"] == clients]
    return (exact or chosen or [None])[0]


def aims(cells):
    """[(aim, measured, reached)] at 16 connections."""
    found = []
    hits = (("pgbench", "point-select", 1), ("sysbench", "point-select", 1), ("pgbench", "title-5", 5))
    for tool, workload, statements in hits:
        for protocol in ("text", "prepared"):
            cell = _pick(cells, workload, protocol, tool)
            row = cell and measure.summary(cell, "freshet", statements)
            if row:
                note = "" if row["hit_ratio"] > 0.99 else f" at a hit ratio of {row['hit_ratio']:.1%}"
                reached = row["proxy_us"] < 15 and row["hit_ratio"] > 0.99
                what = f"a hit below 15 µs: {workload}, {protocol}, {tool}"
                found.append((what, f"{row['proxy_us']:.1f} µs{note}", reached))
    for protocol, aim in (("text", 4), ("prepared", 2)):
        for cell in (c for c in cells if c["workload"] == "title-5" and c["protocol"] == protocol):
            direct, through = measure.summary(cell, "direct", 5), measure.summary(cell, "freshet", 5)
            if direct and through:
                ratio = through["tps"] / direct["tps"]
                what = f"title-5, {protocol}, {cell['clients']} connections: at least {aim} times direct"
                found.append((what, f"{ratio:.2f}", ratio >= aim))
    for protocol in ("text", "prepared"):
        cell = _pick(cells, "never-cached", protocol)
        direct = cell and measure.summary(cell, "direct", 1)
        through = cell and measure.summary(cell, "freshet", 1)
        if direct and through:
            added = through["postgres_us"] - direct["postgres_us"]
            measured = f"{through['proxy_us']:.1f} µs (and PostgreSQL {added:+.1f} µs)"
            found.append((f"pass-through at most 25 µs: {protocol}", measured, through["proxy_us"] <= 25))
    return found


def miss_cost(cells):
    """What a statement costs that finds nothing in the cache: as a fill, and as one that is never cached."""
    rows = []
    for protocol in ("text", "prepared"):
        for workload, kind in (("miss", "fill"), ("miss-uncached", "passed")):
            cell = _pick(cells, workload, protocol)
            direct = cell and measure.summary(cell, "direct", 1)
            through = cell and measure.summary(cell, "freshet", 1)
            if direct and through:
                added = through["postgres_us"] - direct["postgres_us"]
                total = (through["postgres_us"] + through["proxy_us"]) / direct["postgres_us"]
                rows.append([
                    protocol, kind, number(direct["postgres_us"], 1), f"{added:+.1f}", f"{through['proxy_us']:+.1f}",
                    f"{total:.2f}", number(direct["average_ms"], 3), number(through["average_ms"], 3),
                ])
    header = ["protocol", "", "PostgreSQL direct µs", "PostgreSQL more", "Freshet", "× direct"]
    header += ["direct avg ms", "through avg ms"]
    return table(header, rows) if rows else None


def evictions(result):
    samples = result["samples"]["samples"]
    new = [s["new_us"] for s in samples]
    old = [s["old_us"] for s in samples if s["old_us"] is not None]
    stale = [value for value in old if value > 0]
    rows = []
    for what, values in (("first answer with the new value", new), ("last question answered with the old value", old)):
        figures = (measure.percentile(values, 50), measure.percentile(values, 95), max(values, default=None))
        before = sum(value <= 0 for value in values)
        rows.append([what, len(values), *(number(figure, 0) for figure in figures), before])
    text = table(["µs after the commit's acknowledgement", "samples", "median", "p95", "largest", "before it"], rows)
    went_back = result["samples"]["went_back"]
    return text + (
        f"\n\nAfter {len(stale)} of {len(old)} commits a reader asked after the acknowledgement and still got the old "
        f"value from the cache. Values overtaken by a later commit: {result['samples']['unseen']}. "
        f"Answers older than an earlier one: {went_back}. Reads: {result['reads']:,} ({result['hits']:,.0f} hits)."
    )


def preamble(run):
    """Lines on the machine, the versions and the rounds."""
    machine_row = run["machine"]
    settings = ", ".join(f"{name}={value}" for name, value in run["postgres_settings"].items() if "file" not in name)
    others = run["others_cores"]
    quiet = "" if others is None else f"; other processes took at most {others:.2f} cores in any round"
    return [
        f"- Machine: {machine_row['cores']} cores, {machine_row['processor']}, {machine_row['memory_gib']} GiB, "
        f"Linux {machine_row['kernel']}; load average at the start {machine_row['load_average_at_start']:.2f}{quiet}"
        + (" (**not a quiet machine**)" if others and others > 0.2 else ""),
        "- Versions: " + ", ".join(f"{name} {value}" for name, value in run["versions"].items()),
        f"- PostgreSQL: {settings}",
        f"- Rounds: {run['rounds']} of {run['seconds']} s for each target",
    ]


def markdown(run):
    """The whole report."""
    parts = [f"# First slice: measurements\n\nCommand: `{run['command']}`. "
             "All targets in one run, in short rounds that take turns; load program and servers share the cores."]
    parts.append("\n".join(
        preamble(run)
        + [f"- Data: {run['titles']:,} titles, {run['once']:,} rows read once, 10,000 rows for the point selects"]
        + ["- µs/query: user and system time of the server's processes from /proc, less what connecting and the "
           "first transaction cost; transactions/s: mean and the range over the rounds; p95 of pgbench from 1 in 20"]
        + [f"- Answers of title-5 through Freshet compared with the database's: {count}, wrong: {wrong}"
           for count, wrong in ([run["answers"]] if run["answers"] else [])]
        + [f"- Not measured: {reason}" for reason in run["skipped"]]
    ))
    parts.append("## Aims\n\n" + table(["aim", "measured", "reached"], [
        [what, value, "yes" if reached else "**no**"] for what, value, reached in run["aims"]]))
    titles = {
        ("title-5", "pgbench"): ("title-5 (pgbench; five SELECTs a transaction)", 5),
        ("point-select", "pgbench"): ("point-select (pgbench)", 1),
        ("point-select", "sysbench"): ("point-select (sysbench oltp_point_select)", 1),
        ("never-cached", "pgbench"): ("Pass-through: the point select AND now() IS NOT NULL, which is never cached", 1),
        ("miss", "pgbench"): ("Miss: every key asked for once", 1),
        ("miss-uncached", "pgbench"): ("The same keys in a statement that is never cached", 1),
    }
    for (workload, tool), (title, statements) in titles.items():
        cells = [c for c in run["cells"] if (c["workload"], c["tool"]) == (workload, tool)]
        if cells:
            parts.append(f"## {title}\n\n{workload_table(cells, statements)}")
    misses = miss_cost(run["cells"])
    if misses:
        parts.append("## What a miss costs (processor time per query)\n\n" + misses)
    if run.get("eviction"):
        parts.append("## Commit to eviction\n\n" + evictions(run["eviction"]))
    if run.get("syscalls"):
        title = "## System calls of Freshet per statement (4 connections, under strace)"
        parts.append(f"{title}\n\n{syscall_table(run['syscalls'])}")
    return "\n\n".join(parts) + "\n"


KINDS = {"title-5": "hit (title-5)", "never-cached": "passed", "miss": "fill"}


def syscall_table(counted):
    most = {}
    for one in counted:
        for name, calls in one["calls"].items():
            most[name] = max(most.get(name, 0), calls)
    names = sorted(most, key=most.get, reverse=True)
    rows = []
    for name in names:
        each = [one["calls"].get(name, 0) / max(1, one["statements"]) for one in counted]
        if max(each) >= 0.01:
            rows.append([name] + [f"{value:.3f}" for value in each])
    return table(["call"] + [f"{KINDS[one['workload']]}, {one['protocol']}" for one in counted], rows)


def rounded(value):
    """Times to a tenth of a microsecond: samples by the thousand need no more."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, (list, tuple)) else value


def write(run, text, output):
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".md").write_text(text)
    lines = [f"{json.dumps(name)}: {json.dumps(rounded(value), default=str)}" for name, value in run.items()]
    output.with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
