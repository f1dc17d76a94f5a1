"""What an open connection costs in memory: resident bytes of a server before and after a thousand were opened.

Four times: when they have logged in and said nothing; after each has run a statement that the cache answers and one
that passes; after each has received one long row; and when all have left. Each server is started anew for this, since
what an allocator once had it may keep.
"""

import re
import time
from functools import partial

import figures
from load import HOT_ROWS, NEVER_CACHED, POINT
from servers import Freshet, HAProxy, PgBouncer, started
from wire import Client

CACHED = POINT.replace(":id", "1")
PASSED = NEVER_CACHED.replace(":id", str(HOT_ROWS))
LONG_BYTES = 300_000
LONG = f"SELECT repeat('x', {LONG_BYTES}) WHERE now() IS NOT NULL"
SETTLE_SECONDS = 0.3
WARM_SECONDS_MAX = 20
SAMPLED_BACKENDS = 50


def makers(directory, postgres, options, certificate):
    """(server, whether its clients use TLS)"""
    sizes = {"max_client_conn": options.idle + 50, "default_pool_size": options.idle + 50}
    ways = [
        (partial(Freshet, directory, options.freshet, postgres), False),
        (partial(PgBouncer, directory, postgres, **sizes), False),
        (partial(HAProxy, directory, postgres), False),
    ]
    if certificate:
        cert, key, own_key = certificate
        flags = ("--tls-cert", cert, "--tls-key", own_key)
        tls = partial(Freshet, directory, options.freshet, postgres, options=flags)
        bouncer = partial(
            PgBouncer, directory, postgres, client_tls_sslmode="require", client_tls_cert_file=cert,
            client_tls_key_file=key, **sizes,
        )
        ways += [
            (partial(tls, target="freshet, TLS"), True),
            (partial(tls, target="freshet, TLS on both sides", sslmode="require"), True),
            (partial(bouncer, target="pgbouncer, TLS"), True),
        ]
    return ways


def measure(postgres, directory, options, certificate, running, skipped):
    """[one row for each server]; the last is the database's own backends."""
    rows = []
    for make, tls in makers(directory, postgres, options, certificate):
        with started(running, [make], skipped) as ready:
            for server in ready:
                if server.metrics_url:
                    warm(server, tls)
                rows.append(measure_one(server, tls, options.idle, lambda: figures.resident_bytes(server.pid)))
                if server.metrics_url:
                    rows[-1]["hits"] = figures.counters(server.metrics_url)["freshet_hits_total"]
        settle(postgres)
    rows.append(measure_one(postgres, False, options.idle, lambda: backends_bytes(postgres)))
    return rows


def warm(server, tls):
    """Asks until the cache answers."""
    deadline = time.monotonic() + WARM_SECONDS_MAX
    client = Client(server.port, tls=tls)
    while not figures.counters(server.metrics_url)["freshet_hits_total"] and time.monotonic() < deadline:
        client.rows(CACHED)
        time.sleep(0.01)
    client.close()
    time.sleep(SETTLE_SECONDS)


def measure_one(server, tls, count, size):
    row = {"target": server.target, "connections": count, "bytes": {"before": size()}}
    clients = []

    def note(name):
        time.sleep(SETTLE_SECONDS)
        row["bytes"][name] = size()

    try:
        clients.extend(Client(server.port, tls=tls) for _ in range(count))
        note("opened")
        for statement in (CACHED, PASSED):
            for client in clients:
                client.rows(statement)
        note("used")
        for client in clients:
            client.rows(LONG)
        note("long")
    except (OSError, RuntimeError) as error:
        row["failed"] = f"{type(error).__name__}: {error}".strip()
    finally:
        for client in clients:
            client.close()
    time.sleep(SETTLE_SECONDS)
    note("closed")
    return row


def backends_bytes(postgres):
    """Memory of all of the server's client backends: proportional sizes of a sample, times their number."""
    backends = [pid for pid in figures.family(postgres.pid) if is_backend(pid)]
    sizes = [figures.proportional_bytes(pid) for pid in backends[-SAMPLED_BACKENDS:]]
    return sum(sizes) / len(sizes) * len(backends) if sizes else 0


def is_backend(pid):
    """A process that serves a client over TCP, by its title."""
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return re.search(r"\d+\.\d+\.\d+\.\d+\(\d+\)", file.read()) is not None
    except OSError:
        return False


def settle(postgres, seconds=10):
    """Waits until the backends of the last server have ended."""
    deadline = time.monotonic() + seconds
    while sum(map(is_backend, figures.family(postgres.pid))) > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
