"""Logs in, asks one question and leaves, again and again: a child of logins.py, with nothing in it but libpq.

Each line of standard input is a job, {"conninfo": …, "count": …}; its answer is a line of JSON with the milliseconds
of each turn, this process's own processor time, and whether the client's connection and, as the server sees it, the
server's connection were encrypted.
"""

import json
import sys
import time

from psycopg import pq

QUESTION = b"SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


def turn(conninfo, question):
    connection = pq.PGconn.connect(conninfo)
    if connection.status != pq.ConnStatus.OK:
        raise RuntimeError(connection.get_error_message())
    result = connection.exec_(question)
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise RuntimeError(connection.get_error_message())
    seen = connection.ssl_in_use, result.get_value(0, 0)
    connection.finish()
    return seen


def work(job):
    conninfo = job["conninfo"].encode()
    if not job["count"]:
        encrypted, upstream = turn(conninfo, QUESTION)
        return {"client_tls": bool(encrypted), "database_tls": upstream == b"t"}
    taken, used = [], time.process_time()
    for _ in range(job["count"]):
        started = time.perf_counter()
        turn(conninfo, b"SELECT 1")
        taken.append((time.perf_counter() - started) * 1000)
    return {"ms": taken, "client_us": (time.process_time() - used) * 1_000_000}


def main():
    for line in sys.stdin:
        try:
            answer = work(json.loads(line))
        except RuntimeError as error:
            answer = {"error": str(error).strip()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
