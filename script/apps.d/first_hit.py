"""How many round trips to the database a new session waits for until its first answer from the cache.

They are counted, not timed, so that other load on the machine does not change them: see relay.py. Direct, the round trips up to the first
read are those of the login and of what the application sends first. A session through Freshet has as many, if Freshet adds none; what it
has more, until a read is answered from the cache, is the price of the first hit. The read itself would cost one direct.
"""

import contextlib

import figures

TIMES, READS_MAX = 40, 10


def first_hit(app, direct, through, freshet):
    """Round trips of the first hit, and of the read after it; `direct` and `through` are the relays."""
    before_read = _mean(_direct(app, direct) for _ in range(TIMES))
    for _ in range(3):
        _through(app, through, freshet)
    sessions = [_through(app, through, freshet) for _ in range(TIMES)]
    first, after, reads = (_mean(session[number] for session in sessions) for number in range(3))
    return {"direct": before_read, "round_trips": first - before_read, "next": after - first, "reads": reads}


def _mean(values):
    values = list(values)
    return sum(values) / len(values)


@contextlib.contextmanager
def _session(app, port):
    with contextlib.closing(app.connect(port)) as connection, connection.cursor() as cursor:
        for statement in app.login_statements:
            cursor.execute(statement)
        yield cursor


def _direct(app, relay):
    with _session(app, relay.port) as cursor:
        turns = relay.counts()["turns"]
        _read(app, cursor)
        return turns


def _through(app, relay, freshet):
    """Round trips of a session up to its first hit and up to its next read's answer; the number of reads up to the first hit."""
    with _session(app, freshet.port) as cursor:
        for reads in range(1, READS_MAX + 1):
            hits = _hits(freshet)
            _read(app, cursor)
            if _hits(freshet) > hits:
                first = relay.counts()["turns"]
                _read(app, cursor)
                return first, relay.counts()["turns"], reads
    raise RuntimeError(f"{app.name}: no hit of {app.first_read} in {READS_MAX} reads")


def _read(app, cursor):
    cursor.execute(app.first_read)
    cursor.fetchall()


def _hits(freshet):
    return figures.counters(freshet.metrics_url)["freshet_hits_total"]
