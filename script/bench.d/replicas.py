"""A primary and a streaming standby behind nothing, a balancer, and Freshet with its cache, with reads at the standby, and with both: sysbench's OLTP
scripts, read-write and read-only. Each test is one round. The tables are in memory, and everything runs on this machine.

Statements are sent as text, each in a transaction of its own, as splitters of reads and writes need them.
"""

import re
import shutil
import statistics
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import report
import servers
from measure import say

TABLES, ROWS = 8, 20_000
SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "top", "hot_standby_feedback": "on"}
# Every so many seconds a row of what is shown over time.
STEP = 5
TESTS = {
    "primary-rw": "one server",
    "cache-rw": "Freshet, cache only",
    "route-rw": "Freshet, routing only",
    "both-rw": "Freshet, both",
    "primary-ro": "one server",
    "haproxy-ro": "HAProxy over both servers",
    "cache-ro": "Freshet, cache only",
    "route-ro": "Freshet, routing only",
    "both-ro": "Freshet, both",
}
SCRIPTS = {"rw": "oltp_read_write", "ro": "oltp_read_only"}
LAG = """SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), 0)::bigint,
    coalesce(max(extract(epoch from replay_lag)) * 1000, 0)::numeric(20, 1),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') - 1
FROM pg_stat_replication WHERE application_name = 'walreceiver'"""
STATEMENTS = "SELECT calls, regexp_replace(query, '\\s+', ' ', 'g') FROM pg_stat_statements WHERE query LIKE '%sbtest%'"


class Standby(servers.Postgres):
    """A copy of a server that streams from it."""

    target = "standby"

    def __init__(self, directory, primary):
        super().__init__(directory)
        self.primary = primary

    def start(self):
        account, data = servers.server_account(), self.directory / "standby"
        data.mkdir(mode=0o700)
        if account:
            shutil.chown(data, account["user"], account["group"])
        source = ["-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "postgres"]
        subprocess.run(
            [servers.POSTGRES_BIN / "pg_basebackup", "-R", "-X", "stream", "-c", "fast", "-D", data, *source],
            check=True, cwd="/", stderr=subprocess.DEVNULL, **account,
        )
        with open(data / "postgresql.conf", "a") as file:
            file.write(f"port = '{self.port}'\nunix_socket_directories = '{data}'\n")
        self.spawn([servers.POSTGRES_BIN / "postgres", "-D", data], cwd="/", **account)
        self.wait_ready(lambda: self.psql("SELECT pg_is_in_recovery()").stdout.strip() == "t")

    def psql(self, text):
        command = [servers.POSTGRES_BIN / "psql", "-XqAt", "-U", "postgres", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(
            [*command, "-c", text, "postgres"], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )


class Balancer(servers.HAProxy):
    """Connections in turns over both servers."""

    def __init__(self, directory, primary, standby):
        super().__init__(directory, primary)
        self.standby = standby

    def start(self):
        file = self._file("cfg")
        file.write_text(
            f"global\n  nbthread {self.threads}\n  maxconn 4000\n"
            "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n"
            f"listen postgres\n  bind 127.0.0.1:{self.port}\n  balance roundrobin\n"
            f"  server primary 127.0.0.1:{self.upstream.port}\n  server standby 127.0.0.1:{self.standby.port}\n"
        )
        self.spawn([self.binary, "-db", "-f", file], cwd="/", **servers.server_account())
        self.wait_ready(self.accepts)


def freshet(options, directory, primary, standby, kind):
    """`kind`: cache, route or both."""
    more = ["--auth", "trust", "--pool", "transaction"]
    if kind != "cache":
        more += ["--read-replicas", "--primary-weight", "1"]
    if kind == "route":
        file = Path(directory) / "never.toml"
        file.write_text('[[rule]]\nquery = "^select"\ncache = "never"\n')
        more += ["--config", file]
    server = servers.Freshet(directory, options.freshet, primary, target=f"freshet {kind}", options=more)
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    server.upstream = f"postgres://postgres@{hosts}/postgres?target_session_attrs=primary&sslmode=disable"
    return server


class Samples(threading.Thread):
    """Once a second: the standby's lag, connections to the primary, and Freshet's counters."""

    def __init__(self, primary, server):
        super().__init__(daemon=True)
        self.primary, self.server, self.rows, self.ended = primary, server, [], threading.Event()

    def run(self):
        begin = time.monotonic()
        while not self.ended.wait(max(0.0, begin + len(self.rows) + 1 - time.monotonic())):
            lag, late, connections = self.primary.sql(LAG).split("|")
            row = {"lag_bytes": int(lag), "lag_ms": float(late), "connections": int(connections)}
            self.rows.append(row | {"at": time.monotonic() - begin} | counters(self.server))

    def end(self):
        self.ended.set()
        self.join()
        return self.rows


def counters(server):
    """Freshet's hits, and statements that it has sent on."""
    if not server.metrics_url:
        return {}
    with urllib.request.urlopen(server.metrics_url, timeout=10) as answer:
        text = answer.read().decode()

    def total(name):
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? ([\d.e+]+)$", text, re.MULTILINE))

    names = {
        "hits": "freshet_hits_total", "passes": "freshet_passed_total", "fills": "freshet_fills_total",
        "lagging": "freshet_replica_reads_lagging_total", "behind": "freshet_replica_reads_behind_total",
    }
    return {key: total(name) for key, name in names.items()}


def sysbench(tool, port, script, action, threads, seconds=0):
    command = [
        tool, SCRIPTS[script], "--db-driver=pgsql", "--pgsql-host=127.0.0.1", f"--pgsql-port={port}", "--pgsql-user=postgres",
        "--pgsql-password=", "--pgsql-db=postgres", f"--tables={TABLES}", f"--table-size={ROWS}", "--db-ps-mode=disable",
        "--skip-trx=on", "--percentile=95", f"--threads={threads}", "--report-interval=1", f"--time={seconds}",
        action,
    ]
    return subprocess.Popen(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process):
    text, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"sysbench failed:\n{text[-2000:]}")
    return text


def by_statement(server):
    """Executions of each statement, over all tables alike."""
    counts = {}
    for line in server.sql(STATEMENTS).splitlines():
        calls, _, text = line.partition("|")
        text = re.sub(r"sbtest\d+", "sbtest", text)
        counts[text] = counts.get(text, 0) + int(calls)
    return counts


def run_test(tool, name, server, primary, standby, options):
    script, threads = name.rsplit("-", 1)[1], options.clients[0]
    finish(sysbench(tool, server.port, script, "run", threads, options.warm_up))
    primary.sql("SELECT pg_stat_statements_reset()")
    standby.psql("SELECT pg_stat_statements_reset()")
    samples, before = Samples(primary, server), counters(server)
    process = sysbench(tool, server.port, script, "run", threads, options.seconds)
    samples.start()
    text = finish(process)
    rows, after = samples.end(), counters(server)
    rates = [float(rate) for rate in re.findall(r"\bqps: ([\d.]+)", text)]
    result = {
        "rates": rates,
        "queries": int(re.search(r"total:\s+(\d+)", text).group(1)),
        "qps": float(re.search(r"queries:\s+\d+\s+\(([\d.]+) per sec", text).group(1)),
        "p95_ms": float(re.search(r"95th percentile:\s+([\d.]+)", text).group(1)),
        "statements": {"primary": by_statement(primary), "standby": by_statement(standby)},
        "counters": {key: after[key] - before[key] for key in after},
        "samples": rows,
    }
    caught_up(primary)
    return result


def caught_up(primary):
    """The next test begins without this one's lag."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and int(primary.sql(LAG).split("|")[0]) > 0:
        time.sleep(0.2)


def measure(options, directory, running):
    """Starts the servers (added to `running`) and runs every test."""
    machine, skipped = report.machine(), []
    tool = servers.find("sysbench", "SYSBENCH_BIN")
    options.warm_up = 2 if options.quick else STEP
    primary = servers.Postgres(Path(directory), settings=SETTINGS)
    primary.target = "primary"
    running.append(primary)
    say("bench: starting the primary and loading the tables")
    primary.start()
    primary.sql("CREATE EXTENSION pg_stat_statements")
    finish(sysbench(tool, primary.port, "rw", "prepare", 2))
    primary.sql("VACUUM ANALYZE; CHECKPOINT")
    standby = Standby(Path(directory), primary)
    running.append(standby)
    standby.start()
    results = {}
    for name in TESTS:
        if options.only and name not in options.only:
            continue
        kind = name.split("-")[0]
        makers = {
            "primary": lambda: None,
            "haproxy": lambda: Balancer(directory, primary, standby),
        }
        make = makers.get(kind, lambda kind=kind: freshet(options, directory, primary, standby, kind))
        if kind == "primary":
            results[name] = run_test(tool, name, primary, primary, standby, options)
        else:
            with servers.started(running, [make], skipped) as ready:
                if ready:
                    results[name] = run_test(tool, name, ready[0], primary, standby, options)
        if name in results:
            say(f"  {name:<11} {results[name]['qps']:>9,.0f} queries/s")
    versions = report.versions(primary, options.freshet)
    versions["sysbench"] = subprocess.run([tool, "--version"], text=True, stdout=subprocess.PIPE, check=True).stdout.split()[1]
    return {
        "machine": machine, "versions": versions, "rounds": 1, "seconds": options.seconds,
        "postgres_settings": servers.POSTGRES_SETTINGS | SETTINGS, "others_cores": None, "date": time.strftime("%Y-%m-%d"),
        "clients": options.clients[0], "tests": results, "skipped": skipped,
    }


def throughput(tests):
    rows = []
    for name, test in tests.items():
        alone = tests.get(f"primary-{name.rsplit('-', 1)[1]}")
        ratio = f"{test['qps'] / alone['qps']:.2f}" if alone else ""
        low, high = (report.number(edge(test["rates"]), 0) for edge in (min, max))
        rows.append([
            name, TESTS[name], report.number(test["qps"], 0), ratio, f"{low} to {high}", report.number(test["p95_ms"], 1),
            report.number(statistics.median(row["connections"] for row in test["samples"]), 0),
        ])
    header = ["test", "", "queries/s", "× primary alone", "of a second", "p95 of 18 or 14 queries, ms", "connections at the primary"]
    return report.table(header, rows)


def shares(tests):
    rows = []
    for name, test in tests.items():
        counts = {server: sum(statements.values()) for server, statements in test["statements"].items()}
        counts["cache"] = test["counters"].get("hits", 0)
        whole = sum(counts.values()) or 1
        seconds = test["queries"] / test["qps"]
        rates = [test["counters"].get(key) for key in ("hits", "fills", "passes", "lagging", "behind")]
        per_second = [report.number(rate / seconds, 0) if rate is not None else "" for rate in rates]
        rows.append([name, *(f"{100 * counts[server] / whole:.1f}%" for server in ("primary", "standby", "cache")), *per_second])
    header = ["test", "primary", "standby", "cache", "hits/s", "fills/s", "passes/s", "standby's though it lagged/s", "standby was behind/s"]
    return report.table(header, rows)


def by_digest(tests):
    rows = []
    for name, test in tests.items():
        texts = {text for statements in test["statements"].values() for text in statements}
        counts = {text: [statements.get(text, 0) for statements in test["statements"].values()] for text in texts}
        whole = sum(map(sum, counts.values())) or 1
        for text in sorted(texts, key=lambda text: -sum(counts[text])):
            if sum(counts[text]) * 200 >= whole:
                rows.append([name, f"`{text}`", *(f"{100 * count / whole:.1f}%" for count in counts[text])])
    return report.table(["test", "statement", "primary", "standby"], rows)


def over_time(tests):
    def each(test, value):
        samples = test["samples"][STEP - 1::STEP] or test["samples"][-1:]
        return " ".join(value(row) for row in samples)

    def per_second(test, key):
        values, samples = [], test["samples"]
        for at in range(STEP, len(samples), STEP):
            first, last = samples[at - STEP], samples[at]
            values.append(report.number((last[key] - first[key]) / (last["at"] - first["at"]), 0))
        return " ".join(values)

    rows = []
    for name, test in tests.items():
        rates = [statistics.mean(test["rates"][at:at + STEP]) for at in range(0, len(test["rates"]), STEP)]
        has_counters = bool(test["counters"])
        rows.append([
            name, " ".join(report.number(rate, 0) for rate in rates),
            each(test, lambda row: report.number(row["lag_bytes"] / 2**20, 1)), each(test, lambda row: report.number(row["lag_ms"], 0)),
            per_second(test, "hits") if has_counters else "", per_second(test, "passes") if has_counters else "",
        ])
    header = ["test", "queries/s", "lag, MiB", "lag, ms", "hits/s", "passes/s"]
    return report.table(header, rows)


def markdown(run):
    """The whole report."""
    tests = run["tests"]
    lines = report.preamble(run) + [
        f"- Date: {run['date']}",
        f"- sysbench's oltp_read_write (rw) and oltp_read_only (ro): {run['clients']} connections, {TABLES} tables of {ROWS:,} rows, in memory, keys by "
        "sysbench's default distribution, no transactions, statements as text. Client, proxies and both servers share the cores",
        "- Freshet: `pool = \"transaction\"`; cache: the standby is not read; route: nothing is cached, reads go to both servers "
        "(`read_replicas`, `primary_weight = 1`); both: what is not cached goes to both servers",
        *(f"- Left out: {reason}" for reason in run["skipped"]),
    ]
    head = f"# Reads at a standby: workload W3\n\nCommand: `{run['command']}`."
    return "\n\n".join([
        head, "\n".join(lines),
        "## Throughput", throughput(tests),
        "## Queries by server", "Executions at the servers (`pg_stat_statements`), and hits.", shares(tests),
        "## Queries by statement", "Shares of the executions at the servers; statements with less than 0.5% are left out.", by_digest(tests),
        "## Over time", f"Means or values of every {STEP} seconds.", over_time(tests),
    ]) + "\n"
