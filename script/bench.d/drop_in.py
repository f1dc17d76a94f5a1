"""What it costs to put Freshet in between where the cache is of no help, beside PgBouncer and HAProxy in one run:
statements that only pass, logins, and connections that are only open."""

import os
import resource
import shutil
import subprocess
from functools import partial
from pathlib import Path

import drop_in_report
import figures
import idle
import logins
import report
import schema
import servers
from load import HOT_ROWS, Pgbench
from measure import Bench, say, summary, syscalls

PARTS = ("pass", "syscalls", "login", "idle")
PROTOCOLS = ("text", "prepared")
COUNTED = (("never-cached", "text"), ("never-cached", "prepared"), ("hundred-rows", "text"), ("transaction", "text"))


def wanted(options, part):
    return options.only is None or part in options.only


def certificate(directory, skipped):
    """(certificate, key, Freshet's copy of the key), each key owned by who uses it; None without openssl."""
    cert, key = directory / "server.crt", directory / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    except OSError:
        skipped.append("TLS: openssl is not installed")
        return None
    own = directory / "freshet.key"
    shutil.copy(key, own)
    own.chmod(0o600)
    servers.keep_secret(key)
    return cert, key, own


def start_postgres(directory, options, running, tls):
    settings = {"max_connections": str(options.idle + 200), "max_wal_senders": "20", "max_replication_slots": "20"}
    if tls:
        settings |= {"ssl": "on", "ssl_cert_file": str(tls[0]), "ssl_key_file": str(tls[1])}
    hba = f"host all {logins.ROLE} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
    hba += "host replication all 127.0.0.1/32 trust\nlocal all all trust\n"
    postgres = servers.Postgres(directory, settings, hba)
    running.append(postgres)
    postgres.start()
    postgres.sql(schema.DROP_IN % {"rows": HOT_ROWS, "role": logins.ROLE, "password": logins.PASSWORD})
    return postgres


def passing(bench, pgbench, options):
    """Cells of statements that are only passed on."""
    cells = []
    for workload in drop_in_report.WORKLOADS:
        for clients in options.clients if workload == "never-cached" else options.clients[:1]:
            for protocol in PROTOCOLS:
                # PgBouncer 1.18 loses prepared statements between the transactions of its transaction mode.
                targets = [t for t in bench.targets if protocol == "text" or not t.target.endswith("transaction")]

                def run(target, each, workload=workload, protocol=protocol, clients=clients):
                    return pgbench.round(target.port, workload, protocol, clients, bench.seconds, each=each)

                cells.append(bench.cell(workload, "pgbench", protocol, clients, run, targets))
    return cells


def counted(bench, pgbench, skipped):
    """System calls of each proxy for each statement that it passes on."""
    say("  system calls")
    found = [
        syscalls(target, pgbench, workload, protocol)
        for workload, protocol in COUNTED for target in bench.targets[1:] if not target.target.endswith("transaction")
    ]
    if None in found:
        skipped.append("system calls: strace is not installed")
        return []
    return found


def through(postgres, pgbench, directory, options, running, skipped):
    """What statements cost that pass through each of the proxies: all of them stand at once and take turns."""
    makers = [
        partial(servers.Freshet, directory, options.freshet, postgres),
        partial(servers.PgBouncer, directory, postgres, target="pgbouncer session"),
        partial(servers.PgBouncer, directory, postgres, target="pgbouncer transaction", pool_mode="transaction"),
        partial(servers.HAProxy, directory, postgres),
    ]
    with servers.started(running, makers, skipped) as (freshet, *peers):
        bench = Bench(postgres, freshet, peers, options)
        found = {"versions": report.versions(postgres, freshet.binary, (pgbench,)) | peer_versions(peers)}
        if wanted(options, "pass"):
            say(f"bench: passing: {options.rounds} rounds of {options.seconds} s for each target")
            found["cells"] = passing(bench, pgbench, options)
        if wanted(options, "syscalls"):
            found["syscalls"] = counted(bench, pgbench, skipped)
        return found | {"passed_by_reason": figures.passed_reasons(freshet.metrics_url)}


def measure(options, directory, running):
    """Starts the servers (each is added to `running`) and measures everything."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for the open connections; the servers inherit it
    run = {"rounds": options.rounds, "seconds": options.seconds, "machine": report.machine()}
    skipped, directory = [], Path(directory)
    tls = certificate(directory, skipped)
    say("bench: starting PostgreSQL")
    postgres = start_postgres(directory, options, running, tls)
    run |= {"cells": [], "syscalls": [], "logins": [], "idle": [], "postgres_settings": postgres.settings}
    run |= through(postgres, Pgbench(directory), directory, options, running, skipped)
    if wanted(options, "login"):
        say("bench: logins")
        try:
            run["logins"] = logins.measure(postgres, directory, options, tls, running, skipped)
        except servers.Missing as missing:
            skipped.append(str(missing))
    if wanted(options, "idle"):
        say("bench: open connections")
        run["idle"] = idle.measure(postgres, directory, options, tls, running, skipped)
    run["skipped"] = list(dict.fromkeys(skipped))
    rows = [summary(cell, target, 1) for cell in run["cells"] for target in cell["targets"]]
    run["others_cores"] = max((row["others_cores"] for row in rows if row), default=None)
    return run


def peer_versions(peers):
    found = {}
    for peer in peers:
        option = "-v" if isinstance(peer, servers.HAProxy) else "--version"
        done = subprocess.run([peer.binary, option], text=True, capture_output=True, check=False)
        found[os.path.basename(peer.binary)] = " ".join(done.stdout.split("\n")[0].split()[1:3])
    return found


markdown = drop_in_report.markdown
