"""How long a new session waits for its first answer from the cache, in round trips to the database."""

import contextlib
import statistics
import time

TIMES = 40


def first_hit(app, direct_port, through_port):
    """Median time of the first read of a session less that of its second one, over what a round trip takes."""
    round_trip = statistics.median(_session(app, direct_port)[1] for _ in range(TIMES))
    for _ in range(3):
        _session(app, through_port)
    times = [_session(app, through_port) for _ in range(TIMES)]
    first, second = (statistics.median(time[number] for time in times) for number in (0, 1))
    return {"round_trip_ms": round_trip * 1000, "round_trips": first / round_trip, "next": second / round_trip}


def _session(app, port):
    """Seconds of the first and the second read of a new session, what the application sends first not counted."""
    with contextlib.closing(app.connect(port)) as connection, connection.cursor() as cursor:
        for statement in app.login_statements:
            cursor.execute(statement)
        times = []
        for _ in range(2):
            started = time.perf_counter()
            cursor.execute(app.first_read)
            cursor.fetchall()
            times.append(time.perf_counter() - started)
        return times
