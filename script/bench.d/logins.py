"""What a login costs: connect, log in, ask SELECT 1, leave; one after the other, and several at once.

The client is libpq (login_client.py), so that its share (with SCRAM, 4,096 rounds of a hash) is the same for every
target. Each way to log in is a leg; its targets take turns. The servers of a leg live for that leg alone.
"""

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import figures
from servers import Freshet, HAProxy, Missing, PgBouncer, keep_secret, started

ROLE, PASSWORD = "app", "no secret"
AUTH_QUERY = "SELECT usename, passwd FROM pg_shadow WHERE usename = $1"
AT_ONCE = 8
SETTLE_SECONDS_MAX = 1.0
# Client's account, client's sslmode, upstream's sslmode.
LEGS = {
    "trust": ("postgres", "disable", "disable"),
    "SCRAM": (ROLE, "disable", "disable"),
    "SCRAM, TLS to the client": (ROLE, "require", "disable"),
    "SCRAM, TLS on both sides": (ROLE, "require", "require"),
}


def python():
    """A Python that has psycopg: that of the tests' environment, or the one that runs this."""
    for candidate in (Path(__file__).resolve().parents[2] / ".testbed/venv/bin/python", sys.executable):
        try:
            subprocess.run([candidate, "-c", "import psycopg.pq"], check=True, capture_output=True)
            return candidate
        except (OSError, subprocess.CalledProcessError):
            continue
    raise Missing("logins: no Python here has psycopg: script/setup test")


class Clients:
    """The processes that log in."""

    def __init__(self):
        command = [python(), Path(__file__).with_name("login_client.py")]
        pipe = subprocess.PIPE
        # Sessions of their own: Ctrl-C reaches this script alone. They end with their standard input.
        self.processes = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
            for _ in range(AT_ONCE)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.stdin.close()
            process.wait()

    def run(self, conninfo, count, at_once=1):
        """Each of so many clients does so many turns (0: one, to look at it); their answers."""
        busy = self.processes[:at_once]
        for process in busy:
            process.stdin.write(json.dumps({"conninfo": conninfo, "count": count}) + "\n")
            process.stdin.flush()
        answers = [json.loads(process.stdout.readline() or '{"error": "the client is gone"}') for process in busy]
        for answer in answers:
            if "error" in answer:
                raise RuntimeError(answer["error"])
        return answers


def makers(leg, directory, postgres, options, files):
    """The servers that one leg goes through."""
    account, client, upstream = LEGS[leg]
    tls = ("--tls-cert", files["cert"], "--tls-key", files["own_key"]) if client == "require" else ()
    freshet = partial(Freshet, directory, options.freshet, postgres, sslmode=upstream)
    pooled = {"server_tls_sslmode": upstream, "client_tls_sslmode": client}
    if client == "require":
        pooled |= {"client_tls_key_file": files["key"], "client_tls_cert_file": files["cert"]}
    if account == "postgres":
        return [freshet, partial(PgBouncer, directory, postgres, **pooled), partial(HAProxy, directory, postgres)]
    bouncer = partial(PgBouncer, directory, postgres, account=None, auth_type="scram-sha-256", **pooled)
    ways = [
        partial(freshet, target="freshet, no source", options=tls),
        partial(freshet, target="freshet, users", options=(*tls, "--users", files["users"])),
        partial(freshet, target="freshet, auth-query", options=(*tls, "--auth-query", AUTH_QUERY)),
        partial(bouncer, target="pgbouncer, users", auth_file=files["users"]),
        partial(bouncer, target="pgbouncer, auth-query", auth_user="postgres", auth_file=files["services"]),
    ]
    return ways if client == "require" else [*ways, partial(HAProxy, directory, postgres)]


def files(directory, postgres, certificate):
    """The users files of Freshet and PgBouncer, and the certificate."""
    written = dict(zip(("cert", "key", "own_key"), certificate, strict=True)) if certificate else {}
    verifier = postgres.sql(f"SELECT passwd FROM pg_shadow WHERE usename = '{ROLE}'")
    for name, line in (("users", f'"{ROLE}" "{verifier}"\n'), ("services", '"postgres" ""\n')):
        written[name] = directory / f"{name}.txt"
        written[name].write_text(line)
        keep_secret(written[name])
    return written


def measure(postgres, directory, options, certificate, running, skipped):
    """[one row for each leg and target], with all that was seen."""
    written, rows = files(directory, postgres, certificate), []
    with Clients() as clients:
        for leg, (account, mode, _) in LEGS.items():
            if mode == "require" and not certificate:
                continue
            with started(running, makers(leg, directory, postgres, options, written), skipped) as servers:
                targets = [postgres, *servers]
                conninfo = {
                    target.target: f"host=127.0.0.1 port={target.port} user={account} password='{PASSWORD}' "
                    f"dbname=postgres sslmode={mode} gssencmode=disable" for target in targets
                }
                rows += measure_leg(postgres, clients, leg, targets, conninfo, options)
    return rows


def measure_leg(postgres, clients, leg, targets, conninfo, options):
    rows = {}
    for target in targets:
        row = {"leg": leg, "target": target.target, "one": [], "several": []}
        rows[target.target] = row
        try:
            # Every client once: whatever is opened or loaded once is there then.
            row |= clients.run(conninfo[target.target], 0, AT_ONCE)[0]
        except RuntimeError as error:
            row["failed"] = str(error)
    for _ in range(options.login_rounds):
        for target in targets:
            row = rows[target.target]
            try:
                if "failed" not in row:
                    row["one"].append(measured(postgres, clients, target, conninfo, options.logins, 1))
                    row["several"].append(
                        measured(postgres, clients, target, conninfo, max(1, options.logins // 4), AT_ONCE))
            except RuntimeError as error:
                row["failed"] = str(error)
    return list(rows.values())


def measured(postgres, clients, target, conninfo, count, at_once):
    """One round."""
    processes = settle(postgres, None)
    before = spent(postgres, target)
    started_at = time.monotonic()
    answers = clients.run(conninfo[target.target], count, at_once)
    seconds = time.monotonic() - started_at
    settle(postgres, processes)  # a backend's processor time is the postmaster's to tell once it has ended
    after = spent(postgres, target)
    logins = count * at_once
    each = {name: (after[name] - before[name]) / logins for name in before}
    each["client_us"] = sum(answer["client_us"] for answer in answers) / logins
    return {"logins": logins, "seconds": seconds, "ms": [ms for answer in answers for ms in answer["ms"]], **each}


def spent(postgres, target):
    values = {"postgres_us": figures.cpu_us(postgres.pid)}
    if target is not postgres:
        values["proxy_us"] = figures.clock_us(target.pid)
    return values


def settle(postgres, wanted):
    """Waits until no more processes of the server are there than wanted, or (None) until some time has not changed
    their number; that number."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    count = len(figures.family(postgres.pid))
    while time.monotonic() < deadline and (wanted is None or count > wanted):
        time.sleep(0.03)
        before, count = count, len(figures.family(postgres.pid))
        if wanted is None and count == before:
            break
    return count
