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


def versions(postgres, freshet, tools=()):
    def first_line(*command):
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        lines = done.stdout.strip().splitlines()
        return lines[0].removeprefix(f"{Path(command[0]).name} ") if lines else "unknown"

    found = {"postgresql": postgres.sql("SHOW server_version"), "freshet": first_line(freshet, "--version")}
    return found | {tool.name: first_line(tool.binary, "--version") for tool in tools}


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(value) for value in row) + " |" for row in rows])


def number(value, digits=2):
    return "" if value is None else f"{value:,.{digits}f}"


def _pick(cells, workload, protocol, tool="pgbench", clients=16):
    chosen = [c for c in cells if (c["workload"], c["protocol"], c["tool"]) == (workload, protocol, tool)]
    exact = [c for c in chosen if c["clients"] == clients]
    return (exact or chosen or [None])[0]


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
